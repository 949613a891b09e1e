#pragma once
// Uses and substitution of symbols and scalars in a whole program.

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "program/program.h"

namespace tilewright {

/// Every symbol and scalar that executing the primitive needs, including those of nested programs.
std::set<Var> names_used(const Primitive& primitive);
/// Every symbol and scalar in shapes of values and in primitives.
std::set<Var> names_of(const Program& program);
/// Adds the symbols and scalars of `e`.
void add_names(Expr e, std::set<Var>& names);

/// The program with symbols and scalars substituted everywhere: in shapes, extents, index expressions, trip counts,
/// nested programs and requirements. Requirements that then hold are dropped. A ReadScalar keeps the name it binds.
///     {batch: 8}:  x: f32[$batch, 64]  ->  x: f32[8, 64]
Program substitute_names(const Program& program, const std::map<Var, Expr>& by);
/// The same for one primitive, or for requirements.
void substitute_names(Primitive& primitive, const std::map<Var, Expr>& by);
void substitute_names(std::vector<Requirement>& requirements, const std::map<Var, Expr>& by);
/// A kernel's stages for these sizes, simplified (tidy.h). Names without a size have the one that is assumed
/// (analysis/dynamic.h). Nothing where an extent is less than 1.
std::optional<Program> at_sizes(const Program& stages, const Bindings& sizes);

/// The same expression with axis ranges, indices and bodies rewritten by `f`, which sees expressions over axes, loads,
/// symbols and scalars.
TensorExpr map_exprs(const TensorExpr& expr, const std::function<Expr(Expr)>& f);

}  // namespace tilewright
