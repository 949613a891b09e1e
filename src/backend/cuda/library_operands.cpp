#include "backend/cuda/library_operands.h"

#include <algorithm>
#include <cmath>

#include "program/scalar_eval.h"
#include "schedule/default_schedule.h"
#include "tile/walk.h"

namespace tilewright::cuda {

std::optional<AxisStrides> strides_of(const Program& stages, const TensorExpr& e, ValueId v,
                                      const std::vector<Expr>& index) {
    AxisStrides out;
    for (const auto& s : axis_strides(stages, e, v, index)) {
        if (!s || !s->is_constant()) return std::nullopt;
        out.push_back(s->constant());
    }
    const std::vector<Expr> origin(e.extents.size(), Expr(0));
    for (const Expr& i : index)
        if (!substitute_axes(i, origin).is_constant(0)) return std::nullopt;
    return out;
}

std::optional<LibraryAxis> merged(std::vector<LibraryAxis> axes, size_t tensors) {
    std::erase_if(axes, [](const LibraryAxis& a) { return a.extent == 1; });
    if (axes.empty()) return LibraryAxis{1, std::vector<int64_t>(tensors)};
    const auto longest = [](const LibraryAxis& a) { return *std::max_element(a.of.begin(), a.of.end()); };
    std::sort(axes.begin(), axes.end(),
              [&](const LibraryAxis& a, const LibraryAxis& b) { return longest(a) > longest(b); });
    LibraryAxis out = axes.back();
    for (size_t k = axes.size() - 1; k-- > 0;) {
        for (size_t t = 0; t < tensors; ++t)
            if (axes[k].of[t] != out.of[t] * out.extent) return std::nullopt;
        out.extent *= axes[k].extent;
    }
    return out;
}

bool is_library_number(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

size_t tensor_of(const Program& stages, ValueId v) {
    const auto in = std::find(stages.inputs.begin(), stages.inputs.end(), v);
    if (in != stages.inputs.end()) return static_cast<size_t>(in - stages.inputs.begin());
    const auto out = std::find(stages.outputs.begin(), stages.outputs.end(), v);
    return stages.inputs.size() + static_cast<size_t>(out - stages.outputs.begin());
}

Precision precision_of(const TileProgram& kernel) {
    const Walk tree = walk(kernel);
    Precision out = Precision::F32;
    for (const auto& [path, compute] : tree.computes)
        if (compute->micro.matrix)
            out = compute->micro.matrix->type == MatrixType::TF32  ? Precision::TF32
                  : compute->micro.matrix->type == MatrixType::F16 ? Precision::F16
                                                                   : Precision::BF16;
    return out;
}

std::optional<uint32_t> plain_access(const ScalarBody& body, ScalarId node) {
    while (body[node].op == ScalarOp::Cast) node = body[node].a;
    if (body[node].op != ScalarOp::Access) return std::nullopt;
    return body[node].slot;
}

namespace {

/// The epilogue's result for a sum and the total of what is added to it.
double evaluate_epilogue(const TensorExpr& e, double sum, const std::vector<uint32_t>& added, double addend) {
    std::vector<ScalarValue> values;
    for (const ScalarNode& n : e.epilogue.nodes()) {
        ScalarValue v;
        if (n.op == ScalarOp::Acc)
            v.f = sum;
        else if (n.op == ScalarOp::Access)
            v.f = addend / static_cast<double>(added.size());
        else if (n.op == ScalarOp::Const)
            v = {n.value, n.int_value};
        else {
            const auto at = [&](ScalarId k) { return k ? values[k.value] : ScalarValue{}; };
            const ScalarId operand = n.op == ScalarOp::Select ? n.b : n.a;
            v = eval_node(n, e.epilogue[operand].dtype, at(n.a), at(n.b), at(n.c));
        }
        values.push_back(v);
    }
    return values[e.epilogue.root().value].f;
}

/// Whether the node is the sum and accesses, each added once, behind casts.
bool is_sum_with(const TensorExpr& e, ScalarId id, std::vector<uint32_t>& added) {
    const ScalarNode& n = e.epilogue[id];
    if (n.op == ScalarOp::Acc) return true;
    if (n.op == ScalarOp::Cast) return is_sum_with(e, n.a, added);
    if (n.op != ScalarOp::Add) return false;
    for (const auto& [operand, rest] : {std::pair(n.b, n.a), std::pair(n.a, n.b)})
        if (const auto slot = plain_access(e.epilogue, operand)) {
            if (std::find(added.begin(), added.end(), *slot) != added.end()) return false;
            added.push_back(*slot);
            if (is_sum_with(e, rest, added)) return true;
            added.pop_back();
        }
    return false;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

}  // namespace

std::optional<EpilogueOperands> epilogue_of(const TensorExpr& e, size_t most) {
    EpilogueOperands out;
    if (e.epilogue.empty()) return out;
    const auto allowed = [&]() -> std::optional<EpilogueOperands> {
        if (out.added.size() > most) return std::nullopt;
        return out;
    };
    ScalarId root = e.epilogue.root();
    while (e.epilogue[root].op == ScalarOp::Cast) root = e.epilogue[root].a;
    const ScalarNode& n = e.epilogue[root];
    if (is_sum_with(e, root, out.added)) return allowed();
    out.added.clear();
    const auto zero = [&](ScalarId k) { return e.epilogue[k].op == ScalarOp::Const && e.epilogue[k].value == 0; };
    if (n.op == ScalarOp::Max && (zero(n.a) || zero(n.b))) {
        out.kind = LibraryEpilogue::Relu;
        if (is_sum_with(e, zero(n.a) ? n.b : n.a, out.added)) return allowed();
        return std::nullopt;
    }
    // Smooth functions of one number, the sum with what is added to it, that agree with gelu wherever they are looked
    // at.
    bool tanh = false;
    for (const ScalarNode& k : e.epilogue.nodes()) {
        switch (k.op) {
            case ScalarOp::Tanh:
                tanh = true;
                break;
            case ScalarOp::Access:
                if (std::find(out.added.begin(), out.added.end(), k.slot) == out.added.end())
                    out.added.push_back(k.slot);
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
    if (!tanh || out.added.size() > 1) return std::nullopt;
    for (double x = -9; x < 9; x += 0.37)
        for (const double addend : {0.0, 0.7, -2.3}) {
            if (addend != 0 && out.added.empty()) continue;
            const double wanted = gelu(x + addend);
            if (!(std::fabs(evaluate_epilogue(e, x, out.added, addend) - wanted) <= 1e-5 * (1 + std::fabs(wanted))))
                return std::nullopt;
        }
    out.kind = LibraryEpilogue::Gelu;
    return allowed();
}

std::optional<LibraryKernel> library_kernel(const TileProgram& kernel) {
    if (const auto p = library_product(kernel)) return *p;
    if (const auto c = library_convolution(kernel)) return *c;
    if (const auto a = library_attention(kernel)) return *a;
    return std::nullopt;
}

}  // namespace tilewright::cuda
