#include "program/analysis/masks.h"

namespace tilewright {

namespace {

/// An integer that indices alone decide.
std::optional<Expr> index_number(const ScalarBody& body, ScalarId at) {
    const ScalarNode& n = body[at];
    if (n.op == ScalarOp::Index) return n.index;
    if (n.op == ScalarOp::Const && !is_float(n.dtype)) return Expr(n.int_value);
    if (n.op == ScalarOp::Cast && (n.dtype == DType::I64 || n.dtype == DType::I32)) return index_number(body, n.a);
    if (n.op != ScalarOp::Add && n.op != ScalarOp::Sub) return std::nullopt;
    const auto a = index_number(body, n.a), b = index_number(body, n.b);
    if (!a || !b) return std::nullopt;
    return n.op == ScalarOp::Add ? *a + *b : *a - *b;
}

}  // namespace

bool is_mask(const ScalarNode& n) { return n.op == ScalarOp::Const && is_float(n.dtype) && n.value <= kMasked; }

std::optional<Expr> index_condition(const ScalarBody& body, ScalarId at, bool negated) {
    const ScalarNode& n = body[at];
    if (!is_comparison(n.op)) return std::nullopt;
    const auto a = index_number(body, n.a), b = index_number(body, n.b);
    if (!a || !b) return std::nullopt;
    const bool less = n.op == ScalarOp::Lt || n.op == ScalarOp::Le,
               strict = n.op == ScalarOp::Lt || n.op == ScalarOp::Gt;
    if (!less && !strict && n.op != ScalarOp::Ge) return std::nullopt;  // equal, not equal
    Expr keep = less ? *b - *a : *a - *b;
    if (strict) keep = keep - 1;
    return negated ? -keep - 1 : keep;
}

}  // namespace tilewright
