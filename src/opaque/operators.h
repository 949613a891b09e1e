#pragma once
// The opaque operators, by their attributes. A lowering (ops/) makes them by these functions, the reader of a compiled
// model by their texts (opaque/text.h). Nothing here needs the compiler.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "runtime/opaque.h"

namespace tilewright::opaque {

using Operator = std::shared_ptr<const OpaqueOp>;

// --- selection.cpp

/// (x, k) -> (values, positions): the k largest (smallest) elements of each line along the axis; ties prefer the first.
Operator top_k(int64_t axis, bool largest);
/// The positions of non-zero elements, [rank, found].
Operator non_zero();
/// (x, condition): the slices along the axis where the condition holds.
Operator compress(int64_t axis);
/// Distinct slices along the axis, their first positions, the index of each slice of the input among them, the counts.
Operator unique(int64_t axis, bool sorted);
/// (boxes, scores, [most a class], [overlap], [score]) -> [found, 3]. `centered`: boxes are (x, y, width, height).
Operator non_max_suppression(bool centered);
/// Determinants of the matrices in the last two dimensions.
Operator det();

// --- signal.cpp

/// (signal [..., 1 or 2], [length], [axis]). Without `axis` here it is the third input.
Operator dft(std::optional<int64_t> axis, bool inverse, bool onesided);
/// (signal [batch, length, 1 or 2], step, [window], [frame length]) -> [batch, frames, bins, 2]
Operator stft(bool onesided);
/// (bands, length, sample rate, lower, upper edge) -> [length / 2 + 1, bands]
Operator mel_weights();

// --- vision.cpp

enum class Sampling : uint8_t { Nearest, Linear, Cubic };
enum class Border : uint8_t { Zeros, Edge, Reflection };
/// (x [n, c, ...], grid [n, ..., rank - 2])
Operator grid_sample(Sampling mode, Border border, bool align_corners);

struct RoiOptions {
    int64_t height = 1, width = 1, samples = 0;
    double scale = 1;
    bool max = false, half_pixel = true;
};
/// (x [n, c, h, w], regions [r, 4], image of each [r]) -> [r, c, height, width]
Operator roi_align(const RoiOptions& options);

/// (x [n, c, h, w], offsets [n, groups * 2 * kh * kw, oh, ow], [mask]) -> [n, c, kh, kw, oh, ow]
Operator deformed_columns(std::vector<int64_t> kernel, std::vector<int64_t> strides, std::vector<int64_t> dilations,
                          std::vector<int64_t> pads, int64_t groups);
/// (patches [n, c * taps, places], image shape, block shape) -> [n, c, image...]
Operator col2im(std::vector<int64_t> strides, std::vector<int64_t> dilations, std::vector<int64_t> pads);

// --- cast.cpp

/// Rounding to a power of two in F8E8M0.
enum class PowerRounding { Up, Down, Nearest };
/// To a float of 8 or 4 bits.
Operator small_float_cast(DType to, bool saturate, PowerRounding rounding);
/// The same bytes under another type of equal size.
Operator bit_cast(DType to);

// --- scatter.cpp

enum class Combine { Replace, Add, Mul, Min, Max };
/// (data, indices, updates)
Operator scatter_elements(int64_t axis, Combine combine);
Operator scatter_nd(Combine combine);
/// (x, indices, shape of the output, shape in which the indices count)
Operator max_unpool(size_t rank);

// --- append.cpp

/// (rows [n, ...], more [m, ...]) -> [n + m, ...]
Operator append();

// --- reduction.cpp

enum class Reduction : uint8_t { Sum, Prod, Max, Min, Mean, L1, L2, SumSquare, LogSum, LogSumExp };
/// (x, axes). `empty_means_none`: without axes the input is the result, else all are reduced.
Operator reduction(Reduction kind, bool keep_dims, bool empty_means_none);
/// (x, axis): running sums, or products.
Operator cumulative(bool product, bool exclusive, bool reverse);

// --- checks.cpp

/// (values, lowest, highest) -> values. Throws ModelError "NODE: WHAT 7, element 2, is outside [0, 4]".
Operator checked_values(std::string node, std::string what);
/// (condition, x...) -> x... Throws ModelError with the message where the condition is not `wanted`.
Operator require_condition(bool wanted, std::string message);

}  // namespace tilewright::opaque
