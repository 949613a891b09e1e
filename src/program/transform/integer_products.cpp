#include "program/transform/integer_products.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/analysis/rounded.h"
#include "program/transform/bordered.h"
#include "program/transform/dead_code.h"
#include "program/transform/inline.h"
#include "program/transform/requantised.h"

namespace tilewright {

namespace {

constexpr int64_t kHalf = 128;
constexpr int64_t kLargest = int64_t{255} * 255;  // of a product of differences
constexpr int kMostInlined = 4;                   // dequantisation, and copies around it

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
    /// Where the conditions of `q` do not hold it is `zero`, which is computed: with_border() comes first.
    bool has_border = false;
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
        report_.identities = copy_requantised(p_);
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

    /// A number or a read of 8 bits: differences from it are then of 9 bits, as kLargest says.
    std::optional<ZeroPoint> zero_point(const TensorExpr& e, ScalarId node) const {
        const ScalarNode& n = e.body[node];
        if (n.op == ScalarOp::Const)
            return n.int_value >= -kHalf && n.int_value < 2 * kHalf ? std::optional(ZeroPoint{{}, n.int_value})
                                                                    : std::nullopt;
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
            auto next = inlined(own, e.spatial);
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
        if (!x.q.valid.empty()) return std::nullopt;
        x.q.valid = read.valid;
        x.q.fill = static_cast<double>(x.zero.offset);
        x.has_border = x.zero.read.has_value();
        return x;
    }

    /// Gives the tensor of such a factor the border, so that its reads have no conditions. False: it cannot have one.
    bool with_border(const Primitive& q, Quantised& x) {
        if (!x.has_border) return true;
        auto made = x.zero.offset == 0 ? bordered(p_, *q.expr(), x.q, *x.zero.read) : std::nullopt;
        if (!made) return false;
        const std::vector<Expr> shape = made->tensor.extents;
        const DType t = stored(x.q);
        x.q = std::move(made->read);
        x.q.value = add(q, "bordered", t, shape, std::move(made->tensor));
        x.has_border = false;
        return true;
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
        const ContractionAxes all = axes(*e, *c);
        if (keep_weights_of_one_row(q, *c, all) || sum_row_in_blocks(q, *c, all) || sum_floats_of_bytes(q, *c, all))
            return true;
        // Sums without reuse along rows and columns (depthwise convolutions) do not run on dot products.
        if (all.rows.empty() || all.columns.empty() || !all.one_sided.empty()) return false;
        auto first = factor(*e, *c->factors[0].slot), second = factor(*e, *c->factors[1].slot);
        if (!first || !second || !fixed_along_sum(*e, *first) || !fixed_along_sum(*e, *second)) return false;
        const auto count = terms(*e);
        if (!count || (c->type == DType::F32 && *count * kLargest > INT32_MAX)) return false;
        if (!with_border(q, *first) || !with_border(q, *second)) return false;
        ++report_.products;
        of_both_types(q, *first, *second);
        emit(q, *first, *second, *count);
        return true;
    }

    /// The constant factor, bytes without a zero point, of a product with one row of the other factor.
    std::optional<Quantised> weights_of_one_row(const TensorExpr& e, const Contraction& c,
                                                const ContractionAxes& all) const {
        const bool first = constant_.count(e.accesses[*c.factors[0].slot].value) != 0;
        if (!all.batch.empty() || !all.one_sided.empty()) return std::nullopt;
        const std::vector<size_t>& rows = first ? all.columns : all.rows;
        if (std::any_of(rows.begin(), rows.end(), [&](size_t a) { return !e.extents[a].is_constant(1); }))
            return std::nullopt;
        auto weights = factor(e, *c.factors[first ? 0 : 1].slot);
        if (!weights || !is_constant(*weights) || !weights->zero.is_zero() || !fixed_along_sum(e, *weights) ||
            !weights->q.valid.empty())
            return std::nullopt;
        return weights;
    }

