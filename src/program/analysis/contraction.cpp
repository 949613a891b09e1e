#include "program/analysis/contraction.h"

#include "program/analysis/access.h"

namespace tilewright {

namespace {

std::optional<uint32_t> byte_read(const ScalarBody& body, ScalarId node) {
    const ScalarNode& n = body[node];
    const bool byte = n.op == ScalarOp::Access && (n.dtype == DType::U8 || n.dtype == DType::I8);
    return byte ? std::optional(n.slot) : std::nullopt;
}

/// word >> shift & mask
std::optional<uint32_t> word_read(const ScalarBody& body, ScalarId node) {
    while (body[node].op == ScalarOp::Cast) node = body[node].a;
    const ScalarNode& masked = body[node];
    if (masked.op != ScalarOp::BitAnd || body[masked.b].op != ScalarOp::Const) return std::nullopt;
    const ScalarNode& shifted = body[masked.a];
    if (shifted.op != ScalarOp::ShiftRight || body[shifted.a].op != ScalarOp::Access) return std::nullopt;
    return body[shifted.a].dtype == DType::U32 ? std::optional(body[shifted.a].slot) : std::nullopt;
}

Contraction::Factor factor(const ScalarBody& body, ScalarId node) {
    const ScalarNode& n = body[node];
    if (n.op == ScalarOp::Access) return {node, n.slot, n.slot};
    if (n.op == ScalarOp::Cast && n.dtype == DType::I32) return {node, std::nullopt, byte_read(body, n.a)};
    return {node, std::nullopt, decoded_read(body, node)};
}

}  // namespace

std::optional<std::array<Contraction::Factor, 2>> product_factors(const ScalarBody& body) {
    if (body.empty()) return std::nullopt;
    const ScalarNode& root = body[body.root()];
    if (root.op != ScalarOp::Mul) return std::nullopt;
    return std::array{factor(body, root.a), factor(body, root.b)};
}

std::optional<Contraction> contraction(const TensorExpr& e, Casts casts) {
    if (e.reducer != Reducer::Sum || e.body.empty()) return std::nullopt;
    ScalarId root = e.body.root();
    while (casts == Casts::Through && e.body[root].op == ScalarOp::Cast) root = e.body[root].a;
    const ScalarNode& product = e.body[root];
    if (product.op != ScalarOp::Mul) return std::nullopt;
    return Contraction{{factor(e.body, product.a), factor(e.body, product.b)}, product.dtype};
}

std::optional<uint32_t> decoded_read(const ScalarBody& body, ScalarId factor) {
    const ScalarNode* n = &body[factor];
    for (const ScalarOp op : {ScalarOp::Mul, ScalarOp::Sub})
        if (n->op == op && n->dtype == DType::F32 && body[n->b].op == ScalarOp::Access) n = &body[n->a];
    if (n->dtype != DType::F32) return std::nullopt;
    if (n->op == ScalarOp::Cast) return byte_read(body, n->a);
    return n->op == ScalarOp::Table ? word_read(body, n->a) : std::nullopt;
}

bool is_plain_product(const TensorExpr& e) {
    const auto c = contraction(e);
    return c && c->reads_widened();
}

ContractionAxes axes(const TensorExpr& e, const Contraction& c) {
    ContractionAxes out;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const bool first = moves_along(e, e.body, c.factors[0].node, a);
        const bool second = moves_along(e, e.body, c.factors[1].node, a);
        if (a >= e.spatial)
            (first && second ? out.sum : out.one_sided).push_back(a);
        else if (first && second)
            out.batch.push_back(a);
        else if (first || second)
            (first ? out.rows : out.columns).push_back(a);
        else
            out.broadcast.push_back(a);
    }
    return out;
}

std::optional<WeightedContraction> weighted_contraction(const Program& program, const TensorExpr& e) {
    const auto c = contraction(e);
    if (!c || !c->reads_widened()) return std::nullopt;
    const uint32_t a = *c->factors[0].read, b = *c->factors[1].read;
    const bool first = program.is_constant(e.accesses[a].value), second = program.is_constant(e.accesses[b].value);
    if (first == second) return std::nullopt;
    return first ? WeightedContraction{b, a} : WeightedContraction{a, b};
}

}  // namespace tilewright
