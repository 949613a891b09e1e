#include "program/transform/integer_products.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/transform/dead_code.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

constexpr int64_t kHalf = 128;
constexpr int kMostInlined = 4;  // dequantisation, and copies around it

bool is_byte(DType t) { return t == DType::U8 || t == DType::I8; }

/// Returns q's access, its number, if the body quantises what it dequantises: sat(round(((q - zero) * scale) / scale) +
/// zero).
class Requantisation {
  public:
    Requantisation(const Program& program, const TensorExpr& e) : p_(program), e_(e), b_(e.body) {}

    std::optional<uint32_t> match(DType to) const {
        const auto shifted = saturated(to);
        if (!shifted) return std::nullopt;
        ScalarId rounded = *shifted;
        std::optional<ScalarId> zero;
        if (is(rounded, ScalarOp::Add)) {
            zero = b_[rounded].b;
            rounded = b_[rounded].a;
        }
        if (!is(rounded, ScalarOp::RoundEven) || !is(b_[rounded].a, ScalarOp::Div)) return std::nullopt;
        const ScalarNode& ratio = b_[b_[rounded].a];
        if (ratio.dtype != DType::F32 || !is(ratio.a, ScalarOp::Mul)) return std::nullopt;
        const ScalarNode& real = b_[ratio.a];
        for (const auto& [integer, scale] : {std::pair(real.a, real.b), std::pair(real.b, real.a)})
            if (same(scale, ratio.b) && is_moderate(scale) && is(integer, ScalarOp::Cast))
                if (auto found = integers(b_[integer].a, zero, to)) return found;
        return std::nullopt;
    }

  private:
    bool is(ScalarId id, ScalarOp op) const { return b_[id].op == op; }

    /// x of cast(min(max(x, least), most)).
    std::optional<ScalarId> saturated(DType to) const {
        const double least = to == DType::U8 ? 0 : -128, most = least + 255;
        const ScalarId root = b_.root();
        if (!is(root, ScalarOp::Cast) || b_[root].dtype != to || !is(b_[root].a, ScalarOp::Min)) return std::nullopt;
        const ScalarNode& upper = b_[b_[root].a];
        if (!is(upper.b, ScalarOp::Const) || b_[upper.b].value != most || !is(upper.a, ScalarOp::Max))
            return std::nullopt;
        const ScalarNode& lower = b_[upper.a];
        if (!is(lower.b, ScalarOp::Const) || b_[lower.b].value != least) return std::nullopt;
        return lower.a;
    }

    /// Equal numbers, or reads of the same element of a constant.
    bool same(ScalarId x, ScalarId y) const {
        while (is(x, ScalarOp::Cast)) x = b_[x].a;
        while (is(y, ScalarOp::Cast)) y = b_[y].a;
        const ScalarNode &a = b_[x], &b = b_[y];
        if (a.op == ScalarOp::Const && b.op == ScalarOp::Const) return number(a) == number(b);
        if (a.op != ScalarOp::Access || b.op != ScalarOp::Access) return false;
        const Access &first = e_.accesses[a.slot], &second = e_.accesses[b.slot];
        return first == second && first.valid.empty();
    }
    static double number(const ScalarNode& n) { return is_float(n.dtype) ? n.value : static_cast<double>(n.int_value); }

    /// Whether products of up to 255 and the scale neither overflow nor become subnormal.
    bool is_moderate(ScalarId scale) const {
        const auto moderate = [](double v) { return std::abs(v) >= 0x1p-100 && std::abs(v) <= 0x1p100; };
        if (is(scale, ScalarOp::Const)) return moderate(number(b_[scale]));
        if (!is(scale, ScalarOp::Access)) return false;
        const auto known = p_.constants.find(e_.accesses[b_[scale].slot].value);
        if (known == p_.constants.end() || p_.unread.count(known->first) != 0) return false;
        for (int64_t i = 0; i < known->second.count(); ++i)
            if (!moderate(known->second.get(i))) return false;
        return true;
    }

