#pragma once
// Products of two computed tensors (attention), for tile registers.

#include <cstdint>
#include <map>

#include "orchestrate/f32_products.h"
#include "program/program.h"

namespace tilewright {

/// A program, and those of its products whose right factor is now stored in pairs (tile/matrix.h), with the slot of the
/// left one.
struct PairedOperands {
    Program program;
    std::map<PrimitiveId, uint32_t> products;
};

/// Copies the right factors of such products into pairs along the sum, in a type of 16 bits. A sum whose extent no step
/// divides is padded with zeros, which takes a copy of the left factor as well.
///
///     s[h,m,n] = sum(k < 64) q[h,m,k] * t[h,n,k]
///  -> r[h, k // 2, n, k % 2] = t[h,n,k];  s[h,m,n] = sum(k < 64) q[h,m,k] * r[h, k // 2, n, k % 2]
PairedOperands pair_operands(const Program& program, DType type, const ProductFilter& may = {});

}  // namespace tilewright
