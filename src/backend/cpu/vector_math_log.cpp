// Logarithms, the inverse hyperbolic functions based on them, and powers.

#include <limits>

#include "backend/cpu/math_lanes.h"
#include "backend/cpu/vector_math.h"

namespace tilewright::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kSqrtHalf = 0x3F3504F3;  // bits of the float next to sqrt(1/2)

/// (ln(1 + f) - f) / f^2 for sqrt(1/2) <= 1 + f <= sqrt(2), degree 8: relative error of ln(1 + f) 2^-27.8.
constexpr double kLog[] = {-0x1.fffff8p-2, 0x1.55555p-2,   -0x1.000438p-2, 0x1.99a41cp-3, -0x1.5423e8p-3,
                           0x1.226c84p-3,  -0x1.0f520ap-3, 0x1.087506p-3,  -0x1.381392p-4};

/// log2(1 + f) / f on the same range, degree 14, in double precision: relative error 2^-41.1.
constexpr double kLog2[] = {0x1.71547652b89e1p+0, -0x1.715476528d3bep-1, 0x1.ec709dbd22d39p-2, -0x1.715476b454656p-2,
                            0x1.2776c9414af5fp-2, -0x1.ec7061d8e1f80p-3, 0x1.a615463ff6824p-3, -0x1.715b8e0f454d7p-3,
                            0x1.488d09d51b9a4p-3, -0x1.272b9b3a306bbp-3, 0x1.087c93ef8f546p-3, -0x1.e9fca443ef484p-4,
                            0x1.024d8e999b9cep-3, -0x1.f9f104ed6e830p-4, 0x1.02c9f3c2839f3p-4};

/// (2^r - 1) / r for |r| <= 1/2, degree 6, in double precision: relative error of 2^r 2^-34.3.
constexpr double kExp2[] = {0x1.62e42ff0e2768p-1,  0x1.ebfbe07791900p-3,  0x1.c6b08abde54c4p-5, 0x1.3b29f392930d3p-7,
                            0x1.5d8a8924968e4p-10, 0x1.445c8d7a78134p-13, 0x1.fde1bc84f3728p-17};

/// ln(1 + f) + e ln 2 for f as in kLog and integral e.
Real log_near_one(Real f, Real e) {
    const Real small = fma(polynomial(f, kLog), f * f, fma(e, kLn2Low, f));
    return fma(e, kLn2High, small);
}

/// The exponent e for which 2^-e x lies in [sqrt(1/2), sqrt(2)); x positive and normal.
Bits exponent_of(Real x) { return shift_right_arithmetic(bits_of(x) - kSqrtHalf, 23); }

/// x = 2^exponent * factor with factor in [sqrt(1/2), sqrt(2)), for finite x > 0; subnormal numbers too.
struct Scaled {
    Real factor;
    Bits exponent;
};

Scaled scaled(Real x) {
    const Mask tiny = x < 0x1p-126;
    const Real normal = select(tiny, x * 0x1p24, x);
    const Bits e = exponent_of(normal);
    const Real factor = real_of(bits_of(normal) - (e << 23), x);
    return {factor, select(tiny, e - 24, e)};
}

Real log_f32(Real x) {
    const Scaled s = scaled(x);
    const Real finite = log_near_one(s.factor - 1.0, to_real(s.exponent, x.type()));
    const Real other = select(equal(x, 0.0), -kInfinity, select(x < 0.0, kNan, x + x));
    return select((x > 0.0) & (x < kInfinity), finite, other);
}

Real log1p_f32(Real x) {
    // 1 + x, rounded, only determines e; 2^-e (1 + x) - 1 = 2^-e x + (2^-e - 1) is then computed from x itself. The
    // first term is exact, a change of exponent (x is normal unless e = 0). 2^-e is built at four times its size
    // because e reaches 128.
    const Bits shift = exponent_of(x + 1.0) << 23;
    const Bits four{{x.b, x.b->CreateSub(splat(shift, 0x40800000).v, shift.v)}};
    const Real f = real_of(bits_of(x) - shift, x) + fma(real_of(four, x), 0.25, -1.0);
    const Real e = to_real(shift_right_arithmetic(shift, 23), x.type());
    const Real finite = copysign(log_near_one(f, e), x);
    const Real other = select(equal(x, -1.0), -kInfinity, select(x < -1.0, kNan, x + x));
    return select((x > -1.0) & (x < kInfinity), finite, other);
}

