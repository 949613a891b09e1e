#include "program/transform/fusions.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "program/transform/axes.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// A cache key as numbers, equal exactly for equal requests. Floats are compared by their bits: zeros of different sign
/// are different constants. Index expressions are interned and identified by address.
class Question {
  public:
    enum Kind : uint8_t { kClean, kEpilogue, kInlined };
    explicit Question(Kind kind) { word(kind); }

    void add(const TensorExpr& e) {
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
    }
    void add(size_t access, const Value& made) {
        word(access);
        word(static_cast<uint64_t>(made.dtype));
        exprs(made.shape);
    }
    std::vector<uint64_t> words() { return std::move(words_); }

  private:
    void word(uint64_t w) { words_.push_back(w); }
    /// Equal expressions are one interned node: its address is unique, unlike a hash.
    void word(Expr e) { word(std::bit_cast<uint64_t>(e)); }

    void exprs(const std::vector<Expr>& list) {
        word(list.size());
        for (const Expr e : list) word(e);
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
            word(n.index);
            word(n.table ? n.table->size() + 1 : 0);
            if (n.table)
                for (const double v : *n.table) word(std::bit_cast<uint64_t>(v));
        }
    }

    std::vector<uint64_t> words_;
};

/// Values in the order of their first accesses.
class Numbered {
  public:
    void number(TensorExpr& e) {
        for (Access& a : e.accesses) {
            const auto it = std::find(values_.begin(), values_.end(), a.value);
            const auto number = static_cast<size_t>(it - values_.begin());
            if (it == values_.end()) values_.push_back(a.value);
            a.value = ValueId(number);
        }
    }
    TensorExpr restored(TensorExpr e) const {
        for (Access& a : e.accesses) a.value = values_[a.value.index()];
        return e;
    }

  private:
    std::vector<ValueId> values_;
};

TensorExpr cleaned(const TensorExpr& e) { return normalize_axes(tidy(e)); }

}  // namespace

size_t Fusions::Hash::operator()(const Words& words) const {
    uint64_t h = words.size();
    for (const uint64_t w : words) h = hash_combine(h, w);
    return h;
}

const std::optional<TensorExpr>& Fusions::known_or(Words words, const Make& make) {
    const auto [it, fresh] = known_.try_emplace(std::move(words));
    if (fresh) it->second = make();
    return it->second;
}

TensorExpr Fusions::clean(TensorExpr e) {
    Numbered values;
    values.number(e);
    Question q(Question::kClean);
    q.add(e);
    return values.restored(*known_or(q.words(), [&] { return std::optional(cleaned(e)); }));
}

std::optional<TensorExpr> Fusions::fused(bool inlined, TensorExpr first, TensorExpr second, size_t access,
                                         const Value& made) {
    Numbered values;
    values.number(first);
    values.number(second);
    Question q(inlined ? Question::kInlined : Question::kEpilogue);
    q.add(first);
    q.add(second);
    q.add(access, made);
    const auto& known = known_or(q.words(), [&]() -> std::optional<TensorExpr> {
        const auto e =
            inlined ? inline_producer(first, access, second, made) : fuse_epilogue(first, second, access, made);
        return e ? std::optional(cleaned(*e)) : std::nullopt;
    });
    return known ? std::optional(values.restored(*known)) : std::nullopt;
}

std::optional<TensorExpr> Fusions::epilogue(TensorExpr producer, TensorExpr consumer, size_t access,
                                            const Value& made) {
    return fused(false, std::move(producer), std::move(consumer), access, made);
}

std::optional<TensorExpr> Fusions::inlined(TensorExpr consumer, size_t access, TensorExpr producer, const Value& made) {
    return fused(true, std::move(consumer), std::move(producer), access, made);
}

}  // namespace tilewright
