#pragma once
// NumPy's .npy: one array, its type and shape in a text header before the elements.
// Format: numpy.lib.format, versions 1.0 to 3.0.

#include <string>
#include <string_view>

#include "base/tensor.h"

namespace tilewright {

/// Little-endian bool, (u)int8..64, float16/32/64; C or Fortran order (made C order). `name` stands for the file in
/// messages. Throws ModelError saying what is wrong with it.
Tensor parse_npy(std::string_view bytes, const std::string& name);
/// The header that stands before the elements of such a tensor. The type must be one that NumPy has (numpy_tensor).
std::string npy_header(const Tensor& tensor);
/// The tensor as NumPy can hold it: bfloat16 and the types of 8 bits and less that NumPy lacks become float32.
Tensor numpy_tensor(const Tensor& tensor);
bool has_numpy_type(DType t);
/// "float32", what NumPy calls the type (and what its closest is called where NumPy lacks it).
std::string_view numpy_name(DType t);

/// Throws ModelError naming the file; RuntimeError when it cannot be read.
Tensor load_npy(const std::string& path);
/// Throws RuntimeError when it cannot be written.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace tilewright
