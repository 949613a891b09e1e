#pragma once
// The semantics of one scalar operator on numbers. Constant folding and the interpreter share it, so that a folded node
// equals the interpreter's result.

#include <cstdint>

#include "base/dtype.h"
#include "program/scalar.h"

namespace tilewright {

/// A number: `f` for floating-point types, `i` for integers and Bool (U64 as the same 64 bits). The other is 0.
struct ScalarValue {
    double f = 0;
    int64_t i = 0;
};

/// Reduces modulo 2^bits of `t` (sign- or zero-extended); for Bool: whether it is not 0.
int64_t wrap_integer(DType t, int64_t v);

/// The node's result for an inner operator (no leaf). `operand` is the type of `a` (of `b` for Select), `result` the
/// node's own; operands that the operator does not take are ignored. Floats of every width are computed in double and
/// not rounded, except that Cast rounds to its type and Bitcast rounds to the width it reinterprets.
ScalarValue eval_scalar(ScalarOp op, DType result, DType operand, ScalarValue a, ScalarValue b = {},
                        ScalarValue c = {});

/// The same for a node, including its table.
ScalarValue eval_node(const ScalarNode& node, DType operand, ScalarValue a, ScalarValue b = {}, ScalarValue c = {});
/// For Table: the number at that position, 0 if out of bounds.
double table_at(const ScalarNode& node, int64_t position);

/// A leaf's or reducer's number represented in `t`: v itself for floats, Cast's conversion for integers and Bool.
ScalarValue scalar_from_double(DType t, double v);

}  // namespace tilewright
