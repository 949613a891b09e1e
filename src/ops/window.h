#pragma once
// Sliding windows of convolutions and pools: kernel, strides, dilations and padding.

#include <cstdint>
#include <string>
#include <vector>

#include "ops/lowering.h"

namespace tilewright {

/// One spatial axis. Output element y reads the inputs y * stride + k * dilation - before, for 0 <= k < kernel; those
/// outside [0, in) are padding.
struct WindowAxis {
    Expr in, out;
    int64_t kernel = 1, stride = 1, dilation = 1;
    Expr before = 0, after = 0;  ///< padding
    /// Input elements from the first to the last one that a window covers.
    int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

/// Values of auto_pad. Explicit: `pads` are used (attribute value NOTSET).
enum class AutoPad : uint8_t { Explicit, SameUpper, SameLower, Valid };
AutoPad auto_pad(const NodeContext& c);
/// One positive number per spatial axis, 1 where the attribute is absent.
std::vector<int64_t> positive_ints(const NodeContext& c, const std::string& attribute, size_t count);
/// The attribute `pads`: all begins, then all ends; 0 if absent.
std::vector<int64_t> window_pads(const NodeContext& c, size_t count);

/// The windows over the spatial dimensions `in`, from the node's attributes strides, dilations, pads, auto_pad and
/// ceil_mode.
std::vector<WindowAxis> window_axes(const NodeContext& c, const Dims& in, const std::vector<int64_t>& kernel);

/// An access to input [n, c, spatial...] at the windows' elements, with conditions that keep it in bounds. `leading`
/// are the indices before the spatial ones; window k is at output axis first_out + k of the expression, and its element
/// at kernel_index[k] (0 for a kernel of 1, which needs no axis).
Access window_access(ValueId input, std::vector<Expr> leading, const std::vector<WindowAxis>& windows, size_t first_out,
                     const std::vector<Expr>& kernel_index, double fill);

/// Appends one reduction axis for every kernel longer than 1; returns the index of each kernel.
///     kernel [3, 1, 5], four axes so far   ->   [i4, 0, i5]
std::vector<Expr> add_kernel_axes(std::vector<Expr>& extents, const std::vector<WindowAxis>& windows);

/// [first, first + count) of a shape.
inline Dims sub_dims(const Dims& d, size_t first, size_t count) {
    const auto begin = d.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}
/// first, first + 1, ..., last - 1: as axes of a reduction.
std::vector<int64_t> axis_range(size_t first, size_t last);

}  // namespace tilewright
