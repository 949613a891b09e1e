#pragma once
// Products with quantised weights and many rows.

#include <optional>

#include "cost/target.h"
#include "tile/tile.h"

namespace tilewright {

/// The schedule of a product that decodes its weights (program/transform/quantised_weights.h): a task decodes a panel
/// of columns into its scratch, for the products of all rows.
///
///     y[m,n] = sum(b, i, j) x[m, 32 b + 8 i + j] * (numbers[words[4 b + i, n] >> 4 j & 15] * s[b, n])
///  -> parallel n by 64 {
///         w[32 b + 8 i + j, n] = numbers[words[4 b + i, n] >> 4 j & 15] * s[b, n]
///         y[m,n] = sum(k) x[m,k] * w[k,n]
///     }
///
/// Weights of f16 are converted in the same way. The panel has the type of the data: f32, or bf16 for matrix
/// instructions, in pairs along the sum. nullopt: the stages are no such product, it has so few rows that the register
/// tile decodes the weights once anyway, or f16 is multiplied as it is (Target::f16_sums).
std::optional<TileProgram> decoded_panels(const Program& stages, const Target& target);

}  // namespace tilewright