Real asinh_f32(Real x) {
    // ln(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1))), and ln(2a) where a^2 dominates.
    const Real a = abs(x);
    const Mask big = a > 0x1p30;
    const Real square = a * a;
    const Real t = a + square / (sqrt(square + 1.0) + 1.0);
    const Real y = log1p_f32(select(big, a, t));
    return copysign(select(big, y + kLn2High, y), x);
}

Real acosh_f32(Real x) {
    // ln(x + sqrt(x^2 - 1)) = log1p(u + sqrt(u^2 + 2u)) with u = x - 1, and ln(2x) for big x.
    const Mask big = x > 0x1p30;
    const Real u = x - 1.0;
    const Real t = u + sqrt(fma(u, u, u + u));
    const Real y = log1p_f32(select(big, x, t));
    return select(x < 1.0, kNan, select(big, y + kLn2High, y));
}

Real atanh_f32(Real x) {
    const Real a = abs(x);
    return copysign(log1p_f32((a + a) / (1.0 - a)) * 0.5, x);
}

/// 2^(y log2 |x|) in double precision, so that the 24 leading bits are almost always correct: the product of a float's
/// logarithm and y loses up to 8 of the bits of single precision.
Real pow_f32(Real x, Real y) {
    llvm::IRBuilderBase& b = *x.b;
    llvm::Type* wide = with_element(x.type(), b.getDoubleTy());
    const auto widened = [&](Real r) -> Real { return {{&b, b.CreateFPExt(r.v, wide)}}; };

    const Real a = abs(x);
    const Scaled s = scaled(a);
    const Real f = widened(s.factor) - 1.0;
    Real log2 = fma(f, polynomial(f, kLog2), to_real(s.exponent, wide));
    log2 = select(equal(a, 0.0), -kInfinity, select(equal(a, kInfinity), kInfinity, log2));
    const Real z = at_least(at_most(log2 * widened(y), 200.0), -200.0);
    const Real sum = z + kRoundDouble;
    const Real rest = z - (sum - kRoundDouble);
    const Real power = fma(rest, polynomial(rest, kExp2), 1.0);
    const Real scaled_power = real_of(bits_of(power) + (bits_of(sum) << 52), power);
    const Real magnitude{{&b, b.CreateFPTrunc(scaled_power.v, x.type())}};

    // Negative x: the sign for odd powers, NaN for non-integral powers. (Infinities count as even.)
    const Mask whole = equal(trunc(y), y);
    const Real half = y * 0.5;
    const Mask odd = whole & !equal(trunc(half), half);
    Real result = select(odd, copysign(magnitude, x), magnitude);
    result = select((x < 0.0) & (a < kInfinity) & !whole, kNan, result);
    result = select(unordered(x, y), x + y, result);
    // x^0, 1^y and (-1)^+-inf are 1 for any other operand.
    const Mask one = equal(y, 0.0) | equal(x, 1.0) | (equal(x, -1.0) & equal(abs(y), kInfinity));
    return select(one, 1.0, result);
}

}  // namespace

llvm::Value* emit_log(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "log", log_f32, x); }
llvm::Value* emit_log1p(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "log1p", log1p_f32, x); }
llvm::Value* emit_asinh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "asinh", asinh_f32, x); }
llvm::Value* emit_acosh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "acosh", acosh_f32, x); }
llvm::Value* emit_atanh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "atanh", atanh_f32, x); }
llvm::Value* emit_pow(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
    return emit_function(b, "pow", pow_f32, x, y);
}

}  // namespace tilewright::cpu
