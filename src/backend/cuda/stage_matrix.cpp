// Products on matrix instructions: operands as packed words in the fragments of a warp, and the instructions on them.
//
//     u32 a[4][2], b[4][2];                                       // a tile of 32 x 32, 16 of the sum at a time
//     for f < 2: tw::load_matrices(a[2 f][0], a[2 f + 1][0], a[2 f][1], a[2 f + 1][1], s_a + ...)
//     for f < 4: tw::load_matrices(b[f][0], b[f][1], s_b + ...)
//     for i < 2, j < 4: tw::multiply_f16(sum[2 i][2 j], ..., a[2 i][0], ..., b[j][0], b[j][1])
//
// A factor is any expression; its values are rounded and packed. Where it is nothing but a tensor of halves in shared
// memory, rows of eight lie in it, along the sum or across it, and ldmatrix brings whole fragments.

#include <algorithm>

#include "backend/cuda/scalar_text.h"
#include "backend/cuda/stage_values.h"
#include "base/error.h"
#include "program/analysis/access.h"
#include "tile/matrix.h"

namespace tilewright::cuda {

namespace {

std::string join(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ", ")); }

}  // namespace

/// Along the sum, of what is multiplied at a time: a word holds one tf32, or two halves.
int64_t StageValues::words() const {
    const MatrixUnit& u = *job_.micro->matrix;
    return part_.registers[u.sum] / (u.type == MatrixType::TF32 ? 1 : 2);
}

/// The type as it lies in memory is what the instruction takes.
bool StageValues::takes_stored(DType storage) const {
    const MatrixType t = job_.micro->matrix->type;
    return (storage == DType::F16 && t == MatrixType::F16) || (storage == DType::BF16 && t == MatrixType::BF16);
}

/// Behind the end of the sum the factor is 0 by itself, in every tile that reaches there, and read as it stands.
bool StageValues::zero_behind_sum(ScalarId factor) const {
    const size_t sum = job_.micro->matrix->sum;
    const ScalarNode& n = e_.body[factor];
    if (n.op != ScalarOp::Access) return false;
    const Place& place = job_.accesses[n.slot];
    const AxisRange& r = job_.ranges[sum];
    const bool only_last = r.most.is_constant() && r.most.constant() % part_.span(sum) == 0;
    return only_last && sum < place.zero_behind.size() && place.zero_behind[sum] &&
           inside_filled(place, e_.accesses[n.slot].index);
}

void StageValues::multiply(const std::vector<Expr>& tile_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    if (u.group) return multiply_group(tile_begin);
    const auto factors = matrix_factors(e_, u);
    TW_CHECK(factors.has_value(), "a stage on a matrix unit is no product");
    const int64_t step = part_.span(u.sum);
    const Expr length = local_range(u.sum), most = job_.ranges[u.sum].most;
    Expr begin = 0;
    if (most.is_constant() && most.constant() <= step) {
        w_->open("");
    } else {
        const Expr k = v_.add(fmt::format("part_{}", axis_name(u.sum)), {Expr(0), ceil_div(most, step) - 1});
        w_->add("TW_UNROLL_BY(2)");
        w_->open(fmt::format("for ({0} {1} = 0; {2} < {3}; ++{1})", v_.type(k), v_.name(k), v_.text(k * step),
                             v_.text(length)));
        begin = k * step;
    }
    const Operand left = operand(factors->left, u.rows, true, tile_begin[u.rows], begin);
    // Columns of the right operand are distributed as the instruction requires.
    const auto held = held_;
    const auto result = std::tuple(raw_[u.columns], clamped_[u.columns], coordinate_[u.columns], overhang_,
                                   part_.registers[u.columns], part_.spread[u.columns]);
    const Operand right = operand(factors->right, u.columns, false, tile_begin[u.columns], begin);
    std::tie(raw_[u.columns], clamped_[u.columns], coordinate_[u.columns], overhang_, part_.registers[u.columns],
             part_.spread[u.columns]) = result;
    held_ = held;
    instructions(left, right);
    mask_ = result_mask_;
    overhang_ &= ~(Mask{1} << u.sum);
    w_->close();
}

