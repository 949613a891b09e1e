#pragma once
// The interpreter's plan for one tensor expression, computed before its first point: addresses as forms, accesses
// without the checks that range analysis removes, merged and split axes, and the axes along which to run. Internal to
// the interpreter.

#include <cstdint>
#include <span>
#include <vector>

#include "program/interpret_index.h"
#include "program/program.h"
#include "program/scalar_eval.h"

namespace tilewright::interp {

struct Check {
    Form index;
    int64_t dimension = 0;
    size_t position = 0;
};

struct AccessPlan {
    bool used = false;
    Tensor tensor;  ///< small floats are widened in advance where that is faster
    DType dtype = DType::F32;
    Form address;                  ///< row-major element number
    std::vector<Check> checks;     ///< dimensions whose index is not proved in bounds
    std::vector<Form> conditions;  ///< conditions not proved to hold everywhere
    ScalarValue fill;
};

struct Plan {
    std::vector<int64_t> extents;  ///< after unit axes are dropped, and axes are merged and split
    size_t spatial = 0;
    size_t row_axis = 0, lane_axis = 0;
    std::vector<Register> registers;
    std::vector<AccessPlan> accesses;  ///< the expression's accesses, then the write of the output
    const ScalarBody* body = nullptr;
    const ScalarBody* epilogue = nullptr;          ///< null: none
    std::vector<Form> body_index, epilogue_index;  ///< indexed by node; set for Index nodes
    Reducer reducer = Reducer::None;
    uint32_t output() const { return static_cast<uint32_t>(accesses.size() - 1); }
};

/// `operands` in the order of the accesses; `extents` of all axes; `out` gives the output shape.
Plan make_plan(const TensorExpr& expr, std::span<const Tensor> operands, std::span<const int64_t> extents,
               const Tensor& out, const Bindings& bindings);

}  // namespace tilewright::interp
