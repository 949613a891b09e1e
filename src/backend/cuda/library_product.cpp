// Kernels that are products of matrices.

#include <algorithm>

#include "backend/cuda/library_operands.h"
#include "program/analysis/contraction.h"

namespace tilewright::cuda {

namespace {

/// How a matrix lies whose row goes along `row` and whose column along `column`; nothing where neither is side by side.
std::optional<LibraryProduct::Matrix> matrix(const LibraryAxis& row, const LibraryAxis& column,
                                             const LibraryAxis& batch, size_t which) {
    LibraryProduct::Matrix m;
    const int64_t down = row.of[which], along = column.of[which];
    m.turned = !(along == 1 || column.extent == 1) || (column.extent == 1 && down == 1 && row.extent > 1);
    if (m.turned && down != 1 && row.extent != 1) return std::nullopt;
    const int64_t stride = m.turned ? along : down, least = m.turned ? row.extent : column.extent;
    const int64_t count = m.turned ? column.extent : row.extent;
    if (count > 1 && stride < least) return std::nullopt;  // rows that overlap
    m.stride = std::max(stride, least);
    m.of_batch = batch.of[which];
    return m;
}

}  // namespace

std::optional<LibraryProduct> library_product(const TileProgram& kernel) {
    const Program& stages = kernel.stages;
    if (stages.primitives.size() != 1 || stages.outputs.size() != 1) return std::nullopt;
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const auto c = contraction(e);
    const auto epilogue = epilogue_of(e, 1);
    if (!c || c->type != DType::F32 || !c->reads_plainly() || !epilogue) return std::nullopt;
    for (const Access& a : e.accesses)
        if (!a.valid.empty()) return std::nullopt;
    for (const Expr& x : e.extents)
        if (!x.is_constant()) return std::nullopt;

    const ValueId result = stages.primitives[id].outputs[0];
    const auto out = strides_of(stages, e, result, result_index(e));
    if (!out) return std::nullopt;
    // The right operand is the one along which the result's elements lie side by side.
    AxisStrides of[2];
    for (size_t k = 0; k < 2; ++k) {
        const Access& a = e.accesses[*c->factors[k].slot];
        const auto s = strides_of(stages, e, a.value, a.index);
        if (!s || !is_library_number(stages.values[a.value].dtype)) return std::nullopt;
        of[k] = *s;
    }
    size_t right = 1;
    for (size_t a = 0; a < e.spatial; ++a)
        if ((*out)[a] == 1 && e.extents[a].constant() > 1) right = of[1][a] != 0 ? 1 : 0;
    std::vector<LibraryAxis> batch, rows, columns, sum;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const LibraryAxis axis{e.extents[a].constant(),
                               {of[1 - right][a], of[right][a], a < e.spatial ? (*out)[a] : 0}};
        if (axis.extent == 1) continue;
        const bool l = axis.of[0] != 0, r = axis.of[1] != 0;
        if (a >= e.spatial) {
            if (!l || !r) return std::nullopt;
            sum.push_back(axis);
        } else if (l && r) {
            batch.push_back(axis);
        } else if (l || r) {
            (l ? rows : columns).push_back(axis);
        } else {
            return std::nullopt;
        }
    }
    const auto m = merged(rows, 3), n = merged(columns, 3), k = merged(sum, 3), b = merged(batch, 3);
    if (!m || !n || !k || !b) return std::nullopt;
    LibraryProduct p;
    p.batch = b->extent;
    p.rows = m->extent;
    p.columns = n->extent;
    p.sum = k->extent;
    const auto left_matrix = matrix(*m, *k, *b, 0), right_matrix = matrix(*k, *n, *b, 1),
               result_matrix = matrix(*m, *n, *b, 2);
    if (!left_matrix || !right_matrix || !result_matrix || result_matrix->turned) return std::nullopt;
    p.left = *left_matrix;
    p.right = *right_matrix;
    p.result = *result_matrix;
    const auto name = [&](LibraryProduct::Matrix& to, ValueId v, size_t tensor) {
        to.tensor = tensor;
        to.type = stages.values[v].dtype;
    };
    const ValueId left_value = e.accesses[*c->factors[1 - right].slot].value;
    const ValueId right_value = e.accesses[*c->factors[right].slot].value;
    name(p.left, left_value, tensor_of(stages, left_value));
    name(p.right, right_value, tensor_of(stages, right_value));
    name(p.result, result, stages.inputs.size());
    if (p.left.type != p.right.type || (p.result.type != p.left.type && p.result.type != DType::F32))
        return std::nullopt;
    p.epilogue = epilogue->kind;
    if (!epilogue->added.empty()) {
        const Access& a = e.accesses[epilogue->added[0]];
        const auto s = strides_of(stages, e, a.value, a.index);
        if (!s || stages.values[a.value].dtype != p.result.type) return std::nullopt;
        // One for each column, whatever the row.
        int64_t seen = 1;
        for (size_t x = 0; x < e.extents.size(); ++x) {
            const bool column = x < e.spatial && of[right][x] != 0 && of[1 - right][x] == 0;
            if (e.extents[x].constant() == 1) continue;
            if (!column ? (*s)[x] != 0 : (*s)[x] != (*out)[x]) return std::nullopt;
            if (column) seen *= e.extents[x].constant();
        }
        if (seen != p.columns) return std::nullopt;
        p.bias = tensor_of(stages, a.value);
    }
    if (p.left.type == DType::F32) p.precision = precision_of(kernel);
    return p;
}

}  // namespace tilewright::cuda
