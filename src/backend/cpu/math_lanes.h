#pragma once
// Arithmetic on lanes: C++ operators on LLVM values, so that an approximation reads like its formula.
//
//     Real t = fma(x, kLog2E, kRound);  Real n = t - kRound;      // constants are splat to the operand's lanes

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <tuple>

#include "base/error.h"

namespace tilewright::cpu {

// ln 2 = kLn2High + kLn2Low to 49 bits; n * kLn2High is exact inside a fused multiply-add.
constexpr double kLn2High = 0x1.62e43p-1;
constexpr double kLn2Low = -0x1.05c61p-29;

// Adding it rounds |x| < 2^22 to an integer (half to even) and leaves that integer in the lowest bits of the sum; the
// second constant does so in double precision.
constexpr double kRound = 0x1.8p23;
constexpr double kRoundDouble = 0x1.8p52;

/// Returns the type with `type`'s lanes and another element type: (<8 x float>, i32) -> <8 x i32>; (float, i32) -> i32.
inline llvm::Type* with_element(llvm::Type* type, llvm::Type* element) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
}

inline unsigned lane_count(llvm::Type* type) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    return vector == nullptr ? 1 : vector->getNumElements();
}

struct Lanes {
    llvm::IRBuilderBase* b;
    llvm::Value* v;
    llvm::Type* type() const { return v->getType(); }
};

struct Mask : Lanes {};  ///< i1
struct Bits : Lanes {};  ///< integers as wide as the corresponding floats
struct Real : Lanes {};  ///< float or double

inline Real splat(Real like, double c) { return {{like.b, llvm::ConstantFP::get(like.type(), c)}}; }
inline Bits splat(Bits like, uint64_t c) { return {{like.b, llvm::ConstantInt::get(like.type(), c)}}; }

/// An operand: lanes, or one constant for all lanes.
struct RealOrConstant {
    RealOrConstant(Real x) : lanes(x.v) {}     // NOLINT(google-explicit-constructor)
    RealOrConstant(double c) : constant(c) {}  // NOLINT(google-explicit-constructor)
    llvm::Value* like(Real x) const { return lanes != nullptr ? lanes : splat(x, constant).v; }

    llvm::Value* lanes = nullptr;
    double constant = 0;
};

inline Real operator+(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFAdd(x.v, y.like(x))}}; }
inline Real operator-(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFSub(x.v, y.like(x))}}; }
inline Real operator*(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFMul(x.v, y.like(x))}}; }
inline Real operator/(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFDiv(x.v, y.like(x))}}; }
inline Real operator-(double x, Real y) { return splat(y, x) - y; }
inline Real operator/(double x, Real y) { return splat(y, x) / y; }
inline Real operator-(Real x) { return {{x.b, x.b->CreateFNeg(x.v)}}; }

/// x * y + z, rounded once.
inline Real fma(Real x, RealOrConstant y, RealOrConstant z) {
    return {{x.b, x.b->CreateIntrinsic(llvm::Intrinsic::fma, {x.type()}, {x.v, y.like(x), z.like(x)})}};
}

inline Real unary(llvm::Intrinsic::ID id, Real x) { return {{x.b, x.b->CreateUnaryIntrinsic(id, x.v)}}; }
inline Real abs(Real x) { return unary(llvm::Intrinsic::fabs, x); }
inline Real sqrt(Real x) { return unary(llvm::Intrinsic::sqrt, x); }
inline Real trunc(Real x) { return unary(llvm::Intrinsic::trunc, x); }
inline Real copysign(Real magnitude, Real sign) {
    return {{sign.b, sign.b->CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude.v, sign.v)}};
}

inline Mask operator<(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFCmpOLT(x.v, y.like(x))}}; }
inline Mask operator>(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFCmpOGT(x.v, y.like(x))}}; }
inline Mask equal(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFCmpOEQ(x.v, y.like(x))}}; }
inline Mask unordered(Real x, RealOrConstant y) { return {{x.b, x.b->CreateFCmpUNO(x.v, y.like(x))}}; }
inline Mask operator&(Mask x, Mask y) { return {{x.b, x.b->CreateAnd(x.v, y.v)}}; }
inline Mask operator|(Mask x, Mask y) { return {{x.b, x.b->CreateOr(x.v, y.v)}}; }
inline Mask operator!(Mask x) { return {{x.b, x.b->CreateNot(x.v)}}; }

inline Real select(Mask m, RealOrConstant x, Real y) { return {{m.b, m.b->CreateSelect(m.v, x.like(y), y.v)}}; }
inline Real select(Mask m, Real x, double y) { return {{m.b, m.b->CreateSelect(m.v, x.v, splat(x, y).v)}}; }
inline Bits select(Mask m, Bits x, Bits y) { return {{m.b, m.b->CreateSelect(m.v, x.v, y.v)}}; }

