#include "backend/cpu/vector_math.h"

#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/cpu/math_lanes.h"
#include "program/scalar_ops.h"

namespace tilewright::cpu {
namespace {

constexpr double kLog2E = 0x1.715476p+0;

/// (e^r - 1 - r) / r^2 for |r| <= 1.002 ln(2)/2, degree 4: relative error of e^r - 1 2^-26.1, of e^r 2^-27.4.
constexpr double kExp[] = {0x1.fffffep-2, 0x1.5554b2p-3, 0x1.555702p-5, 0x1.1226a6p-7, 0x1.6b8caep-10};

Real expm1_near_zero(Real r) { return fma(polynomial(r, kExp), r * r, r); }
Real exp_near_zero(Real r) { return fma(fma(polynomial(r, kExp), r, 1.0), r, 1.0); }

/// x = n ln 2 + rest, |rest| <= ln(2)/2 up to rounding; `sum` holds n + bias in its lowest bits.
struct Octave {
    Real rest;
    Real n;
    Bits sum;
};

Octave reduce_by_octave(Real x, int bias = 0) {
    const Real sum = fma(x, kLog2E, kRound + bias);
    const Real n = sum - (kRound + bias);
    return {fma(n, -kLn2Low, fma(n, -kLn2High, x)), n, bits_of(sum)};
}

/// 2^(n + shift) for the n in the lowest bits of `sum`, where that is a normal number.
Real power_of_two(Bits sum, int shift, Real like) {
    return real_of((sum << 23) + (static_cast<uint64_t>(127 + shift) << 23), like);
}

/// 2^(j/16), to the nearest float.
constexpr float kSixteenths[] = {0x1.0p+0f,      0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                 0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                 0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};

/// (e^r - 1) / r - 1 by r for |r| <= 1.003 ln(2)/32: relative error of e^r 2^-29.2.
constexpr double kExpSixteenth[] = {0x1.000224p-1, 0x1.55563ep-3};

/// The smallest float whose exponential is normal: e^x < 2^-126 for every smaller float, where the result is 0. A
/// subnormal result, or an underflow of vscalefps, costs a microcode assist on Intel CPUs: 60 to 110 ns per vector
/// instead of 1.2, for every masked score of a softmax.
constexpr double kExpSmallest = -0x1.5d589ep+6;  // -87.33654

/// x = n ln 2 + r with n a multiple of 1/16 whose fraction selects 2^fraction from a table of sixteen. Two
/// multiplications fewer than a reduction by whole octaves; multiplications bound the throughput of a loop of
/// exponentials, while additions, the table and the scaling use other units (7 multiply-adds beside 6 others; by
/// octaves 9 and 5).
Real exp_avx512(Real x) {
    const Real sum = fma(x, kLog2E, kRound / 16);
    const Real n = sum - kRound / 16;
    const Real r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
    const Real parts[] = {sum, n, r, fma(polynomial(r, kExpSixteenth), r, 1.0), x};
    return in_sixteens(parts, [](llvm::ArrayRef<Real> p) -> Real {
        llvm::IRBuilderBase& b = *p[0].b;
        // The four lowest bits of the sum are the fraction; the scaling uses floor(n).
        const Real fraction{
            {&b, b.CreateIntrinsic(
                     llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                     {llvm::ConstantDataVector::get(b.getContext(), llvm::ArrayRef(kSixteenths)), bits_of(p[0]).v})}};
        const Real v = fma(fraction * p[2], p[3], fraction);
        // Not below the bound, so that NaN passes. Masked lanes are 0 and raise no exception.
        llvm::Value* normal = b.CreateBitCast((!(p[4] < kExpSmallest)).v, b.getInt16Ty());
        llvm::Value* zero = llvm::Constant::getNullValue(v.type());
        llvm::Value* rounding = b.getInt32(4);  // the current mode
        return {{&b, b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                       {v.v, p[1].v, zero, normal, rounding})}};
    });
}

Real exp_f32(Real x) {
    x = at_most(x, 89.0);  // infinite from 88.73 on
    if (has_avx512(*x.b)) return exp_avx512(x);
    const Mask underflow = x < kExpSmallest;
    const Octave o = reduce_by_octave(at_least(x, kExpSmallest));
    // 2^n scales by addition to the exponent of e^rest: n is at least -126, where the rest is positive, and at most
    // 128. There the sum is the pattern of an infinity or NaN from e^rest = 1 on, and the comparison selects infinity.
    const Real p = exp_near_zero(o.rest);
    const Real v = real_of(bits_of(p) + (o.sum << 23), x);
    const Real most = p * std::numeric_limits<double>::infinity();  // NaN where x is
    return select(underflow, 0.0, select(v < most, v, most));
}

Real expm1_f32(Real x) {
    const Octave o = reduce_by_octave(at_least(at_most(x, 89.0), -30.0));
    const Real p = expm1_near_zero(o.rest);
    // 2^n (1 + p) - 1, at half its size because 2^128 is not a float.
    const Real s = power_of_two(o.sum, -1, x);
    const Real half = fma(s, p, s - 0.5);
    return copysign(select(equal(o.n, 0.0), p, half + half), x);
}

/// (e^a - 1) / 2 and e^a / 2 for 0 <= a; infinite from about 89.4 on.
struct HalfExp {
    Real minus_one;
    Real plain;
};

HalfExp half_exp(Real a) {
    const Octave o = reduce_by_octave(at_most(a, 89.5));
    const Real p = expm1_near_zero(o.rest);
    const Real s = power_of_two(o.sum, -2, a);  // n reaches 129: scaling by a quarter keeps the factor finite
    const Real minus_one = fma(s, p, s - 0.25);
    const Real plain = fma(s, p, s);
    return {minus_one + minus_one, plain + plain};
}

Real sinh_f32(Real x) {
    const Real a = abs(x);
    const Real u = half_exp(a).minus_one;
    // (e^a - e^-a) / 2 = u + u / (2u + 1); the second term tends to 1/2, which is negligible beside 2^28.
    const Real second = select(a > 20.0, 0.0, u / fma(u, 2.0, 1.0));
    return copysign(select(a < 0x1p-12, a, u + second), x);
}

Real cosh_f32(Real x) {
    const Real e = half_exp(abs(x)).plain;
    return e + 0.25 / e;
}

// erf from the exponential: erf(a) = 1 - e^y with y = ln(erfc(a)) = -a - a H(a). The rounding error of y counts in
// proportion to erfc; without the term a, aH is small where erfc is not. H on [0, 3.93], degree 8, weighted by a
// erfc(a) / erf(a): relative error of erf 2^-27.8. Negated.
constexpr double kErfLog[] = {-0x1.06eba8p-3,  -0x1.45f3p-1,   -0x1.a4f8c4p-4,  0x1.39b7ccp-6, 0x1.6374d6p-13,
                              -0x1.b7439ap-10, 0x1.4e27a6p-11, -0x1.f2852ap-14, 0x1.3afcb4p-17};

Real erf_by_exp(Real a) {
    const Real y = fma(polynomial(a, kErfLog), a, -a);
    const Real sum = fma(y, kLog2E, kRound);
    const Real n = sum - kRound;
    const Real p = expm1_near_zero(fma(n, -kLn2High, y));
    const Real s = power_of_two(bits_of(sum), 0, a);
    return fma(-s, p, 1.0 - s);
}

/// (tanh(a) - a) / a^3 in a^2 for 0 <= a <= 0.45, degree 3: relative error of tanh 2^-27.4.
constexpr double kTanh[] = {-0x1.55551cp-2, 0x1.10fb5ep-3, -0x1.b4f3d2p-5, 0x1.271d7ap-6};

Real tanh_by_exp(Real a) {
    // 2a = n ln 2 + 2r. One float for ln 2 suffices: its error counts in proportion to n 2^-n.
    const Real sum = fma(a, 2 * kLog2E, kRound);
    const Real n = sum - kRound;
    const Real r = fma(n, -kLn2High / 2, a);
    // (e^2r - 1) / 2 = r + 2 r^2 q(2r), with the powers of two folded into q's coefficients.
    double q[std::size(kExp)];
    for (size_t i = 0; i < std::size(q); ++i) q[i] = std::ldexp(kExp[i], static_cast<int>(i) + 1);
    const Real p = fma(polynomial(r, q), r * r, r);
    const Real s = power_of_two(bits_of(sum), 0, a);
    const Real half = fma(s, p, fma(s, 0.5, -0.5));  // (e^2a - 1) / 2
    // Near 0 the rounding errors of half, half + 1 and the quotient would accumulate.
    const Real square = a * a;
    const Real near = fma(polynomial(square, kTanh), square * a, a);
    return select(a < 0.45, near, half / (half + 1.0));
}

/// A function on [0, end) in 16 intervals, for vpermps: f(point + d) = c0 + c1 d + ... + c5 d^5 with the coefficients
/// of d's interval. The points lie within a few thousand floats of the intervals' midpoints, where f is a float to
/// 2^-33 or better (as far as floats near 1 allow), so that c0 has no error. The interval that starts at 0 has point 0
/// and c0 0 and holds f(d) = d + c1 d + ...: there d, which is smaller than every other c0, replaces c0, so that the
/// leading term is d itself.
struct Pieces {
    float point[16];
    float c[6][16];
};

/// The four lowest bits of `index` select the interval.
Real evaluate(const Pieces& f, Real x, Bits index) {
    llvm::IRBuilderBase& b = *x.b;
    const auto pick = [&](llvm::ArrayRef<float> table) -> Real {
        return {{&b, b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                                       {llvm::ConstantDataVector::get(b.getContext(), table), index.v})}};
    };
    const Real d = x - pick(f.point);
    Real sum = pick(f.c[5]);
    for (size_t k = 5; k-- > 1;) sum = fma(sum, d, pick(f.c[k]));
    const Real first = pick(f.c[0]);
    return fma(sum, d, select(first > d, first, d));
}

