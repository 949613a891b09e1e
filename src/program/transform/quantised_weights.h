#pragma once
// Products that read weights of 2, 4 or 8 bits as they are stored (weight-only quantisation).

#include "program/program.h"

namespace tilewright {

struct QuantisedWeights {
    size_t products = 0;
};

/// Constant factors of products that are dequantised in blocks along the sum, (q - zero) * scale, stay quantised: the
/// numbers q become codes of 2 or 4 bits, packed into words along the sum, or bytes, and the product decodes them. Read
/// once per row, f32 weights take the time of reading 4 bytes each from memory; codes of 4 bits take a sixth.
///
///     w[k,n] = f32(q[k,n] - 8) * s[k // 32, n];   y[m,n] = sum(k < 64) x[m,k] * w[k,n]
///  -> words[k // 8, n]: u32, constant, the code of k in bits 4 (k mod 8) and up
///     y[m,n] = sum(b < 2, i < 4, j < 8) x[m, 32 b + 8 i + j] * (numbers[words[4 b + i, n] >> 4 j & 15] * s[b, n])
///
/// Whatever exporters write between the stored tensor and the product (transposes, bytes of two codes, conversions) is
/// evaluated here. Weights that f16 or bf16 would hold are not rounded to it. Left alone: products of so many rows that
/// decoding would cost more than reading, scales that vary inside of eight numbers, and numbers of more than 8 bits.
Program quantised_weights(Program program, QuantisedWeights* report = nullptr);

}  // namespace tilewright