StageValues::Operand StageValues::operand(ScalarId factor, size_t across, bool is_left, Expr across_begin,
                                          Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    Mask mask = 0;
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((result_mask_ >> a) & 1) != 0 && moves_along(e_, e_.body, factor, a)) mask |= Mask{1} << a;
    mask_ = mask;
    if (!is_left) {
        part_.registers[across] /= 2;
        part_.spread[across] = Spread::Right;
        spread_axis(across, across_begin, fmt::format("r_{}", axis_name(across)));
    }
    Operand out;
    std::vector<int64_t> shape = extents(mask_);
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((mask_ >> a) & 1) != 0) out.axes.push_back(a);
    spread_axis(u.sum, sum_begin, fmt::format("r_{}", axis_name(u.sum)));
    known_.clear();
    shape.push_back(words());
    out.words = v_.fresh(is_left ? "left" : "right");
    w_->add(array_declaration("u32", out.words, shape) + ";");
    const bool rest = ((overhang_ >> u.sum) & 1) != 0 && !zero_behind_sum(factor);
    const ScalarNode& node = e_.body[factor];
    if (node.op == ScalarOp::Access && !rest && load_matrices(node.slot, across, is_left, across_begin, sum_begin, out))
        return out;

    // Its numbers, element by element or by vectors.
    const std::string name = v_.fresh("x");
    const auto vector = node.op == ScalarOp::Access && !rest ? vector_load(node.slot, mask_) : std::nullopt;
    DType stored = DType::F32;
    if (vector) {
        stored = job_.accesses[node.slot].storage;
        w_->add(array_declaration(storage_type(stored), name, extents(mask_)) + ";");
        load_vectors(node.slot, mask_, *vector, name);
    } else {
        w_->add(array_declaration("float", name, extents(mask_)) + ";");
        evaluate(e_.body, {factor}, false, [&](const std::vector<std::string>& x) {
            const std::string at = name + coordinates(mask_);
            if (rest)
                w_->line("{} = {} < {} ? {} : 0.0f;", at, v_.text(raw_[u.sum]), v_.text(job_.ranges[u.sum].hi), x[0]);
            else
                w_->line("{} = {};", at, x[0]);
        });
    }
    const Mask others = mask_ & ~(Mask{1} << u.sum);
    open_loops(others);
    const std::string word = v_.fresh("word");
    w_->add("TW_UNROLL");
    w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", word, words()));
    const std::string from = name + coordinates(others),
                      to = fmt::format("{}{}[{}]", out.words, coordinates(others), word);
    const bool as_stored = vector && takes_stored(stored);
    const auto number = [&](const std::string& at) { return as_stored ? at : vector ? from_storage(stored, at) : at; };
    if (u.type == MatrixType::TF32)
        w_->line("{} = tw::tf32({});", to, number(fmt::format("{}[{}]", from, word)));
    else
        w_->line("{} = tw::{}pair({}, {});", to, as_stored ? "" : fmt::format("{}_", to_string(u.type)),
                 number(fmt::format("{}[2 * {}]", from, word)), number(fmt::format("{}[2 * {} + 1]", from, word)));
    w_->close();
    close_loops(others);
    return out;
}

