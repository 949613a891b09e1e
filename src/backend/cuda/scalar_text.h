#pragma once
// Scalar expressions as C++: types, numbers, operators, conversions. What they call stands in device/common.cuh.

#include <string>

#include "program/program.h"

namespace tilewright::cuda {

/// The C++ type of numbers that are computed with: compute_type(t)'s.
std::string register_type(DType t);
/// The C++ type of elements in memory.
std::string storage_type(DType t);
/// The number in `stored`, which is an element of type t; and back.
std::string from_storage(DType t, const std::string& stored);
std::string to_storage(DType t, const std::string& number);

/// A number of compute_type(t).
std::string literal(DType t, double value, int64_t int_value);
/// What an access gives where its conditions do not hold.
std::string fill_literal(DType storage, double fill);
std::string identity_of(Reducer r, DType t);
std::string_view reducer_name(Reducer r);  ///< "tw::Sum"
std::string combined(Reducer r, DType t, const std::string& a, const std::string& b);

/// An inner operator on operands that are names or stand in parentheses. `operand` is the type of `a` (of `b` for
/// Select), as in eval_scalar.
std::string scalar_op(ScalarOp op, DType result, DType operand, const std::string& a, const std::string& b,
                      const std::string& c);

}  // namespace tilewright::cuda
