#pragma once
// Which element types ONNX allows for an operator's inputs, by operator and version.
//
// The table is type_constraints.txt, written from ONNX's own schemas by scripts/onnx_types.py. Checked for every node
// before its rule runs, so that rules may rely on it: a rule that gets a type which ONNX forbids would write an
// expression that no backend has code for.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace tilewright {

/// An input of an operator.
struct FormalInput {
    std::string_view name;       ///< "X"
    std::string_view parameter;  ///< inputs with the same type parameter have the same type; empty: none
    std::vector<DType> types;    ///< that are allowed; empty: no tensor of numbers is (strings, sequences)
    bool variadic = false;       ///< stands for this input and all that follow
    bool homogeneous = true;     ///< of a variadic one: they all have the same type
};

/// An operator's version.
struct OperatorSchema {
    std::string_view op;
    int64_t since = 1;
    std::vector<FormalInput> inputs;
};

/// The newest opset of ONNX's default domain that the compiler implements.
int64_t newest_opset();
/// All versions of the default domain's operators, by name and version.
const std::vector<OperatorSchema>& operator_schemas();
/// The newest version with since <= opset. The first one where the opset is older than that, as in models that ONNX
/// Runtime has optimised; null for other operators.
const OperatorSchema* find_schema(std::string_view op, int64_t opset);

/// What is wrong with a node's input types, and what to do about it; nothing where they are right. `types`: by input,
/// nothing where one is left out.
std::optional<std::string> type_problem(const OperatorSchema& schema, std::span<const std::optional<DType>> types);

}  // namespace tilewright
