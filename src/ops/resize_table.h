#pragma once
// What Resize reads: for every output position along one axis, the input positions it blends, and their weights.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/opaque.h"

namespace tilewright {

enum class ResizeMode : uint8_t { Nearest, Linear, Cubic };
/// Where the centre of output element x lies in the input (attribute coordinate_transformation_mode).
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
    CeilToShrink,  ///< opset 10: up where the axis shrinks, down where it grows
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

/// The table of one axis; row-major [out, taps]. Indices lie inside the input.
struct ResizeTable {
    int64_t out = 0, taps = 0;
    std::vector<int64_t> index;
    std::vector<double> weight;
    std::vector<bool> inside;  ///< [out]; false: the position lies outside the crop's source (tf_crop_and_resize)
};
/// `scale` is out / in, or what the model asked for, of which `out` is a rounding.
ResizeTable resize_table(const ResizeOptions& options, int64_t in, int64_t out, double scale, double roi_start = 0,
                         double roi_end = 1);

/// How many elements an output position blends, when that does not depend on the scale; else 0.
int64_t fixed_taps(const ResizeOptions& options);

/// The table of axis `position` among the resized ones. Inputs: their extents (I64 [n]), scales (F32 [n]) or sizes (I64
/// [n]), roi (floats [2 n], may be missing). Outputs: indices (I64 [out, taps]), weights (`weights` [out, taps]),
/// inside (Bool [out]). Throws ModelError when an empty axis should grow.
std::shared_ptr<const OpaqueOp> resize_table_op(const ResizeOptions& options, size_t position, DType weights);

}  // namespace tilewright
