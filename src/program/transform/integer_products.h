#pragma once
// Products of quantised numbers as sums of 8-bit integers.

#include "program/program.h"

namespace tilewright {

/// What integer_products changed.
struct IntegerProducts {
    size_t products = 0;
    size_t identities = 0;  ///< quantisations of what had been dequantised alike
    size_t shifted = 0;     ///< computed operands that moved by 128, from I8 to U8 or from U8 to I8
};

/// Factors of a contraction that represent 8-bit integers, (q - zero) * scale in F32 or q - zero in I32, become the
/// integers themselves, one U8 and one I8, as dot products of CPUs read them. Zero points are multiplied by sums
/// of the other factor, which are constants for weights; scales move behind the sum. Padding, 0 in the original,
/// becomes the zero point.
///
///     y[m,n] = sum(k) ((x[m,k] - 10) * 0.5) * ((w[k,n] - 0) * s[n])
///  -> i[m,n] = sum(k) x[m,k] * w[k,n]              in 32-bit integers
///     c[n]   = sum(k) 10 * w[k,n]                  a constant
///     y[m,n] = (i[m,n] - c[n]) * (0.5 * s[n])
///
/// Before that, quantisations of what was dequantised alike become copies (copy_requantised). A product of one row with
/// constant weights keeps these as bytes, which it converts as it reads them, and the other factor as it is. A
/// depthwise convolution reads its data as bytes and sums floats, exactly: it has no more than 24 bits.
///
/// I32 sums are the same modulo 2^32. F32 sums are computed exactly, up to their last rounding; sums that could exceed
/// 31 bits are left alone. So are products whose scales vary along the sum, and padded ones with a zero point that is
/// no constant number.
Program integer_products(Program program, IntegerProducts* report = nullptr);

}  // namespace tilewright