/// Fragments by ldmatrix: each thread points at a row of eight halves.
bool StageValues::load_matrices(uint32_t slot, size_t across, bool is_left, Expr across_begin, Expr sum_begin,
                                const Operand& to) {
    const MatrixUnit& u = *job_.micro->matrix;
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    if (!place.shared || !takes_stored(place.storage) || !place.final.empty()) return false;
    if (!a.valid.empty() && !place.checked) return false;
    // Words along the sum that one instruction brings: two, of both halves of 16 rows; two or four of a column.
    const int64_t brings = is_left || words() % 4 != 0 ? 2 : 4;
    const Expr f =
        v_.add("f", {Expr(0), Expr(is_left ? part_.registers[across] / 2 - 1 : part_.registers[across] - 1)});
    const Expr g = v_.add("g", {Expr(0), Expr(words() / brings - 1)});
    const Expr inside = v_.add("inside", {Expr(0), Expr(7)});  // a row of eight
    Expr fragment = across_begin + f * (is_left ? matrix_rows(u) : kMatrixColumns);
    const Expr sum = sum_begin + g * (brings * 8);
    if (is_left && u.group) fragment += floor_div(lane_row_, 16) * 16;  // each of four warps has rows of its own
    for (const bool turned : {false, true}) {
        Expr across_at, sum_at;
        if (is_left) {  // rows 0 to 7, 8 to 15, then those of the second eight of the sum
            across_at = fragment + (turned ? mod(floor_div(lane_, 8), 2) * 8 + inside : mod(lane_, 16));
            sum_at = sum + floor_div(lane_, 16) * 8 + (turned ? mod(lane_, 8) : inside);
        } else {
            const Expr eights = brings == 4 ? floor_div(lane_, 8) : mod(floor_div(lane_, 8), 2);
            across_at = fragment + (turned ? inside : mod(lane_, 8));
            sum_at = sum + eights * 8 + (turned ? mod(lane_, 8) : inside);
        }
        std::vector<Expr> point = clamped_;
        bool all_there = true;
        for (const auto& [axis, local] : {std::pair(across, across_at), std::pair(u.sum, sum_at)}) {
            point[axis] = v_.simplified(job_.ranges[axis].lo + local);
            all_there = all_there && v_.nonnegative(local_range(axis) - 1 - local);
        }
        std::vector<Expr> index;
        bool in_box = place.filled;
        for (size_t d = 0; d < a.index.size(); ++d) {
            index.push_back(substitute_axes(a.index[d], point));
            if (!in_box) continue;
            const Expr at = v_.simplified(index[d] - place.origin[d]);
            in_box = v_.nonnegative(at) && v_.nonnegative(place.box[d] - 1 - at);
        }
        if (!all_there && !in_box) continue;
        const auto linear = linear_in(offset(place, index), var_of(inside));
        if (!linear || !linear->coefficient.is_constant(1) || Variables::multiple(v_.simplified(linear->rest)) % 8 != 0)
            continue;
        const Mask others = mask_ & ~(Mask{1} << across) & ~(Mask{1} << u.sum);
        open_loops(others);
        for (const Expr& i : {f, g}) {
            w_->add("TW_UNROLL");
            w_->open(fmt::format(
                "for (int {0} = 0; {0} < {1}; ++{0})", v_.name(i),
                i == f ? (is_left ? part_.registers[across] / 2 : part_.registers[across]) : words() / brings));
        }
        std::vector<std::string> targets;
        for (int64_t k = 0; k < (is_left ? 4 : brings); ++k) {
            std::string s = to.words;
            for (const size_t axis : to.axes)
                s += axis != across ? fmt::format("[{}]", v_.name(coordinate_[axis]))
                     : is_left      ? fmt::format("[2 * {} + {}]", v_.name(f), k % 2)
                                    : fmt::format("[{}]", v_.name(f));
            targets.push_back(s + fmt::format("[{} * {} + {}]", brings, v_.name(g), is_left ? k / 2 : k));
        }
        w_->line("tw::load_matrices{}({}, {} + {});", turned ? "_turned" : "", join(targets), place.object,
                 address(place, v_.simplified(linear->rest)));
        w_->close();
        w_->close();
        close_loops(others);
        return true;
    }
    return false;
}

