#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cost/gpu_estimate.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_nest.h"
#include "schedule/gpu/gpu_schedule.h"
#include "tile/gpu_index.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

/// At least half of a matrix instruction's 16 x 8 along each axis, and a reduction that fills a step.
constexpr int64_t kLeastRows = 8, kLeastColumns = 4, kLeastSum = 8;

/// The type to which the operands of both factors are rounded; nothing: they must not be rounded.
std::optional<MatrixType> matrix_type(const Program& stages, const TensorExpr& e, Precision precision) {
    bool all_f16 = true, all_bf16 = true, narrow = true;
    for (const uint32_t slot : e.body.slots()) {
        const DType t = stages.values[e.accesses[slot].value].dtype;
        all_f16 = all_f16 && t == DType::F16;
        all_bf16 = all_bf16 && t == DType::BF16;
        narrow = narrow && (t == DType::F16 || t == DType::BF16 || t == DType::F32);
    }
    const ScalarNode& root = e.body[e.body.root()];
    const bool plain = e.body[root.a].op == ScalarOp::Access && e.body[root.b].op == ScalarOp::Access;
    if (plain && all_f16) return MatrixType::F16;
    if (plain && all_bf16) return MatrixType::BF16;
    if (!narrow) return std::nullopt;
    switch (precision) {
        case Precision::TF32:
            return MatrixType::TF32;
        case Precision::F16:
            return MatrixType::F16;
        case Precision::BF16:
            return MatrixType::BF16;
        case Precision::F32:
            break;
    }
    return std::nullopt;
}

/// Bytes of a swizzled row: the widest swizzle that the contiguous run of a warpgroup operand allows; 0: none. Without
/// a micro-kernel: the widest.
int64_t swizzle_of(const Micro* micro, const GpuProduct& product, bool along_sum, bool is_left, int64_t size) {
    constexpr int64_t kWidest = 128, kNarrowest = 32;
    if (micro == nullptr) return kWidest;
    // Across the reduction, a left operand has the 64 rows of an instruction.
    const int64_t points = along_sum ? micro->registers.at(product.sum)
                           : is_left ? kGroupRows
                                     : micro->registers.at(product.columns);
    for (int64_t row = kWidest; row >= kNarrowest; row /= 2)
        if (points * size % row == 0) return row;
    return 0;
}

/// Whether the access is the right operand of a tf32 product of a warpgroup whose left operand is in registers: a
/// thread has columns 2 t and 2 t + 1 of eight there, and the instruction multiplies them by numbers t and t + 4.
bool paired_along_sum(const TileProgram& program, const TensorExpr& e, const GpuProduct& product, size_t access) {
    if (*product.matrix != MatrixType::TF32) return false;
    const MatrixUnit unit{*product.matrix, product.rows, product.columns, product.sum, MatrixForm::Group};
    const auto factors = matrix_factors(e, unit);
    if (!factors || left_along_rows(e, unit)) return false;
    const ScalarNode &left = e.body[factors->left], &right = e.body[factors->right];
    const bool in_memory = left.op == ScalarOp::Access && is_input(program, e.accesses[left.slot].value);
    return !in_memory && right.op == ScalarOp::Access && right.slot == access;
}

/// [..., h, n] with `row` the dimension h: blocks of eight rows of four numbers, of which every second one of n is in
/// the next block, [..., n / 8, n % 2, h, n % 8 / 2]. A column of rows is padded by one row, against bank conflicts.
void append_paired_blocks(Layout& layout, size_t last, size_t row) {
    layout.primitives.emplace_back(layout::Split{last, 8});
    layout.primitives.emplace_back(layout::Split{last + 1, 2});
    layout::Reorder order;
    for (size_t d = 0; d < row; ++d) order.permutation.push_back(d);
    order.permutation.push_back(last);
    order.permutation.push_back(last + 2);
    for (size_t d = row; d < last; ++d) order.permutation.push_back(d);
    order.permutation.push_back(last + 1);
    layout.primitives.emplace_back(order);
    layout.primitives.emplace_back(layout::Pad{row + 2, 0, 1});
}

}  // namespace

std::string_view to_string(Precision p) {
    constexpr std::string_view kNames[] = {"f32", "tf32", "f16", "bf16"};
    return kNames[static_cast<size_t>(p)];
}

