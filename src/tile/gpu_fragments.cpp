// What a product on matrix instructions reads, and how: which fragments ldmatrix can bring, and where a warpgroup's
// instructions (WGMMA) find their operands in shared memory.

#include <algorithm>

#include "base/error.h"
#include "program/analysis/access.h"
#include "tile/gpu_points.h"
#include "tile/matrix.h"

namespace tilewright::gpu {

int64_t StagePoints::words() const {
    const MatrixUnit& u = *job_.micro->matrix;
    return part_.registers[u.sum] / (u.type == MatrixType::TF32 ? 1 : 2);
}

bool StagePoints::takes_stored(DType storage) const {
    const MatrixType t = job_.micro->matrix->type;
    return (storage == DType::F16 && t == MatrixType::F16) || (storage == DType::BF16 && t == MatrixType::BF16);
}

bool StagePoints::zero_behind_sum(ScalarId factor) const {
    const size_t sum = job_.micro->matrix->sum;
    const ScalarNode& n = e_.body[factor];
    if (n.op != ScalarOp::Access) return false;
    const Place& place = job_.accesses[n.slot];
    const AxisRange& r = job_.ranges[sum];
    const bool only_last = r.most.is_constant() && r.most.constant() % part_.span(sum) == 0;
    return only_last && sum < place.zero_behind.size() && place.zero_behind[sum] &&
           inside_filled(place, e_.accesses[n.slot].index);
}

StagePoints::SumSteps StagePoints::sum_steps() {
    const size_t sum = job_.micro->matrix->sum;
    const int64_t step = part_.span(sum);
    const Expr most = job_.ranges[sum].most;
    if (most.is_constant() && most.constant() <= step) return {0, std::nullopt};
    const Expr k = vars_.add("part_" + axis_name(sum), {Expr(0), ceil_div(most, step) - 1});
    return {k * step, k};
}

std::vector<size_t> StagePoints::spread_operand(ScalarId factor, size_t across, bool is_left, Expr across_begin,
                                                Expr sum_begin) {
    const size_t sum = job_.micro->matrix->sum;
    Mask mask = 0;
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((result_mask_ >> a) & 1) != 0 && moves_along(e_, e_.body, factor, a)) mask |= Mask{1} << a;
    mask_ = mask;
    if (!is_left) {
        part_.registers[across] /= 2;
        part_.spread[across] = Spread::Right;
        spread_axis(across, across_begin, "r_" + axis_name(across));
    }
    std::vector<size_t> axes;
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((mask_ >> a) & 1) != 0) axes.push_back(a);
    spread_axis(sum, sum_begin, "r_" + axis_name(sum));
    known_.clear();
    return axes;
}

StagePoints::Columns StagePoints::columns_now() const {
    const size_t c = job_.micro->matrix->columns;
    return {raw_[c], clamped_[c], coordinate_[c], overhang_, part_.registers[c], part_.spread[c]};
}

void StagePoints::restore(const Columns& columns) {
    const size_t c = job_.micro->matrix->columns;
    raw_[c] = columns.raw;
    clamped_[c] = columns.clamped;
    coordinate_[c] = columns.coordinate;
    overhang_ = columns.overhang;
    part_.registers[c] = columns.registers;
    part_.spread[c] = columns.spread;
}

