#pragma once
// TypeProto -> DeclaredType.

#include <string>

#include "graph/graph.h"

namespace onnx {
class ValueInfoProto;
}

namespace tilewright::import_detail {

/// The declared type of a graph's input, output or intermediate value. A missing type is one without element type and
/// shape. Throws ModelError when the declared numbers multiply to more elements than can be counted.
DeclaredType convert_type(const onnx::ValueInfoProto& value);

}  // namespace tilewright::import_detail
