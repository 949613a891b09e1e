#pragma once
// Layout templates of contractions (ALT §5.1): the tensors of a product or a convolution are cut into tiles, and the
// tile of the channels is the last dimension. The sizes of the tiles are the parameters.
//
//     convolution    result   N H/h W/w O/o  h w o
//                    data     N H/h W/w I/i  B(h) B(w) i       unfolded: tiles overlap
//                    weights  O/o' I/i' KH KW  i' o'
//     product        result   M/m N/n  m n        operands   M/m K/k  m k    and    K/k N/n  k n
//
// A template follows from the access functions of the contraction alone. One to three dimensions of space, strides,
// dilations, groups, depthwise and transposed convolutions, and batches of products therefore need no case of their
// own. A window of K taps reads the data at V*y + D*r + c. Its tile of h results reads
//     B(h) = V (h - 1) + |D| (K - 1) + 1   elements, and the tiles are V*h apart.
// The paper's B(h) = h + K - 1, for tiles h apart, is the case V = D = 1.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/propagate.h"

namespace tilewright {

/// A tile size to select.
struct LayoutParameter {
    std::string name;              ///< of the tables above: "h", "o", "i'"; "h2" is the outer tile of two levels
    int64_t extent = 1;            ///< of the dimension
    std::vector<int64_t> factors;  ///< to select from, ascending; 1: no tiles; the extent: one tile
    bool innermost = false;        ///< of the channels, the last dimension, along which vectors run
};

/// One factor for each parameter.
using LayoutPoint = std::vector<int64_t>;

class LayoutTemplate {
  public:
    const std::vector<LayoutParameter>& parameters() const { return parameters_; }
    /// The number of points, valid or not.
    double size() const;
    /// Whether the outer tiles of two levels consist of whole inner tiles.
    bool valid(const LayoutPoint& point) const;
    /// The layouts of result and operands at a valid point. An operand that is left row-major has none.
    LayoutRequests requests(const LayoutPoint& point) const;

  private:
    friend class TemplateMaker;

    /// Windows over a dimension: the element at V*y + D*r + offset, r < K.
    struct Window {
        int64_t stride = 1;   ///< V
        int64_t span = 1;     ///< |D| (K - 1) + 1
        int64_t first = 0;    ///< the first element that y = 0 reads; negative in front of the tensor
        int64_t results = 1;  ///< extent of y
    };
    static constexpr size_t kWhole = SIZE_MAX;
    struct Dimension {
        int64_t extent = 1;
        size_t parameter = kWhole;  ///< index of its tile size
        size_t outer = kWhole;      ///< of the tile of tiles: two levels
        std::optional<Window> window = {};
    };
    struct Tensor {
        std::vector<Dimension> dimensions;
        std::vector<size_t> before;  ///< the order of the numbers of tiles, and of whole dimensions
        std::vector<size_t> within;  ///< the order in a tile
    };
    Layout layout(const Tensor& tensor, const LayoutPoint& point) const;

    std::vector<LayoutParameter> parameters_;
    std::vector<std::pair<size_t, size_t>> levels_;  ///< parameters: outer, inner
    ValueId result_;
    Tensor written_;
    std::vector<std::pair<Reader, Tensor>> read_;
};

/// The template of a primitive with one or two levels of tiles. Nothing where it is no contraction of two plain reads
/// with constant extents, or where an index is no sum of axes.
std::optional<LayoutTemplate> layout_template(const Program& program, PrimitiveId primitive, int levels = 1);

}  // namespace tilewright
