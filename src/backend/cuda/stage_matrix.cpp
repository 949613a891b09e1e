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
#include "tile/matrix.h"

namespace tilewright::cuda {

namespace {

std::string join(const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, ", ")); }

}  // namespace

void StageValues::multiply() {
    const MatrixUnit& u = *job_.micro->matrix;
    if (u.group()) return multiply_group();
    const auto factors = matrix_factors(e_, u);
    TW_CHECK(factors.has_value(), "a stage on a matrix unit is no product");
    const Expr length = local_range(u.sum);
    const SumSteps steps = sum_steps();
    if (!steps.counter) {
        w_->open("");
    } else {
        if (const int64_t n = unrolled(u.sum); n > 1) w_->line("TW_UNROLL_BY({})", n);
        w_->open(fmt::format("for ({0} {1} = 0; {2} < {3}; ++{1})", v_.type(*steps.counter), v_.name(*steps.counter),
                             v_.text(steps.begin), v_.text(length)));
    }
    const Operand left = operand(factors->left, u.rows, true, tile_begin_[u.rows], steps.begin);
    const auto held = held_;
    const Columns columns = columns_now();
    const Operand right = operand(factors->right, u.columns, false, tile_begin_[u.columns], steps.begin);
    restore(columns);
    held_ = held;
    instructions(left, right);
    mask_ = result_mask_;
    overhang_ &= ~(Mask{1} << u.sum);
    w_->close();
}

StageValues::Operand StageValues::operand(ScalarId factor, size_t across, bool is_left, Expr across_begin,
                                          Expr sum_begin) {
    const MatrixUnit& u = *job_.micro->matrix;
    Operand out;
    out.axes = spread_operand(factor, across, is_left, across_begin, sum_begin);
    const bool rest = passes_sum(factor);
    std::vector<int64_t> shape = extents(mask_ & ~(Mask{1} << u.sum));
    shape.push_back(words());
    out.words = v_.fresh(is_left ? "left" : "right");
    w_->add(array_declaration("u32", out.words, shape) + ";");
    const ScalarNode& node = e_.body[factor];
    const bool alone = node.op == ScalarOp::Access && !rest;
    if (alone && reading(node.slot).by == OperandRead::By::Fragments) {
        const auto found = fragments(node.slot, across, is_left, across_begin, sum_begin);
        TW_CHECK(found.has_value(), "access {} is annotated to be read by ldmatrix, which it cannot be", node.slot);
        load_fragments(node.slot, across, is_left, *found, out);
        return out;
    }

    // Its numbers, element by element or by vectors.
    const std::string name = v_.fresh("x");
    const auto vector = alone ? annotated_load(node.slot, mask_) : std::nullopt;
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
    const std::string to = out.words + coordinates(others) + at_word(word);
    const bool as_stored = vector && takes_stored(stored);
    const auto number = [&](const std::string& at) { return as_stored ? at : vector ? from_storage(stored, at) : at; };
    const auto at_sum = [&](const std::string& sum) {
        std::string s = name;
        for (const size_t a : part_.array_axes())
            if (((mask_ >> a) & 1) != 0) s += a == u.sum ? sum : fmt::format("[{}]", v_.name(coordinate_[a]));
        return number(s);
    };
    // Of floats in memory the instruction takes the upper bits itself, in registers as in shared memory.
    const bool as_floats = part_.spread[u.sum] == Spread::Quads;
    if (u.type == MatrixType::TF32)
        w_->line("{} = tw::{}({});", to, as_floats ? "bitcast<u32>" : "tf32", at_sum(fmt::format("[{}]", word)));
    else
        w_->line("{} = tw::{}pair({}, {});", to, as_stored ? "" : fmt::format("{}_", to_string(u.type)),
                 at_sum(fmt::format("[2 * {}]", word)), at_sum(fmt::format("[2 * {} + 1]", word)));
    w_->close();
    close_loops(others);
    return out;
}

std::string StageValues::at_word(const std::string& index) const { return words() == 1 ? "" : "[" + index + "]"; }

