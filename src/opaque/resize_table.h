#pragma once
// The sampling table of Resize: for every output position along one axis, the input positions it blends and their
// weights.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/opaque.h"

namespace tilewright {

enum class ResizeMode : uint8_t { Nearest, Linear, Cubic };
/// Maps the centre of output element x to the input (attribute coordinate_transformation_mode).
enum class ResizeCoordinates : uint8_t {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
};
enum class NearestMode : uint8_t {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
    CeilToShrink,  ///< opset 10: rounds up if the axis shrinks, down if it grows
};
enum class AspectPolicy : uint8_t { Stretch, NotLarger, NotSmaller };

struct ResizeOptions {
    ResizeMode mode = ResizeMode::Nearest;
    ResizeCoordinates coordinates = ResizeCoordinates::HalfPixel;
    NearestMode nearest = NearestMode::RoundPreferFloor;
    AspectPolicy policy = AspectPolicy::Stretch;
    double cubic_a = -0.75;
    bool exclude_outside = false;
    bool antialias = false;
    bool by_sizes = false;  ///< the second input of the table holds sizes, else scales
};

/// The table of one axis; row-major [out, taps]. Indices are in bounds.
struct ResizeTable {
    int64_t out = 0, taps = 0;
    std::vector<int64_t> index;
    std::vector<double> weight;
    std::vector<bool> inside;  ///< [out]; false: the position is outside the crop's source (tf_crop_and_resize)
};
/// `scale` is out / in, or the requested scale, of which `out` is a rounding.
ResizeTable resize_table(const ResizeOptions& options, int64_t in, int64_t out, double scale, double roi_start = 0,
                         double roi_end = 1);

/// The number of elements that an output position blends if it does not depend on the scale; else 0.
int64_t fixed_taps(const ResizeOptions& options);

/// The table of axis `position` among the resized ones. Inputs: their extents (I64 [n]), scales (F32 [n]) or sizes (I64
/// [n]), roi (floats [2 n], optional). Outputs: indices (I64 [out, taps]), weights (`weights` [out, taps]), inside
/// (Bool [out]). Throws ModelError if an empty axis would grow.
std::shared_ptr<const OpaqueOp> resize_table_op(const ResizeOptions& options, size_t position, DType weights);

}  // namespace tilewright
