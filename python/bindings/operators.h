#pragma once
// Operators whose functions are Python's (tilewright._operator).

#include "arrays.h"

namespace tilewright_python {

/// Adds the classes Operator and Call.
void bind_operators(nb::module_& m);

/// The operators of a list of Operator.
std::vector<tw::Operator> operators_of(const nb::list& all);

}  // namespace tilewright_python
