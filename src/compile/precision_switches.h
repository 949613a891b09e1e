#pragma once
// A program whose products are rounded to 16 bits where a run says so: errors of any choice of products, with one
// compilation.

#include <vector>

#include "orchestrate/precision.h"
#include "program/program.h"

namespace tilewright {

/// The name of the input of switches, which is added behind the program's own: Bool[products].
inline constexpr const char* kSwitches = "precision.switches";

/// The program with both forms of each product, in f32 arithmetic. `products`: of narrow_operands with this type of 16
/// bits, for this program, whose primitives are numbered (Origin::parts).
///
///     y = sum(k) x * w
///  -> x' = f32(bf16(x));  f = sum(k) x * w;  b = sum(k) x' * w';  y = select(switches[0], b, f)
///
/// w' is rounded when this function is called. b is rounded if the product's result is stored in bf16 as well, and no
/// product that is not rounded reads it: such a product has operands of f32.
Program with_switches(Program program, const std::vector<NarrowedProduct>& products, DType type);

}  // namespace tilewright
