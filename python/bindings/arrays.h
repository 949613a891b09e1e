#pragma once
// Between arrays of Python and tensors of the C++ interface.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>
#include <memory>

#include "tilewright/tilewright.hpp"

namespace tilewright_python {

namespace nb = nanobind;

/// An array of any library in this machine's memory, read only, dense and row-major.
using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

struct FreeMemory {
    void operator()(void* p) const { std::free(p); }
};
/// 64-byte aligned memory, which numpy arrays take over.
using Memory = std::unique_ptr<void, FreeMemory>;

/// Throws std::bad_alloc.
Memory aligned_memory(std::size_t bytes);

/// The element type of a DLPack type. Throws tw::Error for complex numbers, strings and other types without one.
tilewright_dtype type_of(nb::dlpack::dtype type, const std::string& what);

/// The type as NumPy has it: types that it lacks are unsigned integers of the same size.
nb::dlpack::dtype numpy_type(tilewright_dtype type);

/// The tensor of `array`, without a copy; `array` must outlive it.
tw::Tensor tensor_of(const InputArray& array, tilewright_dtype type);

/// A numpy array of `shape` that owns `memory`.
nb::object numpy_array(Memory memory, tilewright_dtype type, const std::vector<std::int64_t>& shape);

/// A numpy array that shares the memory of any array with DLPack or the buffer protocol, or of a DLPack capsule, and
/// its element type.
nb::tuple import_array(nb::handle array);

}  // namespace tilewright_python
