#include "base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tilewright {

namespace {

struct Info {
    DType type;
    std::string_view name;
    uint8_t bytes;
};

constexpr std::array<Info, 23> kInfo{{
    {DType::F32, "f32", 4},
    {DType::F64, "f64", 8},
    {DType::F16, "f16", 2},
    {DType::BF16, "bf16", 2},
    {DType::I8, "i8", 1},
    {DType::I16, "i16", 2},
    {DType::I32, "i32", 4},
    {DType::I64, "i64", 8},
    {DType::U8, "u8", 1},
    {DType::U16, "u16", 2},
    {DType::U32, "u32", 4},
    {DType::U64, "u64", 8},
    {DType::Bool, "bool", 1},
    {DType::F8E4M3FN, "f8e4m3fn", 1},
    {DType::F8E4M3FNUZ, "f8e4m3fnuz", 1},
    {DType::F8E5M2, "f8e5m2", 1},
    {DType::F8E5M2FNUZ, "f8e5m2fnuz", 1},
    {DType::F8E8M0, "f8e8m0", 1},
    {DType::I4, "i4", 1},
    {DType::U4, "u4", 1},
    {DType::F4E2M1, "f4e2m1", 1},
    {DType::I2, "i2", 1},
    {DType::U2, "u2", 1},
}};

const Info& info(DType t) { return kInfo.at(static_cast<size_t>(t)); }

/// Bits, bias and special codes of the float types below 16 bits.
struct SmallFloat {
    int exponent_bits, mantissa_bits, bias;
    bool has_infinity;  // the largest exponent is IEEE's infinity and NaN
    bool fnuz;          // 0x80 is the only NaN, there is no negative zero
    bool has_nan;
};

SmallFloat small_float(DType t) {
    switch (t) {
        case DType::F8E4M3FN:
            return {4, 3, 7, false, false, true};
        case DType::F8E4M3FNUZ:
            return {4, 3, 8, false, true, true};
        case DType::F8E5M2:
            return {5, 2, 15, true, false, true};
        case DType::F8E5M2FNUZ:
            return {5, 2, 16, false, true, true};
        case DType::F4E2M1:
            return {2, 1, 1, false, false, false};
        default:
            internal_error(__FILE__, __LINE__, "small float", std::string(to_string(t)));
    }
}

}  // namespace

size_t byte_size(DType t) { return info(t).bytes; }
std::string_view to_string(DType t) { return info(t).name; }

std::optional<DType> dtype_from_string(std::string_view s) {
    for (const Info& i : kInfo)
        if (i.name == s) return i.type;
    return std::nullopt;
}

bool is_float(DType t) {
    switch (t) {
        case DType::F32:
        case DType::F64:
        case DType::F16:
        case DType::BF16:
        case DType::F8E4M3FN:
        case DType::F8E4M3FNUZ:
        case DType::F8E5M2:
        case DType::F8E5M2FNUZ:
        case DType::F8E8M0:
        case DType::F4E2M1:
            return true;
        default:
            return false;
    }
}

bool is_integer(DType t) { return !is_float(t) && t != DType::Bool; }

bool is_signed(DType t) {
    switch (t) {
        case DType::U8:
        case DType::U16:
        case DType::U32:
        case DType::U64:
        case DType::U4:
        case DType::U2:
        case DType::Bool:
            return false;
        default:
            return true;
    }
}

DType compute_type(DType t) {
    if (t == DType::F64) return t;
    if (is_float(t)) return DType::F32;
    if (t == DType::I4 || t == DType::I2) return DType::I8;
    if (t == DType::U4 || t == DType::U2) return DType::U8;
    return t;
}

float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 31u;
    const uint32_t mantissa = h & 1023u;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float f = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -f : f;
}

