#pragma once
// The lowerings of each operator family: one function and one or a few files per family. registry.cpp combines them.

#include <vector>

#include "ops/lowering.h"

namespace tilewright {

std::vector<OpLowering> elementwise_lowerings();
std::vector<OpLowering> activation_lowerings();
std::vector<OpLowering> cast_lowerings();
std::vector<OpLowering> shape_lowerings();
std::vector<OpLowering> layout_lowerings();
std::vector<OpLowering> slice_lowerings();
std::vector<OpLowering> gather_scatter_lowerings();
std::vector<OpLowering> control_lowerings();

std::vector<OpLowering> conv_lowerings();
std::vector<OpLowering> pool_lowerings();
std::vector<OpLowering> norm_lowerings();
std::vector<OpLowering> matmul_lowerings();
std::vector<OpLowering> reduce_lowerings();
std::vector<OpLowering> softmax_lowerings();
std::vector<OpLowering> recurrent_lowerings();
std::vector<OpLowering> attention_lowerings();
std::vector<OpLowering> resize_lowerings();

std::vector<OpLowering> opaque_lowerings();
std::vector<OpLowering> quant_lowerings();
std::vector<OpLowering> contrib_quant_lowerings();
std::vector<OpLowering> contrib_activation_lowerings();
std::vector<OpLowering> contrib_attention_lowerings();
std::vector<OpLowering> contrib_conv_lowerings();
std::vector<OpLowering> contrib_gqa_lowerings();
std::vector<OpLowering> contrib_matmul_lowerings();
std::vector<OpLowering> contrib_norm_lowerings();
std::vector<OpLowering> contrib_weights_lowerings();
std::vector<OpLowering> signal_lowerings();
std::vector<OpLowering> vision_lowerings();

}  // namespace tilewright
