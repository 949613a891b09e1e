#pragma once
// The families of operators in the table of op_spec.h.

#include <string>
#include <vector>

#include "driver/opspec/op_spec.h"
#include "driver/zoo/builder.h"

namespace tilewright::nets {

constexpr float kEpsilon = 1e-5f;  ///< of normalisations

void add_product_ops(std::vector<OpKind>& kinds);  ///< gemm, gemv, chains of products
void add_window_ops(std::vector<OpKind>& kinds);   ///< convolutions, pooling
void add_row_ops(std::vector<OpKind>& kinds);      ///< softmax, normalisations, elementwise, data movement, reductions
void add_block_ops(std::vector<OpKind>& kinds);    ///< attention, MLPs: blocks of several operators

// Parameters, in the notation of the tables.
OpParam needed(const std::string& name, const std::string& help);
OpParam number(const std::string& name, int64_t fallback, const std::string& help, int64_t lowest = 1);
OpParam as_other(const std::string& name, const std::string& other, const std::string& help);
OpParam flag(const std::string& name, const std::string& help);  ///< 0 or 1, default 0
/// An optional real number; OpSpec::has() tests whether it is given.
OpParam optional_real(const std::string& name, const std::string& help);
OpParam choice(const std::string& name, const std::vector<std::string>& choices, const std::string& help);
OpParam list(const std::string& name, const std::string& help, bool required, int64_t lowest = 1);
OpParam act_param();

/// Names of activations, "none" first; activate() applies one.
const std::vector<std::string>& activations();
Value activate(GraphBuilder& b, const Value& x, const std::string& name);

/// x / sqrt(mean of squares over the last axis + epsilon), times a weight, as the nodes that exporters write.
Value rms_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon);
/// [..., a, b] -> [..., b, a]
Value swap_last(GraphBuilder& b, const Value& x);
/// A float input; `batch` is the first dimension unless it is 1.
Value batched_input(GraphBuilder& b, const std::string& name, int64_t batch, const Ints& shape);

}  // namespace tilewright::nets