std::optional<Precision> precision_from_string(std::string_view name) {
    for (const Precision p : {Precision::F32, Precision::TF32, Precision::F16, Precision::BF16})
        if (name == to_string(p)) return p;
    return std::nullopt;
}

std::optional<GpuProduct> gpu_product(const Program& stages, const TensorExpr& e, ValueId out, Precision precision) {
    const auto c = contraction(e);
    if (!c || !c->of_reals()) return std::nullopt;
    const ContractionAxes by_factor = axes(e, *c);
    const std::vector<size_t> of[2] = {by_factor.rows, by_factor.columns};
    if (of[0].empty() || of[1].empty() || by_factor.sum.empty()) return std::nullopt;
    const auto longest = [&](const std::vector<size_t>& axes) {
        // The last of equal ones, along which neighbouring rows lie side by side.
        return *std::max_element(axes.begin(), axes.end(), [&](size_t a, size_t b) {
            return std::pair(guess(e.extents[a]), a) < std::pair(guess(e.extents[b]), b);
        });
    };
    const auto strides = axis_strides(stages, e, out, result_index(e));
    GpuProduct p;
    size_t side = guess(e.extents[longest(of[0])]) > guess(e.extents[longest(of[1])]) ? 1 : 0;
    p.columns = longest(of[side]);
    for (size_t k = 0; k < 2; ++k)
        for (const size_t a : of[k])
            if (strides[a] && strides[a]->is_constant(1) && guess(e.extents[a]) >= kLeastColumns) {
                side = k;
                p.columns = a;
            }
    p.rows = longest(of[1 - side]);
    p.sum = longest(by_factor.sum);
    const bool worth = guess(e.extents[p.rows]) >= kLeastRows && guess(e.extents[p.columns]) >= kLeastColumns &&
                       guess(e.extents[p.sum]) >= kLeastSum;
    if (worth && c->type == DType::F32) p.matrix = matrix_type(stages, e, precision);
    // A single row or column is read once, so nothing is reused.
    if (!p.matrix && (guess(e.extents[p.rows]) < 4 || guess(e.extents[p.columns]) < 4)) return std::nullopt;
    return p;
}

bool fits_group(const Program& stages, const TensorExpr& e, const GpuProduct& p, const GpuTarget& target,
                bool left_in_registers) {
    if (!target.has_wgmma() || !p.matrix || e.accesses.empty()) return false;
    // Threads store what lies side by side.
    for (size_t a = std::max(p.rows, p.columns) + 1; a < e.spatial; ++a)
        if (!e.extents[a].is_constant(1)) return false;
    if (!e.extents[p.columns].is_constant() || !e.extents[p.sum].is_constant()) return false;
    if (guess(e.extents[p.rows]) < kGroupRows || guess(e.extents[p.sum]) < 2 * matrix_sum(*p.matrix)) return false;
    const auto factors = matrix_factors(e, {*p.matrix, p.rows, p.columns, p.sum, MatrixForm::Group});
    if (!factors) return false;
    const DType wanted = *p.matrix == MatrixType::F16    ? DType::F16
                         : *p.matrix == MatrixType::BF16 ? DType::BF16
                                                         : DType::F32;
    for (const auto& [factor, across] : {std::pair(factors->left, p.rows), std::pair(factors->right, p.columns)}) {
        const ScalarNode& n = e.body[factor];
        if (left_in_registers && factor == factors->left &&
            (n.op != ScalarOp::Access || stages.producers()[e.accesses[n.slot].value]))
            continue;
        if (n.op != ScalarOp::Access) return false;
        const Access& a = e.accesses[n.slot];
        const Value& value = stages.values[a.value];
        if (value.dtype != wanted || a.fill != 0 || stages.producers()[a.value]) return false;
        for (const size_t axis : {across, p.sum}) {
            // Alone, or after axes that move by whole steps.
            size_t in = 0;
            for (const Expr& i : a.index)
                if (uses(i, {VarKind::Axis, static_cast<uint32_t>(axis)})) {
                    ++in;
                    const auto linear = linear_in(i, {VarKind::Axis, static_cast<uint32_t>(axis)});
                    if (!linear || !linear->coefficient.is_constant(1)) return false;
                }
            if (in != 1) return false;
        }
        // The contiguous 16 bytes are along the reduction or, for halves, across it. What is added there shifts them by
        // whole units of 16 bytes: a head of a row that has all heads.
        const Expr last = a.index.back();
        const auto unit = 16 / static_cast<int64_t>(byte_size(value.dtype));
        const std::vector<Var> shifts = variables(last);
        const auto whole_units_from = [&](size_t axis) {
            const auto linear = linear_in(last, {VarKind::Axis, static_cast<uint32_t>(axis)});
            return linear && linear->coefficient.is_constant(1) &&
                   gpu::IndexVariables::multiple(linear->rest) % unit == 0 &&
                   std::all_of(shifts.begin(), shifts.end(), [&](Var v) {
                       const auto by = linear_in(last, v);
                       return v.kind != VarKind::Load && by && by->coefficient.is_constant();
                   });
        };
        if (!whole_units_from(across) && !whole_units_from(p.sum)) return false;
    }
    for (const size_t a : axes_inside_rows(e, p))
        if (a >= e.spatial) return false;
    return true;
}

