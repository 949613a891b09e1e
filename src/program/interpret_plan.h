#pragma once
// What interpreting one tensor expression needs to know before the first point: addresses as forms, accesses without
// the checks that ranges decide, few axes, and along which of them to run. Internal to the interpreter.

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
    Tensor tensor;  ///< small floats already widened where that pays
    DType dtype = DType::F32;
    Form address;                  ///< row-major element number
    std::vector<Check> checks;     ///< dimensions whose index is not known to be inside
    std::vector<Form> conditions;  ///< those not known to hold everywhere
    ScalarValue fill;
};

struct Plan {
    std::vector<int64_t> extents;  ///< after dropping axes of one point and merging
    size_t spatial = 0;
    size_t row_axis = 0, lane_axis = 0;
    std::vector<Register> registers;
    std::vector<AccessPlan> accesses;  ///< the expression's, and the write of the output as a last one
    const ScalarBody* body = nullptr;
    const ScalarBody* epilogue = nullptr;          ///< null: none
    std::vector<Form> body_index, epilogue_index;  ///< per node; of Index nodes
    Reducer reducer = Reducer::None;
    uint32_t output() const { return static_cast<uint32_t>(accesses.size() - 1); }
};

/// `operands` in order of the accesses; `extents` those of all axes; `out` gives the shape that is written.
Plan make_plan(const TensorExpr& expr, std::span<const Tensor> operands, std::span<const int64_t> extents,
               const Tensor& out, const Bindings& bindings);

}  // namespace tilewright::interp