/// erf in intervals of one width around its multiples, the first cut in half: relative error 2^-25.2.
constexpr double kErfWidth = 65.0 / 256;
constexpr Pieces kErf = {
    {0x0.0p+0f, 0x1.040002p-2f, 0x1.04043ep-1f, 0x1.85fedap-1f, 0x1.03ffa2p+0f, 0x1.450020p+0f, 0x1.85fffap+0f,
     0x1.c6ffe4p+0f, 0x1.040052p+1f, 0x1.248266p+1f, 0x1.450062p+1f, 0x1.657fd4p+1f, 0x1.860418p+1f, 0x1.a68224p+1f,
     0x1.c71f3ep+1f, 0x1.e79f3ep+1f},
    {
        {0x0.0p+0f, 0x1.1f31b4p-2f, 0x1.0e0302p-1f, 0x1.6feebcp-1f, 0x1.b2bb1cp-1f, 0x1.dad54cp-1f, 0x1.f00612p-1f,
         0x1.f9e15ap-1f, 0x1.fdea74p-1f, 0x1.ff5ec4p-1f, 0x1.ffd4cap-1f, 0x1.fff5c0p-1f, 0x1.fffddap-1f, 0x1.ffff9ap-1f,
         0x1.fffff0p-1f, 0x1.fffffep-1f},
        {0x1.06eba8p-3f, 0x1.0ed47cp+0f, 0x1.be64b2p-1f, 0x1.4367a2p-1f, 0x1.9be56cp-2f, 0x1.cd2214p-3f, 0x1.c5d068p-4f,
         0x1.889584p-5f, 0x1.2a8450p-6f, 0x1.8ef600p-8f, 0x1.d4f7bep-10f, 0x1.e47b8ep-12f, 0x1.b793b2p-14f,
         0x1.5efa9ep-16f, 0x1.e728b4p-19f, 0x1.27b034p-21f},
        {0x0.0p+0f, -0x1.130ea6p-2f, -0x1.c5643ep-2f, -0x1.ecadb8p-2f, -0x1.a25492p-2f, -0x1.24b6e0p-2f,
         -0x1.59aed0p-3f, -0x1.5ce1b6p-4f, -0x1.2f2ebap-5f, -0x1.c7d8c6p-7f, -0x1.29aa42p-8f, -0x1.523c66p-10f,
         -0x1.4ecf14p-12f, -0x1.21bcf6p-14f, -0x1.6c2d26p-16f, -0x1.0c81d6p-17f},
        {-0x1.81266ap-2f, -0x1.3a9286p-2f, -0x1.2035bep-3f, 0x1.149024p-5f, 0x1.23e0a2p-3f, 0x1.55c476p-3f,
         0x1.1372d6p-3f, 0x1.5bf5b6p-4f, 0x1.68d0f0p-5f, 0x1.3a0064p-6f, 0x1.d0ce56p-8f, 0x1.26bac8p-9f,
         0x1.41bba4p-11f, 0x1.30013cp-13f, 0x1.08d93ap-15f, 0x1.bd0d02p-18f},
        {0x0.0p+0f, 0x1.05628ep-3f, 0x1.752e56p-3f, 0x1.2cf8d4p-3f, 0x1.05de48p-4f, -0x1.4ceb6ap-7f, -0x1.76f1a4p-5f,
         -0x1.8067dep-5f, -0x1.096c1ep-5f, -0x1.1befe6p-6f, -0x1.eed550p-8f, -0x1.67b902p-9f, -0x1.b8cc1cp-11f,
         -0x1.c95c9ep-13f, 0x1.0227a2p-11f, 0x1.72bdb6p-12f},
        {0x1.cba798p-4f, 0x1.4815e2p-4f, 0x1.7b2b9ep-8f, -0x1.bba55ep-5f, -0x1.175a9ep-4f, -0x1.6dc7b0p-5f,
         -0x1.963d1ep-7f, 0x1.00296ep-7f, 0x1.aa7b88p-7f, 0x1.48477ep-7f, 0x1.685734p-8f, 0x1.36f4b4p-9f,
         0x1.b66bc4p-11f, 0x1.01b56ep-12f, 0x1.001d30p-14f, 0x1.b237d8p-17f},
    }};