/// Each thread points at a row of eight halves.
void StageValues::load_fragments(uint32_t slot, size_t across, bool is_left, const Fragments& l, const Operand& to) {
    const Place& place = job_.accesses[slot];
    const Mask others = mask_ & ~(Mask{1} << across) & ~(Mask{1} << job_.micro->matrix->sum);
    open_loops(others);
    for (const Expr& i : {l.f, l.g}) {
        w_->add("TW_UNROLL");
        w_->open(fmt::format(
            "for (int {0} = 0; {0} < {1}; ++{0})", v_.name(i),
            i == l.f ? (is_left ? part_.registers[across] / 2 : part_.registers[across]) : words() / l.brings));
    }
    std::vector<std::string> targets;
    for (int64_t k = 0; k < (is_left ? 4 : l.brings); ++k) {
        std::string s = to.words;
        for (const size_t axis : to.axes)
            s += axis != across ? fmt::format("[{}]", v_.name(coordinate_[axis]))
                 : is_left      ? fmt::format("[2 * {} + {}]", v_.name(l.f), k % 2)
                                : fmt::format("[{}]", v_.name(l.f));
        targets.push_back(s + at_word(fmt::format("{} * {} + {}", l.brings, v_.name(l.g), is_left ? k / 2 : k)));
    }
    w_->line("tw::load_matrices{}({}, {} + {});", l.turned ? "_turned" : "", join(targets), place.object,
             address(place, l.offset));
    w_->close();
    w_->close();
    close_loops(others);
}

void StageValues::refuse_group(const std::string& why) const {
    throw RuntimeError(
        fmt::format("a product of {} cannot be one of four warps: {}", axis_name(job_.micro->matrix->rows), why));
}

std::string StageValues::matrix_text(ScalarId factor, const Cores& c) {
    return fmt::format("tw::cores<{}, {}{}>({}, {}{})", c.along, c.across,
                       c.swizzle == 0 ? "" : fmt::format(", {}", c.swizzle), job_.accesses[e_.body[factor].slot].object,
                       v_.text(c.first), c.swizzle == 0 ? "" : fmt::format(", {}", c.turned));
}

/// The registers of both halves of the rows, from a column on.
std::vector<std::string> StageValues::group_sums(const GroupProduct& p, Mask others, int64_t column) const {
    std::vector<std::string> out;
    for (const int half : {0, 1}) {
        std::string s = acc_;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (((others >> a) & 1) != 0)
                s += fmt::format("[{}]", v_.name(coordinate_[a]));
            else if (a == job_.micro->matrix->rows)
                s += fmt::format("[2 * {} + {}]", v_.name(p.f), half);
        out.push_back(s + (column == 0 ? "" : fmt::format(" + {}", column / 4)));
    }
    return out;
}

