#pragma once
// Names in a whole program: which are used where, and replacing them.

#include <functional>
#include <map>
#include <set>

#include "program/program.h"

namespace tilewright {

/// Every symbol and scalar that executing the primitive needs, those of nested programs included.
std::set<Var> names_used(const Primitive& primitive);
/// Adds the symbols and scalars of `e`.
void add_names(Expr e, std::set<Var>& names);

/// The program with symbols and scalars replaced everywhere: in shapes, extents, index expressions, trip counts, and in
/// nested programs, and in requirements, of which those that then hold are dropped. A ReadScalar keeps the name it
/// binds.
///     {batch: 8}:  x: f32[$batch, 64]  ->  x: f32[8, 64]
Program substitute_names(const Program& program, const std::map<Var, Expr>& by);
/// One primitive, or requirements alone, likewise.
void substitute_names(Primitive& primitive, const std::map<Var, Expr>& by);
void substitute_names(std::vector<Requirement>& requirements, const std::map<Var, Expr>& by);

/// The same expression with axis ranges, indices and bodies rewritten by `f`, which sees expressions over axes, loads,
/// symbols and scalars.
TensorExpr map_exprs(const TensorExpr& expr, const std::function<Expr(Expr)>& f);

}  // namespace tilewright