/// tanh in intervals selected by the two lowest exponent bits and the two highest mantissa bits of 4/5 a + 1/2, which
/// covers [1/2, 8), so that intervals grow with a: relative error 2^-25.3.
constexpr Pieces kTanhPieces = {
    {0x1.18000ap+1f, 0x1.68005p+1f, 0x1.b7ff7ep+1f, 0x1.04008ep+2f, 0x1.40019ap+2f, 0x1.9002d8p+2f, 0x1.e02edep+2f,
     0x1.17d122p+3f, 0x0.0p+0f, 0x1.e0061ep-3f, 0x1.9002cp-2f, 0x1.180146p-1f, 0x1.8ffd6ap-1f, 0x1.18037ap+0f,
     0x1.67fe2cp+0f, 0x1.b7fd76p+0f},
    {
        {0x1.f3452p-1f, 0x1.fc51fap-1f, 0x1.fef166p-1f, 0x1.ffb26cp-1f, 0x1.fff41ap-1f, 0x1.ffff06p-1f, 0x1.ffffecp-1f,
         0x1.fffffep-1f, 0x0.0p+0f, 0x1.d76c28p-3f, 0x1.7cd57p-2f, 0x1.fe235ap-2f, 0x1.4e8c0ep-1f, 0x1.98b5ccp-1f,
         0x1.c5fc2p-1f, 0x1.e01b38p-1f},
        {0x1.924b88p-5f, 0x1.d551d2p-7f, 0x1.0e5298p-8f, 0x1.3638ap-10f, 0x1.7cc6c6p-13f, 0x1.f40fc8p-17f,
         0x1.4634fcp-20f, 0x1.b54bd6p-24f, 0x0.0p+0f, 0x1.e4df08p-1f, 0x1.b92eb6p-1f, 0x1.80ede4p-1f, 0x1.25672p-1f,
         0x1.737c04p-2f, 0x1.b5d37ap-3f, 0x1.ee67acp-4f},
        {-0x1.884572p-5f, -0x1.d1e102p-7f, -0x1.0db7ap-8f, -0x1.35fb3ep-10f, -0x1.7b8b76p-13f, -0x1.f28572p-17f,
         -0x1.88dacap-20f, 0x1.db376ep-22f, 0x1.faba0ap-21f, -0x1.be7132p-3f, -0x1.482858p-2f, -0x1.7f876p-2f,
         -0x1.7f6d3ep-2f, -0x1.288bfcp-2f, -0x1.84388ap-3f, -0x1.cf9c1cp-4f},
        {0x1.f0e9b4p-6f, 0x1.321f26p-7f, 0x1.66232cp-9f, 0x1.9cd0acp-11f, 0x1.f9dc96p-14f, 0x1.4c3fbcp-17f,
         0x1.b68732p-21f, 0x1.ea8a12p-22f, -0x1.55637cp-2f, -0x1.0fe256p-2f, -0x1.582dcap-3f, -0x1.06363ep-4f,
         0x1.b764b2p-5f, 0x1.c392cep-4f, 0x1.8c968p-4f, 0x1.0dee54p-4f},
        {-0x1.c0e6d4p-7f, -0x1.2dbc3cp-8f, -0x1.696678p-10f, -0x1.a3505p-12f, -0x1.10961ep-14f, -0x1.6613b4p-18f,
         0x1.b7c576p-23f, -0x1.268f7cp-18f, 0x1.e06018p-11f, 0x1.10ed4cp-3f, 0x1.59a7d4p-3f, 0x1.404e8ap-3f,
         0x1.701422p-4f, 0x1.2c64c6p-7f, -0x1.6dc772p-6f, -0x1.88f58ep-6f},
        {0x1.1471dap-8f, 0x1.c4ca2cp-10f, 0x1.1c01a8p-11f, 0x1.4dbb9ep-13f, 0x1.b37f82p-16f, 0x1.1e6452p-19f,
         0x1.728424p-23f, -0x1.8e3f52p-18f, 0x1.066c8ep-3f, 0x1.4b008ap-4f, 0x1.c0eb2cp-7f, -0x1.44d4e4p-5f,
         -0x1.0209eep-4f, -0x1.242212p-5f, -0x1.f831fcp-8f, 0x1.a1cbbcp-9f},
    }};