uint16_t float_to_half(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((a >> 13) & 0x3FFu));
    if (a >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and above round to infinity
    if (a < 0x38800000u)                                                 // subnormal: let the FPU round at 2^-24
        return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(a) * 0x1p24f)));
    const uint32_t rounded = a + 0xFFFu + ((a >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float bfloat16_to_float(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t float_to_bfloat16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

float small_float_to_float(DType t, uint8_t code) {
    if (t == DType::F8E8M0)
        return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(code) - 127);
    const SmallFloat s = small_float(t);
    const int width = 1 + s.exponent_bits + s.mantissa_bits;
    const bool negative = ((code >> (width - 1)) & 1) != 0;
    const int exponent = (code >> s.mantissa_bits) & ((1 << s.exponent_bits) - 1);
    const int mantissa = code & ((1 << s.mantissa_bits) - 1);
    const int top = (1 << s.exponent_bits) - 1;
    if (s.fnuz && code == 0x80) return std::numeric_limits<float>::quiet_NaN();
    if (s.has_infinity && exponent == top) {
        if (mantissa != 0) return std::numeric_limits<float>::quiet_NaN();
        return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    }
    if (s.has_nan && !s.has_infinity && !s.fnuz && exponent == top && mantissa == (1 << s.mantissa_bits) - 1)
        return std::numeric_limits<float>::quiet_NaN();
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - s.bias - s.mantissa_bits)
                                          : std::ldexp(static_cast<float>(mantissa + (1 << s.mantissa_bits)),
                                                       exponent - s.bias - s.mantissa_bits);
    return negative ? -magnitude : magnitude;
}

uint8_t float_to_small_float(DType t, float f, bool saturate) {
    if (t == DType::F8E8M0) {
        if (std::isnan(f)) return 255;
        if (!(f > 0)) return 0;
        int e = 0;
        const float m = std::frexp(f, &e);  // f = m * 2^e, m in [0.5, 1)
        int code = e - 1 + 127 + (m > 0.75f ? 1 : 0);
        if (std::isinf(f) || code > 254) return saturate ? 254 : 255;
        return static_cast<uint8_t>(code < 0 ? 0 : code);
    }
    const SmallFloat s = small_float(t);
    const int width = 1 + s.exponent_bits + s.mantissa_bits;
    const uint8_t sign = std::signbit(f) ? static_cast<uint8_t>(1 << (width - 1)) : 0;
    const int top = (1 << s.exponent_bits) - 1;
    const int full = (1 << s.mantissa_bits) - 1;
    int largest = (top << s.mantissa_bits) | full;  // code of the largest finite number
    if (s.has_infinity)
        largest = ((top - 1) << s.mantissa_bits) | full;
    else if (s.has_nan && !s.fnuz)
        largest -= 1;
    const auto nan_code = [&]() -> uint8_t {
        if (s.fnuz) return 0x80;
        if (!s.has_nan) return static_cast<uint8_t>(largest);
        return static_cast<uint8_t>(sign | ((top << s.mantissa_bits) | full));
    };
    if (std::isnan(f)) return nan_code();
    const auto overflow = [&]() -> uint8_t {
        if (saturate || !s.has_nan) return static_cast<uint8_t>(sign | largest);
        if (s.has_infinity) return static_cast<uint8_t>(sign | (top << s.mantissa_bits));
        return nan_code();
    };
    if (std::isinf(f)) return overflow();
    const float a = std::fabs(f);
    if (a == 0) return s.fnuz ? 0 : sign;
    int e = 0;
    std::frexp(a, &e);
    int exponent = e - 1;                              // a = 1.xxx * 2^exponent
    if (exponent < 1 - s.bias) exponent = 1 - s.bias;  // subnormal step
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(a, s.mantissa_bits - exponent)));
    // steps counts units of 2^(exponent - mantissa_bits); integer addition carries into the next binade.
    const int code = steps < (1 << s.mantissa_bits) ? steps : ((exponent + s.bias - 1) << s.mantissa_bits) + steps;
    if (code > largest) return overflow();
    if (code == 0) return s.fnuz ? 0 : sign;
    return static_cast<uint8_t>(sign | code);
}

}  // namespace tilewright
