#pragma once
// NumPy's .npy: one array, with its type and shape in a text header before the elements.
// Format: numpy.lib.format, versions 1.0 to 3.0.

#include <string>
#include <string_view>

#include "base/tensor.h"

namespace tilewright {

/// Supports little-endian bool, (u)int8..64, float16/32/64; C or Fortran order (converted to C order). `name` is the
/// file in messages. Throws ModelError with the error in the file.
Tensor parse_npy(std::string_view bytes, const std::string& name);
/// The header for the elements of such a tensor. NumPy must support the type (numpy_tensor).
std::string npy_header(const Tensor& tensor);
/// The tensor in a type that NumPy supports: bfloat16 and the types of 8 bits and less that NumPy lacks become float32.
Tensor numpy_tensor(const Tensor& tensor);
bool has_numpy_type(DType t);
/// NumPy's name of the type, e.g. "float32" (of the closest type if NumPy lacks it).
std::string_view numpy_name(DType t);

/// Throws ModelError with the file; RuntimeError if it cannot be read.
Tensor load_npy(const std::string& path);
/// Throws RuntimeError if it cannot be written.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace tilewright
