#pragma once

#include <memory>

#include "opaque/custom.h"
#include "ops/lowering.h"

namespace tilewright {

/// A node of an operator that the caller has defined.
void lower_custom(NodeContext& c, const std::shared_ptr<const CustomOperator>& op);

}  // namespace tilewright
