#include "program/transform/inline.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "index/expr_size.h"
#include "index/map.h"
#include "program/analysis/access.h"
#include "program/scalar_eval.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// Whether compute_type(t), rounded as in `rounded`, represents every value of `t` as the stored element does.
bool fits_register(DType t) { return compute_type(t) == t || t == DType::F16 || t == DType::BF16; }

ScalarId rounded(ScalarBody& b, ScalarId v, DType stored) {
    return stored == DType::F16 || stored == DType::BF16 ? b.cast(stored, v) : v;
}

ScalarId constant(ScalarBody& b, DType t, double v) {
    const ScalarValue s = scalar_from_double(t, v);
    return is_float(t) ? b.constant(t, s.f) : b.int_constant(t, s.i);
}

/// Whether an index is too long to be simplified and computed at every point.
bool has_long_index(const TensorExpr& e) {
    const auto any_long = [](const std::vector<Expr>& list) { return std::any_of(list.begin(), list.end(), is_long); };
    const auto in_body = [](const ScalarBody& body) {
        return std::any_of(body.nodes().begin(), body.nodes().end(),
                           [](const ScalarNode& n) { return n.op == ScalarOp::Index && is_long(n.index); });
    };
    return in_body(e.body) || in_body(e.epilogue) ||
           std::any_of(e.accesses.begin(), e.accesses.end(),
                       [&](const Access& a) { return any_long(a.index) || any_long(a.valid); });
}

/// Replaces load(k) by load(by(k)).
template <class F>
Expr renumber_loads(Expr e, const F& by) {
    return substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v.kind != VarKind::Load) return std::nullopt;
        return load(by(v.id));
    });
}

/// The producer's spatial axes for the element that `index` reads: the index itself unless there is an output_index.
std::optional<std::vector<Expr>> producer_point(const TensorExpr& producer, const Value& made,
                                                const std::vector<Expr>& index) {
    if (producer.output_index.empty()) {
        TW_CHECK(index.size() == producer.spatial, "{} indices into {} axes", index.size(), producer.spatial);
        return index;
    }
    IndexMap map;
    map.extents.assign(producer.extents.begin(),
                       producer.extents.begin() + static_cast<std::ptrdiff_t>(producer.spatial));
    map.results = producer.output_index;
    const auto inverse = invert(map, made.shape);
    if (!inverse) return std::nullopt;
    std::vector<Expr> point;
    for (const Expr e : inverse->results) point.push_back(substitute_axes(e, index));
    return point;
}

/// The body as an index expression, for values used as indices of other accesses.
std::optional<Expr> index_of_body(const ScalarBody& body, ScalarId id, size_t first_slot,
                                  const std::function<Expr(Expr)>& map) {
    const ScalarNode& n = body[id];
    if (n.dtype != DType::I64 && n.dtype != DType::I32) return std::nullopt;
    const auto operand = [&](ScalarId k) { return index_of_body(body, k, first_slot, map); };
    switch (n.op) {
        case ScalarOp::Const:
            return Expr(n.int_value);
        case ScalarOp::Access:
            return load(first_slot + n.slot);
        case ScalarOp::Index:
            return map(n.index);
        case ScalarOp::Cast:
            if (n.dtype != DType::I64) return std::nullopt;  // a narrowing cast may wrap
            return operand(n.a);
        case ScalarOp::Neg: {
            const auto a = operand(n.a);
            return a ? std::optional<Expr>(-*a) : std::nullopt;
        }
        case ScalarOp::Add:
        case ScalarOp::Sub:
        case ScalarOp::Mul:
        case ScalarOp::FloorMod:
        case ScalarOp::Min:
        case ScalarOp::Max: {
            const auto a = operand(n.a), b = operand(n.b);
            if (!a || !b) return std::nullopt;
            if (n.op == ScalarOp::Add) return *a + *b;
            if (n.op == ScalarOp::Sub) return *a - *b;
            if (n.op == ScalarOp::Mul) return *a * *b;
            if (n.op == ScalarOp::FloorMod) return mod(*a, *b);
            return n.op == ScalarOp::Min ? min(*a, *b) : max(*a, *b);
        }
        default:
            return std::nullopt;
    }
}