std::optional<StagePoints::Fragments> StagePoints::fragments(uint32_t slot, size_t across, bool is_left,
                                                             Expr across_begin, Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    if (!place.shared || !takes_stored(place.storage) || place.unfinished) return std::nullopt;
    if (!a.valid.empty() && !place.checked) return std::nullopt;
    // Two words, of both halves of 16 rows; one, two or four of a column.
    if (is_left && words() % 2 != 0) return std::nullopt;
    Fragments out;
    out.brings = is_left ? 2 : std::min<int64_t>(4, words() & -words());
    out.f = vars_.add("f", {Expr(0), Expr(is_left ? part_.registers[across] / 2 - 1 : part_.registers[across] - 1)});
    out.g = vars_.add("g", {Expr(0), Expr(words() / out.brings - 1)});
    const Expr inside = vars_.add("inside", {Expr(0), Expr(7)});  // a row of eight
    Expr fragment = across_begin + out.f * (is_left ? matrix_rows(u) : kMatrixColumns);
    const Expr sum = sum_begin + out.g * (out.brings * 8);
    if (is_left && u.group()) fragment += floor_div(lane_row_, 16) * 16;  // each of four warps has rows of its own
    for (const bool turned : {false, true}) {
        Expr across_at, sum_at;
        if (is_left) {  // rows 0 to 7, 8 to 15, then those of the second eight of the sum
            across_at = fragment + (turned ? mod(floor_div(lane_, 8), 2) * 8 + inside : mod(lane_, 16));
            sum_at = sum + floor_div(lane_, 16) * 8 + (turned ? mod(lane_, 8) : inside);
        } else {
            const Expr eights = mod(floor_div(lane_, 8), out.brings);
            across_at = fragment + (turned ? inside : mod(lane_, 8));
            sum_at = sum + eights * 8 + (turned ? mod(lane_, 8) : inside);
        }
        std::vector<Expr> point = clamped_;
        bool all_there = true;
        for (const auto& [axis, local] : {std::pair(across, across_at), std::pair(u.sum, sum_at)}) {
            point[axis] = vars_.simplified(job_.ranges[axis].lo + local);
            all_there = all_there && vars_.nonnegative(local_range(axis) - 1 - local);
        }
        std::vector<Expr> index;
        bool in_box = place.filled;
        for (size_t d = 0; d < a.index.size(); ++d) {
            index.push_back(substitute_axes(a.index[d], point));
            if (!in_box) continue;
            const Expr at = vars_.simplified(index[d] - place.origin[d]);
            in_box = vars_.nonnegative(at) && vars_.nonnegative(place.box[d] - 1 - at);
        }
        if (!all_there && !in_box) continue;
        const auto linear = linear_in(offset(place, index), var_of(inside));
        if (!linear || !linear->coefficient.is_constant(1)) continue;
        out.offset = vars_.simplified(linear->rest);
        out.turned = turned;
        if (IndexVariables::multiple(out.offset) % 8 == 0) return out;
    }
    return std::nullopt;
}