Real erf_by_pieces(Real a) {
    return in_sixteens(
        a, [](llvm::ArrayRef<Real> x) { return evaluate(kErf, x[0], bits_of(fma(x[0], 1 / kErfWidth, kRound))); });
}

Real tanh_by_pieces(Real a) {
    return in_sixteens(a, [](llvm::ArrayRef<Real> x) {
        return evaluate(kTanhPieces, x[0], shift_right_logical(bits_of(fma(x[0], 0.8, 0.5)), 21));
    });
}

Real erf_f32(Real x) {
    const Real a = at_most(abs(x), 3.93);  // 1 - erf(3.93) < 2^-25
    return copysign(has_avx512(*x.b) ? erf_by_pieces(a) : erf_by_exp(a), x);
}

Real tanh_f32(Real x) {
    const Real a = at_most(abs(x), 9.02);  // 1 - tanh(9.02) < 2^-25
    return copysign(has_avx512(*x.b) ? tanh_by_pieces(a) : tanh_by_exp(a), x);
}

/// Returns the value that all lanes of `v` have, if it is a constant.
std::optional<llvm::APFloat> constant_of(llvm::Value* v) {
    auto* c = llvm::dyn_cast<llvm::Constant>(v);
    if (c != nullptr && c->getType()->isVectorTy()) c = c->getSplatValue();
    const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(c);
    return number == nullptr ? std::nullopt : std::optional(number->getValueAPF());
}