std::optional<StageValues::Cores> StageValues::cores(ScalarId factor, size_t across, Expr across_begin, int64_t count,
                                                     Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    const ScalarNode& node = e_.body[factor];
    if (node.op != ScalarOp::Access) return std::nullopt;
    const Place& place = job_.accesses[node.slot];
    const bool halves = u.type != MatrixType::TF32;
    if (!place.shared || !place.filled || !place.final.empty() ||
        !(halves ? takes_stored(place.storage) : place.storage == DType::F32))
        return std::nullopt;
    if (place.swizzle != 0) return swizzled_cores(node.slot, across, across_begin, count, sum_begin);
    const int64_t size = static_cast<int64_t>(byte_size(place.storage)), row = 16 / size;
    const Expr i = v_.add("block", {Expr(0), Expr(count / 8 - 1)}), j = v_.add("half", {Expr(0), Expr(1)});
    const Expr r = v_.add("row", {Expr(0), Expr(7)}), e = v_.add("inside", {Expr(0), Expr(row - 1)});
    for (const bool turned : {false, true}) {
        if (turned && !halves) continue;  // there is no such instruction
        std::vector<Expr> point = raw_;
        point[across] = v_.simplified(job_.ranges[across].lo + across_begin + i * 8 + (turned ? e : r));
        point[u.sum] = v_.simplified(job_.ranges[u.sum].lo + sum_begin + (turned ? j * 8 + r : j * row + e));
        const auto index = index_in_box(node.slot, point);
        if (!index) continue;
        Expr rest = offset(place, *index);
        const auto coefficient = [&](Expr variable) -> std::optional<int64_t> {
            const auto linear = linear_in(rest, var_of(variable));
            if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
            rest = v_.simplified(linear->rest);
            return linear->coefficient.constant();
        };
        Cores out;
        out.turned = turned;
        const auto inside = coefficient(e), rows = coefficient(r), along = coefficient(j);
        const auto blocks = count > 8 ? coefficient(i) : std::optional<int64_t>(row);
        if (inside != 1 || rows != row || !along || !blocks || *along % row != 0 || *blocks % row != 0) continue;
        constexpr int64_t kMost = int64_t{1} << 18;  // what a descriptor holds
        out.along = *along * size;
        out.across = *blocks * size;
        if (out.along < 0 || out.across < 0 || out.along >= kMost || out.across >= kMost) continue;
        if (Variables::multiple(rest) % row != 0) continue;
        out.first = rest;
        return out;
    }
    return std::nullopt;
}

std::optional<std::vector<Expr>> StageValues::index_in_box(uint32_t slot, const std::vector<Expr>& point) const {
    const Place& place = job_.accesses[slot];
    std::vector<Expr> out;
    for (size_t d = 0; d < e_.accesses[slot].index.size(); ++d) {
        out.push_back(substitute_axes(e_.accesses[slot].index[d], point));
        const Expr at = v_.simplified(out[d] - place.origin[d]);
        if (!v_.nonnegative(at) || !v_.nonnegative(place.box[d] - 1 - at)) return std::nullopt;
    }
    return out;
}