    /// A product of integers that reads every weight once. Its sum is computed in floats in blocks that they represent
    /// exactly, of up to 512 products of a 9-bit number and a byte:
    ///     y[n] = sum(k < 1280) i32(x[k]) * i32(w[k,n])
    ///  -> f[k] = f32(i32(x[k])),  r[n,b] = sum(k < 320) f[320 * b + k] * f32(w[320 * b + k,n]),  y[n] = sum(b)
    ///  i32(r[n,b])
    bool sum_row_in_blocks(const Primitive& q, const Contraction& c, const ContractionAxes& all) {
        constexpr int64_t kLongest = (int64_t{1} << 24) / (255 * kHalf);
        const TensorExpr& e = *q.expr();
        if (c.type != DType::I32) return false;
        const bool first = constant_.count(e.accesses[*c.factors[0].slot].value) != 0;
        const auto weights = weights_of_one_row(e, c, all);
        const Access& data = e.accesses[*c.factors[first ? 1 : 0].slot];
        const auto bytes = weights ? factor(e, *c.factors[first ? 1 : 0].slot) : std::nullopt;
        const auto count = terms(e);
        if (!bytes || !count || !data.valid.empty() || p_.values[weights->q.value].dtype != DType::I8) return false;
        int64_t blocks = (*count + kLongest - 1) / kLongest;
        while (*count % blocks != 0) ++blocks;
        std::vector<Expr> renamed;  // of the axes: the one that is summed becomes block and position
        for (size_t a = 0; a < e.extents.size(); ++a)
            renamed.push_back(a < e.spatial                 ? axis(a)
                              : e.extents[a].is_constant(1) ? Expr(0)
                              : e.extents[a].is_constant(*count)
                                  ? axis(e.spatial) * (*count / blocks) + axis(e.spatial + 1)
                                  : Expr());
        const auto split = std::count_if(e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial), e.extents.end(),
                                         [](const Expr& n) { return !n.is_constant(1); });
        if (split > 1 || *count / blocks < 16) return false;
        ++report_.products;
        Access floats = data;
        floats.value = as_floats(q, data.value);
        TensorExpr product = sum_over(e, {std::move(floats), weights->q});
        ScalarBody& b = product.body;
        b.set_root(
            b.binary(ScalarOp::Mul, b.access(0, DType::F32), b.cast(DType::F32, b.access(1, stored(weights->q)))));
        if (blocks == 1) {
            scale_sum(q, std::move(product), {}, {}, {});
            return true;
        }
        product.extents = spatial_shape(e);
        product.extents.emplace_back(blocks);
        const std::vector<Expr> shape = product.extents;
        product.extents.emplace_back(*count / blocks);
        product.spatial = shape.size();
        for (Access& a : product.accesses)
            for (Expr& i : a.index) i = substitute_axes(i, renamed);
        Access part{add(q, "of_bytes", DType::F32, shape, std::move(product)), {}, {}, 0};
        for (size_t d = 0; d < shape.size(); ++d) part.index.push_back(axis(d));
        TensorExpr sum = sum_over(e, {std::move(part)});
        sum.extents = shape;
        sum.body.set_root(sum.body.cast(DType::I32, sum.body.access(0, DType::F32)));
        Primitive last = q;
        last.kind = std::move(sum);
        all_.push_back(std::move(last));
        return true;
    }

    /// A value of 32-bit integers as floats.
    ValueId as_floats(const Primitive& q, ValueId v) {
        TensorExpr e;
        e.extents = p_.values[v].shape;
        e.spatial = e.extents.size();
        e.accesses = {{v, {}, {}, 0}};
        for (size_t d = 0; d < e.spatial; ++d) e.accesses[0].index.push_back(axis(d));
        e.body.set_root(e.body.cast(DType::F32, e.body.access(0, p_.values[v].dtype)));
        const std::vector<Expr> shape = e.extents;
        return add(q, "floats", DType::F32, shape, std::move(e));
    }

