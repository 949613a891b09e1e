#pragma once
// How far a model's outputs depend on which way its own roundings fall: the reference of quantised models.

#include <string>
#include <vector>

#include "base/tensor.h"
#include "driver/compare.h"
#include "program/program.h"

namespace tilewright {

/// What is rounded to integers moves by `by`, in units of these integers; operators of control flow stay:
///
///     u8(round(x / 0.5))   ->   u8(round(x / 0.5 + by))
Program shift_roundings(Program program, double by);

struct Sensitivity {
    double largest = 0;  ///< |difference| of elements
    double rms = 0;      ///< root mean square of the differences
    friend bool operator==(const Sensitivity&, const Sensitivity&) = default;
};

/// The differences between each of the `expected` outputs, which the program gives for these inputs, and those
/// of the same program when what it rounds moves down and up by 2^-12, the greater of both. Floating-point sums of
/// 8-bit numbers in another order differ by about as much, so that no two programs agree more closely than these do,
/// unless by chance. Zero where nothing that the output depends on is rounded, or nothing is near enough to a half.
std::vector<Sensitivity> rounding_sensitivity(const Program& program, const std::vector<Tensor>& inputs,
                                              const std::vector<Tensor>& expected);

/// How many times as far from the expected output as that from itself another program's may be.
inline constexpr double kSensitivities = 3;

/// Whether an output differs by at most kSensitivities times its sensitivity: every element, and the root mean square.
Comparison compare_rounded(const Tensor& actual, const Tensor& expected, const Sensitivity& sensitivity,
                           const std::string& what);

}  // namespace tilewright
