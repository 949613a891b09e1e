#pragma once
// The element types that ONNX allows for operator inputs, by operator and version.
//
// The tables are type_constraints.txt, generated from ONNX's schemas by scripts/onnx_types.py, and
// contrib_type_constraints.txt, from ONNX Runtime's for operators of com.microsoft. Every node is checked
// before its lowering runs, because a lowering that gets a type outside the schema could emit an expression that no
// backend supports.

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
    std::vector<DType> types;    ///< allowed types; empty: no numeric tensor type (strings, sequences)
    bool variadic = false;       ///< applies to this input and all that follow
    bool homogeneous = true;     ///< for a variadic input: all have the same type
};

/// An operator's version.
struct OperatorSchema {
    std::string_view op;  ///< "com.microsoft.Gelu" outside of the default domain
    int64_t since = 1;
    std::vector<FormalInput> inputs;
};

/// The newest opset of ONNX's default domain that the compiler implements.
int64_t newest_opset();
/// All versions of operators, by name and version.
const std::vector<OperatorSchema>& operator_schemas();
/// The newest version with since <= opset; the first version if the opset is older than that, as in models optimised by
/// ONNX Runtime; null for other operators.
const OperatorSchema* find_schema(std::string_view op, int64_t opset);
const OperatorSchema* find_schema(std::string_view domain, std::string_view op, int64_t opset);

/// The error in a node's input types, with a remedy; none if they are valid. `types`: per input, none for an omitted
/// input.
std::optional<std::string> type_problem(const OperatorSchema& schema, std::span<const std::optional<DType>> types);

}  // namespace tilewright