void StageValues::group_instructions(const GroupProduct& p, const std::optional<Operand>& words, Mask others, Expr g) {
    const MatrixUnit& u = *job_.micro->matrix;
    const auto left = words ? std::nullopt : left_cores(p, g);
    if (!words && !left) refuse_group("its left operand lies otherwise than its instruction has it");
    const int64_t span = part_.span(u.columns);
    for (int64_t column = 0; column < span;) {
        int64_t n = 256;
        while (n > span - column) n /= 2;
        const bool paired = words && u.type == MatrixType::TF32 && part_.spread[u.sum] == Spread::Columns;
        const auto right = cores(p.right, u.columns, p.right_begin + column, n, p.sum_begin + g * p.unit, paired);
        if (!right) refuse_group("its right operand lies otherwise than its instruction has it");
        if (!group_reads_zeros(p, p.right)) refuse_group("behind the end of its sum there is more than zeros");
        std::vector<std::string> arguments = group_sums(p, others, column);
        if (left)
            arguments.push_back(matrix_text(p.left, *left));
        else
            for (int w = 0; w < 4; ++w) {
                std::string s = words->words;
                for (const size_t a : words->axes)
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
// Loads have put them, while the threads may go on (StageJob::overlapped): they then wait for the statement before this
// one.
//
//     tw::begin_products();
//     for k < 2: tw::multiply_group_f16_64<0, 1>(sum[0], sum[1], tw::cores<128, 1040>(s_a + ...), tw::cores<...>(...));
//     tw::end_products(); tw::wait_products<0>();
void StageValues::multiply_group() {
    const MatrixUnit& u = *job_.micro->matrix;
    const Expr length = local_range(u.sum);
    group_ = mask_ = result_mask_;
    settle();
    const GroupProduct p = group_product();
    if (!p.whole_steps) refuse_group("its sum has no whole steps");
    const ScalarNode& left = e_.body[p.left];
    const bool in_place = left.op == ScalarOp::Access && reading(left.slot).by == OperandRead::By::Place;
    if (in_place && !p.left_in_place) refuse_group("its left operand lies otherwise than its instruction has it");
    if (in_place && !group_reads_zeros(p, p.left)) refuse_group("behind the end of its sum there is more than zeros");
    if (in_place) w_->add("tw::begin_products();");
    if (!p.part)
        w_->open("");
    else
        w_->open(fmt::format("for ({0} {1} = 0; {2} < {3}; ++{1})", v_.type(*p.part), v_.name(*p.part),
                             v_.text(p.sum_begin), v_.text(length)));
    std::optional<Operand> words;
    if (!in_place) {
        if (this->words() % 2 != 0) refuse_group("its left operand in registers is no whole number of instructions");
        words = operand(p.left, u.rows, true, tile_begin_[u.rows], p.sum_begin);
        mask_ = result_mask_;
        w_->add("tw::begin_products();");
    }
    const Mask others = result_mask_ & ~(Mask{1} << u.rows) & ~(Mask{1} << u.columns);
    open_loops(others);
    const auto unrolled_loop = [&](Expr variable, int64_t count) {
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", v_.name(variable), count));
    };
    unrolled_loop(p.f, part_.registers[u.rows] / 2);
    if (!p.written_out) unrolled_loop(p.counter, p.instructions);
    if (p.written_out)
        for (int64_t g = 0; g < p.instructions; ++g) group_instructions(p, words, others, g);
    else
        group_instructions(p, words, others, p.counter);
    if (!p.written_out) w_->close();
    w_->close();
    close_loops(others);
    // Words of a part may be in the registers of the next part's; operands in shared memory, and words of a step's only
    // part, stay until the next statement waits.
    const bool again = words && p.part;
    const auto wait = [&] {
        w_->add("tw::end_products();");
        w_->line("tw::wait_products<{}>();", job_.overlapped && !again ? 1 : 0);
    };
    if (again) wait();
    w_->close();
    if (!again) wait();
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
    const auto open_loop = [&](const std::string& name, int64_t count) {
        w_->add("TW_UNROLL");
        w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", name, count));
    };
    open_loop(i, part_.registers[u.rows] / 2);
    open_loop(j, part_.registers[u.columns] / 2);
    std::vector<std::string> sums;
    for (int n = 0; n < 4; ++n) {  // as an instruction's results go: two columns, then eight rows below
        std::string s = acc_;
        for (const size_t a : part_.array_axes())
            if (((result_mask_ >> a) & 1) != 0)
                s += a == u.rows      ? fmt::format("[2 * {} + {}]", i, n / 2)
                     : a == u.columns ? fmt::format("[2 * {} + {}]", j, n % 2)
                                      : fmt::format("[{}]", v_.name(coordinate_[a]));
        sums.push_back(s);
    }
    const auto word = [&](const Operand& o, size_t across, const std::string& fragment, const std::string& at) {
        std::string s = o.words;
        for (const size_t a : o.axes)
            s += a == across ? "[" + fragment + "]" : fmt::format("[{}]", v_.name(coordinate_[a]));
        return s + at_word(at);
    };
    // Of the words first and second along the sum. Without a second, its products are of zeros.
    const auto instruction = [&](const std::string& first, const std::string& second) {
        std::vector<std::string> arguments = sums;
        for (int n = 0; n < 4; ++n) {
            const std::string& at = n < 2 ? first : second;
            arguments.push_back(at.empty() ? "0u" : word(left, u.rows, fmt::format("2 * {} + {}", i, n % 2), at));
        }
        for (const std::string& at : {first, second})
            arguments.push_back(at.empty() ? "0u" : word(right, u.columns, j, at));
        w_->line("tw::multiply_{}({});", to_string(u.type), join(arguments));
    };
    if (words() > 1) {
        open_loop(k, words() / 2);
        instruction(fmt::format("2 * {} + 0", k), fmt::format("2 * {} + 1", k));
        w_->close();
    }
    // A left operand in registers may have an odd number of eights along the sum.
    if (words() % 2 != 0) instruction(std::to_string(words() - 1), "");
    for (int n = 0; n < 2; ++n) w_->close();
    close_loops(others);
}

}  // namespace tilewright::cuda
