#pragma once
// TypeProto -> DeclaredType.

#include <string>

#include "graph/graph.h"

namespace onnx {
class ValueInfoProto;
}

namespace tilewright::import_detail {

/// Exporters write an unknown dimension as "-1", "?", "None" or "". Every other text is a symbol, including numbers
/// (some exporters name the 34th unknown "34").
DeclaredDim named_dim(const std::string& text);

/// The declared type of a graph's input, output or intermediate value. A missing type has neither element type nor
/// shape. Throws ModelError if the declared dimensions multiply to more elements than can be counted.
DeclaredType convert_type(const onnx::ValueInfoProto& value);

}  // namespace tilewright::import_detail