GpuProduct on_groups(const Program& stages, const TensorExpr& e, GpuProduct p, const GpuTarget& target) {
    p.group = true;
    const auto left_lies_along_rows = [&](size_t rows, size_t columns) {
        return left_along_rows(e, {*p.matrix, rows, columns, p.sum, MatrixForm::Group});
    };
    // Both operands along their own axis: one of them is transposed by threads in any case.
    if (!p.matrix || !left_lies_along_rows(p.columns, p.rows) || left_lies_along_rows(p.rows, p.columns)) return p;
    GpuProduct exchanged = p;
    std::swap(exchanged.rows, exchanged.columns);
    return fits_group(stages, e, exchanged, target) ? exchanged : p;
}

bool zeros_behind_sum(const Program& stages, const TensorExpr& e, const GpuProduct& p) {
    const auto factors = matrix_factors(e, {*p.matrix, p.rows, p.columns, p.sum, MatrixForm::Group});
    if (!factors) return false;
    for (const ScalarId factor : {factors->left, factors->right}) {
        const ScalarNode& n = e.body[factor];
        if (n.op != ScalarOp::Access || stages.producers()[e.accesses[n.slot].value]) continue;  // in registers
        if (!leaves_tensor_behind(stages, e, e.accesses[n.slot], p.sum)) return false;
    }
    return true;
}

std::set<size_t> axes_inside_rows(const TensorExpr& e, const GpuProduct& p) {
    std::set<size_t> out;
    const auto factors = matrix_factors(e, {*p.matrix, p.rows, p.columns, p.sum, MatrixForm::Group});
    if (!factors) return out;
    for (const auto& [factor, across] : {std::pair(factors->left, p.rows), std::pair(factors->right, p.columns)}) {
        if (e.body[factor].op != ScalarOp::Access) continue;
        const std::vector<Expr>& index = e.accesses[e.body[factor].slot].index;
        for (size_t d = index.size(); d-- > 0;) {
            if (d + 1 < index.size() && (index_uses({&index[d], 1}, across) || index_uses({&index[d], 1}, p.sum)))
                break;
            for (size_t a = 0; a < e.extents.size(); ++a)
                if (a != across && a != p.sum && !e.extents[a].is_constant(1) && index_uses({&index[d], 1}, a))
                    out.insert(a);
        }
    }
    return out;
}

Micro gpu_micro(const TensorExpr& e, const GpuProduct& product, const GpuTiles& tiles) {
    Micro m;
    m.registers.assign(e.extents.size(), 1);
    m.virtual_threads.assign(e.extents.size(), 1);
    m.padding = Padding::Local;
    m.registers[product.rows] = tiles.warp_rows;
    m.registers[product.columns] = tiles.warp_columns;
    if (product.matrix) {
        m.matrix = MatrixUnit{*product.matrix, product.rows, product.columns, product.sum,
                              product.group ? MatrixForm::Group : MatrixForm::Warp};
        m.registers[product.sum] = product.group ? tiles.sum : std::min<int64_t>(tiles.sum, 32);
        return m;
    }
    m.vector_axis = product.columns;
    m.lanes = std::min<int64_t>(4, tiles.warp_columns);
    m.registers[product.sum] = std::min<int64_t>(tiles.sum, 8);  // unrolled
    // Neighbouring threads read neighbouring vectors of four columns, so further columns of a thread are interleaved.
    if (tiles.warp_columns > 4) m.virtual_threads[product.columns] = tiles.warp_columns / 4;
    return m;
}

