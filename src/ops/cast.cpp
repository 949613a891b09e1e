// Cast, CastLike, BitCast.

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/cast.h"
#include "ops/families.h"
#include "ops/opaque_text.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

bool is_small_float(DType t) { return is_float(t) && byte_size(t) == 1; }
bool is_narrow_integer(DType t) { return t == DType::I4 || t == DType::U4 || t == DType::I2 || t == DType::U2; }

/// Rounding to a power of two in F8E8M0.
enum class PowerRounding { Up, Down, Nearest };
constexpr std::string_view kPowerRoundings[] = {"up", "down", "nearest"};

/// Conversion to 8-bit and 4-bit floats, with overflow and rounding according to the operator's attributes.
class SmallFloatCast final : public OpaqueOp {
  public:
    SmallFloatCast(DType to, bool saturate, PowerRounding rounding)
        : to_(to), saturate_(saturate), rounding_(rounding) {}

    std::string print() const override {
        std::string s = fmt::format("Cast(to={}, saturate={}", to_string(to_), saturate_ ? 1 : 0);
        if (to_ == DType::F8E8M0) {
            s += fmt::format(", round_mode={}", kPowerRoundings[static_cast<size_t>(rounding_)]);
        }
        return s + ")";
    }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const TensorView y = outputs.allocate(0, x.shape);
        // A Tensor that views the operand reads its elements as numbers of any type.
        const Tensor in(x.dtype, Shape(x.shape.begin(), x.shape.end()), x.data, nullptr);
        for (int64_t i = 0; i < in.count(); ++i) y.as<uint8_t>()[i] = code(static_cast<float>(in.get(i)));
    }

  private:
    uint8_t code(float f) const {
        if (to_ == DType::F4E2M1 && std::isnan(f)) return 8;  // the type has no NaN; the specification's cases give -0
        if (to_ != DType::F8E8M0) return float_to_small_float(to_, f, saturate_);
        if (std::isnan(f)) return 255;
        if (!(f > 0)) return 0;
        if (std::isinf(f)) return saturate_ ? 254 : 255;
        int e = 0;
        const float m = std::frexp(f, &e);  // f = m * 2^e, m in [0.5, 1)
        const bool next = rounding_ == PowerRounding::Up ? m > 0.5f : rounding_ == PowerRounding::Nearest && m >= 0.75f;
        const int exponent = e - 1 + (next ? 1 : 0) + 127;
        if (exponent > 254) return saturate_ ? 254 : 255;
        return static_cast<uint8_t>(std::max(exponent, 0));
    }

    DType to_;
    bool saturate_;
    PowerRounding rounding_;
};

/// The same bytes under another type.
class BitCast final : public OpaqueOp {
  public:
    explicit BitCast(DType to) : to_(to) {}
    std::string print() const override { return fmt::format("BitCast(to={})", to_string(to_)); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView y = outputs.allocate(0, inputs[0].shape);
        if (y.count() > 0) std::memcpy(y.data, inputs[0].data, static_cast<size_t>(y.count()) * byte_size(to_));
    }

  private:
    DType to_;
};

PowerRounding power_rounding(NodeContext& c) {
    const std::string mode = c.node.attr_string("round_mode", "up");
    if (mode == "up") return PowerRounding::Up;
    if (mode == "down") return PowerRounding::Down;
    if (mode == "nearest") return PowerRounding::Nearest;
    c.fail(fmt::format("attribute 'round_mode' should be up, down or nearest, and is {}", quoted_name(mode)));
}

ValueId cast_to(NodeContext& c, DType to) {
    const ValueId x = c.in(0);
    if (c.dtype(0) == to) return x;
    if (is_small_float(to)) return small_float_cast(c, x, to);
    // Integers keep their low bits: -9 becomes 7 in four bits. So the conversion must not saturate in eight bits first.
    if (is_narrow_integer(to) && is_float(c.dtype(0)))
        return c.b.map(
            {x}, to,
            [&](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]).cast(DType::I64).cast(compute_type(to)); },
            "cast");
    return c.b.cast(x, to);
}

void cast(NodeContext& c) {
    const auto to = c.dtype_attr("to");
    c.require(to.has_value(), "attribute 'to' is missing");
    c.out(0, cast_to(c, *to));
}

void cast_like(NodeContext& c) { c.out(0, cast_to(c, c.dtype(1))); }

void bit_cast(NodeContext& c) {
    const auto to = c.dtype_attr("to");
    c.require(to.has_value(), "attribute 'to' is missing");
    const DType from = c.dtype(0);
    if (byte_size(*to) != byte_size(from))
        c.fail(fmt::format("{} and {} differ in size", to_string(from), to_string(*to)));
    if (from == *to) return c.out(0, c.in(0));
    // Types with arithmetic can be reinterpreted inside a body; others are copied.
    const auto plain = [](DType t) { return t != DType::Bool && compute_type(t) == t; };
    if (!plain(from) || !plain(*to))
        return c.out(
            0, c.b.emit_opaque(std::make_shared<BitCast>(*to), {c.in(0)}, {{*to, c.shape(0)}}, "bitcast").front());
    c.out(0, c.b.map(
                 {c.in(0)}, *to,
                 [&](ScalarBody& body, Ids x) -> ScalarId {
                     ScalarNode n;
                     n.op = ScalarOp::Bitcast;
                     n.dtype = *to;
                     n.a = x[0];
                     return body.add(n);
                 },
                 "bitcast"));
}

}  // namespace

ValueId small_float_cast(NodeContext& c, ValueId x, DType to) {
    const auto op = std::make_shared<SmallFloatCast>(to, c.node.attr_int("saturate", 1) != 0, power_rounding(c));
    return c.b.emit_opaque(op, {x}, {{to, c.b.shape(x)}}, "cast").front();
}

std::vector<OpLowering> cast_lowerings() {
    return {
        {"", "BitCast", 26, bit_cast},
        {"", "Cast", 1, cast},
        {"", "CastLike", 15, cast_like},
    };
}

std::vector<OpaqueReader> cast_readers() {
    return {
        {"Cast",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<SmallFloatCast>(
                 t.dtype("to"), t.flag("saturate"),
                 t.has("round_mode") ? t.choice<PowerRounding>("round_mode", kPowerRoundings) : PowerRounding::Up);
         }},
        {"BitCast", [](const OpaqueText& t) -> OpaquePointer { return std::make_shared<BitCast>(t.dtype("to")); }},
    };
}

}  // namespace tilewright
