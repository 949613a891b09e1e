#pragma once
// The memory layout of a tensor: a sequence of ALT's primitives (ALT §4.1) applied to its logical shape. A layout is
// data, not operator code: for a new layout the index maps of the primitives that access the tensor are rewritten.
//
//     [N, C, H, W]  split(1, 16)  -> [N, C/16, 16, H, W]   reorder(0,1,3,4,2)  -> [N, C/16, H, W, 16]
//
// Physical element order is row-major over the final dimensions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "index/expr.h"

namespace tilewright {

namespace layout {

/// Dimension `dim` of extent D becomes two, ceil(D / factor) and factor. If factor does not divide D, the end of the
/// last block is padded (ALT requires divisors; a preceding `pad` expresses the same explicitly).
struct Split {
    size_t dim = 0;
    int64_t factor = 1;
};
/// New dimension k is old dimension permutation[k].
struct Reorder {
    std::vector<size_t> permutation;
};
/// Dimensions dim, dim+1, ..., dim+count-1 become one, row-major.
struct Fuse {
    size_t dim = 0;
    size_t count = 2;
};
/// Overlapped tiles: extent D becomes [ceil((D - tile) / stride) + 1, tile]; element j of tile t is element t*stride +
/// j. Elements of an overlap are stored more than once (ALT §4.1.2); elements beyond the end are zero.
struct Unfold {
    size_t dim = 0;
    int64_t tile = 1;
    int64_t stride = 1;
};
/// `before` and `after` zeros around dimension `dim`.
struct Pad {
    size_t dim = 0;
    int64_t before = 0, after = 0;
};
/// The elements of this tensor are stored inside another tensor, whose dimension `dim` has `size` elements, from
/// `offset` on (ALT's store_at, e.g. a bias stored as one more row of a weight matrix).
struct StoreAt {
    std::string host;
    size_t dim = 0;
    int64_t offset = 0;
    int64_t size = 0;
};

using Primitive = std::variant<Split, Reorder, Fuse, Unfold, Pad, StoreAt>;

}  // namespace layout

struct Layout {
    std::vector<layout::Primitive> primitives;
    bool is_identity() const { return primitives.empty(); }
    friend bool operator==(const Layout& a, const Layout& b);
};

/// Physical dimensions of a tensor of `shape` in this layout. Throws ModelError if the layout does not fit the shape.
std::vector<Expr> physical_shape(const Layout& layout, std::span<const Expr> shape);
/// The physical index of the logical element `index`: S_X of ALT §6. Of an unfolded element's copies it selects the one
/// in the last tile that begins at or before it. A reader of windows needs a whole window in one tile instead: `window`
/// (one expression per dimension, the window's first element; empty: the index itself) selects the tile (ALT §4.1.2,
/// equation 1):
///     unfold(0, 6, 4), index 2*i0 + i1, window 2*i0   ->   [2*i0 // 4, 2*i0 + i1 - 4*(2*i0 // 4)] = [i0 // 2, ...]
/// The window is in the tile if B >= M + (the largest start in a tile), as for B = V*(t - 1) + M, S = V*t, stride V.
std::vector<Expr> physical_index(const Layout& layout, std::span<const Expr> shape, std::span<const Expr> index,
                                 std::span<const Expr> window = {});
/// The inverse: the logical element at physical `index` (S^-1 of ALT §6), and the conditions (each >= 0) under which it
/// is an element and not padding.
struct LogicalIndex {
    std::vector<Expr> index;
    std::vector<Expr> valid;
};
LogicalIndex logical_index(const Layout& layout, std::span<const Expr> shape, std::span<const Expr> index);
/// The same data in the layout; padding is zero. Transforms constants at compile time.
Tensor to_physical(const Layout& layout, const Tensor& logical);
/// The tensor of `shape` stored in `physical`; includes fold, unpad and decouple_at (ALT §4.1.2).
Tensor to_logical(const Layout& layout, const Tensor& physical, const Shape& shape);

/// "split(1, 16) reorder(0, 1, 3, 4, 2)"; "" for row-major.
std::string print(const Layout& layout);
Layout parse_layout(std::string_view text);

}  // namespace tilewright