/// vmaxps, vminps and their variants: y if either is NaN. Returns null for vectors that are no x86 register.
llvm::Value* register_extremum(llvm::IRBuilderBase& b, bool larger, llvm::Value* x, llvm::Value* y) {
    namespace I = llvm::Intrinsic;
    if (!llvm::Triple(b.GetInsertBlock()->getModule()->getTargetTriple()).isX86()) return nullptr;
    const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    if (type == nullptr) return nullptr;
    const bool single = type->getElementType()->isFloatTy();
    if (!single && !type->getElementType()->isDoubleTy()) return nullptr;
    const auto call = [&](I::ID of_float, I::ID of_double, llvm::ArrayRef<llvm::Value*> arguments) {
        return b.CreateIntrinsic(single ? of_float : of_double, {}, arguments);
    };
    switch (type->getNumElements() * (single ? 32 : 64)) {
        case 128:
            return larger ? call(I::x86_sse_max_ps, I::x86_sse2_max_pd, {x, y})
                          : call(I::x86_sse_min_ps, I::x86_sse2_min_pd, {x, y});
        case 256:
            return larger ? call(I::x86_avx_max_ps_256, I::x86_avx_max_pd_256, {x, y})
                          : call(I::x86_avx_min_ps_256, I::x86_avx_min_pd_256, {x, y});
        case 512: {
            if (!has_avx512(b)) return nullptr;
            llvm::Value* as_is = b.getInt32(4);  // no rounding, exceptions as MXCSR says
            return larger ? call(I::x86_avx512_max_ps_512, I::x86_avx512_max_pd_512, {x, y, as_is})
                          : call(I::x86_avx512_min_ps_512, I::x86_avx512_min_pd_512, {x, y, as_is});
        }
        default:
            return nullptr;
    }
}

