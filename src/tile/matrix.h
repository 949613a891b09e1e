#pragma once
// Contractions on matrix instructions: the shape of an instruction, and the expressions that it computes.

#include <optional>

#include "tile/tile.h"

namespace tilewright {

// The shape of mma.sync for sm_80 and newer (PTX ISA, "Warp-level matrix instructions"): 16 x 8 results.
inline constexpr int64_t kMatrixRows = 16, kMatrixColumns = 8;
/// Rows of a warpgroup instruction, wgmma ("Asynchronous warpgroup level matrix instructions").
inline constexpr int64_t kGroupRows = 64;
inline int64_t matrix_rows(const MatrixUnit& unit) { return unit.group ? kGroupRows : kMatrixRows; }
/// Reduction length of one instruction: 8 for tf32, 16 for f16 and bf16.
int64_t matrix_sum(MatrixType t);

/// The two factors of a contraction: nodes of the expression's body. `left` depends on the rows.
struct MatrixFactors {
    ScalarId left, right;
};
/// Returns nothing unless the expression is a sum of products of f32 numbers in which one factor depends on the rows
/// and the other on the columns only. A factor may be any expression; it is evaluated before the multiplication.
///     sum_k relu(x[m,k]) * w[n,k], rows m, columns n:  left relu(x[m,k]), right w[n,k]
std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit);

}  // namespace tilewright
