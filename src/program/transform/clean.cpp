#include "program/transform/clean.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "program/transform/axes.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// An expression as numbers, so that two are equal exactly where they say the same. Floats count by their bits: zeros
/// of different sign are not the same constant. Expressions of indices are interned: their addresses are their names.
class Words {
  public:
    std::vector<uint64_t> of(const TensorExpr& e) {
        exprs(e.extents);
        word(e.spatial);
        word(e.accesses.size());
        for (const Access& a : e.accesses) {
            word(a.value.index());
            exprs(a.index);
            exprs(a.valid);
            word(std::bit_cast<uint64_t>(a.fill));
        }
        body(e.body);
        word(static_cast<uint64_t>(e.reducer));
        body(e.epilogue);
        exprs(e.output_index);
        return std::move(words_);
    }

  private:
    void word(uint64_t w) { words_.push_back(w); }

    void exprs(const std::vector<Expr>& list) {
        word(list.size());
        for (const Expr e : list) word(e.hash());
    }

    void body(const ScalarBody& b) {
        word(b.nodes().size());
        if (b.empty()) return;
        word(b.root().index());
        for (const ScalarNode& n : b.nodes()) {
            word(static_cast<uint64_t>(n.op) << 8 | static_cast<uint64_t>(n.dtype));
            for (const ScalarId operand : {n.a, n.b, n.c}) word(operand ? operand.index() + 1 : 0);
            word(std::bit_cast<uint64_t>(n.value));
            word(static_cast<uint64_t>(n.int_value));
            word(n.slot);
            word(n.index.hash());
        }
    }

    std::vector<uint64_t> words_;
};

}  // namespace

size_t Cleaner::Hash::operator()(const std::vector<uint64_t>& words) const {
    uint64_t h = words.size();
    for (const uint64_t w : words) h = hash_combine(h, w);
    return h;
}

TensorExpr Cleaner::operator()(TensorExpr e) {
    std::vector<ValueId> values;  // in the order of their first accesses, which is their number in what is remembered
    for (Access& a : e.accesses) {
        const auto it = std::find(values.begin(), values.end(), a.value);
        const auto number = static_cast<size_t>(it - values.begin());
        if (it == values.end()) values.push_back(a.value);
        a.value = ValueId(number);
    }
    const auto [it, fresh] = known_.try_emplace(Words().of(e));
    if (fresh) it->second = normalize_axes(tidy(e));
    TensorExpr out = it->second;
    for (Access& a : out.accesses) a.value = values[a.value.index()];
    return out;
}

}  // namespace tilewright
