#pragma once
// Products on matrix instructions: what one instruction multiplies, and which expressions it fits.

#include <optional>

#include "tile/tile.h"

namespace tilewright {

// The shape of mma.sync for sm_80 and newer (PTX ISA, "Warp-level matrix instructions"): 16 x 8 results.
inline constexpr int64_t kMatrixRows = 16, kMatrixColumns = 8;
/// Rows of an instruction of four warps, wgmma ("Asynchronous warpgroup level matrix instructions").
inline constexpr int64_t kGroupRows = 64;
inline int64_t matrix_rows(const MatrixUnit& unit) { return unit.group ? kGroupRows : kMatrixRows; }
/// How many products an instruction adds up for each result: 8 for tf32, 16 for f16 and bf16.
int64_t matrix_sum(MatrixType t);

/// The two factors of a product: nodes of the expression's body. `left` moves along the rows.
struct MatrixFactors {
    ScalarId left, right;
};
/// Nothing where the expression is no sum of products of f32 numbers, or not one factor moves along the rows and the
/// other along the columns alone. A factor may be any expression: it is evaluated before it is multiplied.
///     sum_k relu(x[m,k]) * w[n,k], rows m, columns n:  left relu(x[m,k]), right w[n,k]
std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit);

}  // namespace tilewright
