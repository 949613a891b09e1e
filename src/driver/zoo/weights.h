#pragma once
// Reproducible random weights.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tilewright::nets {

/// How a weight tensor is drawn.
struct Draw {
    double mean = 0;
    double deviation = 1;
    /// When positive: the elements fall into rows of this length, and each row is scaled to have `deviation` exactly
    /// (its root mean square, around its mean if `centred`). A small filter's norm would otherwise vary enough to
    /// shrink the signal of a deep network away, a few per cent a layer.
    int64_t row = 0;
    /// Shift each row so that it sums to zero. A filter that sums to zero does not see what its inputs have in common.
    /// ReLU makes every activation positive, so without this the common part grows with each layer until a deep network
    /// answers the same to every input.
    bool centred = false;
    double lowest = -1e30;  ///< smaller values are raised to this (variances must stay positive)
};

/// Element i depends on (name, seed, i) alone: splitmix64 at counter i, whose four 16-bit pieces are added up. The sum
/// of four uniform numbers is nearly normal and never beyond 3.47 standard deviations. Only exact integer operations
/// and correctly rounded +, -, *, / follow, so every machine draws the same bits.
void draw_normal(std::string_view name, uint64_t seed, const Draw& draw, std::span<float> out);

/// [rows, cols] -> [cols, rows], row-major.
std::vector<float> transposed(std::span<const float> in, int64_t rows, int64_t cols);

}  // namespace tilewright::nets