std::optional<StagePoints::Cores> StagePoints::cores(ScalarId factor, size_t across, Expr across_begin, int64_t count,
                                                     Expr sum_begin, bool paired) {
    const MatrixUnit& u = *job_.micro->matrix;
    const ScalarNode& node = e_.body[factor];
    if (node.op != ScalarOp::Access) return std::nullopt;
    const Place& place = job_.accesses[node.slot];
    const bool halves = u.type != MatrixType::TF32;
    if (!place.shared || !place.filled || place.unfinished ||
        !(halves ? takes_stored(place.storage) : place.storage == DType::F32))
        return std::nullopt;
    if (place.swizzle != 0)
        return paired ? std::nullopt : swizzled_cores(node.slot, across, across_begin, count, sum_begin);
    const int64_t size = static_cast<int64_t>(byte_size(place.storage)), row = 16 / size;
    const Expr i = vars_.add("block", {Expr(0), Expr(count / 8 - 1)}), j = vars_.add("half", {Expr(0), Expr(1)});
    const Expr r = vars_.add("row", {Expr(0), Expr(7)}), e = vars_.add("inside", {Expr(0), Expr(row - 1)});
    for (const bool turned : {false, true}) {
        if (turned && !halves) continue;  // there is no such instruction
        std::vector<Expr> point = raw_;
        point[across] = vars_.simplified(job_.ranges[across].lo + across_begin + i * 8 + (turned ? e : r));
        const Expr along_sum = turned ? j * 8 + r : paired ? e * 2 + j : j * row + e;
        point[u.sum] = vars_.simplified(job_.ranges[u.sum].lo + sum_begin + along_sum);
        const auto index = index_in_box(node.slot, point);
        if (!index) continue;
        Expr rest = offset(place, *index);
        const auto coefficient = [&](Expr variable) -> std::optional<int64_t> {
            const auto linear = linear_in(rest, var_of(variable));
            if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
            rest = vars_.simplified(linear->rest);
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
        if (IndexVariables::multiple(rest) % row != 0) continue;
        out.first = rest;
        return out;
    }
    return std::nullopt;
}

std::optional<std::vector<Expr>> StagePoints::index_in_box(uint32_t slot, const std::vector<Expr>& point) const {
    const Place& place = job_.accesses[slot];
    std::vector<Expr> out;
    for (size_t d = 0; d < e_.accesses[slot].index.size(); ++d) {
        out.push_back(substitute_axes(e_.accesses[slot].index[d], point));
        const Expr at = vars_.simplified(out[d] - place.origin[d]);
        if (!vars_.nonnegative(at) || !vars_.nonnegative(place.box[d] - 1 - at)) return std::nullopt;
    }
    return out;
}

std::optional<StagePoints::Cores> StagePoints::swizzled_cores(uint32_t slot, size_t across, Expr across_begin,
                                                              int64_t count, Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    const Place& place = job_.accesses[slot];
    const int64_t size = static_cast<int64_t>(byte_size(place.storage)), wide = place.swizzle / size;
    const int64_t sum = 32 / size, beside = std::min(count, wide);
    const Expr r = vars_.add("row", {Expr(0), Expr(7)});
    for (const bool turned : {false, true}) {
        if (turned && size != 2) continue;  // there is no such instruction
        // x goes along a row; y, from eight rows to the next; z, rows of them side by side.
        const Expr x = vars_.add("inside", {Expr(0), Expr((turned ? beside : sum) - 1)});
        const Expr y = vars_.add("eight", {Expr(0), Expr((turned ? sum : count) / 8 - 1)});
        const Expr z = vars_.add("beside", {Expr(0), Expr(turned ? count / beside - 1 : 0)});
        std::vector<Expr> point = raw_;
        point[across] = vars_.simplified(job_.ranges[across].lo + across_begin + (turned ? z * wide + x : y * 8 + r));
        point[u.sum] = vars_.simplified(job_.ranges[u.sum].lo + sum_begin + (turned ? y * 8 + r : x));
        const auto index = index_in_box(slot, point);
        if (!index) continue;
        Expr rest = offset(place, *index);
        const auto coefficient = [&](Expr variable) -> int64_t {
            const auto linear = linear_in(rest, var_of(variable));
            if (!linear || !linear->coefficient.is_constant()) return -1;
            rest = vars_.simplified(linear->rest);
            return linear->coefficient.constant();
        };
        const int64_t inside = coefficient(x), rows = coefficient(r), eights = coefficient(y), blocks = coefficient(z);
        if (inside != 1 || rows != wide || eights < 0 || blocks < 0 || eights % (8 * wide) != 0 ||
            blocks % (8 * wide) != 0)
            continue;
        // It begins in the first of eight rows; along the sum at any piece of 16 bytes, across it where a row does.
        const Expr in_rows = vars_.simplified(mod(rest, 8 * wide));
        if (!vars_.nonnegative(wide - 1 - in_rows) || IndexVariables::multiple(rest) % (turned ? wide : 16 / size) != 0)
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

std::optional<StagePoints::Cores> StagePoints::left_cores(const GroupProduct& p, Expr g) {
    if (has_row_pairs()) return std::nullopt;
    return cores(p.left, job_.micro->matrix->rows, p.left_begin + p.f * kGroupRows, kGroupRows,
                 p.sum_begin + g * p.unit);
}

bool StagePoints::group_reads_zeros(const GroupProduct& p, ScalarId factor) const {
    const std::vector<bool>& zero = job_.accesses[e_.body[factor].slot].zero_behind;
    const size_t sum = job_.micro->matrix->sum;
    return !p.tail || (sum < zero.size() && zero[sum]);
}

StagePoints::GroupProduct StagePoints::group_product() {
    const MatrixUnit& u = *job_.micro->matrix;
    const auto factors = matrix_factors(e_, u);
    TW_CHECK(factors.has_value(), "a stage on a matrix unit is no product");
    const int64_t step = part_.span(u.sum);
    const Expr length = local_range(u.sum), most = job_.ranges[u.sum].most;
    GroupProduct p;
    p.left = factors->left;
    p.right = factors->right;
    p.left_begin = tile_begin_[u.rows];
    p.right_begin = tile_begin_[u.columns];
    p.unit = matrix_sum(u.type);
    const bool once = most.is_constant() && most.constant() <= step;
    const Expr part = vars_.add("part_" + axis_name(u.sum), {Expr(0), ceil_div(most, step) - 1});
    p.sum_begin = once ? Expr(0) : part * step;
    if (!once) p.part = part;
    p.instructions = once ? (most.constant() + p.unit - 1) / p.unit : step / p.unit;
    p.f = vars_.add("f", {Expr(0), Expr(part_.registers[u.rows] / 2 - 1)});
    p.counter = vars_.add("g", {Expr(0), Expr(p.instructions - 1)});
    const auto is_swizzled = [&](ScalarId factor) {
        return e_.body[factor].op == ScalarOp::Access && job_.accesses[e_.body[factor].slot].swizzle != 0;
    };
    p.written_out = is_swizzled(p.left) || is_swizzled(p.right);
    p.whole_steps = once || (most.is_constant() && most.constant() % step == 0);
    p.tail = !vars_.nonnegative(length - most) || !most.is_constant() || most.constant() % p.unit != 0;
    p.left_in_place = left_cores(p, p.written_out ? Expr(0) : p.counter);
    return p;
}

}  // namespace tilewright::gpu
