#pragma once
// Shared by If, Loop and Scan.

#include <set>
#include <string>

#include "ops/lowering.h"

namespace tilewright::control {

/// Throws ModelError if the node has no such body.
const Graph& body_attr(NodeContext& c, const std::string& name);

/// Symbols and scalars of the values captured from the outer program: other names of the body are local to it.
std::set<Var> visible_names(const Program& p);
bool is_visible(Expr d, const std::set<Var>& names);

/// Output k of the body's program.
const Value& output(const NodeContext::Body& body, size_t k);

void if_lowering(NodeContext& c);

}  // namespace tilewright::control
