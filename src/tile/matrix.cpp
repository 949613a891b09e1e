#include "tile/matrix.h"

#include <algorithm>
#include <set>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "tile/walk.h"

namespace tilewright {

std::string_view to_string(MatrixType t) {
    switch (t) {
        case MatrixType::TF32:
            return "tf32";
        case MatrixType::F16:
            return "f16";
        case MatrixType::BF16:
            return "bf16";
        case MatrixType::I8:
            return "i8";
    }
    return "?";
}

std::string_view to_string(MatrixForm form) {
    switch (form) {
        case MatrixForm::Warp:
            return "";
        case MatrixForm::Group:
            return "group";
        case MatrixForm::Tile:
            return "tile";
        case MatrixForm::Dot:
            return "dot";
    }
    return "?";
}

int64_t matrix_sum(MatrixType t) { return t == MatrixType::TF32 ? 8 : 16; }

std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit) {
    const auto c = contraction(e);
    if (!c || c->type != (unit.type == MatrixType::I8 ? DType::I32 : DType::F32)) return std::nullopt;
    const auto fits = [&](ScalarId left, ScalarId right) {
        return moves_along(e, e.body, left, unit.rows) && !moves_along(e, e.body, left, unit.columns) &&
               moves_along(e, e.body, right, unit.columns) && !moves_along(e, e.body, right, unit.rows) &&
               moves_along(e, e.body, left, unit.sum) && moves_along(e, e.body, right, unit.sum);
    };
    const ScalarId a = c->factors[0].node, b = c->factors[1].node;
    if (fits(a, b)) return MatrixFactors{a, b};
    if (fits(b, a)) return MatrixFactors{b, a};
    return std::nullopt;
}

bool left_along_rows(const TensorExpr& e, const MatrixUnit& unit) {
    if (!unit.group() || unit.type != MatrixType::TF32) return false;
    const auto factors = matrix_factors(e, unit);
    if (!factors || e.body[factors->left].op != ScalarOp::Access) return false;
    const std::vector<Expr>& index = e.accesses[e.body[factors->left].slot].index;
    if (index.empty() || index_uses({&index.back(), 1}, unit.sum)) return false;
    const auto along = linear_in(index.back(), {VarKind::Axis, static_cast<uint32_t>(unit.rows)});
    return along && along->coefficient.is_constant(1);
}

TileGrid tile_grid(const TensorExpr& e, const Micro& micro) {
    const MatrixUnit& u = *micro.matrix;
    const auto tile = [&](size_t a) {
        return a < micro.registers.size() ? std::max<int64_t>(1, micro.registers[a]) : 1;
    };
    TileGrid grid;
    grid.columns = (tile(u.columns) + kTileColumns - 1) / kTileColumns;
    const int64_t along_rows = (tile(u.rows) + kTileRows - 1) / kTileRows;
    grid.height = (tile(u.rows) + along_rows - 1) / along_rows;
    grid.rows = along_rows;
    for (size_t a = 0; a < e.spatial; ++a)
        if (a != u.rows && a != u.columns) grid.rows *= tile(a);
    return grid;
}

int64_t tile_step(int64_t extent, MatrixType type) {
    for (int64_t step = tile_sum(type); step >= tile_sum(type) / 4; step -= dot_step(type))
        if (extent % step == 0) return step;
    return 0;
}

int64_t dot_products_step(int64_t extent, MatrixType type) {
    const int64_t least = dot_step(type);
    for (int64_t step = type == MatrixType::F16 ? kF16Step : least; step >= least; step -= least)
        if (extent % step == 0) return step;
    return 0;
}

bool sums_in_f16(const TileProgram& program) {
    const Walk tree = walk(program);
    return std::any_of(tree.computes.begin(), tree.computes.end(), [](const auto& c) {
        const auto& unit = c.second->micro.matrix;
        return unit && unit->dot() && unit->type == MatrixType::F16;
    });
}

std::optional<TileSlots> tile_slots(const TensorExpr& e, const MatrixUnit& unit) {
    const auto factors = matrix_factors(e, unit);
    if (!factors) return std::nullopt;
    const auto c = contraction(e);
    const auto read = [&](ScalarId factor) { return c->factors[c->factors[0].node == factor ? 0 : 1].read; };
    if (!read(factors->left) || !read(factors->right)) return std::nullopt;
    return TileSlots{*read(factors->left), *read(factors->right)};
}

