#include "program/scalar_eval.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

int bit_width(DType t) {
    switch (t) {
        case DType::Bool:
            return 1;
        case DType::I4:
        case DType::U4:
        case DType::F4E2M1:
            return 4;
        case DType::I2:
        case DType::U2:
            return 2;
        default:
            return static_cast<int>(byte_size(t)) * 8;
    }
}

/// Largest and smallest value of an integer type, in the representation of ScalarValue::i.
int64_t largest_integer(DType t) {
    const int bits = bit_width(t);
    if (is_signed(t)) return static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
    return bits == 64 ? int64_t{-1} : static_cast<int64_t>((uint64_t{1} << bits) - 1);
}

int64_t smallest_integer(DType t) { return is_signed(t) ? -largest_integer(t) - 1 : 0; }

int64_t float_to_integer(DType t, double v) {
    if (std::isnan(v)) return 0;
    const double below = std::ldexp(1.0, bit_width(t) - (is_signed(t) ? 1 : 0));  // one past the largest
    if (v >= below) return largest_integer(t);
    if (is_signed(t) ? v < -below : v <= -1) return smallest_integer(t);
    return is_signed(t) ? static_cast<int64_t>(v) : static_cast<int64_t>(static_cast<uint64_t>(std::trunc(v)));
}

double round_to(DType t, double v) {
    switch (t) {
        case DType::F64:
            return v;
        case DType::F32:
            return static_cast<float>(v);
        case DType::F16:
            return half_to_float(float_to_half(static_cast<float>(v)));
        case DType::BF16:
            return bfloat16_to_float(float_to_bfloat16(static_cast<float>(v)));
        default:
            return small_float_to_float(t, float_to_small_float(t, static_cast<float>(v), true));
    }
}

ScalarValue cast_value(DType to, DType from, ScalarValue a) {
    if (is_float(from)) {
        if (is_float(to)) return {round_to(to, a.f), 0};
        if (to == DType::Bool) return {0, a.f != 0 ? 1 : 0};
        return {0, float_to_integer(to, a.f)};
    }
    if (!is_float(to)) return {0, wrap_integer(to, a.i)};
    // F32 is converted directly from the integer: through double it would be rounded twice.
    if (from == DType::U64) {
        const auto u = static_cast<uint64_t>(a.i);
        return {to == DType::F64 ? static_cast<double>(u) : round_to(to, static_cast<float>(u)), 0};
    }
    return {to == DType::F64 ? static_cast<double>(a.i) : round_to(to, static_cast<float>(a.i)), 0};
}

uint64_t bits_of(DType t, ScalarValue a) {
    switch (t) {
        case DType::F64:
            return std::bit_cast<uint64_t>(a.f);
        case DType::F32:
            return std::bit_cast<uint32_t>(static_cast<float>(a.f));
        case DType::F16:
            return float_to_half(static_cast<float>(a.f));
        case DType::BF16:
            return float_to_bfloat16(static_cast<float>(a.f));
        default:
            if (is_float(t)) return float_to_small_float(t, static_cast<float>(a.f), true);
            return static_cast<uint64_t>(a.i);
    }
}

ScalarValue from_bits(DType t, uint64_t bits) {
    switch (t) {
        case DType::F64:
            return {std::bit_cast<double>(bits), 0};
        case DType::F32:
            return {std::bit_cast<float>(static_cast<uint32_t>(bits)), 0};
        case DType::F16:
            return {half_to_float(static_cast<uint16_t>(bits)), 0};
        case DType::BF16:
            return {bfloat16_to_float(static_cast<uint16_t>(bits)), 0};
        default:
            if (is_float(t)) return {small_float_to_float(t, static_cast<uint8_t>(bits)), 0};
            return {0, wrap_integer(t, static_cast<int64_t>(bits))};
    }
}

double float_floor_mod(double a, double b) {
    const double r = std::fmod(a, b);
    if (r == 0) return std::copysign(0.0, b);
    return (r < 0) != (b < 0) && !std::isnan(r) ? r + b : r;
}

double eval_float(ScalarOp op, double a, double b) {
    switch (op) {
        case ScalarOp::Add:
            return a + b;
        case ScalarOp::Sub:
            return a - b;
        case ScalarOp::Mul:
            return a * b;
        case ScalarOp::Weigh:
            return a == 0 ? 0 : a * b;
        case ScalarOp::Div:
            return a / b;
        case ScalarOp::FloorMod:
            return float_floor_mod(a, b);
        case ScalarOp::TruncMod:
            return std::fmod(a, b);
        case ScalarOp::Pow:
            return std::pow(a, b);
        case ScalarOp::Min:
            return std::isnan(a) || std::isnan(b) ? a + b : (b < a ? b : a);
        case ScalarOp::Max:
            return std::isnan(a) || std::isnan(b) ? a + b : (a < b ? b : a);
        case ScalarOp::Neg:
            return -a;
        case ScalarOp::Abs:
            return std::fabs(a);
        case ScalarOp::Sign:
            return std::isnan(a) ? a : static_cast<double>((a > 0) - (a < 0));
        default:
            if (const ScalarFunction* f = scalar_function(op)) return f->reference(a);
            internal_error(__FILE__, __LINE__, "operator on floats", std::string(to_string(op)));
    }
}

int64_t integer_pow(int64_t base, int64_t exponent, bool is_signed_type) {
    if (is_signed_type && exponent < 0) {
        if (base == 1) return 1;
        if (base == -1) return exponent % 2 == 0 ? 1 : -1;
        return 0;
    }
    uint64_t result = 1, square = static_cast<uint64_t>(base);
    for (auto e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
        if ((e & 1) != 0) result *= square;
        square *= square;
    }
    return static_cast<int64_t>(result);
}

