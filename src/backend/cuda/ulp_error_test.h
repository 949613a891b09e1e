#pragma once
// Errors of kernels in units in the last place, so that the message of a failed test on a device says what kind of
// error it is.

#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright::cuda::test {

/// A bound of errors, in ulp of f32 at the scale of a tensor (2^-23 of the larger of an element and the mean
/// magnitude), and what stays below it.
struct ErrorKind {
    double ulps;
    const char* what;
};
/// From small to large. Two operands of b bits that are truncated change each product by less than 2^(2-b) of it: 2^14
/// ulp with the 11 bits of tf32 and f16, 2^17 with the 8 bits of bf16.
inline constexpr ErrorKind kErrorKinds[] = {
    {0x1p8, "as of contraction, approximated functions or another order of sums"},
    {0x1p14, "as of operands or results of 11 bits (tf32, f16)"},
    {0x1p17, "as of operands or results of 8 bits (bf16)"},
};
inline constexpr const char* kOtherElements = "no rounding: other elements, a wrong layout or a race";
inline constexpr const char* kNoNumber = "no number where there is one, or the reverse: never written, or out of range";

/// "largest error 3.1 ulp, as of contraction..., at element 7 of result 0: 0.25 in place of 0.5; 1 of 64 elements
/// differ that much". Elements that are no numbers are larger errors than all others. "" where all elements are equal.
std::string error_text(const std::vector<Tensor>& expected, const std::vector<Tensor>& got);

}  // namespace tilewright::cuda::test