std::optional<StageValues::Cores> StageValues::swizzled_cores(uint32_t slot, size_t across, Expr across_begin,
                                                              int64_t count, Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    const Place& place = job_.accesses[slot];
    const int64_t size = static_cast<int64_t>(byte_size(place.storage)), wide = place.swizzle / size;
    const int64_t sum = 32 / size, beside = std::min(count, wide);
    const Expr r = v_.add("row", {Expr(0), Expr(7)});
    for (const bool turned : {false, true}) {
        if (turned && size != 2) continue;  // there is no such instruction
        // x goes along a row; y, from eight rows to the next; z, rows of them side by side.
        const Expr x = v_.add("inside", {Expr(0), Expr((turned ? beside : sum) - 1)});
        const Expr y = v_.add("eight", {Expr(0), Expr((turned ? sum : count) / 8 - 1)});
        const Expr z = v_.add("beside", {Expr(0), Expr(turned ? count / beside - 1 : 0)});
        std::vector<Expr> point = raw_;
        point[across] = v_.simplified(job_.ranges[across].lo + across_begin + (turned ? z * wide + x : y * 8 + r));
        point[u.sum] = v_.simplified(job_.ranges[u.sum].lo + sum_begin + (turned ? y * 8 + r : x));
        const auto index = index_in_box(slot, point);
        if (!index) continue;
        Expr rest = offset(place, *index);
        const auto coefficient = [&](Expr variable) -> int64_t {
            const auto linear = linear_in(rest, var_of(variable));
            if (!linear || !linear->coefficient.is_constant()) return -1;
            rest = v_.simplified(linear->rest);
            return linear->coefficient.constant();
        };
        const int64_t inside = coefficient(x), rows = coefficient(r), eights = coefficient(y), blocks = coefficient(z);
        if (inside != 1 || rows != wide || eights < 0 || blocks < 0 || eights % (8 * wide) != 0 ||
            blocks % (8 * wide) != 0)
            continue;
        // It begins in the first of eight rows; along the sum at any piece of 16 bytes, across it where a row does.
        const Expr in_rows = v_.simplified(mod(rest, 8 * wide));
        if (!v_.nonnegative(wide - 1 - in_rows) || Variables::multiple(rest) % (turned ? wide : 16 / size) != 0)
            continue;
        Cores out;
        out.first = rest;
        out.turned = turned;
        out.swizzle = place.swizzle;
        out.along = turned ? eights * size : 16;
        out.across = turned ? (blocks == 0 ? 16 : blocks * size) : (count > 8 ? eights * size : 8 * place.swizzle);
        constexpr int64_t kMost = int64_t{1} << 18;  // what a descriptor holds
        if (out.along >= kMost || out.across >= kMost) continue;
        return out;
    }
    return std::nullopt;
}

void StageValues::refuse_group(const std::string& why) const {
    throw RuntimeError(
        fmt::format("a product of {} cannot be one of four warps: {}", axis_name(job_.micro->matrix->rows), why));
}

std::optional<StageValues::Cores> StageValues::left_cores(const GroupProduct& p, Expr g) {
    return cores(p.left, job_.micro->matrix->rows, p.left_begin + p.f * kGroupRows, kGroupRows,
                 p.sum_begin + g * p.unit);
}

/// Whether what instructions read behind the end of the sum is zero. (cores() proves that it may be read.)
bool StageValues::group_reads_zeros(const GroupProduct& p, ScalarId factor) const {
    const std::vector<bool>& zero = job_.accesses[e_.body[factor].slot].zero_behind;
    const size_t sum = job_.micro->matrix->sum;
    return !p.tail || (sum < zero.size() && zero[sum]);
}

std::string StageValues::matrix_text(ScalarId factor, const Cores& c) {
    return fmt::format("tw::cores<{}, {}{}>({} + {}{})", c.along, c.across,
                       c.swizzle == 0 ? "" : fmt::format(", {}", c.swizzle), job_.accesses[e_.body[factor].slot].object,
                       v_.operand(c.first), c.swizzle == 0 ? "" : fmt::format(", {}", c.turned));
}

/// The registers of both halves of the rows, from a column on.
std::vector<std::string> StageValues::group_sums(const GroupProduct& p, int64_t column) const {
    std::vector<std::string> out;
    for (const int half : {0, 1}) {
        std::string s = acc_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((p.others >> a) & 1) != 0)
                s += fmt::format("[{}]", v_.name(coordinate_[a]));
            else if (a == job_.micro->matrix->rows)
                s += fmt::format("[2 * {} + {}]", v_.name(p.f), half);
        out.push_back(s + (column == 0 ? "" : fmt::format(" + {}", column / 4)));
    }
    return out;
}

