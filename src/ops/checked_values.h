#pragma once
// Integers that choose elements: what a run is given is checked where that costs nothing, or where the options ask.

#include "ops/lowering.h"

namespace tilewright {

/// Input `input` of the node, whose elements should lie in [lowest, highest]. What is known is checked at once
/// (ModelError naming the node). Else the values are checked when the model runs, by an opaque primitive that passes
/// them on, if LowerOptions::check_values asks for it, or if the input is one of the model's own and there are few
/// values, or each stands for many elements of others (`elements`): then a vector comparison costs next to nothing.
/// `what`: of a value, for messages: "index".
ValueId checked_values(NodeContext& c, size_t input, Expr lowest, Expr highest, std::string_view what, Expr elements);
/// The same for tuples along the last dimension (GatherND): bounds of each member.
ValueId checked_values(NodeContext& c, size_t input, std::vector<Expr> lowest, std::vector<Expr> highest,
                       std::string_view what, Expr elements);

}  // namespace tilewright
