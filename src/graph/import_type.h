#pragma once
// TypeProto -> DeclaredType.

#include <string>

#include "graph/graph.h"

namespace onnx {
class ValueInfoProto;
}

namespace tilewright::import_detail {

/// The declared type of a graph's input, output or intermediate value. A missing type has neither element type nor
/// shape. Throws ModelError if the declared dimensions multiply to more elements than can be counted.
DeclaredType convert_type(const onnx::ValueInfoProto& value);

}  // namespace tilewright::import_detail