void StageValues::group_instructions(const GroupProduct& p, Expr g) {
    const MatrixUnit& u = *job_.micro->matrix;
    const auto left = p.words ? std::nullopt : left_cores(p, g);
    if (!p.words && !left) refuse_group("its left operand lies otherwise than its instruction has it");
    const int64_t span = part_.span(u.columns);
    for (int64_t column = 0; column < span;) {
        int64_t n = 256;
        while (n > span - column) n /= 2;
        const auto right = cores(p.right, u.columns, p.right_begin + column, n, p.sum_begin + g * p.unit);
        if (!right) refuse_group("its right operand lies otherwise than its instruction has it");
        if (!group_reads_zeros(p, p.right)) refuse_group("behind the end of its sum there is more than zeros");
        std::vector<std::string> arguments = group_sums(p, column);
        if (left)
            arguments.push_back(matrix_text(p.left, *left));
        else
            for (int w = 0; w < 4; ++w) {
                std::string s = p.words->words;
                for (const size_t a : p.words->axes)
                    s += a == u.rows ? fmt::format("[2 * {} + {}]", v_.name(p.f), w % 2)
                                     : fmt::format("[{}]", v_.name(coordinate_[a]));
                arguments.push_back(s + fmt::format("[2 * {} + {}]", v_.text(g), w / 2));
            }
        arguments.push_back(matrix_text(p.right, *right));
        w_->line("tw::multiply_group_{}_{}<{}{}>({});", to_string(u.type), n,
                 left ? fmt::format("{}, ", left->turned ? 1 : 0) : "", right->turned ? 1 : 0, join(arguments));
        column += n;
    }
}

// Warpgroup instructions (WGMMA): the right operand, and the left where it is nothing but a tensor, are read where
// Loads have put them, while the threads may go on (StageJob::in_flight): they then wait for the statement before this
// one.
//
//     tw::begin_products();
//     for k < 2: tw::multiply_group_f16_64<0, 1>(sum[0], sum[1], tw::cores<128, 1040>(s_a + ...), tw::cores<...>(...));
//     tw::end_products(); tw::wait_products<0>();
void StageValues::multiply_group(const std::vector<Expr>& tile_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    const auto factors = matrix_factors(e_, u);
    TW_CHECK(factors.has_value(), "a stage on a matrix unit is no product");
    for (size_t a = u.columns + 1; a < e_.spatial; ++a)
        if (part_.registers[a] != 1) refuse_group("its columns are not its last axis");
    if (u.rows > u.columns) refuse_group("its columns are not its last axis");
    const int64_t step = part_.span(u.sum), unit = matrix_sum(u.type);
    const Expr length = local_range(u.sum), most = job_.ranges[u.sum].most;
    group_ = mask_ = result_mask_;
    settle();
    Expr begin = 0;
    const bool once = most.is_constant() && most.constant() <= step;
    const Expr part = v_.add(fmt::format("part_{}", axis_name(u.sum)), {Expr(0), ceil_div(most, step) - 1});
    if (!once) begin = part * step;
    // No more instructions than the buffers hold.
    int64_t instructions = step / unit;
    if (once) instructions = (most.constant() + unit - 1) / unit;
    const Expr f = v_.add("f", {Expr(0), Expr(part_.registers[u.rows] / 2 - 1)});
    const Expr counter = v_.add("g", {Expr(0), Expr(instructions - 1)});
    // A row that is swizzled may hold several instructions' part of the sum: each is written out.
    const auto is_swizzled = [&](ScalarId factor) {
        return e_.body[factor].op == ScalarOp::Access && job_.accesses[e_.body[factor].slot].swizzle != 0;
    };
    const bool written_out = is_swizzled(factors->left) || is_swizzled(factors->right);
    if (!once && !(most.is_constant() && most.constant() % step == 0)) refuse_group("its sum has no whole steps");
    const bool rest = !v_.nonnegative(length - most) || most.constant() % unit != 0;
    GroupProduct p{
        factors->left, factors->right, tile_begin[u.rows], tile_begin[u.columns], begin, f, unit, rest, 0, {}};
    const auto left = left_cores(p, written_out ? Expr(0) : counter);
    if (left && !group_reads_zeros(p, factors->left))
        refuse_group("behind the end of its sum there is more than zeros");
    if (!left && u.type == MatrixType::TF32)
        refuse_group("its left operand lies otherwise than its instruction has it");
    if (left) w_->add("tw::begin_products();");
    if (once)
        w_->open("");
    else
        w_->open(fmt::format("for ({0} {1} = 0; {2} < {3}; ++{1})", v_.type(part), v_.name(part), v_.text(begin),
                             v_.text(length)));
    if (!left) {
        p.words = operand(factors->left, u.rows, true, tile_begin[u.rows], begin);
        mask_ = result_mask_;
        w_->add("tw::begin_products();");
    }
    p.others = result_mask_ & ~(Mask{1} << u.rows) & ~(Mask{1} << u.columns);
    open_loops(p.others);
    const auto unrolled = [&](Expr variable, int64_t count) {
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", v_.name(variable), count));
    };
    unrolled(f, part_.registers[u.rows] / 2);
    if (!written_out) unrolled(counter, instructions);
    if (written_out)
        for (int64_t g = 0; g < instructions; ++g) group_instructions(p, g);
    else
        group_instructions(p, counter);
    if (!written_out) w_->close();
    w_->close();
    close_loops(p.others);
    // The registers of words are the next part's; operands in shared memory stay until the next statement waits.
    const auto wait = [&] {
        w_->add("tw::end_products();");
        w_->line("tw::wait_products<{}>();", job_.in_flight && !p.words ? 1 : 0);
    };
    if (p.words) wait();
    w_->close();
    if (!p.words) wait();
    settle();
    mask_ = result_mask_;
    overhang_ &= ~(Mask{1} << u.sum);
}

