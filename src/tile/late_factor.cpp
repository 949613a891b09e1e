#include "tile/late_factor.h"

#include <array>
#include <cmath>
#include <set>

#include "program/scalar_ops.h"

namespace tilewright {

namespace {

struct Scaled {
    ScalarId number;
    double factor = 1;
};

/// number * factor, where the node is that.
std::optional<Scaled> scaled(const ScalarBody& body, ScalarId id) {
    const ScalarNode& n = body[id];
    if (n.dtype != DType::F32 || (n.op != ScalarOp::Mul && n.op != ScalarOp::Div)) return std::nullopt;
    const auto constant = [&](ScalarId k) { return body[k].op == ScalarOp::Const; };
    const bool divides = n.op == ScalarOp::Div, right = constant(n.b);
    if (!right && (divides || !constant(n.a))) return std::nullopt;
    const double value = body[right ? n.b : n.a].value, factor = divides ? 1 / value : value;
    if (!(factor > 0) || !std::isfinite(static_cast<float>(factor)) || !std::isfinite(value)) return std::nullopt;
    return Scaled{right ? n.a : n.b, factor};
}

/// The factor of the first product among the choices.
std::optional<double> first_factor(const ScalarBody& body, ScalarId id) {
    if (const auto s = scaled(body, id)) return s->factor;
    if (body[id].op != ScalarOp::Select) return std::nullopt;
    const auto a = first_factor(body, body[id].b);
    return a ? a : first_factor(body, body[id].c);
}

/// Adds the node without the factor.
std::optional<ScalarId> divided(ScalarBody& body, ScalarId id, double factor) {
    const ScalarNode n = body[id];
    if (const auto s = scaled(body, id); s && s->factor == factor) return s->number;
    if (n.op == ScalarOp::Const && n.dtype == DType::F32 && (n.value == 0 || std::isinf(n.value))) return id;
    if (n.op != ScalarOp::Select) return std::nullopt;
    const auto b = divided(body, n.b, factor), c = divided(body, n.c, factor);
    if (!b || !c) return std::nullopt;
    return body.select(n.a, *b, *c);
}

}  // namespace

std::optional<LateFactor> late_factor(const ScalarBody& epilogue) {
    if (epilogue.empty()) return std::nullopt;
    const auto factor = first_factor(epilogue, epilogue.root());
    if (!factor || *factor == 1) return std::nullopt;
    ScalarBody rest = epilogue;
    const auto root = divided(rest, rest.root(), *factor);
    if (!root) return std::nullopt;
    rest.set_root(*root);
    if (rest[*root].op == ScalarOp::Acc) return LateFactor{*factor, {}};
    return LateFactor{*factor, rest.pruned()};
}

bool takes_factor(const TensorExpr& e, ValueId value) {
    const auto read = [&](const ScalarBody& body, ScalarId id) {
        return body[id].op == ScalarOp::Access && e.accesses[body[id].slot].value == value;
    };
    for (const Access& a : e.accesses)
        if (a.value == value && !a.valid.empty()) return false;
    bool reads = false;
    for (const ScalarBody* body : {&e.body, &e.epilogue}) {
        if (body->empty()) continue;
        if (body == &e.body && e.reducer == Reducer::Max && read(*body, body->root())) {
            reads = true;
            continue;
        }
        std::set<ScalarId> differences;
        for (const ScalarId id : body->nodes().ids()) {
            const ScalarNode& n = (*body)[id];
            for (const ScalarId k : std::array{n.a, n.b, n.c}) {
                if (k && read(*body, k) && (n.op != ScalarOp::Sub || n.dtype != DType::F32 || k != n.a || n.a == n.b))
                    return false;
                if (k && differences.count(k) != 0 && scalar_op_info(n.op).cuda != "exp") return false;
            }
            if (n.op == ScalarOp::Sub && read(*body, n.a)) differences.insert(id);
        }
        if (read(*body, body->root()) || differences.count(body->root()) != 0) return false;
        reads = reads || !differences.empty();
    }
    return reads;
}

}  // namespace tilewright
