#include "backend/cuda/scalar_text.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "program/interpret_lanes.h"
#include "program/scalar_eval.h"
#include "program/scalar_ops.h"

namespace tilewright::cuda {

namespace {

std::string_view small_float_class(DType t) {
    switch (t) {
        case DType::F8E4M3FN:
            return "tw::F8E4M3FN";
        case DType::F8E4M3FNUZ:
            return "tw::F8E4M3FNUZ";
        case DType::F8E5M2:
            return "tw::F8E5M2";
        case DType::F8E5M2FNUZ:
            return "tw::F8E5M2FNUZ";
        case DType::F8E8M0:
            return "tw::F8E8M0";
        case DType::F4E2M1:
            return "tw::F4E2M1";
        default:
            return "";
    }
}

}  // namespace

std::string register_type(DType t) {
    switch (compute_type(t)) {
        case DType::F32:
            return "float";
        case DType::F64:
            return "double";
        case DType::Bool:
            return "bool";
        default:
            return std::string(to_string(compute_type(t)));  // i8, u8, ... are the header's names too
    }
}

std::string storage_type(DType t) {
    if (t == DType::F16 || t == DType::BF16) return "u16";
    if (t == DType::Bool || !small_float_class(t).empty()) return "u8";
    return register_type(t);
}

std::string from_storage(DType t, const std::string& stored) {
    if (t == DType::F16) return fmt::format("tw::f16_value({})", stored);
    if (t == DType::BF16) return fmt::format("tw::bf16_value({})", stored);
    if (t == DType::Bool) return fmt::format("({} != 0)", stored);
    if (const std::string_view c = small_float_class(t); !c.empty()) return fmt::format("{}::value({})", c, stored);
    return stored;
}

namespace {

/// x where the text is function(x); the bits of what is only copied stay as they are.
std::optional<std::string> argument_of(std::string_view function, const std::string& text) {
    if (text.size() < function.size() + 2 || text.compare(0, function.size(), function) != 0 ||
        text[function.size()] != '(' || text.back() != ')')
        return std::nullopt;
    int depth = 0;
    for (size_t i = function.size(); i < text.size(); ++i) {
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
        if (depth == 0 && i + 1 != text.size()) return std::nullopt;
    }
    return text.substr(function.size() + 1, text.size() - function.size() - 2);
}

}  // namespace

std::string to_storage(DType t, const std::string& number) {
    if (t == DType::F16 || t == DType::BF16)
        if (auto bits = argument_of(t == DType::F16 ? "tw::f16_value" : "tw::bf16_value", number)) return *bits;
    switch (t) {
        case DType::F16:
            return fmt::format("tw::to_f16({})", number);
        case DType::BF16:
            return fmt::format("tw::to_bf16({})", number);
        case DType::Bool:
            return fmt::format("u8({})", number);
        case DType::I4:
        case DType::I2:
            return fmt::format("tw::narrow_signed<{}>({})", t == DType::I4 ? 4 : 2, number);
        case DType::U4:
        case DType::U2:
            return fmt::format("tw::narrow_unsigned<{}>({})", t == DType::U4 ? 4 : 2, number);
        default:
            if (const std::string_view c = small_float_class(t); !c.empty())
                return fmt::format("{}::code({})", c, number);
            return number;
    }
}

std::string literal(DType t, double value, int64_t int_value) {
    t = compute_type(t);
    if (t == DType::F32) {
        const auto f = static_cast<float>(value);
        if (std::isnan(f)) return "tw::bitcast<float>(0x7fc00000u)";
        if (std::isinf(f)) return fmt::format("{}tw::bitcast<float>(0x7f800000u)", f < 0 ? "-" : "");
        const std::string s = fmt::format("{}", f);
        return s + (s.find_first_of(".e") == std::string::npos ? ".0f" : "f");
    }
    if (t == DType::F64) {
        if (std::isnan(value)) return "tw::bitcast<double>(0x7ff8000000000000ull)";
        if (std::isinf(value)) return fmt::format("{}tw::bitcast<double>(0x7ff0000000000000ull)", value < 0 ? "-" : "");
        const std::string s = fmt::format("{}", value);
        return s + (s.find_first_of(".e") == std::string::npos ? ".0" : "");
    }
    if (t == DType::Bool) return int_value != 0 ? "true" : "false";
    if (!is_signed(t)) return fmt::format("{}({}ull)", register_type(t), static_cast<uint64_t>(int_value));
    if (int_value == std::numeric_limits<int64_t>::min()) return "i64(-9223372036854775807ll - 1)";
    return fmt::format("{}({}{})", register_type(t), int_value, t == DType::I64 ? "ll" : "");
}

std::string fill_literal(DType storage, double fill) {
    const ScalarValue v = scalar_from_double(storage, fill);
    return literal(storage, v.f, v.i);
}

std::string identity_of(Reducer r, DType t) {
    const ScalarValue v = interp::reducer_identity(r, compute_type(t));
    return literal(t, v.f, v.i);
}

std::string_view reducer_name(Reducer r) {
    switch (r) {
        case Reducer::Sum:
            return "tw::Sum";
        case Reducer::Prod:
            return "tw::Prod";
        case Reducer::Max:
            return "tw::Max";
        case Reducer::Min:
            return "tw::Min";
        case Reducer::None:
            break;
    }
    internal_error(__FILE__, __LINE__, "a reducer", "none");
}

std::string combined(Reducer r, DType t, const std::string& a, const std::string& b) {
    if (is_float(t) && r == Reducer::Sum) return fmt::format("{} + {}", a, b);
    if (is_float(t) && r == Reducer::Prod) return fmt::format("{} * {}", a, b);
    return fmt::format("{}::of({}, {})", reducer_name(r), a, b);
}

namespace {

std::string cast(DType to, DType from, const std::string& a) {
    if (to == DType::F16 || to == DType::BF16)  // rounds there, stays a float
        return fmt::format("tw::rounded_to_{}({})", to_string(to), from == DType::F32 ? a : "float(" + a + ")");
    if (compute_type(to) == compute_type(from) && to == compute_type(to)) return a;
    if (to == DType::Bool) return fmt::format("({} != 0)", a);
    if (is_float(from) && !is_float(to)) return fmt::format("tw::to_integer<{}>({})", register_type(to), a);
    return fmt::format("{}({})", register_type(to), a);
}

std::string_view infix(ScalarOp op) {
    switch (op) {
        case ScalarOp::Eq:
            return "==";
        case ScalarOp::Ne:
            return "!=";
        case ScalarOp::Lt:
            return "<";
        case ScalarOp::Le:
            return "<=";
        case ScalarOp::Gt:
            return ">";
        case ScalarOp::Ge:
            return ">=";
        case ScalarOp::Add:
            return "+";
        case ScalarOp::Sub:
            return "-";
        case ScalarOp::Mul:
            return "*";
        case ScalarOp::Div:
            return "/";
        case ScalarOp::BitAnd:
            return "&";
        case ScalarOp::BitOr:
            return "|";
        case ScalarOp::BitXor:
            return "^";
        default:
            return "";
    }
}

}  // namespace

std::string scalar_op(ScalarOp op, DType result, DType operand, const std::string& a, const std::string& b,
                      const std::string& c) {
    switch (op) {
        case ScalarOp::Const:
        case ScalarOp::Access:
        case ScalarOp::Acc:
        case ScalarOp::Index:
        case ScalarOp::Table:
            internal_error(__FILE__, __LINE__, "neither a leaf nor a table", std::string(to_string(op)));
        case ScalarOp::Weigh:
            return fmt::format("({} == 0 ? 0 : {} * {})", a, a, b);
        case ScalarOp::Add:
        case ScalarOp::Sub:
        case ScalarOp::Mul:
        case ScalarOp::Div:
            if (is_float(operand)) return fmt::format("({} {} {})", a, infix(op), b);
            break;
        case ScalarOp::Eq:
        case ScalarOp::Ne:
        case ScalarOp::Lt:
        case ScalarOp::Le:
        case ScalarOp::Gt:
        case ScalarOp::Ge:
            return fmt::format("({} {} {})", a, infix(op), b);
        case ScalarOp::BitAnd:
        case ScalarOp::BitOr:
        case ScalarOp::BitXor:
            return fmt::format("{}({} {} {})", register_type(operand), a, infix(op), b);
        case ScalarOp::BitNot:
            return operand == DType::Bool ? fmt::format("!({})", a) : fmt::format("{}(~{})", register_type(operand), a);
        case ScalarOp::Neg:
            if (is_float(operand)) return fmt::format("(-{})", a);
            break;
        case ScalarOp::Max:
        case ScalarOp::Min:
            if (operand == DType::Bool) return fmt::format("({} {} {})", a, op == ScalarOp::Max ? "||" : "&&", b);
            break;
        case ScalarOp::Select:
            return fmt::format("({} ? {} : {})", a, b, c);
        case ScalarOp::Cast:
            return cast(result, operand, a);
        case ScalarOp::Bitcast:
            return fmt::format("tw::bitcast<{}>({})", register_type(result), a);
        case ScalarOp::IsNan:
        case ScalarOp::IsInf:
            if (!is_float(operand)) return "false";
            break;
        default:
            if (rounds_to_integer(op) && !is_float(operand)) return a;
            break;
    }
    const std::string_view function = scalar_op_info(op).cuda;
    return arity(op) == 1 ? fmt::format("tw::{}({})", function, a) : fmt::format("tw::{}({}, {})", function, a, b);
}

}  // namespace tilewright::cuda
