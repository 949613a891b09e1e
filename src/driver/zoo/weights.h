#pragma once
// Reproducible random weights.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tilewright::nets {

/// The distribution of a weight tensor.
struct Draw {
    double mean = 0;
    double deviation = 1;
    /// If positive: the elements form rows of this length, and each row is scaled to have exactly `deviation` (its root
    /// mean square, around its mean if `centred`). Otherwise the norm of small filters would vary enough to attenuate
    /// the signal of a deep network by a few per cent per layer.
    int64_t row = 0;
    /// Shift each row so that it sums to zero. Such a filter ignores the common component of its inputs. ReLU makes
    /// every activation positive, so without this the common component grows with each layer until the output of a deep
    /// network no longer depends on its input.
    bool centred = false;
    double lowest = -1e30;  ///< smaller values are raised to this (variances must stay positive)
};

/// Element i depends only on (name, seed, i): splitmix64 at counter i, whose four 16-bit pieces are added. The sum of
/// four uniform numbers is nearly normal and never beyond 3.47 standard deviations. Only exact integer operations and
/// correctly rounded +, -, *, / follow, so every machine draws the same bits.
void draw_normal(std::string_view name, uint64_t seed, const Draw& draw, std::span<float> out);

/// [rows, cols] -> [cols, rows], row-major.
std::vector<float> transposed(std::span<const float> in, int64_t rows, int64_t cols);

}  // namespace tilewright::nets