    std::optional<uint32_t> integers(ScalarId id, const std::optional<ScalarId>& zero, DType to) const {
        const bool no_zero = !zero || (is(*zero, ScalarOp::Const) && number(b_[*zero]) == 0);
        if (is(id, ScalarOp::Sub)) {
            if (!zero || !same(b_[id].b, *zero)) return std::nullopt;
            id = b_[id].a;
        } else if (!no_zero) {
            return std::nullopt;
        }
        if (!is(id, ScalarOp::Cast) || b_[id].dtype != DType::I32) return std::nullopt;
        const ScalarNode& q = b_[b_[id].a];
        if (q.op != ScalarOp::Access || q.dtype != to || !e_.accesses[q.slot].valid.empty()) return std::nullopt;
        return q.slot;
    }

    const Program& p_;
    const TensorExpr& e_;
    const ScalarBody& b_;
};

/// A number that is subtracted from a factor: `read` + `offset`, or `offset` alone.
struct ZeroPoint {
    std::optional<Access> read;
    int64_t offset = 0;
    bool is_zero() const { return !read && offset == 0; }
};

/// A factor as integers: (q - zero) * scale. Indices are over the contraction's axes.
struct Quantised {
    Access q;
    ZeroPoint zero;
    std::optional<Access> scale;
    float factor = 1;  ///< of the scale
};

/// An expression over some axes of a contraction, which are renumbered.
class Restricted {
  public:
    Restricted(const TensorExpr& e, const std::vector<const Access*>& reads) : renamed_(e.extents.size(), Expr(0)) {
        for (size_t a = 0; a < e.spatial; ++a)
            if (std::any_of(reads.begin(), reads.end(), [&](const Access* r) { return uses(*r, a); })) keep(e, a);
        out_.spatial = out_.extents.size();
        for (size_t a = 0; a < e.spatial; ++a)
            if (kept_.count(a) != 0) index_.push_back(axis(a));
    }
    /// Adds the contraction's reduction, as a sum.
    void reduce(const TensorExpr& e) {
        for (size_t a = e.spatial; a < e.extents.size(); ++a) keep(e, a);
        out_.reducer = Reducer::Sum;
    }
    /// The number of the access.
    uint32_t read(Access a) {
        for (Expr& i : a.index) i = substitute_axes(i, renamed_);
        for (Expr& i : a.valid) i = substitute_axes(i, renamed_);
        out_.accesses.push_back(std::move(a));
        return static_cast<uint32_t>(out_.accesses.size() - 1);
    }
    TensorExpr& expr() { return out_; }
    /// How the contraction's result reads it.
    std::vector<Expr> index() const { return index_; }

  private:
    static bool uses(const Access& r, size_t a) { return index_uses(r.index, a) || index_uses(r.valid, a); }
    void keep(const TensorExpr& e, size_t a) {
        kept_.insert(a);
        renamed_[a] = axis(out_.extents.size());
        out_.extents.push_back(e.extents[a]);
    }

    std::vector<Expr> renamed_, index_;
    std::set<size_t> kept_;
    TensorExpr out_;
};

