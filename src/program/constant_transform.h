#pragma once
// Constant-coefficient linear transforms: sums whose weights are a table in the expression itself, as in Winograd's
// transforms.
//
//     v[i0, i1] = sum(i2 < 6) weigh(table{...}(index(6*i0 + i2)), @0) where @0 = x[i1, i2]
//
// With the whole matrix known at compile time, terms with weight 0 are dropped, weights of 1 become plain additions,
// and common subexpressions of several rows are computed once.

#include <cstdint>
#include <optional>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct ConstantTransform {
    ScalarId weight, term;  ///< nodes of the body: weigh(weight, term)
    std::vector<uint32_t>
        rows;  ///< spatial axes that the weight depends on, ascending; the term depends on none of them
    std::vector<uint32_t> columns;  ///< the reduction axes
    std::vector<int64_t> row_extents, column_extents;
    /// Per row axis: if set, the weight depends on the axis modulo its row extent and the term on the quotient.
    /// Otherwise the row extent is the axis extent.
    ///     weigh(table{...}(index(6*(i0 % 4) + i2)), @0) where @0 = x[i0 // 4, i2, i1]
    std::vector<bool> periodic;
    std::vector<double> weights;  ///< [rows..., columns...]
    size_t row_count() const;
    size_t column_count() const;
    /// The row index for these coordinates of the expression's axes.
    size_t row_at(const std::vector<int64_t>& axes) const;
    /// The inverse for a column: sets its coordinates among those of the expression's axes.
    void to_column(size_t column, std::vector<int64_t>& axes) const;
};
constexpr int64_t kMaxWeights =
    65536;  ///< largest matrix: a three-dimensional Winograd transform has 144 x 144 entries
/// None if the expression is not such a transform, or the matrix has more than kMaxWeights entries.
std::optional<ConstantTransform> constant_transform(const TensorExpr& e);

/// A linear transform as short sums. Node k < inputs is column k; node inputs + k is sums[k], over earlier nodes.
struct SharedSums {
    struct Term {
        size_t node;
        double weight;
    };
    size_t inputs = 0;
    std::vector<std::vector<Term>> sums;      ///< each has at least one term
    std::vector<std::optional<size_t>> rows;  ///< the node that computes each row; none: 0
    /// Counts of additions, multiplications and multiply-adds.
    size_t operations() const;
};
/// Evaluates all rows with common subexpressions shared.
///  - A Kronecker product along two axes, M[(r, s), (c, d)] = P[r, c] Q[s, d], is applied along one axis and then along
///    the other: the 6 x 6 tiles of Winograd's F(4x4) take 264 operations instead of 484.
///  - Then the pair of terms that occurs in most rows with the same ratio is repeatedly replaced by a new sum:
///        4 b - 4 c - d + e,  -4 b - 4 c + d + e   ->   p = -4 c + e, q = 4 b - d, p + q, p - q
///    (144 operations).
SharedSums share_sums(const ConstantTransform& map);

/// The size of the transform, and the operation counts after share_sums. Cached, because searches evaluate the same
/// transforms repeatedly; thread-safe.
struct MapSize {
    double rows = 0, columns = 0, operations = 0;
};
std::optional<MapSize> map_size(const TensorExpr& e);

}  // namespace tilewright
