#pragma once
// Bytes -> protobuf messages, with the weights kept out of them.
//
// Protobuf would read a weight into a std::string that has to be copied again into an aligned tensor. So the outer
// messages (ModelProto, GraphProto, TensorProto) are walked here field by field, the raw data of the main graph's
// initialisers is read straight into tensors, and everything else is left to protobuf's own parser.

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

/// Takes one initialiser of the main graph: the message, and its raw data (U8) when there is any.
using TakeInitializer = std::function<void(onnx::TensorProto& tensor, const Tensor* raw)>;

/// Parses a ModelProto of `size` bytes (negative: up to the end of the stream). `model.graph` is left without
/// initialisers: each went to `take`. Throws ModelError when the bytes end early or are not such a message.
void parse_model(google::protobuf::io::ZeroCopyInputStream& stream, int64_t size, Budget& budget,
                 onnx::ModelProto& model, const TakeInitializer& take);

/// The same for a file that is one TensorProto.
void parse_tensor(google::protobuf::io::ZeroCopyInputStream& stream, int64_t size, const TakeInitializer& take);

}  // namespace tilewright::import_detail