/// Whether elements of type `t` can have the value `fill`.
bool fills(DType t, double fill) {
    if (is_float(t)) return true;
    if (t == DType::Bool) return fill == 1 || (fill == 0 && !std::signbit(fill));
    return std::fabs(fill) <= 9007199254740992.0 && fill == std::floor(fill) && !(fill == 0 && std::signbit(fill)) &&
           (is_signed(t) || fill >= 0) && scalar_from_double(t, fill).i == static_cast<int64_t>(fill);
}

/// Fills for the producer's reads with which its body yields exactly `wanted`: relu(0) = 0. Then no select is needed
/// where the consumer's conditions fail. Reads with their own conditions keep their fill.
std::optional<std::vector<double>> neutral_fills(const TensorExpr& producer, const Value& made, double wanted) {
    std::vector<DType> types(producer.accesses.size(),
                             DType::I64);  // types of slots that the body does not read: indices
    for (const ScalarNode& n : producer.body.nodes())
        if (n.op == ScalarOp::Access) types[n.slot] = n.dtype;
    const ScalarValue target = scalar_from_double(producer.body.dtype(), wanted);
    for (const double candidate : {wanted, 0.0, -0.0, 1.0}) {
        std::vector<double> values;
        for (size_t k = 0; k < producer.accesses.size(); ++k) {
            const Access& a = producer.accesses[k];
            values.push_back(!a.valid.empty() ? a.fill : fills(types[k], candidate) ? candidate : 0.0);
        }
        ScalarBody b;
        const ScalarId at_fills = b.inline_body(producer.body, [&](ScalarBody& into, const ScalarNode& n) {
            return n.op == ScalarOp::Access ? constant(into, n.dtype, values[n.slot]) : ScalarId();
        });
        const ScalarNode& n = b[rounded(b, at_fills, made.dtype)];
        if (n.op != ScalarOp::Const) continue;
        if (is_float(n.dtype) ? std::bit_cast<uint64_t>(n.value) == std::bit_cast<uint64_t>(target.f)
                              : n.int_value == target.i)
            return values;
    }
    return std::nullopt;
}

/// Implements inline_producer; `failed` may be set deep inside a body.
class Inliner {
  public:
    Inliner(const TensorExpr& consumer, size_t access, const TensorExpr& producer, const Value& made)
        : consumer_(consumer), access_(access), producer_(producer), made_(made), read_(consumer.accesses[access]) {}

    std::optional<TensorExpr> run() {
        const auto point = producer_point(producer_, made_, read_.index);
        if (!point) return std::nullopt;
        point_ = *point;
        if (!read_.valid.empty()) fills_ = neutral_fills(producer_, made_, read_.fill);

        TensorExpr out;
        out.extents = consumer_.extents;
        out.spatial = consumer_.spatial;
        out.reducer = consumer_.reducer;
        out.output_index = consumer_.output_index;
        for (size_t k = 0; k < consumer_.accesses.size(); ++k) {
            if (k == access_) {
                for (size_t j = 0; j < producer_.accesses.size(); ++j) out.accesses.push_back(inlined_access(j));
                continue;
            }
            Access a = consumer_.accesses[k];
            for (Expr& e : a.index) e = of_consumer(e);
            for (Expr& e : a.valid) e = of_consumer(e);
            out.accesses.push_back(std::move(a));
        }
        out.body = body(consumer_.body);
        out.epilogue = body(consumer_.epilogue);
        if (failed_ || has_long_index(out)) return std::nullopt;
        return tidy(out);
    }

  private:
    size_t moved(size_t slot) const { return slot < access_ ? slot : slot + producer_.accesses.size() - 1; }