    /// A product that reads every weight once takes the time of reading them: they stay bytes, and the other factor
    /// stays as it is.
    ///     y[n] = sum(k) x[k] * ((w[k,n] - 0) * s[n])   ->   r[n] = sum(k) x[k] * f32(w[k,n]),  y[n] = r[n] * s[n]
    bool keep_weights_of_one_row(const Primitive& q, const Contraction& c, const ContractionAxes& all) {
        const TensorExpr& e = *q.expr();
        const bool first = constant_.count(e.accesses[*c.factors[0].slot].value) != 0;
        if (c.type != DType::F32) return false;
        const auto weights = weights_of_one_row(e, c, all);
        if (!weights) return false;
        ++report_.products;
        TensorExpr product = sum_over(e, {e.accesses[*c.factors[first ? 1 : 0].slot], weights->q});
        ScalarBody& b = product.body;
        b.set_root(
            b.binary(ScalarOp::Mul, b.access(0, DType::F32), b.cast(DType::F32, b.access(1, stored(weights->q)))));
        scale_sum(q, std::move(product), {}, {}, *weights);
        return true;
    }

    /// A depthwise convolution, which does not run on dot products, reads bytes. Its sums are exact in floats.
    ///     y[c,i] = sum(k) ((x[c,i+k] - 10) * 0.5) * (w[c,k] * s[c])
    ///  -> v[c,k] = f32(w[c,k]),  t[c] = sum(k) 10 * v[c,k]                 constants
    ///     r[c,i] = sum(k) f32(x[c,i+k]) * v[c,k],  y[c,i] = (r[c,i] - t[c]) * (0.5 * s[c])
    bool sum_floats_of_bytes(const Primitive& q, const Contraction& c, const ContractionAxes& all) {
        const TensorExpr& e = *q.expr();
        const bool first = constant_.count(e.accesses[*c.factors[0].slot].value) != 0;
        const bool depthwise = !all.batch.empty() && (first ? all.rows : all.columns).empty() &&
                               !(first ? all.columns : all.rows).empty() && all.one_sided.empty();
        if (!depthwise) return false;
        auto data = factor(e, *c.factors[first ? 1 : 0].slot);
        const auto weights = factor(e, *c.factors[first ? 0 : 1].slot);
        if (!data || !weights || is_constant(*data) || !is_constant(*weights) ||
            (data->zero.read && index_moves(*data->zero.read)) || weights->zero.read || !weights->q.valid.empty() ||
            !fixed_along_sum(e, *data) || !fixed_along_sum(e, *weights))
            return false;
        const auto count = terms(e);
        if (!count || *count * kLargest >= (int64_t{1} << 24) || !with_border(q, *data)) return false;
        ++report_.products;
        const std::vector<Expr> shape = p_.values[weights->q.value].shape;
        TensorExpr floats;
        floats.extents = shape;
        floats.spatial = shape.size();
        floats.accesses = {{weights->q.value, {}, {}, 0}};
        for (size_t d = 0; d < shape.size(); ++d) floats.accesses[0].index.push_back(axis(d));
        floats.body.set_root(
            floats.body.binary(ScalarOp::Sub, floats.body.cast(DType::F32, floats.body.access(0, stored(weights->q))),
                               floats.body.constant(DType::F32, static_cast<double>(weights->zero.offset))));
        const Access v{add(q, "weights", DType::F32, shape, std::move(floats)), weights->q.index, {}, 0};
        TensorExpr product = sum_over(e, {data->q, v});
        ScalarBody& b = product.body;
        b.set_root(b.binary(ScalarOp::Mul, b.cast(DType::F32, b.access(0, stored(data->q))), b.access(1, DType::F32)));
        std::optional<Access> correction;
        if (!data->zero.is_zero()) {
            Restricted r(e, {&v});
            r.reduce(e);
            TensorExpr& sum = r.expr();
            const ScalarId term = sum.body.access(r.read(v), DType::F32);
            const double zero = data->zero.read ? 1 : static_cast<double>(data->zero.offset);
            sum.body.set_root(sum.body.binary(ScalarOp::Mul, term, sum.body.constant(DType::F32, zero)));
            std::vector<Expr> rows = spatial_shape(sum);
            correction =
                Access{add(q, "sums_of_weights", DType::F32, std::move(rows), std::move(sum)), r.index(), {}, 0};
        }
        scale_sum(q, std::move(product), correction, *data, *weights);
        return true;
    }

