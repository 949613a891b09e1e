#pragma once
// Bytes -> protobuf messages, without the weights.
//
// Protobuf would read a weight into a std::string, which then has to be copied to an aligned tensor. Here the outer
// messages (ModelProto, GraphProto, TensorProto) are parsed field by field, the raw data of the main graph's
// initialisers is read directly into tensors, and all other content is left to protobuf's own parser.

#include <cstdint>
#include <functional>
#include <string>

#include "base/tensor.h"
#include "graph/import_budget.h"

namespace google::protobuf::io {
class ZeroCopyInputStream;
}
namespace onnx {
class ModelProto;
class TensorProto;
}  // namespace onnx

namespace tilewright::import_detail {

/// Receives one initialiser of the main graph: the message, and its raw data (U8) if there is any.
using TakeInitializer = std::function<void(onnx::TensorProto& tensor, const Tensor* raw)>;

/// Parses a ModelProto of `size` bytes (negative: up to the end of the stream). `model.graph` has no initialisers
/// afterwards: each was passed to `take`. Throws ModelError if the bytes end early or are not such a message.
void parse_model(google::protobuf::io::ZeroCopyInputStream& stream, int64_t size, Budget& budget,
                 onnx::ModelProto& model, const TakeInitializer& take);

/// As parse_model, for a file with one TensorProto.
void parse_tensor(google::protobuf::io::ZeroCopyInputStream& stream, int64_t size, const TakeInitializer& take);

}  // namespace tilewright::import_detail