/// (y is NaN) ? y : (x is NaN) ? x : the larger (smaller). An operand that is a known number comes first and is not
/// tested. With AVX-512 this takes two instructions, vcmpordps x, x and a masked vmaxps, which must be opaque to LLVM:
/// it would merge two selects into one over (x > y or x is NaN), which takes four.
llvm::Value* emit_extremum(llvm::IRBuilderBase& b, bool larger, llvm::Value* x, llvm::Value* y) {
    const Strict strict(b);
    if (llvm::Triple(b.GetInsertBlock()->getModule()->getTargetTriple()).isAArch64())  // fmax, fmin propagate NaN there
        return b.CreateBinaryIntrinsic(larger ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, x, y);
    if (const auto number = constant_of(y); number && !number->isNaN()) std::swap(x, y);
    llvm::Value* chosen = register_extremum(b, larger, x, y);
    if (chosen == nullptr) chosen = b.CreateSelect(larger ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
    return b.CreateSelect(b.CreateFCmpORD(x, x), chosen, x);
}

}  // namespace

llvm::Value* emit_floor(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
}
llvm::Value* emit_ceil(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
}
llvm::Value* emit_trunc(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
}
llvm::Value* emit_round(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::rint, x);
}
llvm::Value* emit_sqrt(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
}
llvm::Value* emit_exp(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "exp", exp_f32, x); }
llvm::Value* emit_expm1(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "expm1", expm1_f32, x); }
llvm::Value* emit_erf(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "erf", erf_f32, x); }
llvm::Value* emit_sinh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "sinh", sinh_f32, x); }
llvm::Value* emit_cosh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "cosh", cosh_f32, x); }
llvm::Value* emit_tanh(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "tanh", tanh_f32, x); }

llvm::Value* emit_max_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
    return emit_extremum(b, true, x, y);
}
llvm::Value* emit_min_nan(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
    return emit_extremum(b, false, x, y);
}

