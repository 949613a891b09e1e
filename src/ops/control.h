#pragma once
// What If, Loop and Scan share.

#include <set>
#include <string>

#include "ops/lowering.h"

namespace tilewright::control {

/// Throws ModelError where the node has no such body.
const Graph& body_attr(NodeContext& c, const std::string& name);

/// Symbols and scalars that values of the program around a body have: its other names mean nothing outside.
std::set<Var> visible_names(const Program& p);
bool is_visible(Expr d, const std::set<Var>& names);

/// Output k of the body's program.
const Value& output(const NodeContext::Body& body, size_t k);

void if_rule(NodeContext& c);

}  // namespace tilewright::control