/// Before wrapping to the type's width: every operation is exact or modulo 2^64.
int64_t eval_integer(ScalarOp op, DType t, int64_t a, int64_t b) {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    const bool sign = is_signed(t);
    switch (op) {
        case ScalarOp::Add:
            return static_cast<int64_t>(ua + ub);
        case ScalarOp::Sub:
            return static_cast<int64_t>(ua - ub);
        case ScalarOp::Mul:
            return static_cast<int64_t>(ua * ub);
        case ScalarOp::Div:
            if (b == 0) return 0;
            if (!sign) return static_cast<int64_t>(ua / ub);
            return b == -1 ? static_cast<int64_t>(-ua) : a / b;
        case ScalarOp::FloorMod:
            if (b == 0) return 0;
            return sign ? floor_mod(a, b) : static_cast<int64_t>(ua % ub);
        case ScalarOp::TruncMod:
            if (b == 0 || (sign && b == -1)) return 0;
            return sign ? a % b : static_cast<int64_t>(ua % ub);
        case ScalarOp::Pow:
            return integer_pow(a, b, sign);
        case ScalarOp::Min:
            return (sign ? b < a : ub < ua) ? b : a;
        case ScalarOp::Max:
            return (sign ? a < b : ua < ub) ? b : a;
        case ScalarOp::Neg:
            return static_cast<int64_t>(-ua);
        case ScalarOp::Abs:
            return sign && a < 0 ? static_cast<int64_t>(-ua) : a;
        case ScalarOp::Sign:
            return sign ? (a > 0) - (a < 0) : (a != 0 ? 1 : 0);
        case ScalarOp::BitAnd:
            return a & b;
        case ScalarOp::BitOr:
            return a | b;
        case ScalarOp::BitXor:
            return a ^ b;
        case ScalarOp::BitNot:
            return t == DType::Bool ? (a == 0 ? 1 : 0) : ~a;
        case ScalarOp::ShiftLeft:
            return ub < static_cast<uint64_t>(bit_width(t)) ? static_cast<int64_t>(ua << ub) : 0;
        case ScalarOp::ShiftRight:
            if (ub >= static_cast<uint64_t>(bit_width(t))) return 0;
            return sign ? a >> b : static_cast<int64_t>(ua >> ub);
        default:
            if (rounds_to_integer(op)) return a;
            internal_error(__FILE__, __LINE__, "operator on integers", std::string(to_string(op)));
    }
}

bool compare(ScalarOp op, DType operand, ScalarValue a, ScalarValue b) {
    const auto by = [&](auto x, auto y) {
        switch (op) {
            case ScalarOp::Eq:
                return x == y;
            case ScalarOp::Ne:
                return x != y;
            case ScalarOp::Lt:
                return x < y;
            case ScalarOp::Le:
                return x <= y;
            case ScalarOp::Gt:
                return x > y;
            default:
                return x >= y;
        }
    };
    if (is_float(operand)) return by(a.f, b.f);
    if (is_signed(operand)) return by(a.i, b.i);
    return by(static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i));
}

}  // namespace

int64_t wrap_integer(DType t, int64_t v) {
    if (t == DType::Bool) return v != 0 ? 1 : 0;
    const int drop = 64 - bit_width(t);
    if (drop == 0) return v;
    const uint64_t high = static_cast<uint64_t>(v) << drop;
    return is_signed(t) ? static_cast<int64_t>(high) >> drop : static_cast<int64_t>(high >> drop);
}

ScalarValue scalar_from_double(DType t, double v) {
    if (is_float(t)) return {v, 0};
    return cast_value(t, DType::F64, {v, 0});
}

ScalarValue eval_scalar(ScalarOp op, DType result, DType operand, ScalarValue a, ScalarValue b, ScalarValue c) {
    switch (op) {
        case ScalarOp::Eq:
        case ScalarOp::Ne:
        case ScalarOp::Lt:
        case ScalarOp::Le:
        case ScalarOp::Gt:
        case ScalarOp::Ge:
            return {0, compare(op, operand, a, b) ? 1 : 0};
        case ScalarOp::Select:
            return a.i != 0 ? b : c;
        case ScalarOp::Cast:
            return cast_value(result, operand, a);
        case ScalarOp::Bitcast:
            return from_bits(result, bits_of(operand, a));
        case ScalarOp::IsNan:
            return {0, is_float(operand) && std::isnan(a.f) ? 1 : 0};
        case ScalarOp::IsInf:
            return {0, is_float(operand) && std::isinf(a.f) ? 1 : 0};
        default:
            break;
    }
    if (is_float(operand)) return {eval_float(op, a.f, b.f), 0};
    return {0, wrap_integer(result, eval_integer(op, operand, a.i, b.i))};
}

double table_at(const ScalarNode& node, int64_t position) {
    TW_CHECK(node.op == ScalarOp::Table && node.table);
    const auto& numbers = *node.table;
    return position >= 0 && position < static_cast<int64_t>(numbers.size()) ? numbers[static_cast<size_t>(position)]
                                                                            : 0;
}

ScalarValue eval_node(const ScalarNode& node, DType operand, ScalarValue a, ScalarValue b, ScalarValue c) {
    if (node.op == ScalarOp::Table) return {table_at(node, a.i), 0};
    return eval_scalar(node.op, node.dtype, operand, a, b, c);
}

}  // namespace tilewright
