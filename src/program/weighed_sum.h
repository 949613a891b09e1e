#pragma once
// Sums whose terms are weighed by numbers that the expression itself names: small linear maps, as Winograd's
// transforms.
//
//     v[i0, i1] = sum(i2 < 6) weigh(table{...}(index(6*i0 + i2)), @0) where @0 = x[i1, i2]
//
// Who has all rows of the matrix and all terms of the sum at hand leaves out weights of 0, adds where they are 1, and
// computes once what several rows have in common.

#include <cstdint>
#include <optional>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct WeighedSum {
    ScalarId weight, term;          ///< of the body: weigh(weight, term)
    std::vector<uint32_t> rows;     ///< spatial axes that the weight depends on, ascending; the term on none
    std::vector<uint32_t> columns;  ///< the reduction axes
    std::vector<int64_t> row_extents, column_extents;
    /// Per row axis: the weight depends on the axis modulo its row extent, the term on the quotient. Else the row
    /// extent is the axis'.
    ///     weigh(table{...}(index(6*(i0 % 4) + i2)), @0) where @0 = x[i0 // 4, i2, i1]
    std::vector<bool> periodic;
    std::vector<double> weights;  ///< [rows..., columns...]
    size_t row_count() const;
    size_t column_count() const;
    /// The number of the row at these coordinates of the expression's axes.
    size_t row_at(const std::vector<int64_t>& axes) const;
    /// The same the other way for a column: its coordinates, among those of the expression's axes.
    void to_column(size_t column, std::vector<int64_t>& axes) const;
};
constexpr int64_t kMostWeights = 65536;  ///< of a map: three dimensions of Winograd's have 144 x 144
/// Nothing where the expression is none, or the matrix has more than kMostWeights numbers.
std::optional<WeighedSum> weighed_sum(const TensorExpr& e);

/// A linear map as sums of few terms. Node k < inputs is column k; node inputs + k is sums[k], of earlier nodes.
struct SharedSums {
    struct Term {
        size_t node;
        double weight;
    };
    size_t inputs = 0;
    std::vector<std::vector<Term>> sums;      ///< of at least one term each
    std::vector<std::optional<size_t>> rows;  ///< the node that each row is; none: 0
    /// Additions, multiplications and multiply-adds.
    size_t operations() const;
};
/// The columns' sums for all rows.
///  - What is a product of maps along two axes, M[(r, s), (c, d)] = P[r, c] Q[s, d], is first mapped along one and then
///    along the other: 6 x 6 tiles of Winograd's F(4x4) take 264 operations in place of 484.
///  - Of what is left, the pair of terms that most rows have at the same ratio is summed up once, again and again:
///        4 b - 4 c - d + e,  -4 b - 4 c + d + e   ->   p = -4 c + e, q = 4 b - d, p + q, p - q
///    (144 operations).
SharedSums share_sums(const WeighedSum& map);

/// How large the map is, and what share_sums makes of it. Remembered, as searches ask for the same maps again and
/// again; thread-safe.
struct MapSize {
    double rows = 0, columns = 0, operations = 0;
};
std::optional<MapSize> map_size(const TensorExpr& e);

}  // namespace tilewright
