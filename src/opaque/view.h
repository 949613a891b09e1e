#pragma once
// Shared by opaque operators: reading any element type as numbers, positions in row-major tensors.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"
#include "runtime/opaque.h"

namespace tilewright {

/// A view of the same memory, without ownership.
inline Tensor as_tensor(const TensorView& v) {
    return {v.dtype, Shape(v.shape.begin(), v.shape.end()), v.data, std::shared_ptr<const void>()};
}

/// All elements as doubles, for operators on floats.
inline std::vector<double> as_doubles(const TensorView& v) {
    std::vector<double> out(static_cast<size_t>(v.count()));
    if (v.dtype == DType::F32) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(v.as<float>()[i]);
        return out;
    }
    const Tensor t = as_tensor(v);
    for (size_t i = 0; i < out.size(); ++i) out[i] = t.get(static_cast<int64_t>(i));
    return out;
}

/// Rounds each number once to the output's type.
inline void store_doubles(const TensorView& to, const std::vector<double>& from) {
    if (to.dtype == DType::F32) {
        for (size_t i = 0; i < from.size(); ++i) to.as<float>()[i] = static_cast<float>(from[i]);
        return;
    }
    Tensor t = as_tensor(to);
    for (size_t i = 0; i < from.size(); ++i) t.set(static_cast<int64_t>(i), from[i]);
}

/// Limit of one run of an operator whose work depends on an attribute or on data instead of tensor sizes: about a
/// minute.
constexpr double kMaxOperations = 0x1p36;
/// Throws ModelError naming the operator.
inline void require_operations(double count, std::string_view op) {
    if (!(count <= kMaxOperations))
        throw ModelError(
            fmt::format("{}: {:.3g} operations are needed, and the limit is {:.3g}", op, count, kMaxOperations),
            "its attributes and the numbers it is given decide that: are they meant?");
}

inline int64_t elements(std::span<const int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
}

/// A tensor viewed along one axis: element k of line (o, i) is at (o * length + k) * inner + i.
struct Lines {
    int64_t outer = 1, length = 1, inner = 1;
    Lines(std::span<const int64_t> shape, size_t axis)
        : outer(elements(shape.first(axis))), length(shape[axis]), inner(elements(shape.subspan(axis + 1))) {}
};

}  // namespace tilewright
