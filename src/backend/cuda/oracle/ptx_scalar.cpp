// Conversions, maxima, ex2 and predicates.

#include <bit>
#include <cmath>

#include "backend/cuda/oracle/ptx_machine.h"
#include "base/error.h"

namespace tilewright::cuda::oracle {

namespace {

/// A float format of fewer bits, and how its NaN is spelled by cvt.
struct Format {
    int exponent_bits, mantissa_bits;
    uint32_t nan;
};
constexpr Format kF16{5, 10, 0x7fff}, kBf16{8, 7, 0x7fff};

/// To nearest, ties to even ("rn"), or to zero ("rz").
uint32_t rounded(float x, const Format& f, const std::string& mode) {
    const uint32_t sign = (std::bit_cast<uint32_t>(x) >> 31) << (f.exponent_bits + f.mantissa_bits);
    if (std::isnan(x)) return f.nan;
    const int bias = (1 << (f.exponent_bits - 1)) - 1, most = (1 << f.exponent_bits) - 1;
    const uint32_t infinity = static_cast<uint32_t>(most) << f.mantissa_bits;
    if (std::isinf(x)) return sign | infinity;
    const double magnitude = std::fabs(static_cast<double>(x));
    int exponent = magnitude == 0 ? 1 - bias : std::ilogb(magnitude);
    if (exponent < 1 - bias) exponent = 1 - bias;
    const double steps = std::ldexp(magnitude, f.mantissa_bits - exponent);
    const auto whole = static_cast<uint32_t>(mode == "rn" ? std::nearbyint(steps) : std::trunc(steps));
    // A carry into the exponent is an addition; a subnormal number has none of the exponent's bits.
    const uint32_t code = (static_cast<uint32_t>(exponent + bias - 1) << f.mantissa_bits) + whole;
    if (code < infinity) return sign | code;
    return sign | (mode == "rn" ? infinity : infinity - 1);
}

float f16_number(uint32_t bits) {
    const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa != 0 ? std::nan("") : HUGE_VAL)
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

using Run = std::function<void(const PtxCall&)>;

Run conversion(const std::string& name) {
    if (name == "cvt.f32.f16")
        return [](const PtxCall& c) {
            // The payload of a NaN is kept.
            const auto bits = static_cast<uint32_t>(c.get(c.operand(1), 'h'));
            const float value = f16_number(bits);
            c.set(c.operand(0), 'f',
                  std::isnan(value) ? ((bits & 0x8000) << 16) | 0x7f800000u | ((bits & 1023) << 13)
                                    : std::bit_cast<uint32_t>(value));
        };
    if (name == "cvt.rna.tf32.f32")
        return [](const PtxCall& c) {
            const auto bits = static_cast<uint32_t>(c.get(c.operand(1), 'f'));
            const bool finite = (bits & 0x7f800000) != 0x7f800000;
            c.set(c.operand(0), 'r', finite ? (bits + 0x1000) & ~uint32_t{0x1fff} : bits);
        };
    for (const char* mode : {"rn", "rz"})
        for (const auto& [type, format] : {std::pair("f16", kF16), std::pair("bf16", kBf16)}) {
            const std::string begin = fmt::format("cvt.{}.{}", mode, type);
            const auto number = [f = format, m = std::string(mode)](const PtxCall& c, size_t k) {
                return rounded(c.get_float(c.operand(k)), f, m);
            };
            if (name == begin + ".f32") return [=](const PtxCall& c) { c.set(c.operand(0), 'h', number(c, 1)); };
            if (name == begin + "x2.f32")  // the first source becomes the upper half
                return [=](const PtxCall& c) { c.set(c.operand(0), 'r', number(c, 1) << 16 | number(c, 2)); };
        }
    return {};
}

Run extremum(const std::string& name) {
    for (const bool most : {true, false})
        for (const bool nan : {true, false}) {
            if (name != fmt::format("{}{}.f32", most ? "max" : "min", nan ? ".NaN" : "")) continue;
            return [=](const PtxCall& c) {
                const float a = c.get_float(c.operand(1)), b = c.get_float(c.operand(2));
                const float value = most ? std::fmax(a, b) : std::fmin(a, b);  // a NaN loses
                c.set_float(c.operand(0), nan && (std::isnan(a) || std::isnan(b)) ? std::nanf("") : value);
            };
        }
    return {};
}

Run other(const std::string& name) {
    for (const bool ftz : {true, false})
        if (name == (ftz ? "ex2.approx.ftz.f32" : "ex2.approx.f32"))
            return [=](const PtxCall& c) {
                const float x = c.get_float(c.operand(1)), value = std::exp2(ftz ? flushed(x) : x);
                c.set_float(c.operand(0), ftz ? flushed(value) : value);
            };
    for (const bool ftz : {true, false})
        if (name == (ftz ? "rcp.approx.ftz.f32" : "rcp.approx.f32"))
            return [=](const PtxCall& c) {
                const float x = c.get_float(c.operand(1)), value = 1 / (ftz ? flushed(x) : x);
                c.set_float(c.operand(0), ftz ? flushed(value) : value);
            };
    if (name == "selp.b32")
        return [](const PtxCall& c) {
            c.set(c.operand(0), 'r', c.get(c.operand(c.get(c.operand(3), 'p') != 0 ? 1 : 2), 'r'));
        };
    if (name == "mov.b64")
        return [](const PtxCall& c) {
            const PtxOperand& words = c.operand(1);
            if (words.kind != PtxOperand::Kind::Vector || words.members.size() != 2)
                throw RuntimeError("mov.b64 of what is no pair of words");
            c.set(c.operand(0), 'l', c.get(words.members[0], 'r') | c.get(words.members[1], 'r') << 32);
        };
    for (const bool equal : {true, false})
        if (name == (equal ? "setp.eq.b32" : "setp.ne.b32"))
            return [=](const PtxCall& c) {
                const bool same = c.get(c.operand(1), 'r') == c.get(c.operand(2), 'r');
                c.set(c.operand(0), 'p', same == equal ? 1 : 0);
            };
    return {};
}

}  // namespace

PtxMachine::Handler scalar_handler(const PtxInstruction& i) {
    const std::string name = i.name();
    if (name == "elect.sync")  // the ISA leaves the choice open
        return {32, [](PtxMachine&, std::span<PtxThread* const> warp) {
                    for (PtxThread* t : warp) {
                        const PtxOperand& both = t->call->operand(0);
                        if (both.kind != PtxOperand::Kind::Pair || t->call->get(t->call->operand(1), 'r') != 0xffffffff)
                            throw RuntimeError("elect.sync of a part of a warp, or without its two results");
                        t->call->set(both.members[0], 'r', 0);
                        t->call->set(both.members[1], 'p', t == warp[0] ? 1 : 0);
                    }
                }};
    for (const auto& find : {conversion, extremum, other})
        if (const Run run = find(name))
            return {1, [run](PtxMachine&, std::span<PtxThread* const> t) { run(*t[0]->call); }};
    return {};
}

}  // namespace tilewright::cuda::oracle
