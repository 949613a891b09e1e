#include <fmt/format.h>

#include "program/scalar_ops.h"
#include "program/scalar_text.h"

namespace tilewright {

namespace {

std::string_view describe(Takes t) {
    switch (t) {
        case Takes::Numbers:
            return "numbers";
        case Takes::Integers:
            return "integers";
        case Takes::IntegersOrBool:
            return "integers or booleans";
        case Takes::Position:
            return "a 64-bit integer";
        case Takes::Floats:
            return "floating-point numbers";
        case Takes::Anything:
            break;
    }
    return "anything";
}

bool fits(Takes t, DType d) {
    switch (t) {
        case Takes::Numbers:
            return d != DType::Bool;
        case Takes::Integers:
            return is_integer(d);
        case Takes::IntegersOrBool:
            return !is_float(d);
        case Takes::Position:
            return d == DType::I64;
        case Takes::Floats:
            return is_float(d);
        case Takes::Anything:
            break;
    }
    return true;
}

}  // namespace

DType result_type(const ScalarBody& body, const ScalarNode& node) {
    if (scalar_op_info(node.op).gives == Gives::Bool) return DType::Bool;
    return compute_type(body[node.op == ScalarOp::Select ? node.b : node.a].dtype);
}

std::string type_fault(const ScalarBody& body, const ScalarNode& node) {
    const auto type = [&](ScalarId id) { return compute_type(body[id].dtype); };
    const auto name = [](DType t) { return to_string(t); };
    const Takes wanted = scalar_op_info(node.op).takes;
    if (!fits(wanted, type(node.a)))
        return fmt::format("operator '{}' takes {}, found {}", to_string(node.op), describe(wanted),
                           name(type(node.a)));
    if (node.op == ScalarOp::Cast) return {};
    if (node.op == ScalarOp::Table) {
        if (!node.table) return "operator 'table' without numbers";
        if (node.dtype == DType::F32 || node.dtype == DType::F64) return {};
        return fmt::format("operator 'table' gives f32 or f64, not {}", name(node.dtype));
    }
    if (node.op == ScalarOp::Bitcast) {
        const DType from = body[node.a].dtype;
        if (byte_size(from) == byte_size(node.dtype)) return {};
        return fmt::format("operator 'bitcast' takes types of one size, found {} and {}", name(from), name(node.dtype));
    }
    if (node.op == ScalarOp::Select) {
        if (type(node.a) != DType::Bool)
            return fmt::format("operator 'select' takes a boolean condition, found {}", name(type(node.a)));
        if (type(node.b) != type(node.c))
            return fmt::format("operator 'select' takes two operands of one type, found {} and {}", name(type(node.b)),
                               name(type(node.c)));
    } else if (node.b && type(node.a) != type(node.b)) {
        return fmt::format("operator '{}' takes operands of one type, found {} and {}", to_string(node.op),
                           name(type(node.a)), name(type(node.b)));
    }
    if (node.dtype != result_type(body, node))
        return fmt::format("operator '{}' gives {}, not {}", to_string(node.op), name(result_type(body, node)),
                           name(node.dtype));
    return {};
}

}  // namespace tilewright