/// The smaller / larger of x and a constant; propagates a NaN in x (one vminps / vmaxps).
inline Real at_most(Real x, double c) { return select(splat(x, c) < x, c, x); }
inline Real at_least(Real x, double c) { return select(splat(x, c) > x, c, x); }

inline Bits bits_of(Real x) {
    llvm::Type* integer = x.b->getIntNTy(x.type()->getScalarSizeInBits());
    return {{x.b, x.b->CreateBitCast(x.v, with_element(x.type(), integer))}};
}
inline Real real_of(Bits x, Real like) { return {{x.b, x.b->CreateBitCast(x.v, like.type())}}; }
/// Signed integers to the nearest float.
inline Real to_real(Bits x, llvm::Type* type) { return {{x.b, x.b->CreateSIToFP(x.v, type)}}; }

inline Bits operator+(Bits x, Bits y) { return {{x.b, x.b->CreateAdd(x.v, y.v)}}; }
inline Bits operator-(Bits x, Bits y) { return {{x.b, x.b->CreateSub(x.v, y.v)}}; }
inline Bits operator&(Bits x, Bits y) { return {{x.b, x.b->CreateAnd(x.v, y.v)}}; }
inline Bits operator^(Bits x, Bits y) { return {{x.b, x.b->CreateXor(x.v, y.v)}}; }
inline Bits operator+(Bits x, uint64_t c) { return x + splat(x, c); }
inline Bits operator-(Bits x, uint64_t c) { return x - splat(x, c); }
inline Bits operator&(Bits x, uint64_t c) { return x & splat(x, c); }
inline Bits operator<<(Bits x, uint64_t n) { return {{x.b, x.b->CreateShl(x.v, n)}}; }
inline Bits shift_right_arithmetic(Bits x, uint64_t n) { return {{x.b, x.b->CreateAShr(x.v, n)}}; }
inline Bits shift_right_logical(Bits x, uint64_t n) { return {{x.b, x.b->CreateLShr(x.v, n)}}; }

/// Whether the "target-features" attribute of the current function contains AVX-512F.
bool has_avx512(llvm::IRBuilderBase& b);

/// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule: the fewest instructions and constants. Long ones without AVX-512
/// are polynomials in x^2 whose coefficients are pairs:
///     (c0 + c1 x) + x^2 ((c2 + c3 x) + x^2 c4)
/// Half the latency for one multiplication more: the instructions of few vectors are in flight at a time. 512 x 64
/// values of erf and log, Zen 3: 26 to 22 us and 25 to 22; exp, with five coefficients, gains nothing.
template <size_t N>
Real polynomial(Real x, const double (&c)[N]) {
    constexpr size_t kPairs = 8;
    static_assert(N >= 2);
    const auto pair = [&](size_t i) { return fma(splat(x, c[i + 1]), x, c[i]); };
    if (N < kPairs || has_avx512(*x.b)) {
        Real sum = splat(x, c[N - 1]);
        for (size_t i = N - 1; i-- > 0;) sum = fma(sum, x, c[i]);
        return sum;
    }
    const Real square = x * x;
    Real sum = N % 2 == 0 ? pair(N - 2) : splat(x, c[N - 1]);
    for (size_t i = (N - 1) / 2 * 2; i >= 2; i -= 2) sum = fma(sum, square, pair(i - 2));
    return sum;
}

/// Applies f to 16 lanes at a time for any common lane count of the operands: narrower operands are widened by
/// undefined lanes (free, since registers alias), wider ones are split and rejoined.
Real in_sixteens(llvm::ArrayRef<Real> operands, llvm::function_ref<Real(llvm::ArrayRef<Real>)> f);

/// Clears the builder's fast-math flags during its lifetime.
struct Strict {
    explicit Strict(llvm::IRBuilderBase& b) : guard(b) { b.clearFastMathFlags(); }
    llvm::IRBuilderBase::FastMathFlagGuard guard;
};

/// Calls the C function `name` of doubles for every lane.
llvm::Value* call_libm(llvm::IRBuilderBase& b, const char* name, llvm::ArrayRef<llvm::Value*> operands);

/// Calls libm for doubles, and `f32`, (Real...) -> Real, for floats.
template <class Function, class... Operands>
llvm::Value* emit_function(llvm::IRBuilderBase& b, const char* name, Function f32, Operands... operands) {
    const Strict strict(b);
    llvm::Type* type = std::get<0>(std::tuple(operands...))->getType();
    if (type->getScalarType()->isDoubleTy()) return call_libm(b, name, {operands...});
    TW_CHECK(type->getScalarType()->isFloatTy(), "{} of neither float nor double", name);
    return f32(Real{{&b, operands}}...).v;
}

}  // namespace tilewright::cpu
