// Trigonometric functions and their inverses.

#include <fmt/format.h>
#include <llvm/IR/Module.h>

#include <array>
#include <limits>

#include "backend/cpu/math_lanes.h"
#include "backend/cpu/vector_math.h"
#include "base/hash.h"

namespace tilewright::cpu {
namespace {

// pi/2 in three pieces of 24 bits, truncated instead of rounded, so that all are positive: 0 - 0 * piece stays +0.
constexpr double kHalfPi[] = {0x1.921fb4p+0, 0x1.4442d0p-24, 0x1.846988p-48};
// pi/2 rounded to a float, and its error.
constexpr double kHalfPiHigh = 0x1.921fb6p+0;
constexpr double kHalfPiLow = -0x1.777a5cp-25;

// From here on the three pieces are too short and reduce_far is used.
constexpr double kFar = 0x1p15;

/// (sin(r) - r) / r^3 in r^2 for |r| <= 1.002 pi/4, degree 2: relative error of sin 2^-27.8.
constexpr double kSin[] = {-0x1.555544p-3, 0x1.1106c6p-7, -0x1.991c26p-13};
/// (cos(r) - 1 + r^2/2) / r^4 in r^2 on the same range, degree 2: relative error of cos 2^-32.9.
constexpr double kCos[] = {0x1.55554ap-5, -0x1.6c0c26p-10, 0x1.99e714p-16};
/// (atan(t) - t) / t^3 in t^2 for |t| <= 1, degree 8: relative error of atan 2^-28.5.
constexpr double kAtan[] = {-0x1.55553ep-2, 0x1.9991e4p-3,  -0x1.242086p-3, 0x1.c08c4ep-4,  -0x1.58091cp-4,
                            0x1.da2a0ep-5,  -0x1.fd7e1cp-6, 0x1.6424eep-7,  -0x1.d35a82p-10};
/// (asin(s) - s) / s^3 in s^2 for |s| <= 1/2, degree 4: relative error of asin 2^-27.6.
constexpr double kAsin[] = {0x1.5555c8p-3, 0x1.330204p-4, 0x1.747bbap-5, 0x1.8c3e28p-6, 0x1.595c92p-5};

/// a = number * pi/2 + rest for a >= 0, |rest| <= pi/4 up to rounding; at least the two lowest bits of `number` are
/// valid.
struct Quadrant {
    Real rest;
    Bits number;
};

/// Returns bits [first, first + count) of 2/pi after its binary point, counted from 1; zeros before it.
uint64_t two_over_pi_bits(int first, int count) {
    constexpr std::array<uint64_t, 4> words = {0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
                                               0xFE5163ABDEBBC561};
    uint64_t bits = 0;
    for (int i = first; i < first + count; ++i)
        bits = bits << 1 | (i < 1 ? 0 : words[static_cast<size_t>((i - 1) / 64)] >> (63 - (i - 1) % 64) & 1);
    return bits;
}

constexpr int kFirstFarExponent = 127 + 15;  // of kFar, biased

/// Per biased exponent from kFar's on: 2/pi * 2^k mod 4, where x = (24-bit integer) * 2^k, as two doubles: 29 bits, so
/// that the product with the integer is exact, and the next 53. NaN for the exponent of infinities and NaNs.
struct FarTable {
    std::array<double, 256 - kFirstFarExponent> high{};
    std::array<double, 256 - kFirstFarExponent> low{};
};

FarTable far_table() {
    FarTable table;
    for (size_t i = 0; i + 1 < table.high.size(); ++i) {
        const int k = static_cast<int>(i) + kFirstFarExponent - 127 - 23;
        table.high[i] = static_cast<double>(two_over_pi_bits(k - 1, 29)) * 0x1p-27;
        table.low[i] = static_cast<double>(two_over_pi_bits(k + 28, 53)) * 0x1p-80;
    }
    table.high.back() = table.low.back() = std::numeric_limits<double>::quiet_NaN();
    return table;
}

/// Returns the constant array `name` of the module; creates it from `values` if needed.
llvm::GlobalVariable* constant_array(llvm::Module& module, llvm::StringRef name, llvm::ArrayRef<double> values) {
    if (llvm::GlobalVariable* known = module.getGlobalVariable(name, /*AllowInternal=*/true)) return known;
    llvm::Constant* data = llvm::ConstantDataArray::get(module.getContext(), values);
    auto* array = new llvm::GlobalVariable(module, data->getType(), /*isConstant=*/true,
                                           llvm::GlobalValue::PrivateLinkage, data, name);
    array->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
    return array;
}

Quadrant unpack(llvm::IRBuilderBase& b, llvm::Value* pair) {
    return {{{&b, b.CreateExtractValue(pair, 0)}}, {{&b, b.CreateExtractValue(pair, 1)}}};
}

llvm::Value* pack(const Quadrant& q, llvm::Type* pair) {
    llvm::IRBuilderBase& b = *q.rest.b;
    return b.CreateInsertValue(b.CreateInsertValue(llvm::PoisonValue::get(pair), q.rest.v, 0), q.number.v, 1);
}

/// Returns the internal function `name`, (Real) -> {Real, Bits}, of the current module, for `type`'s lanes and the
/// target of the current function; emits it with `body` if needed.
llvm::Function* shared_function(llvm::IRBuilderBase& b, llvm::StringRef name, llvm::Type* type,
                                llvm::Attribute::AttrKind inlining,
                                llvm::function_ref<llvm::Value*(llvm::IRBuilderBase&, Real, llvm::Type*)> body) {
    const llvm::Function* caller = b.GetInsertBlock()->getParent();
    llvm::Module& module = *b.GetInsertBlock()->getModule();
    llvm::AttrBuilder attributes(b.getContext());
    std::string target;
    for (const char* key : {"target-cpu", "target-features", "tune-cpu", "prefer-vector-width"}) {
        if (!caller->hasFnAttribute(key)) continue;
        const llvm::StringRef value = caller->getFnAttribute(key).getValueAsString();
        attributes.addAttribute(key, value);
        target += fmt::format("{}={};", key, std::string_view(value));
    }
    const std::string full = fmt::format("tilewright.{}.{}{}.{:x}", std::string_view(name), lane_count(type),
                                         type->isVectorTy() ? "" : "s", hash_text(target));
    if (llvm::Function* known = module.getFunction(full)) return known;

    llvm::Type* pair = llvm::StructType::get(type, with_element(type, b.getInt32Ty()));
    auto* function = llvm::Function::Create(llvm::FunctionType::get(pair, {type}, /*isVarArg=*/false),
                                            llvm::GlobalValue::InternalLinkage, full, module);
    function->addFnAttrs(attributes);
    function->addFnAttr(inlining);
    function->setDoesNotAccessMemory();  // constants are not accounted for
    function->setDoesNotThrow();
    function->setWillReturn();
    llvm::IRBuilder<> inner(llvm::BasicBlock::Create(b.getContext(), "entry", function));
    inner.CreateRet(body(inner, Real{{&inner, function->getArg(0)}}, pair));
    return function;
}

/// Exact reduction for kFar <= a, after Payne and Hanek: omits the bits of the product of a's integer with 2/pi that
/// exceed the quadrant. Lanes below kFar have unspecified results.
Quadrant reduce_far(Real a) {
    llvm::IRBuilderBase& b = *a.b;
    static const FarTable table = far_table();
    llvm::Module& module = *b.GetInsertBlock()->getModule();
    llvm::Type* wide = with_element(a.type(), b.getDoubleTy());

    const Bits bits = bits_of(a);
    const Bits exponent = shift_right_logical(bits, 23) - kFirstFarExponent;
    const Bits row =
        select(Mask{{&b, b.CreateICmpSGT(exponent.v, splat(exponent, 0).v)}}, exponent, splat(exponent, 0));
    const auto look_up = [&](llvm::StringRef name, llvm::ArrayRef<double> values) -> Real {
        llvm::Value* pointers = b.CreateInBoundsGEP(b.getDoubleTy(), constant_array(module, name, values), row.v);
        if (!a.type()->isVectorTy()) return {{&b, b.CreateLoad(b.getDoubleTy(), pointers)}};
        return {{&b, b.CreateMaskedGather(wide, pointers, llvm::Align(8))}};
    };
    const Real high = look_up("tilewright.two_over_pi.high", table.high);
    const Real low = look_up("tilewright.two_over_pi.low", table.low);

    const Bits fraction = bits & 0x7FFFFF;
    const Real integer = to_real(fraction + 0x800000, wide);
    const Real exact = integer * high;
    const Real sum = fma(integer, low, exact) + kRoundDouble;
    const Real quarter_turns = fma(integer, low, exact - (sum - kRoundDouble));
    const Real rest = quarter_turns * 0x1.921fb54442d18p+0;
    return {{{&b, b.CreateFPTrunc(rest.v, a.type())}}, {{&b, b.CreateTrunc(bits_of(sum).v, bits.type())}}};
}

/// Reduces all lanes by the pieces; also calls reduce_far if some lane needs it.
llvm::Value* emit_reduction(llvm::IRBuilderBase& b, Real a, llvm::Type* pair) {
    const Real sum = fma(a, 0x1.45f306p-1, kRound);
    const Real n = sum - kRound;
    // After two pieces the error is one rounding of the rest; the third piece matters near multiples of pi/2.
    Real rest = a;
    for (const double piece : kHalfPi) rest = fma(n, -piece, rest);
    const Quadrant near{rest, bits_of(sum)};

    const Mask far = !(a < kFar);
    llvm::Value* any = a.type()->isVectorTy() ? b.CreateOrReduce(far.v) : far.v;
    llvm::Function* function = b.GetInsertBlock()->getParent();
    llvm::BasicBlock* entry = b.GetInsertBlock();
    auto* slow = llvm::BasicBlock::Create(b.getContext(), "far", function);
    auto* done = llvm::BasicBlock::Create(b.getContext(), "done", function);
    llvm::Value* near_pair = pack(near, pair);
    b.CreateCondBr(any, slow, done);

    b.SetInsertPoint(slow);
    llvm::Function* exact = shared_function(b, "reduce_far", a.type(), llvm::Attribute::NoInline,
                                            [](llvm::IRBuilderBase& inner, Real x, llvm::Type* type) {
                                                inner.GetInsertBlock()->getParent()->addFnAttr(llvm::Attribute::Cold);
                                                return pack(reduce_far(x), type);
                                            });
    const Quadrant other = unpack(b, b.CreateCall(exact, {a.v}));
    const Quadrant mixed{select(far, other.rest, near.rest), select(far, other.number, near.number)};
    llvm::Value* mixed_pair = pack(mixed, pair);
    b.CreateBr(done);

    b.SetInsertPoint(done);
    llvm::PHINode* result = b.CreatePHI(pair, 2);
    result->addIncoming(near_pair, entry);
    result->addIncoming(mixed_pair, slow);
    return result;
}

Quadrant reduce_by_quadrant(Real a) {
    llvm::IRBuilderBase& b = *a.b;
    llvm::Function* reduction = shared_function(b, "reduce", a.type(), llvm::Attribute::AlwaysInline, emit_reduction);
    return unpack(b, b.CreateCall(reduction, {a.v}));
}

struct SinCos {
    Real sin;
    Real cos;
};

SinCos near_zero(Real r) {
    const Real square = r * r;
    return {fma(polynomial(square, kSin), square * r, r),
            fma(fma(polynomial(square, kCos), square, -0.5), square, 1.0)};
}

Mask is_odd(Bits n) { return {{n.b, n.b->CreateICmpNE((n & 1).v, splat(n, 0).v)}}; }

/// x with its sign bit flipped where the sign bit of `sign` is set.
Real flip_sign(Real x, Bits sign) { return real_of(bits_of(x) ^ (sign & 0x80000000), x); }

/// sin(rest + number * pi/2)
Real sin_of(const Quadrant& q) {
    const SinCos both = near_zero(q.rest);
    return flip_sign(select(is_odd(q.number), both.cos, both.sin), q.number << 30);
}

Real sin_f32(Real x) { return flip_sign(sin_of(reduce_by_quadrant(abs(x))), bits_of(x)); }

Real cos_f32(Real x) {
    const Quadrant q = reduce_by_quadrant(abs(x));
    return sin_of({q.rest, q.number + 1});
}

Real tan_f32(Real x) {
    const Quadrant q = reduce_by_quadrant(abs(x));
    const SinCos both = near_zero(q.rest);
    const Mask odd = is_odd(q.number);
    const Real quotient = select(odd, both.cos, both.sin) / select(odd, both.sin, both.cos);
    return flip_sign(quotient, bits_of(x) ^ (q.number << 31));
}

/// asin on [0, 1/2], from s and its square.
Real asin_near_zero(Real s, Real square) { return fma(polynomial(square, kAsin), square * s, s); }

/// The argument of asin_near_zero: a itself up to 1/2; above it sqrt((1 - a) / 2), the sine of half the complementary
/// angle.
struct HalfAngle {
    Mask big;
    Real asin;
};

HalfAngle half_angle(Real a) {
    const Mask big = a > 0.5;
    const Real square = select(big, fma(a, -0.5, splat(a, 0.5)), a * a);
    return {big, asin_near_zero(select(big, sqrt(square), a), square)};
}

Real asin_f32(Real x) {
    const Real a = abs(x);
    const HalfAngle h = half_angle(a);
    return copysign(select(h.big, fma(h.asin, -2.0, kHalfPiLow) + kHalfPiHigh, h.asin), x);
}

Real acos_f32(Real x) {
    const HalfAngle h = half_angle(abs(x));
    const Mask negative = x < 0.0;
    // x > 1/2: 2 asin      x < -1/2: pi - 2 asin      else: pi/2 - (+-) asin
    const Real twice = h.asin + h.asin;
    const Real far = select(negative, (kHalfPiLow * 2 - twice) + kHalfPiHigh * 2, twice);
    const Real middle = (kHalfPiLow - copysign(h.asin, x)) + kHalfPiHigh;
    return select(h.big, far, middle);
}

Real atan_f32(Real x) {
    const Real a = abs(x);
    const Mask big = a > 1.0;
    const Real t = select(big, -1.0 / a, a);  // atan(a) = pi/2 - atan(1/a)
    const Real square = t * t;
    const Real p = fma(polynomial(square, kAtan), square * t, t);
    return copysign(select(big, (p + kHalfPiLow) + kHalfPiHigh, p), x);
}

}  // namespace

llvm::Value* emit_sin(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "sin", sin_f32, x); }
llvm::Value* emit_cos(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "cos", cos_f32, x); }
llvm::Value* emit_tan(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "tan", tan_f32, x); }
llvm::Value* emit_asin(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "asin", asin_f32, x); }
llvm::Value* emit_acos(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "acos", acos_f32, x); }
llvm::Value* emit_atan(llvm::IRBuilderBase& b, llvm::Value* x) { return emit_function(b, "atan", atan_f32, x); }

}  // namespace tilewright::cpu