std::optional<Load> gpu_load(const TileProgram& program, PrimitiveId stage, size_t access, const GpuProduct& product,
                             const Micro* micro) {
    const TensorExpr& e = *program.stages.primitives[stage].expr();
    const Access& a = e.accesses[access];
    const std::vector<uint32_t> slots = e.body.slots();
    if (std::find(slots.begin(), slots.end(), access) == slots.end() || !is_input(program, a.value))
        return std::nullopt;
    for (const Expr& c : a.valid)
        if (!condition_on_index(a, c)) return std::nullopt;
    for (const Expr& i : a.index)
        for (const Var v : variables(i)) {
            if (v.kind == VarKind::Load) return std::nullopt;
            if (v.kind != VarKind::Axis) continue;
            const auto linear = linear_in(i, v);
            if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
        }
    Load load;
    load.stage = stage;
    load.access = access;
    if (a.index.empty()) return load;
    const auto dimension_of = [&](size_t axis) -> std::optional<size_t> {
        for (size_t d = 0; d < a.index.size(); ++d)
            if (uses(a.index[d], {VarKind::Axis, static_cast<uint32_t>(axis)})) return d;
        return std::nullopt;
    };
    const size_t last = a.index.size() - 1;
    const auto move_last = [&](size_t d) {
        layout::Reorder order;
        for (size_t k = 0; k <= last; ++k)
            if (k != d) order.permutation.push_back(k);
        order.permutation.push_back(d);
        if (d != last) load.layout.primitives.emplace_back(order);
    };
    auto across = dimension_of(product.rows);
    const bool is_left = across.has_value();
    if (!across) across = dimension_of(product.columns);
    const auto along = dimension_of(product.sum);
    const bool halves = byte_size(program.stages.values[a.value].dtype) == 2;
    if (!product.matrix) {
        if (across) move_last(*across);
        if (across != last) load.layout.primitives.emplace_back(layout::Pad{last, 0, 4});
        return load;
    }
    if (product.group) {
        // Rows of up to 128 bytes are swizzled, as TMA writes them. Operands that must be transposed (floats that are
        // not contiguous along the reduction), and those whose rows would be shorter than 32 bytes, are stored in
        // blocks of eight rows of 16 bytes. A column of rows is padded by one row, so that neighbouring columns start
        // in different banks. A left operand of floats across the reduction stays as it is: threads read it.
        const bool across_rows = halves || (is_left && across == last);
        const bool changes_places = !across_rows && along && along != last;
        if (along && across && paired_along_sum(program, e, product, access)) {
            move_last(*along);
            append_paired_blocks(load.layout, last, *across > *along ? *across - 1 : *across);
            return load;
        }
        if (changes_places) move_last(*along);
        const auto size = static_cast<int64_t>(byte_size(program.stages.values[a.value].dtype));
        const int64_t swizzle = changes_places ? 0 : swizzle_of(micro, product, along == last, is_left, size);
        const int64_t rows = swizzle != 0 ? swizzle / size : 16 / size;
        layout::Reorder order;
        for (size_t d = 0; d < last; ++d) order.permutation.push_back(d);
        order.permutation.push_back(last + 1);
        // The split dimension goes before the dimension of rows: across the reduction, or along it where the other one
        // is contiguous.
        const size_t wanted = across_rows && across == last ? along.value_or(last) : across.value_or(last);
        size_t row = wanted;
        if (changes_places && wanted > *along) --row;  // shifted by move_last
        order.permutation.insert(order.permutation.begin() + static_cast<std::ptrdiff_t>(row), last);
        load.layout.primitives.emplace_back(layout::Split{last, rows});
        load.layout.primitives.emplace_back(order);
        load.swizzle = static_cast<int>(swizzle);
        if (swizzle == 0) load.layout.primitives.emplace_back(layout::Pad{row + 1, 0, 1});
        return load;
    }
    // Fragments are read along the reduction or across it, whichever is contiguous. If neither is, the reduction
    // becomes contiguous.
    if (along && along != last && across != last) move_last(*along);
    load.layout.primitives.emplace_back(layout::Pad{last, 0, halves || along == last ? 8 : 4});
    return load;
}

}  // namespace tilewright
