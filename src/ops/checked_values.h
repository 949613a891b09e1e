#pragma once
// Run-time checks of integers that select elements, made if they are cheap or if the options request them.

#include "ops/lowering.h"

namespace tilewright {

/// Input `input` of the node, whose elements must lie in [lowest, highest]. Constants are checked at once (ModelError
/// naming the node). Other values are checked at run time by an opaque primitive that passes them on, in two cases: if
/// LowerOptions::check_values is set; or if the input is a model input and the check is cheap, because there are few
/// values or each selects many elements of other tensors (`elements`). `what` describes a value in messages: "index".
ValueId checked_values(NodeContext& c, size_t input, Expr lowest, Expr highest, std::string_view what, Expr elements);
/// The same for tuples along the last dimension (GatherND): bounds for each member.
ValueId checked_values(NodeContext& c, size_t input, std::vector<Expr> lowest, std::vector<Expr> highest,
                       std::string_view what, Expr elements);

}  // namespace tilewright
