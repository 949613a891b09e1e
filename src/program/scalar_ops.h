#pragma once
// The table of scalar operators (scalar_ops.def) as data.

#include <cstdint>
#include <span>
#include <string_view>

#include "program/scalar.h"

namespace tilewright {

/// Types of the operands: the first, where they differ.
enum class Takes : uint8_t { Numbers, Integers, IntegersOrBool, Position, Floats, Anything };
/// Type of the result: that of the operands (Select: of the second), Bool, or the node's own.
enum class Gives : uint8_t { Same, Bool, Own };

struct ScalarOpInfo {
    ScalarOp op;
    std::string_view text;  ///< in program text
    int arity;
    Takes takes;
    Gives gives;
    double cost;            ///< vector instructions of one evaluation
    std::string_view cuda;  ///< function in tw:: of device/common.cuh; "" if the operator is not a call there
};

const ScalarOpInfo& scalar_op_info(ScalarOp op);

/// How a function changes with its operand.
enum class Curve : uint8_t {
    Steps,       ///< increasing, and every value is an integer
    Increasing,  ///< where it is not NaN
    Decreasing,
    Convex,  ///< largest at an end of every interval
    Gentle,  ///< of a slope between -1 and 1
    Poles,   ///< increasing between poles
};

/// An operator that is a function of one float and gives a float.
struct ScalarFunction {
    ScalarOp op;
    const char* c_name;           ///< of the C function
    double (*reference)(double);  ///< that C function; constant folding and the interpreter call it
    Curve curve;
    double low, high;       ///< bounds of the result; infinite if there are none
    double ulp;             ///< largest error of a backend in f32, in units in the last place; 0: exact
    std::string_view onnx;  ///< "Erf"; "" if ONNX has no operator for it
    int64_t since;          ///< opset of that operator
};

/// In the order of ScalarOp.
std::span<const ScalarFunction> scalar_functions();
/// Null if the operator is no such function.
const ScalarFunction* scalar_function(ScalarOp op);

inline bool rounds_to_integer(ScalarOp op) {
    const ScalarFunction* f = scalar_function(op);
    return f != nullptr && f->curve == Curve::Steps;
}

}  // namespace tilewright