    Expr of_producer(Expr e) const {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind == VarKind::Axis) return point_[v.id];
            if (v.kind == VarKind::Load) return load(access_ + v.id);
            return std::nullopt;
        });
    }

    Expr of_consumer(Expr e) {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Load) return std::nullopt;
            if (v.id != access_) return load(moved(v.id));
            const auto index = read_.valid.empty() && compute_type(made_.dtype) == made_.dtype
                                   ? index_of_body(producer_.body, producer_.body.root(), access_,
                                                   [&](Expr inner) { return of_producer(inner); })
                                   : std::nullopt;
            failed_ = failed_ || !index;
            return index.value_or(Expr(0));
        });
    }

    Access inlined_access(size_t j) const {
        const Access& a = producer_.accesses[j];
        Access r;
        r.value = a.value;
        for (const Expr e : a.index) r.index.push_back(of_producer(e));
        r.valid = read_.valid;  // first: the producer's own indices may rely on them
        for (const Expr e : a.valid) r.valid.push_back(of_producer(e));
        r.fill = fills_ ? (*fills_)[j] : a.fill;
        return r;
    }

    ScalarBody body(const ScalarBody& from) {
        ScalarBody out;
        if (from.empty()) return out;
        out.set_root(out.inline_body(from, [&](ScalarBody& b, const ScalarNode& n) {
            if (n.op == ScalarOp::Index) return b.index(of_consumer(n.index));
            if (n.op != ScalarOp::Access) return ScalarId();
            return n.slot == access_ ? inlined_body(b) : b.access(static_cast<uint32_t>(moved(n.slot)), n.dtype);
        }));
        return out;
    }

    ScalarId inlined_body(ScalarBody& b) {
        ScalarId v = b.inline_body(producer_.body, [&](ScalarBody& into, const ScalarNode& n) {
            if (n.op == ScalarOp::Access) return into.access(static_cast<uint32_t>(access_ + n.slot), n.dtype);
            if (n.op == ScalarOp::Index) return index_node(into, of_producer(n.index));
            return ScalarId();
        });
        v = rounded(b, v, made_.dtype);
        if (read_.valid.empty() || fills_) return v;
        ScalarId holds;
        for (const Expr e : read_.valid) {
            const ScalarId one = b.binary(ScalarOp::Ge, index_node(b, e), b.int_constant(DType::I64, 0));
            holds = holds ? b.binary(ScalarOp::BitAnd, holds, one) : one;
        }
        return b.select(holds, v, constant(b, b[v].dtype, read_.fill));
    }

    ScalarId index_node(ScalarBody& b, Expr e) {
        failed_ = failed_ || uses_load({&e, 1});
        return b.index(e);
    }

    const TensorExpr& consumer_;
    const size_t access_;
    const TensorExpr& producer_;
    const Value& made_;
    const Access& read_;
    std::vector<Expr> point_;                   ///< the producer's axes, over the consumer's
    std::optional<std::vector<double>> fills_;  ///< fills that make a select unnecessary
    bool failed_ = false;
};

/// One axis per dimension, and each axis of more than one point in some dimension: no element is reached twice.
bool reaches_once(const TensorExpr& consumer, const std::vector<Expr>& index, const Value& made) {
    std::vector<bool> seen(consumer.extents.size(), false);
    bool apart = true;
    for (const Expr e : index) {
        if (e.is_constant() || is_uniform(e)) continue;
        const std::vector<Var> vars = variables(e);
        if (vars.size() != 1 || vars[0].kind != VarKind::Axis || seen[vars[0].id]) {
            apart = false;
            break;
        }
        const auto linear = linear_in(e, vars[0]);
        if (!linear || !linear->coefficient.is_constant() || linear->coefficient.is_constant(0)) {
            apart = false;
            break;
        }
        seen[vars[0].id] = true;
    }
    for (size_t k = 0; k < consumer.extents.size(); ++k)
        apart = apart && (seen[k] || consumer.extents[k].is_constant(1));
    if (apart) return true;
    return invert(IndexMap{consumer.extents, index}, made.shape).has_value();
}