namespace {
/// Markstein: x / c is x r after one correction, correctly rounded, with r = 1 / c rounded to nearest.
llvm::Value* quotient(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* c, llvm::Value* r) {
    const auto fma = [&](llvm::Value* a, llvm::Value* m, llvm::Value* s) {
        return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {a, m, s});
    };
    llvm::Value* q = b.CreateFMul(x, r);
    llvm::Value* corrected = fma(fma(q, b.CreateFNeg(c), x), r, q);
    // Infinity minus infinity is NaN, and a zero must keep its sign.
    llvm::Value* plain = b.CreateFCmpUEQ(corrected, llvm::ConstantFP::get(x->getType(), 0));
    return b.CreateSelect(plain, q, corrected);
}
}  // namespace

llvm::Value* emit_div(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
    const Strict strict(b);
    const auto divisor = constant_of(y);
    if (!divisor || !x->getType()->getScalarType()->isFloatTy()) return b.CreateFDiv(x, y);
    const float c = divisor->convertToFloat();
    const float r = 1 / c;
    if (!std::isnormal(c) || !std::isnormal(r)) return b.CreateFDiv(x, y);
    const auto splat = [&](float f) { return llvm::ConstantFP::get(x->getType(), f); };
    if (int exponent = 0; std::abs(std::frexp(c, &exponent)) == 0.5F) return b.CreateFMul(x, splat(r));
    return quotient(b, x, splat(c), splat(r));
}

llvm::Value* emit_div_by_one(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
    const Strict strict(b);
    const auto* vector = llvm::cast<llvm::FixedVectorType>(x->getType());
    const auto splat = [&](llvm::Value* v) { return b.CreateVectorSplat(vector->getNumElements(), v); };
    if (constant_of(y) || !y->getType()->isFloatTy()) return emit_div(b, x, splat(y));
    const auto number = [&](float f) { return llvm::ConstantFP::get(b.getFloatTy(), f); };
    // Scales both operands if 1 / y would not be a normal float. If x then overflows or underflows, so would x / y.
    llvm::Value* size = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, y);
    llvm::Value* scale = b.CreateSelect(b.CreateFCmpOGT(size, number(0x1p100F)), number(0x1p-100F), number(1));
    scale = b.CreateSelect(b.CreateFCmpOLT(size, number(0x1p-100F)), number(0x1p100F), scale);
    llvm::Value* c = b.CreateFMul(y, scale);
    return quotient(b, b.CreateFMul(x, splat(scale)), splat(c), splat(b.CreateFDiv(number(1), c)));
}

llvm::Value* emit_f16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x) {
    llvm::Type* type = x->getType();
    return b.CreateFPExt(b.CreateBitCast(x, with_element(type, b.getHalfTy())), with_element(type, b.getFloatTy()));
}

llvm::Value* emit_f32_to_f16(llvm::IRBuilderBase& b, llvm::Value* x) {
    return b.CreateFPTrunc(x, with_element(x->getType(), b.getHalfTy()));
}

llvm::Value* emit_bf16_to_f32(llvm::IRBuilderBase& b, llvm::Value* x) {
    llvm::Type* type = x->getType();
    llvm::Value* wide = b.CreateShl(b.CreateZExt(x, with_element(type, b.getInt32Ty())), 16);
    return b.CreateBitCast(wide, with_element(type, b.getFloatTy()));
}