    static bool index_moves(const Access& a) {
        return !std::all_of(a.index.begin(), a.index.end(), [](Expr i) { return i.is_constant(); });
    }

    static std::vector<Expr> spatial_shape(const TensorExpr& e) {
        return {e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial)};
    }

    static TensorExpr sum_over(const TensorExpr& e, std::vector<Access> accesses) {
        TensorExpr out;
        out.extents = e.extents;
        out.spatial = e.spatial;
        out.reducer = Reducer::Sum;
        out.accesses = std::move(accesses);
        return out;
    }

    /// Adds a sum of floats, and its difference from `correction` times both scales in place of q.
    void scale_sum(const Primitive& q, TensorExpr sum, const std::optional<Access>& correction, const Quantised& first,
                   const Quantised& second) {
        const std::optional<Access> scale = joint_scale(q, first, second);
        TensorExpr end;
        end.extents = spatial_shape(sum);
        end.spatial = sum.spatial;
        Access result{add(q, "of_bytes", DType::F32, end.extents, std::move(sum)), {}, {}, 0};
        for (size_t d = 0; d < end.spatial; ++d) result.index.push_back(axis(d));
        end.accesses = {std::move(result)};
        ScalarId total = end.body.access(0, DType::F32);
        if (correction) {
            end.accesses.push_back(*correction);
            ScalarId part = end.body.access(1, DType::F32);
            if (first.zero.read) {  // computed: the correction is a sum of weights
                end.accesses.push_back(*first.zero.read);
                part = end.body.binary(ScalarOp::Mul, part,
                                       end.body.cast(DType::F32, end.body.access(2, stored(*first.zero.read))));
            }
            total = end.body.binary(ScalarOp::Sub, total, part);
        }
        const bool integers = p_.values[q.outputs[0]].dtype == DType::I32;
        end.body.set_root(integers ? end.body.cast(DType::I32, total) : times_scales(end, total, scale, first, second));
        Primitive last = q;
        last.name = q.name + "/real";
        last.kind = std::move(end);
        all_.push_back(std::move(last));
    }

    /// `total` times both scales, or their product where it is a constant tensor.
    static ScalarId times_scales(TensorExpr& e, ScalarId total, const std::optional<Access>& joint,
                                 const Quantised& first, const Quantised& second) {
        const auto times = [&](const Access& a) {
            e.accesses.push_back(a);
            const auto slot = static_cast<uint32_t>(e.accesses.size() - 1);
            total = e.body.binary(ScalarOp::Mul, total, e.body.access(slot, DType::F32));
        };
        if (joint) {
            times(*joint);
            return total;
        }
        total = e.body.binary(ScalarOp::Mul, total, e.body.constant(DType::F32, first.factor * second.factor));
        for (const Quantised* x : {&first, &second})
            if (x->scale) times(*x->scale);
        return total;
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
        std::vector<Expr> shape = spatial_shape(e);
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
        TensorExpr product = sum_over(e, {first.q, second.q});
        const ScalarId left = widened(product, 0, stored(first.q)), right = widened(product, 1, stored(second.q));
        product.body.set_root(product.body.binary(ScalarOp::Mul, left, right));
        const std::vector<Expr> shape = spatial_shape(e);

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
        if (p_.values[q.outputs[0]].dtype == DType::F32)
            total = times_scales(end, b.cast(DType::F32, total), scale, first, second);
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
