#pragma once
// Index maps as values: functions from points of one box to points of another.
//
//     [8, 4] -> [4*i0 + i1]          fuses two axes
//     [32] -> [i0 // 4, i0 % 4]      its inverse
//
// A point of the domain is (i0, i1, ...) with 0 <= ik < extents[k]. Extents are uniform expressions (is_uniform).

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "index/expr.h"

namespace tilewright {

struct IndexMap {
    std::vector<Expr> extents;  ///< of the domain
    std::vector<Expr> results;  ///< over axes 0 .. extents.size()-1

    Ranges ranges() const { return Ranges::of_extents(extents); }
    friend bool operator==(const IndexMap&, const IndexMap&) = default;
};

IndexMap identity_map(std::span<const Expr> extents);
/// From the box in which `axis` is split into extent / factor and factor, to the original box:
///     split_axis([32], 0, 4)  =  [8, 4] -> [4*i0 + i1].   `factor` must divide the extent.
IndexMap split_axis(std::span<const Expr> extents, size_t axis, Expr factor);
/// From the box in which axes first .. first+count-1 are fused, row-major, to the original box:
///     fuse_axes([8, 4], 0, 2)  =  [32] -> [i0 // 4, i0 % 4]
IndexMap fuse_axes(std::span<const Expr> extents, size_t first, size_t count);
/// From the permuted box to the original: new axis k is old axis permutation[k].
///     permute_axes([2, 3], {1, 0})  =  [3, 2] -> [i1, i0]
IndexMap permute_axes(std::span<const Expr> extents, std::span<const size_t> permutation);
/// [n] -> [-i0 + n - 1] on one axis.
IndexMap reverse_axis(std::span<const Expr> extents, size_t axis);

/// x -> outer(inner(x)); `inner` must give points of outer's domain.
IndexMap compose(const IndexMap& outer, const IndexMap& inner);
/// Simplifies the results under the domain's ranges.
IndexMap simplify(const IndexMap& map);

/// The inverse of a map that is a bijection from its domain onto the box `codomain`. Supported are compositions of
/// splits, fuses, mixed-radix digits (also of sums: a reshape), permutations and reversals; extents and factors may be
/// symbolic where they divide as expressions. Nothing for any other map: a result proves that the map is a bijection
/// (if every symbol is >= 1).
std::optional<IndexMap> invert(const IndexMap& map, std::span<const Expr> codomain);

/// "[8, 4] -> [4*i0 + i1]"
std::string print(const IndexMap& map);

}  // namespace tilewright
