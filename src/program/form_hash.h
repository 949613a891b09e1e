#pragma once
// A structural hash of an expression, independent of names.

#include <bit>

#include "base/hash.h"
#include "program/program.h"

namespace tilewright {

/// Equal for equal bodies, even if dead nodes differ. Index expressions are hashed by identity, so hashes are
/// comparable within one process only.
inline uint64_t form_hash(const ScalarBody& body) {
    if (body.empty()) return 0;
    std::vector<uint64_t> of(body.nodes().size());
    const auto at = [&](ScalarId n) { return n ? of[n.index()] : 0; };
    for (const ScalarId id : body.nodes().ids()) {
        const ScalarNode& n = body[id];
        uint64_t h = hash_combine(static_cast<uint64_t>(n.op) << 8 | static_cast<uint64_t>(n.dtype), n.slot);
        if (n.table)
            for (const double v : *n.table) h = hash_combine(h, std::bit_cast<uint64_t>(v));
        h = hash_combine(h, std::bit_cast<uint64_t>(n.value) ^ hash_mix(static_cast<uint64_t>(n.int_value)));
        h = hash_combine(h, n.index.hash());
        of[id.index()] = hash_combine(hash_combine(hash_combine(h, at(n.a)), at(n.b)), at(n.c));
    }
    return at(body.root());
}

/// `operand` returns the hash of a value that the expression reads.
template <class F>
uint64_t form_hash(const TensorExpr& e, F&& operand) {
    const auto list = [](uint64_t h, const std::vector<Expr>& exprs) {
        h = hash_combine(h, exprs.size());
        for (const Expr x : exprs) h = hash_combine(h, x.hash());
        return h;
    };
    uint64_t h = list(hash_combine(e.spatial, static_cast<uint64_t>(e.reducer)), e.extents);
    for (const Access& a : e.accesses) {
        h = list(list(hash_combine(h, operand(a.value)), a.index), a.valid);
        if (!a.valid.empty()) h = hash_combine(h, std::bit_cast<uint64_t>(a.fill));
    }
    return list(hash_combine(hash_combine(h, form_hash(e.body)), form_hash(e.epilogue)), e.output_index);
}

}  // namespace tilewright
