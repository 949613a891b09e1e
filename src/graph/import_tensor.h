#pragma once
// TensorProto -> Tensor.

#include <cstdint>
#include <functional>
#include <memory>
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

/// TensorProto.DataType -> DType; absent for strings, complex numbers, UNDEFINED and unassigned numbers.
std::optional<DType> dtype_from_onnx(int32_t data_type);
int32_t dtype_to_onnx(DType t);
/// The name of a data type that dtype_from_onnx() does not have: "string", "complex64", "data type 99".
std::string unsupported_type_name(int32_t data_type);

/// A tensor of the file, or the name of its type if Tensor does not support it.
struct ImportedTensor {
    Tensor value;
    std::string unsupported;
};

/// A tensor over raw bytes as they are in files (little-endian, the smallest types packed): a view if `owner`, which
/// keeps them alive, is not null and the elements are aligned and not packed, otherwise a copy. Throws ModelError for a
/// shape that cannot be counted; absent for types that dtype_from_onnx() does not have.
std::optional<Tensor> tensor_from_raw(int32_t data_type, const Shape& shape, const void* bytes,
                                      std::shared_ptr<const void> owner);

/// The message for a tensor: elements as raw data, the smallest types packed.
void tensor_to_proto(const Tensor& tensor, const std::string& name, onnx::TensorProto& out);

/// Reads tensors of one model.
class TensorReader {
  public:
    /// Describes the current tensor in messages; called on errors only.
    using Describe = std::function<std::string()>;

    TensorReader(Budget& budget, ExternalFiles& files) : budget_(budget), files_(files) {}

    /// `raw` is the tensor's raw data if it was read separately from the message, else null. With `may_take` the
    /// message's own raw data may be moved out of it. Every field is checked against the shape before memory is
    /// allocated.
    ImportedTensor read(onnx::TensorProto& tensor, const Tensor* raw, bool may_take, const Describe& describe);

    /// The dense form of a sparse tensor; missing elements are zero.
    ImportedTensor read_sparse(onnx::SparseTensorProto& tensor, const Describe& describe);

  private:
    Budget& budget_;
    ExternalFiles& files_;
};

}  // namespace tilewright::import_detail