bool runs_along_sum(const Program& stages, const TensorExpr& e, uint32_t slot, const MatrixUnit& unit, int64_t step) {
    const Access& a = e.accesses[slot];
    const auto along = lane_stride(stages, e, a.value, a.index, unit.sum, static_cast<int>(step));
    return along && along->is_constant(1) &&
           (unit.dot() || axis_strides(stages, e, a.value, a.index)[unit.rows].has_value());
}

bool pairs_along_sum(const Program& stages, const TensorExpr& e, uint32_t slot, const MatrixUnit& unit, int64_t lanes) {
    const Access& a = e.accesses[slot];
    const auto across = lane_stride(stages, e, a.value, a.index, unit.columns, static_cast<int>(lanes));
    const int64_t step = dot_step(unit.type);
    const auto along = lane_stride(stages, e, a.value, a.index, unit.sum, static_cast<int>(step));
    return across && across->is_constant(step) && along && along->is_constant(1);
}

namespace {

/// Whether a right factor in a buffer of the task is stored in groups there.
bool buffer_has_pairs(const TileProgram& program, const TensorExpr& e, uint32_t slot, const Micro& m) {
    const ValueId v = e.accesses[slot].value;
    const auto layout = program.buffer_layouts.find(v);
    if (layout == program.buffer_layouts.end()) return false;
    Program stages;
    stages.values = program.stages.values;
    const std::vector<Expr> shape = stages.values[v].shape;
    stages.values[v].shape = physical_shape(layout->second, shape);
    TensorExpr inside = e;
    inside.accesses[slot].index = physical_index(layout->second, shape, e.accesses[slot].index);
    return pairs_along_sum(stages, inside, slot, *m.matrix, m.lanes);
}

}  // namespace

std::string matrix_operand_fault(const TileProgram& program, const Compute& compute) {
    const TensorExpr& e = *program.stages.primitives[compute.stage].expr();
    const Micro& m = compute.micro;
    const auto slots = tile_slots(e, *m.matrix);
    const std::string of(m.matrix->tile() ? "tile registers" : "dot products");
    if (!slots) return "the factors of " + of + " are plain reads";
    const auto type = [&](uint32_t slot) { return program.stages.values[e.accesses[slot].value].dtype; };
    const std::set<DType> stored = {type(slots->left), type(slots->right)};
    if (m.matrix->type == MatrixType::I8) {
        if (stored != std::set{DType::U8, DType::I8}) return "one factor of products of bytes is u8, the other i8";
    } else if (m.matrix->type == MatrixType::F16 && m.matrix->dot()) {
        if (stored != std::set{DType::F16}) return "the factors of " + of + " in f16 are stored in it";
    } else if (m.matrix->type != MatrixType::BF16 || stored != std::set{DType::BF16}) {
        return "the factors of " + of + " are stored in bf16";
    }
    const Walk tree = walk(program);
    const auto loaded = [&](uint32_t slot) {
        return std::any_of(tree.loads.begin(), tree.loads.end(),
                           [&](const auto& l) { return l.second->stage == compute.stage && l.second->access == slot; });
    };
    if (!loaded(slots->left) && !runs_along_sum(program.stages, e, slots->left, *m.matrix, m.registers[m.matrix->sum]))
        return "the left factor has no contiguous runs along the sum, or rows without a stride";
    if (!loaded(slots->right) && !pairs_along_sum(program.stages, e, slots->right, *m.matrix, m.lanes) &&
        !buffer_has_pairs(program, e, slots->right, m))
        return "the right factor is not stored in pairs along the sum";
    for (const uint32_t slot : {slots->left, slots->right})
        if (!loaded(slot) && !e.accesses[slot].valid.empty()) return "a factor of " + of + " has conditions";
    for (size_t a = 0; a < e.spatial; ++a)
        if (a != m.matrix->columns && m.registers[a] > 1 && moves_along(e, e.accesses[slots->right], a))
            return "the right factor moves along rows of the register tile";
    return {};
}

}  // namespace tilewright
