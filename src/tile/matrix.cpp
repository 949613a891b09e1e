#include "tile/matrix.h"

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"

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

std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit) {
    const auto c = contraction(e);
    if (!c || c->type != DType::F32) return std::nullopt;
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

}  // namespace tilewright
