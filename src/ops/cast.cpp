// Cast, CastLike, BitCast.

#include "ops/cast.h"
#include "base/error.h"
#include "opaque/operators.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

bool is_small_float(DType t) { return is_float(t) && byte_size(t) == 1; }
bool is_narrow_integer(DType t) { return t == DType::I4 || t == DType::U4 || t == DType::I2 || t == DType::U2; }

using opaque::PowerRounding;

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
        return c.out(0, c.b.emit_opaque(opaque::bit_cast(*to), {c.in(0)}, {{*to, c.shape(0)}}, "bitcast").front());
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
    const auto op = opaque::small_float_cast(to, c.node.attr_int("saturate", 1) != 0, power_rounding(c));
    return c.b.emit_opaque(op, {x}, {{to, c.b.shape(x)}}, "cast").front();
}

std::vector<OpLowering> cast_lowerings() {
    return {
        {"", "BitCast", 26, bit_cast},
        {"", "Cast", 1, cast},
        {"", "CastLike", 15, cast_like},
    };
}

}  // namespace tilewright
