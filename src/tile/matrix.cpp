#include "tile/matrix.h"

#include <algorithm>

namespace tilewright {

std::string_view to_string(MatrixType t) {
    switch (t) {
        case MatrixType::TF32:
            return "tf32";
        case MatrixType::F16:
            return "f16";
        case MatrixType::BF16:
            return "bf16";
    }
    return "?";
}

int64_t matrix_sum(MatrixType t) { return t == MatrixType::TF32 ? 8 : 16; }

namespace {

bool access_moves(const TensorExpr& e, size_t slot, size_t a);

bool index_moves(const TensorExpr& e, Expr i, size_t a) {
    const std::vector<Var> all = variables(i);
    return std::any_of(all.begin(), all.end(), [&](Var v) {
        return (v.kind == VarKind::Axis && v.id == a) || (v.kind == VarKind::Load && access_moves(e, v.id, a));
    });
}

bool access_moves(const TensorExpr& e, size_t slot, size_t a) {
    const Access& access = e.accesses[slot];
    const auto moves = [&](Expr i) { return index_moves(e, i, a); };
    return std::any_of(access.index.begin(), access.index.end(), moves) ||
           std::any_of(access.valid.begin(), access.valid.end(), moves);
}

}  // namespace

bool moves_along(const TensorExpr& e, const ScalarBody& body, ScalarId node, size_t axis) {
    std::vector<bool> moves;  // by node; operands come first
    for (const ScalarNode& n : body.nodes()) {
        bool here = n.op == ScalarOp::Access ? access_moves(e, n.slot, axis)
                                             : n.op == ScalarOp::Index && index_moves(e, n.index, axis);
        for (const ScalarId k : {n.a, n.b, n.c}) here = here || (k && moves[k.value]);
        moves.push_back(here);
    }
    return moves[node.value];
}

std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit) {
    const ScalarNode& root = e.body[e.body.root()];
    if (e.reducer != Reducer::Sum || root.op != ScalarOp::Mul || root.dtype != DType::F32) return std::nullopt;
    const auto fits = [&](ScalarId left, ScalarId right) {
        return moves_along(e, e.body, left, unit.rows) && !moves_along(e, e.body, left, unit.columns) &&
               moves_along(e, e.body, right, unit.columns) && !moves_along(e, e.body, right, unit.rows) &&
               moves_along(e, e.body, left, unit.sum) && moves_along(e, e.body, right, unit.sum);
    };
    if (fits(root.a, root.b)) return MatrixFactors{root.a, root.b};
    if (fits(root.b, root.a)) return MatrixFactors{root.b, root.a};
    return std::nullopt;
}

}  // namespace tilewright
