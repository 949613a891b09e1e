#pragma once
// TensorProto -> Tensor.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "graph/import_budget.h"
#include "graph/import_external.h"

namespace onnx {
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace tilewright::import_detail {

/// TensorProto.DataType -> DType; absent for strings, complex numbers, UNDEFINED and numbers nobody has assigned.
std::optional<DType> dtype_from_onnx(int32_t data_type);
int32_t dtype_to_onnx(DType t);
/// What to call a data type that dtype_from_onnx() does not have: "string", "complex64", "data type 99".
std::string unsupported_type_name(int32_t data_type);

/// A tensor of the file, or the name of its type when Tensor has no such type.
struct ImportedTensor {
    Tensor value;
    std::string unsupported;
};

/// The message for a tensor, its elements as raw data, the smallest types packed.
void tensor_to_proto(const Tensor& tensor, const std::string& name, onnx::TensorProto& out);

/// Reads tensors of one model.
class TensorReader {
  public:
    /// How messages name the tensor at hand; called when there is something to say.
    using Describe = std::function<std::string()>;

    TensorReader(Budget& budget, ExternalFiles& files) : budget_(budget), files_(files) {}

    /// `raw` is the tensor's raw data where it was read apart from the message, else null. With `may_take` the
    /// message's own raw data may be moved out of it. Every field is checked against the shape before memory is asked
    /// for.
    ImportedTensor read(onnx::TensorProto& tensor, const Tensor* raw, bool may_take, const Describe& describe);

    /// The dense form of a sparse tensor, zero where it holds nothing.
    ImportedTensor read_sparse(onnx::SparseTensorProto& tensor, const Describe& describe);

  private:
    Budget& budget_;
    ExternalFiles& files_;
};

}  // namespace tilewright::import_detail
