// What generated kernels compute with: the scalar operators of program/scalar.h, conversions between numbers and their
// storage, reductions by several threads. Plain C++ on top of cuda.cuh or emulated.cuh.

namespace tw {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// --- indices

template <class A, class B>
TW_DEVICE auto lesser(A a, B b) -> decltype(a + b) {
    return a < b ? a : b;
}
template <class A, class B>
TW_DEVICE auto greater(A a, B b) -> decltype(a + b) {
    return a < b ? b : a;
}
/// Rounding to minus infinity; by 0 it is 0.
template <class A, class B>
TW_DEVICE auto floor_div(A a, B b) -> decltype(a + b) {
    if (b == 0) return 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
template <class A, class B>
TW_DEVICE auto floor_rest(A a, B b) -> decltype(a + b) {
    if (b == 0) return 0;
    return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}

/// The number of a thread's pair of rows among the 32 pairs of a warpgroup (tile/gpu_partition.h, row pairs): of its
/// warp's bits and those of its lane, in bits 4, 2 and 3, 1, 0.
TW_DEVICE int row_pair_of_group(int lane) {
    const int warp = warp_of_group();
    return (warp & 2) << 3 | (lane & 8) | (warp & 1) << 2 | (lane & 16) >> 3 | (lane & 4) >> 2;
}

// --- integers: modulo 2^bits, x / 0 = 0

template <class T>
struct Integer;
#define TW_INTEGER(type, arithmetic, is_signed_type, lowest_value, highest_value)                    \
    template <>                                                                                      \
    struct Integer<type> {                                                                           \
        using Unsigned = arithmetic; /* wide enough that C++ does not make it a signed int */       \
        static constexpr bool is_signed = is_signed_type;                                            \
        static constexpr int bits = sizeof(type) * 8;                                                \
        static constexpr type lowest = lowest_value, highest = highest_value;                        \
    };
TW_INTEGER(i8, u32, true, -128, 127)
TW_INTEGER(u8, u32, false, 0, 255)
TW_INTEGER(i16, u32, true, -32768, 32767)
TW_INTEGER(u16, u32, false, 0, 65535)
TW_INTEGER(i32, u32, true, -2147483647 - 1, 2147483647)
TW_INTEGER(u32, u32, false, 0, 4294967295u)
TW_INTEGER(i64, u64, true, -9223372036854775807ll - 1, 9223372036854775807ll)
TW_INTEGER(u64, u64, false, 0, 18446744073709551615ull)
#undef TW_INTEGER
template <class T>
using Unsigned = typename Integer<T>::Unsigned;

template <class T>
TW_DEVICE T add(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
TW_DEVICE T sub(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
TW_DEVICE T mul(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <class T>
TW_DEVICE T negative(T a) {
    return sub(T(0), a);
}
template <class T>
TW_DEVICE T div(T a, T b) {
    if (b == 0) return 0;
    if constexpr (Integer<T>::is_signed)
        if (b == T(-1)) return negative(a);
    return static_cast<T>(a / b);
}
template <class T>
TW_DEVICE T trunc_mod(T a, T b) {
    if (b == 0) return 0;
    if constexpr (Integer<T>::is_signed)
        if (b == T(-1)) return 0;
    return static_cast<T>(a % b);
}
template <class T>
TW_DEVICE T floor_mod(T a, T b) {
    const T rest = trunc_mod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? add(rest, b) : rest;
}
TW_DEVICE float trunc_mod(float a, float b) { return ::fmodf(a, b); }
TW_DEVICE double trunc_mod(double a, double b) { return ::fmod(a, b); }
TW_DEVICE float floor_mod(float a, float b) {
    const float rest = ::fmodf(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TW_DEVICE double floor_mod(double a, double b) {
    const double rest = ::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
/// Negative exponents truncate to 0, or to +-1.
template <class T>
TW_DEVICE T pow(T base, T exponent) {
    if (exponent < 0) return base == T(1) ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
    T result = 1;
    for (auto rest = static_cast<Unsigned<T>>(exponent); rest != 0; rest >>= 1) {
        if ((rest & 1) != 0) result = mul(result, base);
        base = mul(base, base);
    }
    return result;
}
TW_DEVICE float pow(float a, float b) { return ::powf(a, b); }
TW_DEVICE double pow(double a, double b) { return ::pow(a, b); }
/// By more than the type has bits: 0.
template <class T>
TW_DEVICE T shift_left(T a, T by) {
    const auto n = static_cast<u64>(by);
    return n < Integer<T>::bits ? static_cast<T>(static_cast<Unsigned<T>>(a) << n) : T(0);
}
template <class T>
TW_DEVICE T shift_right(T a, T by) {
    const auto n = static_cast<u64>(by);
    return n < Integer<T>::bits ? static_cast<T>(a >> n) : T(0);
}
template <class T>
TW_DEVICE T absolute(T a) {
    return a < 0 ? negative(a) : a;
}
TW_DEVICE float absolute(float a) { return ::fabsf(a); }
TW_DEVICE double absolute(double a) { return ::fabs(a); }
template <class T>
TW_DEVICE T sign(T a) {
    return a != a ? a : static_cast<T>((a > 0) - (a < 0));
}

// --- floats

/// A NaN operand gives NaN.
template <class T>
TW_DEVICE T maximum(T a, T b) {
    return a > b || a != a ? a : b;
}
template <class T>
TW_DEVICE T minimum(T a, T b) {
    return a < b || a != a ? a : b;
}

#define TW_FUNCTION(name, of_float, of_double)                \
    TW_DEVICE float name(float x) { return ::of_float(x); }   \
    TW_DEVICE double name(double x) { return ::of_double(x); }
TW_FUNCTION(floor, floorf, floor)
TW_FUNCTION(ceil, ceilf, ceil)
TW_FUNCTION(trunc, truncf, trunc)
TW_FUNCTION(round_even, rintf, rint)
TW_FUNCTION(sqrt, sqrtf, sqrt)
TW_FUNCTION(exp, expf, exp)
TW_FUNCTION(log, logf, log)
TW_FUNCTION(log1p, log1pf, log1p)
TW_FUNCTION(expm1, expm1f, expm1)
TW_FUNCTION(erf, erff, erf)
TW_FUNCTION(sin, sinf, sin)
TW_FUNCTION(cos, cosf, cos)
TW_FUNCTION(tan, tanf, tan)
TW_FUNCTION(asin, asinf, asin)
TW_FUNCTION(acos, acosf, acos)
TW_FUNCTION(atan, atanf, atan)
TW_FUNCTION(sinh, sinhf, sinh)
TW_FUNCTION(cosh, coshf, cosh)
TW_FUNCTION(tanh, tanhf, tanh)
TW_FUNCTION(asinh, asinhf, asinh)
TW_FUNCTION(acosh, acoshf, acosh)
TW_FUNCTION(atanh, atanhf, atanh)
#undef TW_FUNCTION
TW_DEVICE float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
TW_DEVICE double fused(double a, double b, double c) { return ::fma(a, b, c); }

/// 2^exponent as a float.
TW_DEVICE float power_of_two(int exponent) {
    if (exponent < -149) return 0;
    if (exponent < -126) return bitcast<float>(u32(1) << (exponent + 149));
    if (exponent > 127) return bitcast<float>(0x7f800000u);
    return bitcast<float>(static_cast<u32>(exponent + 127) << 23);
}
TW_DEVICE bool is_nan(float x) { return x != x; }
TW_DEVICE bool is_nan(double x) { return x != x; }
TW_DEVICE bool is_inf(float x) { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
TW_DEVICE bool is_inf(double x) { return (bitcast<u64>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }

/// An online maximum that is not final: where nothing has been seen yet, 0, so that exp(-infinity - it) is 0.
template <class T>
TW_DEVICE T level(T maximum_so_far, bool is_final) {
    return !is_final && maximum_so_far == -T(bitcast<float>(0x7f800000u)) ? T(0) : maximum_so_far;
}
/// What a sum that was scaled by exp(-before) is multiplied by when the maximum is `now`. The same infinity twice
/// changes nothing.
template <class T>
TW_DEVICE T correction(T before, T now) {
    return before == now ? T(1) : exp(before - now);
}
/// The same by exp_near.
TW_DEVICE float correction_near(float before, float now) { return before == now ? 1.0f : exp_near(before - now); }

// --- conversions

/// Truncates; NaN is 0, what is out of range the nearest limit.
template <class To, class From>
TW_DEVICE To to_integer(From x) {
    if (x != x) return 0;
    constexpr int digits = Integer<To>::bits - (Integer<To>::is_signed ? 1 : 0);
    const auto beyond = static_cast<From>(power_of_two(digits));
    if (x >= beyond) return Integer<To>::highest;
    if (Integer<To>::is_signed ? x < -beyond : x <= From(-1)) return Integer<To>::lowest;
    return static_cast<To>(x);
}

TW_DEVICE float bf16_value(u16 bits) { return bitcast<float>(static_cast<u32>(bits) << 16); }
TW_DEVICE float rounded_to_f16(float x) { return f16_value(to_f16(x)); }
TW_DEVICE float rounded_to_bf16(float x) { return bf16_value(to_bf16(x)); }

/// Floats below 16 bits. Special codes: Infinities as IEEE has them; One: the largest code is a NaN (each sign); Fnuz:
/// 0x80 alone is, and there is no negative zero; None.
enum class Special { Infinities, One, Fnuz, None };
template <int exponent_bits, int mantissa_bits, int bias, Special special>
struct SmallFloat {
    static constexpr int sign_bit = exponent_bits + mantissa_bits;
    static constexpr int top = (1 << exponent_bits) - 1, full = (1 << mantissa_bits) - 1;
    static constexpr int largest = special == Special::Infinities ? ((top - 1) << mantissa_bits) | full
                                   : special == Special::One      ? ((top << mantissa_bits) | full) - 1
                                                                  : (top << mantissa_bits) | full;

    static TW_DEVICE float value(u8 code) {
        const int exponent = (code >> mantissa_bits) & top, mantissa = code & full;
        const float nan = bitcast<float>(0x7fc00000u);
        if (special == Special::Fnuz && code == 0x80) return nan;
        if (special == Special::Infinities && exponent == top) {
            const float infinity = bitcast<float>(0x7f800000u);
            return mantissa != 0 ? nan : (code >> sign_bit) != 0 ? -infinity : infinity;
        }
        if (special == Special::One && exponent == top && mantissa == full) return nan;
        const float magnitude =
            exponent == 0 ? static_cast<float>(mantissa) * power_of_two(1 - bias - mantissa_bits)
                          : static_cast<float>(mantissa + full + 1) * power_of_two(exponent - bias - mantissa_bits);
        return (code >> sign_bit) != 0 ? -magnitude : magnitude;
    }
    /// To nearest even; what is too large becomes the largest finite number.
    static TW_DEVICE u8 code(float x) {
        const u32 bits = bitcast<u32>(x);
        const int sign = static_cast<int>(bits >> 31) << sign_bit;
        const float magnitude = absolute(x);
        if (x != x) {
            if (special == Special::Fnuz) return 0x80;
            if (special == Special::None) return static_cast<u8>(largest);
            return static_cast<u8>(sign | (top << mantissa_bits) | full);
        }
        if (is_inf(x)) return static_cast<u8>(sign | largest);
        // Floats below 2^-126 are below half of the least number here.
        int exponent = static_cast<int>((bits >> 23) & 255u) - 127;
        if (exponent < 1 - bias) exponent = 1 - bias;
        const int steps = static_cast<int>(::rintf(magnitude * power_of_two(mantissa_bits - exponent)));
        const int code = steps <= full ? steps : ((exponent + bias - 1) << mantissa_bits) + steps;
        if (code > largest) return static_cast<u8>(sign | largest);
        if (code == 0 && special == Special::Fnuz) return 0;
        return static_cast<u8>(sign | code);
    }
};
using F8E4M3FN = SmallFloat<4, 3, 7, Special::One>;
using F8E4M3FNUZ = SmallFloat<4, 3, 8, Special::Fnuz>;
using F8E5M2 = SmallFloat<5, 2, 15, Special::Infinities>;
using F8E5M2FNUZ = SmallFloat<5, 2, 16, Special::Fnuz>;
using F4E2M1 = SmallFloat<2, 1, 1, Special::None>;
/// Powers of two alone.
struct F8E8M0 {
    static TW_DEVICE float value(u8 code) {
        return code == 255 ? bitcast<float>(0x7fc00000u) : power_of_two(static_cast<int>(code) - 127);
    }
    static TW_DEVICE u8 code(float x) {
        if (x != x) return 255;
        if (!(x > 0)) return 0;
        if (is_inf(x)) return 254;
        const u32 bits = bitcast<u32>(x);
        int exponent = static_cast<int>(bits >> 23);
        u32 fraction = bits & 0x7fffffu;
        if (exponent == 0) {  // 2^-126 and below: the code 0 is 2^-127
            exponent = fraction >= 0x400000u ? 0 : -1;
            fraction = (fraction << 1) & 0x7fffffu;
        }
        exponent += fraction > 0x400000u ? 1 : 0;
        return static_cast<u8>(exponent > 254 ? 254 : exponent < 0 ? 0 : exponent);
    }
};
/// Integers of `bits` bits, one a byte.
template <int bits>
TW_DEVICE i8 narrow_signed(i8 x) {
    return static_cast<i8>(static_cast<i8>(static_cast<u8>(x) << (8 - bits)) >> (8 - bits));
}
template <int bits>
TW_DEVICE u8 narrow_unsigned(u8 x) {
    return static_cast<u8>(x & ((1 << bits) - 1));
}

// --- operands of matrix instructions: words of two halves, or of one tf32

/// The first in the low half.
TW_DEVICE u32 pair(u16 first, u16 second) { return static_cast<u32>(first) | static_cast<u32>(second) << 16; }

// --- reductions by several threads

struct Sum {
    static TW_DEVICE float of(float a, float b) { return a + b; }
    static TW_DEVICE double of(double a, double b) { return a + b; }
    static TW_DEVICE bool of(bool a, bool b) { return a || b; }
    template <class T>
    static TW_DEVICE T of(T a, T b) {
        return add(a, b);
    }
};
struct Prod {
    static TW_DEVICE float of(float a, float b) { return a * b; }
    static TW_DEVICE double of(double a, double b) { return a * b; }
    static TW_DEVICE bool of(bool a, bool b) { return a && b; }
    template <class T>
    static TW_DEVICE T of(T a, T b) {
        return mul(a, b);
    }
};
struct Max {
    static TW_DEVICE bool of(bool a, bool b) { return a || b; }
    template <class T>
    static TW_DEVICE T of(T a, T b) {
        return maximum(a, b);
    }
};
struct Min {
    static TW_DEVICE bool of(bool a, bool b) { return a && b; }
    template <class T>
    static TW_DEVICE T of(T a, T b) {
        return minimum(a, b);
    }
};

/// What shuffles can carry.
template <class T>
TW_DEVICE T exchanged(T value, int mask) {
    return shuffle_xor(value, mask);
}
TW_DEVICE bool exchanged(bool value, int mask) { return shuffle_xor(static_cast<int>(value), mask) != 0; }
TW_DEVICE i8 exchanged(i8 value, int mask) { return static_cast<i8>(shuffle_xor(static_cast<int>(value), mask)); }
TW_DEVICE u8 exchanged(u8 value, int mask) { return static_cast<u8>(shuffle_xor(static_cast<int>(value), mask)); }
TW_DEVICE i16 exchanged(i16 value, int mask) { return static_cast<i16>(shuffle_xor(static_cast<int>(value), mask)); }
TW_DEVICE u16 exchanged(u16 value, int mask) { return static_cast<u16>(shuffle_xor(static_cast<int>(value), mask)); }

/// All of `group` neighbouring threads (a power of two, at most a warp) get the reduction of their values.
template <class Op, int group, class T>
TW_DEVICE T reduce_in_warp(T value) {
    TW_UNROLL for (int mask = group / 2; mask >= 1; mask /= 2) value = Op::of(value, exchanged(value, mask));
    return value;
}
/// The same for `group` threads that are several warps: every thread of the block takes part. `room` holds an element
/// for each warp of the block.
template <class Op, int group, class T>
TW_DEVICE T reduce_in_block(T value, Shared<T> room) {
    value = reduce_in_warp<Op, 32>(value);
    barrier();
    if (thread() % 32 == 0) put(room, thread() / 32, value);
    barrier();
    const int first = thread() / group * (group / 32);
    T all = room[first];
    TW_UNROLL for (int warp = 1; warp < group / 32; ++warp) all = Op::of(all, room[first + warp]);
    return all;
}

/// The same of `count` values, for `group` threads that are `apart` in the block: every thread of the block takes part.
/// `room` holds an element of each thread for at most eight values, where the threads are of several warps.
template <class Op, int group, int apart, int count, class T>
TW_DEVICE void reduce_apart(T* values, Shared<T> room) {
    TW_UNROLL for (int i = 0; i < count; ++i)
        TW_UNROLL for (int mask = apart; mask < 32 && mask < group * apart; mask *= 2)
            values[i] = Op::of(values[i], exchanged(values[i], mask));
    if constexpr (group * apart > 32) {
        constexpr int all = group * apart, step = apart < 32 ? 32 : apart;
        TW_UNROLL for (int first = 0; first < count; first += 8) {
            barrier();
            TW_UNROLL for (int i = first; i < first + 8 && i < count; ++i)
                put(room, (i - first) * all + thread(), values[i]);
            barrier();
            TW_UNROLL for (int i = first; i < first + 8 && i < count; ++i) {
                const int at = (i - first) * all + thread() % step;
                T sum = room[at];
                TW_UNROLL for (int k = step; k < all; k += step) sum = Op::of(sum, room[at + k]);
                values[i] = sum;
            }
        }
    }
}

}  // namespace tw

using tw::i16;
using tw::i32;
using tw::i64;
using tw::i8;
using tw::u16;
using tw::u32;
using tw::u64;
using tw::u8;
