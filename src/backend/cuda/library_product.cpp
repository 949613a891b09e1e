#include "backend/cuda/library_product.h"

#include <algorithm>
#include <cmath>

#include "program/scalar_eval.h"
#include "schedule/default_schedule.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright::cuda {

namespace {

using Strides = std::vector<int64_t>;  ///< per axis of the expression

/// Axes that are one: their extents, and strides in each of the three tensors.
struct Axis {
    int64_t extent = 1;
    int64_t of[3] = {0, 0, 0};  ///< left, right, result
};

/// From the first element on; nothing where it is no row of numbers that axes walk through evenly.
std::optional<Strides> strides_of(const Program& stages, const TensorExpr& e, ValueId v,
                                  const std::vector<Expr>& index) {
    const auto found = axis_strides(stages, e, v, index);
    Strides out;
    for (const auto& s : found) {
        if (!s || !s->is_constant()) return std::nullopt;
        out.push_back(s->constant());
    }
    const std::vector<Expr> origin(e.extents.size(), Expr(0));
    for (const Expr& i : index)
        if (!substitute_axes(i, origin).is_constant(0)) return std::nullopt;
    return out;
}

/// One axis of all, if they lie in each tensor as one would.
std::optional<Axis> merged(std::vector<Axis> axes) {
    std::erase_if(axes, [](const Axis& a) { return a.extent == 1; });
    if (axes.empty()) return Axis{};
    std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
        return std::max({a.of[0], a.of[1], a.of[2]}) > std::max({b.of[0], b.of[1], b.of[2]});
    });
    Axis out = axes.back();
    for (size_t k = axes.size() - 1; k-- > 0;) {
        for (size_t t = 0; t < 3; ++t)
            if (axes[k].of[t] != out.of[t] * out.extent) return std::nullopt;
        out.extent *= axes[k].extent;
    }
    return out;
}