std::optional<TensorExpr> with_epilogue(const TensorExpr& producer, const TensorExpr& consumer, size_t access,
                                        const Value& made) {
    const Access& read = consumer.accesses[access];
    if (producer.reducer == Reducer::None || consumer.reducer != Reducer::None || !consumer.epilogue.empty() ||
        !fits_register(made.dtype) || !read.valid.empty())
        return std::nullopt;
    if (uses_load(read.index)) return std::nullopt;
    for (size_t k = 0; k < consumer.accesses.size(); ++k)
        if (k != access && consumer.accesses[k].value == read.value) return std::nullopt;
    if (!reaches_once(consumer, read.index, made)) return std::nullopt;
    auto point = producer_point(producer, made, read.index);
    if (!point) return std::nullopt;
    for (size_t k = producer.spatial; k < producer.extents.size(); ++k)
        point->push_back(axis(consumer.spatial + k - producer.spatial));

    TensorExpr out;
    out.spatial = consumer.spatial;
    out.extents = consumer.extents;
    out.extents.insert(out.extents.end(), producer.extents.begin() + static_cast<std::ptrdiff_t>(producer.spatial),
                       producer.extents.end());
    out.reducer = producer.reducer;
    out.output_index = consumer.output_index;

    // The producer's accesses first, then the consumer's except the inlined one.
    const auto of_producer = [&](Expr e) { return substitute_axes(e, *point); };
    const size_t before = producer.accesses.size();
    const auto moved = [&](size_t slot) { return before + slot - (slot > access ? 1 : 0); };
    bool loads_value = false;
    const auto of_consumer = [&](Expr e) {
        loads_value = loads_value || uses(e, {VarKind::Load, static_cast<uint32_t>(access)});
        return renumber_loads(e, moved);
    };
    for (Access a : producer.accesses) {
        for (Expr& e : a.index) e = of_producer(e);
        for (Expr& e : a.valid) e = of_producer(e);
        out.accesses.push_back(std::move(a));
    }
    for (size_t k = 0; k < consumer.accesses.size(); ++k) {
        if (k == access) continue;
        Access a = consumer.accesses[k];
        for (Expr& e : a.index) e = of_consumer(e);
        for (Expr& e : a.valid) e = of_consumer(e);
        out.accesses.push_back(std::move(a));
    }
    const auto producer_leaf = [&](ScalarBody& b, const ScalarNode& n) {
        return n.op == ScalarOp::Index ? b.index(of_producer(n.index)) : ScalarId();
    };
    out.body.set_root(out.body.inline_body(producer.body, producer_leaf));
    out.epilogue.set_root(out.epilogue.inline_body(consumer.body, [&](ScalarBody& b, const ScalarNode& n) {
        if (n.op == ScalarOp::Index) return b.index(of_consumer(n.index));
        if (n.op != ScalarOp::Access) return ScalarId();
        if (n.slot != access) return b.access(static_cast<uint32_t>(moved(n.slot)), n.dtype);
        const ScalarId result =
            producer.epilogue.empty() ? b.acc(producer.body.dtype()) : b.inline_body(producer.epilogue, producer_leaf);
        return rounded(b, result, made.dtype);
    }));
    if (loads_value || has_long_index(out)) return std::nullopt;
    return tidy(out);
}

/// The result of `f`; none if its expressions overflow or exceed their size limit.
template <class F>
std::optional<TensorExpr> unless_too_large(const F& f) {
    try {
        return f();
    } catch (const ModelError&) {
        return std::nullopt;
    }
}

}  // namespace

std::optional<TensorExpr> inline_producer(const TensorExpr& consumer, size_t access, const TensorExpr& producer,
                                          const Value& made) {
    TW_CHECK(access < consumer.accesses.size(), "access {} of {}", access, consumer.accesses.size());
    if (producer.reducer != Reducer::None || !producer.epilogue.empty() || !fits_register(made.dtype))
        return std::nullopt;
    return unless_too_large([&] { return Inliner(consumer, access, producer, made).run(); });
}

std::optional<TensorExpr> fuse_epilogue(const TensorExpr& producer, const TensorExpr& consumer, size_t access,
                                        const Value& made) {
    TW_CHECK(access < consumer.accesses.size(), "access {} of {}", access, consumer.accesses.size());
    return unless_too_large([&] { return with_epilogue(producer, consumer, access, made); });
}

}  // namespace tilewright