namespace {

/// Whether the value may be a bf16 number that is only moved: widened, selected or shuffled.
bool may_be_widened(const llvm::Value* x, int depth = 0) {
    constexpr int kDeepest = 6;
    if (depth == kDeepest || llvm::isa<llvm::BitCastInst>(x) || llvm::isa<llvm::PHINode>(x)) return true;
    if (!llvm::isa<llvm::SelectInst>(x) && !llvm::isa<llvm::ShuffleVectorInst>(x)) return false;
    const auto* parts = llvm::cast<llvm::User>(x);
    return std::any_of(parts->op_begin(), parts->op_end(), [&](const llvm::Use& part) {
        return part->getType()->isFPOrFPVectorTy() && may_be_widened(part.get(), depth + 1);
    });
}

/// The bf16 number of a float that is one by its form: widened from bf16, or with the lower half masked off. Null for
/// any other.
llvm::Value* stored_bf16(llvm::IRBuilderBase& b, llvm::Value* x) {
    using namespace llvm::PatternMatch;
    llvm::Type* half = with_element(x->getType(), b.getInt16Ty());
    llvm::Value* bits = nullptr;
    if (match(x, m_BitCast(m_Shl(m_ZExt(m_Value(bits)), m_SpecificInt(16)))) && bits->getType() == half) return bits;
    if (!match(x, m_BitCast(m_Value(bits))) || !match(bits, m_c_And(m_Value(), m_SpecificInt(0xFFFF0000))))
        return nullptr;
    return b.CreateTrunc(b.CreateLShr(bits, 16), half);
}

/// The conversion as an instruction (AVX512_BF16), for vectors that it takes; else null. The instruction flushes
/// subnormal numbers, so it does not take numbers that are only moved.
llvm::Value* convert_to_bf16(llvm::IRBuilderBase& b, llvm::Value* x) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    const llvm::Function* f = b.GetInsertBlock()->getParent();
    if (vector == nullptr || may_be_widened(x) ||
        !f->getFnAttribute("target-features").getValueAsString().contains("+avx512bf16"))
        return nullptr;
    llvm::Intrinsic::ID instruction = llvm::Intrinsic::not_intrinsic;
    if (vector->getNumElements() == 16) instruction = llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512;
    if (vector->getNumElements() == 8) instruction = llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_256;
    if (instruction == llvm::Intrinsic::not_intrinsic) return nullptr;
    llvm::Value* converted = b.CreateIntrinsic(instruction, {}, {x});
    return b.CreateBitCast(converted, llvm::FixedVectorType::get(b.getInt16Ty(), vector->getNumElements()));
}

}  // namespace

llvm::Value* emit_f32_to_bf16(llvm::IRBuilderBase& b, llvm::Value* x) {
    if (llvm::Value* stored = stored_bf16(b, x)) return stored;
    if (llvm::Value* converted = convert_to_bf16(b, x)) return converted;
    const Strict strict(b);
    const Real value{{&b, x}};
    const Bits bits = bits_of(value);
    // Half a unit in the last kept place, minus one unless that place is odd: carries exactly where rounding goes up.
    const Bits odd = shift_right_logical(bits, 16) & 1;
    const Bits rounded = bits + odd + 0x7FFF;
    const Bits quiet{{&b, b.CreateOr(bits.v, splat(bits, 0x400000).v)}};
    const Bits kept = shift_right_logical(select(unordered(value, value), quiet, rounded), 16);
    return b.CreateTrunc(kept.v, with_element(x->getType(), b.getInt16Ty()));
}

const std::vector<MathSymbol>& math_symbols() {
    using Binary = double (*)(double, double);
    const auto binary_at = [](Binary f) { return reinterpret_cast<const void*>(f); };
    static const std::vector<MathSymbol> symbols = [&] {
        std::vector<MathSymbol> all = {
            {"pow", binary_at(std::pow)},
            {"fmod", binary_at(std::fmod)},
            {"fmodf", reinterpret_cast<const void*>(static_cast<float (*)(float, float)>(std::fmod))},
            {"fma", reinterpret_cast<const void*>(static_cast<double (*)(double, double, double)>(std::fma))},
            {"fmaf", reinterpret_cast<const void*>(static_cast<float (*)(float, float, float)>(std::fma))},
        };
        for (const ScalarFunction& f : scalar_functions())
            if (f.ulp > 0) all.push_back({f.c_name, reinterpret_cast<const void*>(f.reference)});
        return all;
    }();
    return symbols;
}

}  // namespace tilewright::cpu