void StageValues::settle() {
    group_ = mask_ = result_mask_;
    in_loops(result_mask_, [&] { w_->line("tw::settle({});", acc_ + coordinates(result_mask_)); });
}

void StageValues::instructions(const Operand& left, const Operand& right) {
    const MatrixUnit& u = *job_.micro->matrix;
    mask_ = result_mask_;
    const Mask others = result_mask_ & ~(Mask{1} << u.rows) & ~(Mask{1} << u.columns);
    open_loops(others);
    const std::string i = v_.fresh("i"), j = v_.fresh("j"), k = v_.fresh("k");
    for (const auto& [name, count] : {std::pair(i, part_.registers[u.rows] / 2),
                                      std::pair(j, part_.registers[u.columns] / 2), std::pair(k, words() / 2)}) {
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", name, count));
    }
    std::vector<std::string> arguments;
    for (int n = 0; n < 4; ++n) {  // as an instruction's results go: two columns, then eight rows below
        std::string s = acc_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((result_mask_ >> a) & 1) != 0)
                s += a == u.rows      ? fmt::format("[2 * {} + {}]", i, n / 2)
                     : a == u.columns ? fmt::format("[2 * {} + {}]", j, n % 2)
                                      : fmt::format("[{}]", v_.name(coordinate_[a]));
        arguments.push_back(s);
    }
    const auto word = [&](const Operand& o, size_t across, const std::string& fragment, int at) {
        std::string s = o.words;
        for (const size_t a : o.axes)
            s += a == across ? "[" + fragment + "]" : fmt::format("[{}]", v_.name(coordinate_[a]));
        arguments.push_back(s + fmt::format("[2 * {} + {}]", k, at));
    };
    for (int n = 0; n < 4; ++n) word(left, u.rows, fmt::format("2 * {} + {}", i, n % 2), n / 2);
    for (int n = 0; n < 2; ++n) word(right, u.columns, j, n);
    w_->line("tw::multiply_{}({});", to_string(u.type), join(arguments));
    for (int n = 0; n < 3; ++n) w_->close();
    close_loops(others);
}

}  // namespace tilewright::cuda