class Rewriter {
  public:
    explicit Rewriter(Program program) : p_(std::move(program)), producers_(p_.producers()) {
        std::set<ValueId> known;
        for (const auto& [v, tensor] : p_.constants) known.insert(v);
        for (const Primitive& q : p_.primitives) {
            const std::vector<ValueId> inputs = q.inputs();
            if (q.expr() != nullptr && !inputs.empty() &&
                std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return known.count(v) != 0; }))
                known.insert(q.outputs[0]);
        }
        constant_ = std::move(known);
    }

    Program run(IntegerProducts& report) {
        for (const PrimitiveId id : p_.primitives.ids()) copy_requantised(p_.primitives[id]);
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive q = p_.primitives[id];
            if (!rewrite(q)) all_.push_back(std::move(q));
        }
        report = report_;
        if (report_.products == 0 && report_.identities == 0) return std::move(p_);
        p_.primitives = std::move(all_);
        return eliminate_dead_code(std::move(p_));
    }

  private:
    void copy_requantised(Primitive& q) {
        constexpr int kMost = 8;
        const TensorExpr* e = q.expr();
        if (e == nullptr || e->reducer != Reducer::None || !is_byte(p_.values[q.outputs[0]].dtype)) return;
        TensorExpr own = *e;
        for (int k = 0; k < kMost; ++k) {
            if (const auto of = Requantisation(p_, own).match(p_.values[q.outputs[0]].dtype)) {
                own.body = ScalarBody();
                own.body.set_root(own.body.access(*of, p_.values[own.accesses[*of].value].dtype));
                q.kind = tidy(own);
                ++report_.identities;
                return;
            }
            const auto next = with_producer_of_real(own);
            if (!next) return;
            own = std::move(*next);
        }
    }

    /// `own` with the elementwise producer of its one computed read of a float in place.
    std::optional<TensorExpr> with_producer_of_real(const TensorExpr& own) const {
        for (size_t k = 0; k < own.accesses.size(); ++k) {
            const Access& a = own.accesses[k];
            if (p_.values[a.value].dtype != DType::F32 || !producers_[a.value]) continue;
            const TensorExpr* by = p_.primitives[producers_[a.value]].expr();
            if (by == nullptr || by->reducer != Reducer::None || !a.valid.empty()) return std::nullopt;
            return inline_producer(own, k, *by, p_.values[a.value]);
        }
        return std::nullopt;
    }

    // --- recognition

    /// The number that all elements of a constant equal.
    std::optional<int64_t> number(ValueId v) const {
        const auto at = p_.constants.find(v);
        if (at == p_.constants.end() || p_.unread.count(v) != 0 || at->second.count() == 0) return std::nullopt;
        const double first = at->second.get(0);
        for (int64_t i = 1; i < at->second.count(); ++i)
            if (at->second.get(i) != first) return std::nullopt;
        return static_cast<int64_t>(first);
    }

    /// The access behind conversions, of 8-bit integers to I32 or from a float type to F32.
    static std::optional<uint32_t> converted(const ScalarBody& body, ScalarId node, bool integers) {
        while (body[node].op == ScalarOp::Cast) node = body[node].a;
        if (body[node].op != ScalarOp::Access) return std::nullopt;
        const DType t = body[node].dtype;
        return (integers ? is_byte(t) : t == DType::F32) ? std::optional(body[node].slot) : std::nullopt;
    }

    std::optional<ZeroPoint> zero_point(const TensorExpr& e, ScalarId node) const {
        const ScalarNode& n = e.body[node];
        if (n.op == ScalarOp::Const) return ZeroPoint{{}, n.int_value};
        const auto slot = converted(e.body, node, true);
        if (!slot) return std::nullopt;
        const Access& a = e.accesses[*slot];
        if (const auto known = number(a.value)) return ZeroPoint{{}, *known};
        return ZeroPoint{a, 0};
    }

    /// q - zero, in I32.
    std::optional<Quantised> centred(const TensorExpr& e, ScalarId node) const {
        const ScalarNode& n = e.body[node];
        if (n.dtype != DType::I32) return std::nullopt;
        Quantised out;
        ScalarId q = node;
        if (n.op == ScalarOp::Sub) {
            const auto zero = zero_point(e, n.b);
            if (!zero) return std::nullopt;
            out.zero = *zero;
            q = n.a;
        }
        const auto slot = converted(e.body, q, true);
        if (!slot || e.body[q].op != ScalarOp::Cast) return std::nullopt;
        out.q = e.accesses[*slot];
        return out;
    }

    /// A body (q - zero) * scale or q - zero.
    std::optional<Quantised> quantised(const TensorExpr& e) const {
        const ScalarNode& root = e.body[e.body.root()];
        if (root.dtype == DType::I32) return centred(e, e.body.root());
        if (root.dtype != DType::F32) return std::nullopt;
        const auto integers = [&](ScalarId k) {
            const ScalarNode& n = e.body[k];
            return n.op == ScalarOp::Cast && n.dtype == DType::F32 ? centred(e, n.a) : std::nullopt;
        };
        if (root.op == ScalarOp::Cast) return integers(e.body.root());
        if (root.op != ScalarOp::Mul) return std::nullopt;
        for (const auto& [k, s] : {std::pair(root.a, root.b), std::pair(root.b, root.a)}) {
            const auto scale = converted(e.body, s, false);
            auto out = integers(k);
            if (!out || (!scale && e.body[s].op != ScalarOp::Const)) continue;
            if (scale)
                out->scale = e.accesses[*scale];
            else
                out->factor = static_cast<float>(e.body[s].value);
            return out;
        }
        return std::nullopt;
    }

    /// The definition of what an access of the contraction reads, over all axes of the contraction.
    std::optional<Quantised> factor(const TensorExpr& e, uint32_t slot) const {
        const Access& read = e.accesses[slot];
        if (uses_load(read.index) || (!read.valid.empty() && read.fill != 0)) return std::nullopt;
        TensorExpr own;
        own.extents = e.extents;
        own.spatial = e.extents.size();
        own.accesses = {{read.value, read.index, {}, 0}};
        own.body.set_root(own.body.access(0, p_.values[read.value].dtype));
        for (int k = 0; k <= kMostInlined; ++k) {
            if (std::any_of(own.accesses.begin(), own.accesses.end(),
                            [](const Access& a) { return uses_load(a.index); }))
                return std::nullopt;
            if (auto found = quantised(own)) return padded(std::move(*found), read);
            const auto next = inlined(own, e.spatial);
            if (!next) return std::nullopt;
            own = std::move(*next);
        }
        return std::nullopt;
    }

    /// `own` with the producer of its one access that moves along the sum in place.
    std::optional<TensorExpr> inlined(const TensorExpr& own, size_t spatial) const {
        for (size_t k = 0; k < own.accesses.size(); ++k) {
            const Access& a = own.accesses[k];
            bool along = false;
            for (size_t r = spatial; r < own.extents.size(); ++r) along = along || index_uses(a.index, r);
            if (!along || !producers_[a.value]) continue;
            const TensorExpr* by = p_.primitives[producers_[a.value]].expr();
            if (by == nullptr || by->reducer != Reducer::None) return std::nullopt;
            return inline_producer(own, k, *by, p_.values[a.value]);
        }
        return std::nullopt;
    }

    std::optional<Quantised> padded(Quantised x, const Access& read) const {
        if (read.valid.empty()) return x;
        if (!x.q.valid.empty() || x.zero.read) return std::nullopt;
        x.q.valid = read.valid;
        x.q.fill = static_cast<double>(x.zero.offset);
        return x;
    }

    /// Whether all of them are the same at every point of the sum.
    static bool fixed_along_sum(const TensorExpr& e, const Quantised& x) {
        for (size_t r = e.spatial; r < e.extents.size(); ++r)
            if ((x.zero.read && index_uses(x.zero.read->index, r)) || (x.scale && index_uses(x.scale->index, r)))
                return false;
        return true;
    }

    static std::optional<int64_t> terms(const TensorExpr& e) {
        int64_t n = 1;
        for (size_t r = e.spatial; r < e.extents.size(); ++r) {
            if (!e.extents[r].is_constant() || e.extents[r].constant() > (int64_t{1} << 24)) return std::nullopt;
            n *= std::max<int64_t>(1, e.extents[r].constant());
            if (n > (int64_t{1} << 24)) return std::nullopt;
        }
        return n;
    }

    // --- the new program

    bool rewrite(const Primitive& q) {
        const TensorExpr* e = q.expr();
        const auto c = e != nullptr ? contraction(*e) : std::nullopt;
        if (!c || !c->reads_two() || (c->type != DType::F32 && c->type != DType::I32)) return false;
        if (!e->epilogue.empty() || !e->output_index.empty() || p_.values[q.outputs[0]].dtype != c->type) return false;
        // Sums without reuse along rows and columns (depthwise convolutions) do not run on dot products.
        const ContractionAxes all = axes(*e, *c);
        if (all.rows.empty() || all.columns.empty() || !all.one_sided.empty()) return false;
        auto first = factor(*e, *c->factors[0].slot), second = factor(*e, *c->factors[1].slot);
        if (!first || !second || !fixed_along_sum(*e, *first) || !fixed_along_sum(*e, *second)) return false;
        constexpr int64_t kLargest = int64_t{255} * 255;  // of a product of differences
        const auto count = terms(*e);
        if (!count || (c->type == DType::F32 && *count * kLargest > INT32_MAX)) return false;
        ++report_.products;
        of_both_types(q, *first, *second);
        emit(q, *first, *second, *count);
        return true;
    }

    bool is_constant(const Quantised& x) const { return constant_.count(x.q.value) != 0; }

    /// Makes one factor U8 and the other I8. Constants become I8, others U8.
    void of_both_types(const Primitive& q, Quantised& first, Quantised& second) {
        const auto type = [&](const Quantised& x) { return p_.values[x.q.value].dtype; };
        const auto make = [&](Quantised& x, DType t) {
            if (type(x) != t) shift(q, x, t);
        };
        if (is_constant(first) != is_constant(second)) {
            make(is_constant(first) ? first : second, DType::I8);
            make(is_constant(first) ? second : first, DType::U8);
        } else if (type(first) == type(second)) {
            type(first) == DType::U8 ? shift(q, second, DType::I8) : shift(q, first, DType::U8);
        }
    }

    void shift(const Primitive& q, Quantised& x, DType to) {
        const int64_t by = to == DType::U8 ? kHalf : -kHalf;
        const auto [at, is_new] = shifted_.try_emplace({x.q.value, to});
        if (is_new) {
            const Value& from = p_.values[x.q.value];
            TensorExpr e;
            e.extents = from.shape;
            e.spatial = e.extents.size();
            e.accesses = {{x.q.value, {}, {}, 0}};
            for (size_t d = 0; d < e.spatial; ++d) e.accesses[0].index.push_back(axis(d));
            ScalarBody& b = e.body;
            const ScalarId wide = b.cast(DType::I32, b.access(0, from.dtype));
            b.set_root(b.cast(to, b.binary(ScalarOp::Add, wide, b.int_constant(DType::I32, by))));
            at->second = add(q, to == DType::U8 ? "unsigned" : "signed", to, from.shape, std::move(e));
            if (constant_.count(x.q.value) != 0)
                constant_.insert(at->second);
            else
                ++report_.shifted;
        }
        x.q.value = at->second;
        if (!x.q.valid.empty()) x.q.fill += static_cast<double>(by);
        x.zero.offset += by;
    }

    ValueId add(const Primitive& q, const char* role, DType t, std::vector<Expr> shape, TensorExpr e) {
        Primitive made;
        made.name = q.name + "/" + role;
        made.source = q.source;
        made.origin = q.origin;
        made.outputs = {p_.values.push_back({made.name, t, std::move(shape)})};
        made.kind = std::move(e);
        const ValueId v = made.outputs[0];
        all_.push_back(std::move(made));
        return v;
    }

    static ScalarId widened(TensorExpr& e, uint32_t slot, DType stored) {
        return e.body.cast(DType::I32, e.body.access(slot, stored));
    }
    DType stored(const Access& a) const { return p_.values[a.value].dtype; }

    /// The zero point as a node of the expression, whose accesses `read` adds.
    template <class Read>
    ScalarId node_of(TensorExpr& e, const ZeroPoint& z, const Read& read) const {
        const ScalarId offset = e.body.int_constant(DType::I32, z.offset);
        if (!z.read) return offset;
        const uint32_t slot = read(*z.read);
        return e.body.binary(ScalarOp::Add, widened(e, slot, stored(*z.read)), offset);
    }

    /// sum(of) along the contraction's reduction, times the zero point if that is a number, over the axes that `of`
    /// moves along: a value, and how the contraction's result reads it.
    Access sum_of(const Primitive& q, const Quantised& of, const ZeroPoint& zero, const char* role) {
        Restricted r(*q.expr(), {&of.q});
        r.reduce(*q.expr());
        TensorExpr& e = r.expr();
        const uint32_t slot = r.read(of.q);
        ScalarId term = widened(e, slot, stored(of.q));
        if (!zero.read) term = e.body.binary(ScalarOp::Mul, term, e.body.int_constant(DType::I32, zero.offset));
        e.body.set_root(term);
        std::vector<Expr> shape(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
        return {add(q, role, DType::I32, std::move(shape), std::move(e)), r.index(), {}, 0};
    }

    /// The product of both scales if it is a constant tensor, computed once; else nothing.
    std::optional<Access> joint_scale(const Primitive& q, const Quantised& first, const Quantised& second) {
        std::vector<const Access*> reads;
        for (const Quantised* x : {&first, &second})
            if (x->scale) reads.push_back(&*x->scale);
        if (reads.empty()) return std::nullopt;
        for (const Access* a : reads)
            if (constant_.count(a->value) == 0 || !a->valid.empty()) return std::nullopt;
        Restricted r(*q.expr(), reads);
        TensorExpr& e = r.expr();
        ScalarId product = e.body.constant(DType::F32, first.factor * second.factor);
        for (const Access* a : reads)
            product = e.body.binary(ScalarOp::Mul, product, e.body.access(r.read(*a), DType::F32));
        e.body.set_root(product);
        std::vector<Expr> shape = e.extents;
        return Access{add(q, "scale", DType::F32, std::move(shape), std::move(e)), r.index(), {}, 0};
    }

    void emit(const Primitive& q, const Quantised& first, const Quantised& second, int64_t count) {
        const TensorExpr& e = *q.expr();
        TensorExpr product;
        product.extents = e.extents;
        product.spatial = e.spatial;
        product.reducer = Reducer::Sum;
        product.accesses = {first.q, second.q};
        const ScalarId left = widened(product, 0, stored(first.q)), right = widened(product, 1, stored(second.q));
        product.body.set_root(product.body.binary(ScalarOp::Mul, left, right));
        std::vector<Expr> shape(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));

        // The corrections come first: constants, or sums that need not wait.
        std::optional<Access> sums[2];
        const Quantised* factors[2] = {&first, &second};
        for (int k = 0; k < 2; ++k)
            if (!factors[k]->zero.is_zero())
                sums[k] = sum_of(q, *factors[1 - k], factors[k]->zero, k == 0 ? "sums_of_second" : "sums_of_first");
        const std::optional<Access> scale = joint_scale(q, first, second);

        TensorExpr end;
        end.extents = shape;
        end.spatial = e.spatial;
        const auto read = [&](const Access& a) {
            end.accesses.push_back(a);
            return static_cast<uint32_t>(end.accesses.size() - 1);
        };
        Access result{add(q, "integers", DType::I32, shape, std::move(product)), {}, {}, 0};
        for (size_t d = 0; d < e.spatial; ++d) result.index.push_back(axis(d));
        ScalarBody& b = end.body;
        ScalarId total = b.access(read(result), DType::I32);
        for (int k = 0; k < 2; ++k) {
            if (!sums[k]) continue;
            ScalarId part = b.access(read(*sums[k]), DType::I32);
            const ZeroPoint& zero = factors[k]->zero;
            if (zero.read) part = b.binary(ScalarOp::Mul, part, node_of(end, zero, read));
            total = b.binary(ScalarOp::Sub, total, part);
        }
        if (sums[0] && sums[1]) {
            const ScalarId zeros =
                b.binary(ScalarOp::Mul, node_of(end, first.zero, read), node_of(end, second.zero, read));
            total = b.binary(ScalarOp::Add, total, b.binary(ScalarOp::Mul, zeros, b.int_constant(DType::I32, count)));
        }
        if (p_.values[q.outputs[0]].dtype == DType::F32) {
            total = b.cast(DType::F32, total);
            if (scale)
                total = b.binary(ScalarOp::Mul, total, b.access(read(*scale), DType::F32));
            else
                total = b.binary(ScalarOp::Mul, total, b.constant(DType::F32, first.factor * second.factor));
            for (const Quantised* x : factors)
                if (!scale && x->scale) total = b.binary(ScalarOp::Mul, total, b.access(read(*x->scale), DType::F32));
        }
        b.set_root(total);
        Primitive last = q;
        last.name = q.name + "/real";
        last.kind = std::move(end);
        all_.push_back(std::move(last));
    }

    Program p_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    std::set<ValueId> constant_;
    std::map<std::pair<ValueId, DType>, ValueId> shifted_;
    IndexVector<PrimitiveId, Primitive> all_;
    IntegerProducts report_;
};

}  // namespace

Program integer_products(Program program, IntegerProducts* report) {
    IntegerProducts own;
    return Rewriter(std::move(program)).run(report != nullptr ? *report : own);
}

}  // namespace tilewright