bool is_number(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

/// The epilogue's result for these numbers.
double evaluate_epilogue(const TensorExpr& e, double sum, double bias) {
    std::vector<ScalarValue> values;
    for (const ScalarNode& n : e.epilogue.nodes()) {
        ScalarValue v;
        if (n.op == ScalarOp::Acc)
            v.f = sum;
        else if (n.op == ScalarOp::Access)
            v.f = bias;
        else if (n.op == ScalarOp::Const)
            v = {n.value, n.int_value};
        else {
            const auto at = [&](ScalarId k) { return k ? values[k.value] : ScalarValue{}; };
            const ScalarId operand = n.op == ScalarOp::Select ? n.b : n.a;
            v = eval_scalar(n.op, n.dtype, e.epilogue[operand].dtype, at(n.a), at(n.b), at(n.c));
        }
        values.push_back(v);
    }
    return values[e.epilogue.root().value].f;
}

/// Whether the node is x + bias or x, where x is the sum, behind casts.
bool is_biased_sum(const TensorExpr& e, ScalarId id, std::optional<uint32_t>& bias) {
    const ScalarNode& n = e.epilogue[id];
    if (n.op == ScalarOp::Acc) return true;
    if (n.op == ScalarOp::Cast) return is_biased_sum(e, n.a, bias);
    if (n.op != ScalarOp::Add || bias) return false;
    const auto slot = [&](ScalarId k) -> std::optional<uint32_t> {
        while (e.epilogue[k].op == ScalarOp::Cast) k = e.epilogue[k].a;
        if (e.epilogue[k].op != ScalarOp::Access) return std::nullopt;
        return e.epilogue[k].slot;
    };
    if ((bias = slot(n.b)) && is_biased_sum(e, n.a, bias)) return true;
    bias.reset();
    return (bias = slot(n.a)) && is_biased_sum(e, n.b, bias);
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

struct Epilogue {
    LibraryEpilogue kind = LibraryEpilogue::None;
    std::optional<uint32_t> bias;
};
std::optional<Epilogue> epilogue_of(const TensorExpr& e) {
    Epilogue out;
    if (e.epilogue.empty()) return out;
    ScalarId root = e.epilogue.root();
    while (e.epilogue[root].op == ScalarOp::Cast) root = e.epilogue[root].a;
    const ScalarNode& n = e.epilogue[root];
    if (is_biased_sum(e, root, out.bias)) return out;
    out.bias.reset();
    const auto zero = [&](ScalarId k) { return e.epilogue[k].op == ScalarOp::Const && e.epilogue[k].value == 0; };
    if (n.op == ScalarOp::Max && (zero(n.a) || zero(n.b))) {
        out.kind = LibraryEpilogue::Relu;
        if (is_biased_sum(e, zero(n.a) ? n.b : n.a, out.bias)) return out;
        return std::nullopt;
    }
    // Smooth functions of one number, x + bias, that agree with gelu wherever they are looked at.
    bool tanh = false;
    for (const ScalarNode& k : e.epilogue.nodes()) {
        switch (k.op) {
            case ScalarOp::Tanh:
                tanh = true;
                break;
            case ScalarOp::Access:
                if (out.bias && *out.bias != k.slot) return std::nullopt;
                out.bias = k.slot;
                break;
            case ScalarOp::Acc:
            case ScalarOp::Const:
            case ScalarOp::Add:
            case ScalarOp::Mul:
            case ScalarOp::Pow:
            case ScalarOp::Cast:
                break;
            default:
                return std::nullopt;
        }
    }
    if (!tanh) return std::nullopt;
    for (double x = -9; x < 9; x += 0.37)
        for (const double bias : {0.0, 0.7, -2.3}) {
            if (bias != 0 && !out.bias) continue;
            const double wanted = gelu(x + bias);
            if (!(std::fabs(evaluate_epilogue(e, x, bias) - wanted) <= 1e-5 * (1 + std::fabs(wanted))))
                return std::nullopt;
        }
    out.kind = LibraryEpilogue::Gelu;
    return out;
}

size_t tensor_of(const Program& p, ValueId v) {
    return static_cast<size_t>(std::find(p.inputs.begin(), p.inputs.end(), v) - p.inputs.begin());
}

/// How a matrix lies whose row goes along `row` and whose column along `column`; nothing where neither is side by side.
std::optional<LibraryProduct::Matrix> matrix(const Axis& row, const Axis& column, const Axis& batch, size_t which) {
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
    if (e.reducer != Reducer::Sum || e.body.empty()) return std::nullopt;
    const ScalarNode& root = e.body[e.body.root()];
    if (root.op != ScalarOp::Mul || root.dtype != DType::F32) return std::nullopt;
    const auto slot = [&](ScalarId k) -> std::optional<uint32_t> {
        while (e.body[k].op == ScalarOp::Cast) k = e.body[k].a;
        if (e.body[k].op != ScalarOp::Access) return std::nullopt;
        return e.body[k].slot;
    };
    std::optional<uint32_t> operands[2] = {slot(root.a), slot(root.b)};
    const auto epilogue = epilogue_of(e);
    if (!operands[0] || !operands[1] || !epilogue) return std::nullopt;
    for (const Access& a : e.accesses)
        if (!a.valid.empty()) return std::nullopt;
    for (const Expr& x : e.extents)
        if (!x.is_constant()) return std::nullopt;

    const ValueId result = stages.primitives[id].outputs[0];
    const auto out = strides_of(stages, e, result, result_index(e));
    if (!out) return std::nullopt;
    // The right operand is the one along which the result's elements lie side by side.
    Strides of[2];
    for (size_t k = 0; k < 2; ++k) {
        const Access& a = e.accesses[*operands[k]];
        const auto s = strides_of(stages, e, a.value, a.index);
        if (!s || !is_number(stages.values[a.value].dtype)) return std::nullopt;
        of[k] = *s;
    }
    size_t right = 1;
    for (size_t a = 0; a < e.spatial; ++a)
        if ((*out)[a] == 1 && e.extents[a].constant() > 1) right = of[1][a] != 0 ? 1 : 0;
    std::vector<Axis> batch, rows, columns, sum;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const Axis axis{e.extents[a].constant(), {of[1 - right][a], of[right][a], a < e.spatial ? (*out)[a] : 0}};
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
    const auto m = merged(rows), n = merged(columns), k = merged(sum), b = merged(batch);
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
    const ValueId left_value = e.accesses[*operands[1 - right]].value, right_value = e.accesses[*operands[right]].value;
    name(p.left, left_value, tensor_of(stages, left_value));
    name(p.right, right_value, tensor_of(stages, right_value));
    name(p.result, result, stages.inputs.size());
    if (p.left.type != p.right.type || (p.result.type != p.left.type && p.result.type != DType::F32))
        return std::nullopt;
    p.epilogue = epilogue->kind;
    if (epilogue->bias) {
        const Access& a = e.accesses[*epilogue->bias];
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
    const Walk tree = walk(kernel);
    for (const auto& [path, compute] : tree.computes)
        if (compute->micro.matrix && p.left.type == DType::F32)
            p.precision = compute->micro.matrix->type == MatrixType::TF32  ? Precision::TF32
                          : compute->micro.matrix->type == MatrixType::F16 ? Precision::F16
                                                                           : Precision::BF16;
    return p;
}

}  // namespace tilewright::cuda
