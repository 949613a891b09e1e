#pragma once
// Operators without weights. Shapes follow NumPy's rules; axes may be negative unless stated otherwise.

#include <cstdint>
#include <string>
#include <vector>

#include "driver/zoo/builder.h"

namespace tilewright::nets {

// Elementwise, with broadcasting.
Value add(GraphBuilder& b, const Value& x, const Value& y);
Value sub(GraphBuilder& b, const Value& x, const Value& y);
Value mul(GraphBuilder& b, const Value& x, const Value& y);
Value div(GraphBuilder& b, const Value& x, const Value& y);
Value where(GraphBuilder& b, const Value& condition, const Value& x, const Value& y);
Value cast(GraphBuilder& b, const Value& x, DType to);

// Activations. SiLU, the GELUs and (below opset 14) hard-swish are decomposed as in exported models.
Value relu(GraphBuilder& b, const Value& x);
Value relu6(GraphBuilder& b, const Value& x);       ///< Clip(0, 6)
Value leaky_relu(GraphBuilder& b, const Value& x);  ///< slope 0.1 below zero
Value sigmoid(GraphBuilder& b, const Value& x);
Value tanh(GraphBuilder& b, const Value& x);
Value silu(GraphBuilder& b, const Value& x);  ///< x * sigmoid(x)
Value hard_swish(GraphBuilder& b, const Value& x);
Value gelu(GraphBuilder& b, const Value& x);       ///< 0.5 x (1 + erf(x / sqrt 2))
Value gelu_tanh(GraphBuilder& b, const Value& x);  ///< GPT-2's: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
Value mish(GraphBuilder& b, const Value& x);       ///< x * tanh(softplus(x))
Value softmax(GraphBuilder& b, const Value& x, int64_t axis);

/// [..., m, k] x [..., k, n] -> [..., m, n]; leading axes broadcast.
Value matmul(GraphBuilder& b, const Value& x, const Value& y);

// Shapes.
/// The extent of `axis` as a 0-D int64 value: Shape, Gather.
Value dim_of(GraphBuilder& b, const Value& x, int64_t axis);
/// `shape` as a 1-D int64 value: a constant, or Shape/Gather/Unsqueeze of `source` and Concat if it has symbols. A
/// symbol that no axis of `source` has (batch*seq) becomes -1.
Value shape_vector(GraphBuilder& b, const Extents& shape, const Value& source);
Value reshape(GraphBuilder& b, const Value& x, const Extents& shape);
/// Reshape with symbolic extents read from `source`.
Value reshape(GraphBuilder& b, const Value& x, const Extents& shape, const Value& source);
Value transpose(GraphBuilder& b, const Value& x, const Ints& perm);
Value flatten(GraphBuilder& b, const Value& x);  ///< all axes but the first become one
Value unsqueeze(GraphBuilder& b, const Value& x, const Ints& axes);
Value squeeze(GraphBuilder& b, const Value& x, const Ints& axes);
Value concat(GraphBuilder& b, const std::vector<Value>& parts, int64_t axis);
/// x[..., begin:end:step, ...] with constant bounds on an axis that is not symbolic; `end` may pass the extent.
Value slice(GraphBuilder& b, const Value& x, int64_t axis, int64_t begin, int64_t end, int64_t step = 1);
std::vector<Value> split(GraphBuilder& b, const Value& x, int64_t axis, const Ints& sizes);
Value gather_one(GraphBuilder& b, const Value& x, int64_t axis, int64_t index);  ///< x[..., index, ...], axis removed
/// Repeats extents of 1.
Value expand(GraphBuilder& b, const Value& x, const Extents& shape, const Value& source);
/// `before`/`after`: one number per axis. mode: "constant" (zeros, or `value`), "reflect", "edge".
Value pad(GraphBuilder& b, const Value& x, const Ints& before, const Ints& after, const std::string& mode,
          float value = 0);
/// Scales the spatial axes (all but the first two) by `factor`. Nearest neighbour, or linear with half-pixel centres.
Value upsample_nearest(GraphBuilder& b, const Value& x, int64_t factor);
Value upsample_linear(GraphBuilder& b, const Value& x, int64_t factor);

// Reductions and pooling. Spatial lists have one number for every axis, or one for all.
Value reduce_mean(GraphBuilder& b, const Value& x, const Ints& axes, bool keep);
Value max_pool(GraphBuilder& b, const Value& x, const Ints& kernel, const Ints& stride, const Ints& pad);
Value average_pool(GraphBuilder& b, const Value& x, const Ints& kernel, const Ints& stride, const Ints& pad);
Value global_average_pool(GraphBuilder& b, const Value& x);

/// `list` with one number for each of `rank` axes: {3} -> {3, 3}.
Ints for_each_axis(const Ints& list, int64_t rank);
/// (n + 2 pad - dilation (kernel - 1) - 1) / stride + 1; checked to be positive.
int64_t window_count(int64_t n, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation);

}  // namespace tilewright::nets
