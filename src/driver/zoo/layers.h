#pragma once
// Layers: operators with weights. A layer opens the scope `name`, draws its weights there, and scales them so that its
// output has variance gain^2 for any input distribution.

#include <cstdint>
#include <functional>
#include <string>

#include "driver/zoo/builder.h"
#include "driver/zoo/ops.h"

namespace tilewright::nets {

/// Gain of the branch beside a shortcut: keeps the variance of a sum of many branches bounded.
inline constexpr double kBranchGain = 0.5;

/// Lists have one number for every spatial axis, or one for all of them.
struct ConvSpec {
    int64_t out = 0;  ///< output channels
    Ints kernel = {1};
    Ints stride = {1};
    Ints pad = {0};  ///< on both sides
    Ints dilation = {1};
    int64_t groups = 1;
    bool bias = true;  ///< ignored by conv_norm, which has its own bias
    double gain = 1;
    /// conv_norm only: deviation of the normalisation's shift, times gain. Long chains without shortcuts need a large
    /// one: the common component then keeps small differences from doubling every few layers.
    double shift = 0.2;
};

/// [N, C, spatial...] -> [N, out, spatial...]; any number of spatial axes. Weight [out, C/groups, kernel...].
Value conv(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec);
/// Convolution and batch normalisation: one Conv with both folded, or two nodes if the builder keeps them. Both forms
/// compute the same function up to rounding.
Value conv_norm(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec);
/// Batch normalisation that cannot be folded into the preceding layer.
Value batch_norm(GraphBuilder& b, const std::string& name, const Value& x);
/// ConvTranspose; weight [C, out/groups, kernel...].
Value conv_transpose(GraphBuilder& b, const std::string& name, const Value& x, const ConvSpec& spec);

struct LinearSpec {
    bool bias = true;
    double gain = 1;
};

/// [batch, seq, hidden] -> [batch, seq, heads, hidden / heads], axes in the order of `perm`.
Value split_heads(GraphBuilder& b, const Value& x, int64_t heads, const Ints& perm);

/// [..., in] -> [..., out] as MatMul and Add; weight [in, out].
Value linear(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, const LinearSpec& spec = {});
/// [n, in] -> [n, out] as one Gemm with transB; weight [out, in].
Value gemm(GraphBuilder& b, const std::string& name, const Value& x, int64_t out, const LinearSpec& spec = {});

/// Over the last axis. One node from opset 17 on; nine nodes below, as exporters write them.
Value layer_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon);
Value instance_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon = 1e-5f);

/// Rows of a [count, dim] table: Gather on axis 0.
Value embedding(GraphBuilder& b, const std::string& name, const Value& ids, int64_t count, int64_t dim,
                double deviation = 1);

/// softmax(q k^T / sqrt(d)) v: q [..., m, d], k_transposed [..., d, n], v [..., n, h] -> [..., m, h]. `mask` may modify
/// the scaled scores [..., m, n] before the softmax.
Value attend(GraphBuilder& b, const Value& q, const Value& k_transposed, const Value& v,
             const std::function<Value(const Value&)>& mask = {});
/// Gain of the layers that produce queries and keys: scores vary enough for a selective attention.
inline constexpr double kQueryGain = 1.2;

struct RecurrentSpec {
    int64_t hidden = 0;
    bool bidirectional = false;
};

/// [seq, batch, in] -> [seq, batch, directions * hidden], from a zero state.
Value lstm(GraphBuilder& b, const std::string& name, const Value& x, const RecurrentSpec& spec);
/// As lstm; the reset gate is applied after the product with the recurrence weights, as in cuDNN and PyTorch.
Value gru(GraphBuilder& b, const std::string& name, const Value& x, const RecurrentSpec& spec);

}  // namespace tilewright::nets
