#pragma once
// Element types, and conversions between their storage and numbers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tilewright {

/// Element type of a tensor. Booleans are stored as one byte, 0 or 1. The 4-bit types are stored unpacked, one element
/// a byte (sign- or zero-extended, or the 4-bit code of F4E2M1); only files hold them packed.
enum class DType : uint8_t {
    F32,
    F64,
    F16,
    BF16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    I4,
    U4,
    F4E2M1,
    I2,
    U2,
};

size_t byte_size(DType t);
std::string_view to_string(DType t);  ///< "f32", "i64", "bool", ...
std::optional<DType> dtype_from_string(std::string_view s);
bool is_float(DType t);    ///< any floating-point type, the small ones included
bool is_integer(DType t);  ///< any integer type; not Bool
bool is_signed(DType t);

/// The type in which arithmetic on `t` is done: F32 for F32 and every smaller float, F64 for F64, I8 and U8 for the
/// 4-bit integers, and `t` itself otherwise.
DType compute_type(DType t);

float half_to_float(uint16_t h);
uint16_t float_to_half(float f);  ///< round to nearest even, overflow to infinity
float bfloat16_to_float(uint16_t h);
uint16_t float_to_bfloat16(float f);  ///< round to nearest even
/// Decode / encode for the 8-bit and 4-bit floats (round to nearest even; `saturate` clamps instead of overflowing).
float small_float_to_float(DType t, uint8_t code);
uint8_t float_to_small_float(DType t, float f, bool saturate);

}  // namespace tilewright
