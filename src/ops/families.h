#pragma once
// The lowerings of each operator family: one function and one or a few files per family. registry.cpp combines them.

#include <vector>

#include "ops/lowering.h"

namespace tilewright {

std::vector<OpRule> elementwise_rules();
std::vector<OpRule> activation_rules();
std::vector<OpRule> cast_rules();
std::vector<OpRule> shape_rules();
std::vector<OpRule> layout_rules();
std::vector<OpRule> slice_rules();
std::vector<OpRule> gather_scatter_rules();
std::vector<OpRule> control_rules();

std::vector<OpRule> conv_rules();
std::vector<OpRule> pool_rules();
std::vector<OpRule> norm_rules();
std::vector<OpRule> matmul_rules();
std::vector<OpRule> reduce_rules();
std::vector<OpRule> softmax_rules();
std::vector<OpRule> recurrent_rules();
std::vector<OpRule> attention_rules();
std::vector<OpRule> resize_rules();

std::vector<OpRule> opaque_rules();
std::vector<OpRule> quant_rules();
std::vector<OpRule> contrib_quant_rules();
std::vector<OpRule> signal_rules();
std::vector<OpRule> vision_rules();

}  // namespace tilewright
