#pragma once
// Inputs that a run extends: the keys and values that a decoder has seen (KV cache).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewright {

/// Output `output` is input `input` with rows appended along dimension `axis`. In the plan both have this dimension
/// first, so that the input is the front of the output's memory and a run only writes the new rows.
///     past [batch, heads, n, 64], present [batch, heads, n + m, 64]
///         ->  axis 2; in the plan [n, batch, heads, 64] and [n + m, batch, heads, 64]
struct Append {
    size_t input = 0, output = 0;
    size_t axis = 0;
    friend bool operator==(const Append&, const Append&) = default;
};

/// Moves dimension `axis` to the front.
template <class T>
std::vector<T> rows_first(std::span<const T> dims, size_t axis) {
    std::vector<T> out{dims[axis]};
    for (size_t d = 0; d < dims.size(); ++d)
        if (d != axis) out.push_back(dims[d]);
    return out;
}

/// The inverse of rows_first.
template <class T>
std::vector<T> rows_back(std::span<const T> dims, size_t axis) {
    std::vector<T> out(dims.begin() + 1, dims.end());
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), dims[0]);
    return out;
}

}  // namespace tilewright
