#pragma once
// Tensors from and to files, and made up.

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/session.h"

namespace tilewright {

/// NumPy's .npy, versions 1 to 3: little-endian bool, (u)int8..64, float16/32/64; C or Fortran order (made C order).
/// Throws ModelError naming the file and what is wrong with it.
Tensor load_npy(const std::string& path);
void save_npy(const std::string& path, const Tensor& tensor);

/// .npy or .pb, by the name's ending.
Tensor load_tensor(const std::string& path);

/// Seeded values that suit most models: floats about N(0, 1), booleans and anything called a mask all ones, other
/// integers 0 or 1 (valid indices of every table).
Tensor random_tensor(const std::string& name, DType dtype, const Shape& shape, uint64_t seed);

/// input_0.pb, input_1.pb, ... of an ONNX test_data_set folder; the same for output_N.pb.
std::vector<Tensor> load_numbered(const std::string& folder, const std::string& prefix);

/// The shape to give an input where nobody said: declared numbers; `dims` for named ones; 1 for the rest.
Shape input_shape(const ModelIo& io, const std::map<std::string, int64_t>& dims);

}  // namespace tilewright
