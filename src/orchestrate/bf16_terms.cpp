#include "orchestrate/bf16_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/parallel.h"
#include "orchestrate/precision.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/transform/tidy.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

constexpr int64_t kLeastStep = 16;

/// One dimension of an operand that is split: [.., D, ..] -> [.., D / step, terms, step, ..].
struct SplitDimension {
    size_t dim = 0;
    Expr block;  ///< the index is step * block + the axis of the sum
};

/// The part of a dimension that a product reads, from `first` on: beyond the tensor's own elements there are zeros.
///     x[c, h + i - 1], h < 56, i < 3:  first -1, count 58
struct Span {
    int64_t first = 0;
    Expr count;
    friend bool operator<(const Span& a, const Span& b) {
        return std::tuple(a.first, a.count) < std::tuple(b.first, b.count);
    }
};

/// A product whose operands can be split.
struct TermProduct {
    WeightedContraction slots;
    size_t sum = 0;    ///< axis, whose points are a step of a tile register times whole blocks
    int64_t step = 0;  ///< terms of a tile register's row
    SplitDimension data, weights;
    std::map<size_t, Span> padded;  ///< dimensions of the data that the split tensor has with their padding
};

std::optional<SplitDimension> split_dimension(const Program& program, const Access& a, size_t sum, int64_t step) {
    const Expr r = axis(sum);
    std::optional<SplitDimension> found;
    for (size_t d = 0; d < a.index.size(); ++d) {
        if (!uses(a.index[d], {VarKind::Axis, static_cast<uint32_t>(sum)})) continue;
        const Expr rest = a.index[d] - r, block = floor_div(rest, step);
        const Expr extent = program.values[a.value].shape[d];
        if (found || block * step != rest || !extent.is_constant() || extent.constant() % step != 0)
            return std::nullopt;
        found = {d, block};
    }
    return found;
}

/// The padded dimensions of an access whose conditions are that its indices are inside the tensor, with zeros outside.
/// nullopt: it has others.
std::optional<std::map<size_t, Span>> padded_dimensions(const Program& program, const TensorExpr& e, const Access& a) {
    std::map<size_t, Span> out;
    if (!a.valid.empty() && a.fill != 0) return std::nullopt;
    for (const Expr condition : a.valid) {
        std::optional<size_t> dim;
        for (size_t d = 0; d < a.index.size(); ++d)
            if (condition == a.index[d] || condition == program.values[a.value].shape[d] - 1 - a.index[d]) dim = d;
        if (!dim) return std::nullopt;
        const Interval range = bounds(a.index[*dim], e.ranges());
        if (!range.lo || !range.hi || !range.lo->is_constant()) return std::nullopt;
        out[*dim] = {range.lo->constant(), *range.hi - *range.lo + 1};
    }
    return out;
}

std::optional<TermProduct> term_product(const Program& program, const Primitive& p) {
    const TensorExpr* e = p.expr();
    const auto c = e != nullptr ? contraction(*e) : std::nullopt;
    const auto slots = c ? weighted_contraction(program, *e) : std::nullopt;
    if (!slots || c->type != DType::F32 || !c->reads_two()) return std::nullopt;
    const Access &data = e->accesses[slots->data], &weights = e->accesses[slots->weights];
    for (const Access* a : {&data, &weights})
        if (program.values[a->value].dtype != DType::F32 || uses_load(a->index)) return std::nullopt;
    if (!weights.valid.empty()) return std::nullopt;
    TermProduct out;
    out.slots = *slots;
    for (size_t r = e->extents.size(); r-- > e->spatial;) {
        if (!e->extents[r].is_constant()) continue;
        const int64_t step = tile_step(e->extents[r].constant(), MatrixType::BF16);
        if (step < kLeastStep) continue;
        const auto of_data = split_dimension(program, data, r, step),
                   of_weights = split_dimension(program, weights, r, step);
        if (!of_data || !of_weights) continue;
        const auto padded = padded_dimensions(program, *e, data);
        if (!padded || padded->count(of_data->dim) != 0) return std::nullopt;
        out.padded = *padded;
        out.sum = r;
        out.step = step;
        out.data = *of_data;
        out.weights = *of_weights;
        return out;
    }
    return std::nullopt;
}

/// Estimates by which products are split. Efficiencies are of generated code with operands in L2 (Intel Xeon 6/167).
struct TermCosts {
    static constexpr double kTiles = 0.6;          ///< of tile registers' peak, for long sums
    static constexpr double kHalfSum = 100;        ///< terms of a sum that has half of it
    static constexpr double kMultiplyAdds = 0.72;  ///< of the peak of f32
    static constexpr double kSplitting = 25e9;     ///< bytes a second that a copy in L2 reads and writes

    static constexpr double kMargin = 1.05;  ///< less gained is not worth the larger weights
    /// With several threads, which wait for larger operands that others have written and for weights of panels that
    /// they do not prefetch for each other: ResNet-50 on two threads, 23.0 ms by multiply-adds, with kMargin 25.0.
    static constexpr double kThreadMargin = 1.3;

    const Program& program;
    const Target& target;
    const std::map<std::string, DimRange>& ranges;
    int terms = 3;

    /// Whether terms are estimated to take less time. `readers`: products that share the split data.
    bool pays(const TensorExpr& e, const TermProduct& product, size_t readers) const {
        const Access &data = e.accesses[product.slots.data], &weights = e.accesses[product.slots.weights];
        double points = 1, sum = 1, rows = 1;
        bool columns = false;
        for (size_t a = 0; a < e.extents.size(); ++a) {
            const double extent = least(e.extents[a]);
            const bool by_data = moves_along(e, data, a), by_weights = moves_along(e, weights, a);
            points *= extent;
            if (a >= e.spatial) sum *= extent;
            if (a < e.spatial && by_data && !by_weights) rows *= extent;
            // Channel groups and the products of Winograd's tiles have short sums or are bound by memory.
            if (a < e.spatial && by_data && by_weights && !e.extents[a].is_constant(1)) return false;
            columns = columns || (a < e.spatial && by_weights && !by_data && e.extents[a].is_constant() &&
                                  e.extents[a].constant() >= 2 * kTileColumns);
        }
        if (!columns || rows < kTileRows || sum < kLeastTermSum) return false;
        const double operations = 2 * points, f32 = rate(target.fma_gflops_1);
        const double tiles = std::max(rate(target.tile_gflops_1), 8 * f32);
        const double elements = count(data.value), numbers = count(weights.value);
        const double stored = 2 * terms;
        const double from = program.constants_at == Residence::Memory ? rate(target.memory_gbps_1)
                                                                      : rate(target.caches.back().load_gbps);
        const double in_terms = (terms == 3 ? 6 : 3) * operations / (tiles * kTiles * sum / (sum + kHalfSum)) +
                                stored * numbers / from +
                                splitting((4 + stored) * elements) / static_cast<double>(readers);
        return (target.workers > 1 ? kThreadMargin : kMargin) * in_terms <
               std::max(operations / (f32 * kMultiplyAdds), 4 * numbers / from);
    }

    /// Of a copy that reads and writes so many bytes.
    double splitting(double bytes) const {
        const bool near = bytes <= static_cast<double>(target.l2_bytes());
        return bytes / (near ? kSplitting : std::min(kSplitting, rate(target.copy_gbps_1)));
    }

    static double rate(const Measure& m) { return m.value * 1e9; }
    double count(ValueId v) const {
        double n = 1;
        for (const Expr d : program.values[v].shape) n *= least(d);
        return n;
    }
    /// Sizes for which a dynamic model must not become slower: those of few rows, which take the time of the weights.
    double least(Expr extent) const {
        const Expr n = substitute(extent, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Symbol && v.kind != VarKind::Scalar) return std::nullopt;
            const DimRange* range = declared_range(v, ranges);
            return range != nullptr ? std::max<int64_t>(1, range->least / range->step) : 1;
        });
        return n.is_constant() ? static_cast<double>(std::max<int64_t>(1, n.constant())) : 1;
    }
};

/// The terms of pair `p`, in an order in which consecutive pairs share a term, and every right term is used once in a
/// row.
///     three terms, left: 0 0 1 1 2 0   right: 2 1 1 0 0 0        two terms, left: 0 1 0   right: 1 0 0
Expr left_term(Expr p, int terms) {
    if (terms == 2) return min(p, 2 - p);
    return min(min(max(p - 1, 0), 1) + max(p - 3, 0), min(2, 10 - 2 * p));
}
Expr right_term(Expr p, int terms) {
    if (terms == 2) return max(1 - p, 0);
    return max(2 - min(p, 1) - max(p - 2, 0), 0);
}

/// As bfloat16_to_float(float_to_bfloat16(x)) of a number that does not overflow, without a call.
inline uint32_t rounded_bits(uint32_t bits) { return (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U; }

/// The terms of kVector numbers; the k-th ones are n numbers apart. The sign of an element of `seen` becomes 1 if bf16
/// would round a number to infinity, or if it is not finite.
constexpr int64_t kVector = 16;
inline void split_vector(const float* x, uint16_t* y, int64_t n, int terms, uint32_t* seen) {
    float rest[kVector];
    std::memcpy(rest, x, sizeof(rest));
    constexpr uint32_t kMagnitude = 0x7FFFFFFF, kMostRounded = 0x7F7F7FFF;
    for (int64_t i = 0; i < kVector; ++i)
        seen[i] |= (std::bit_cast<uint32_t>(rest[i]) & kMagnitude) + (kMagnitude - kMostRounded);
    for (int k = 0; k < terms; ++k) {
        uint16_t upper[kVector];
        for (int64_t i = 0; i < kVector; ++i) {
            const uint32_t term = rounded_bits(std::bit_cast<uint32_t>(rest[i]));
            upper[i] = static_cast<uint16_t>(term >> 16);
            rest[i] -= std::bit_cast<float>(term);
        }
        std::memcpy(y + k * n, upper, sizeof(upper));
    }
}

/// The terms of n numbers: n first terms, n second ones, ... False: bf16 has no finite first term of one of them.
bool split_run(const float* x, uint16_t* y, int64_t n, int terms) {
    uint32_t seen[kVector] = {};
    int64_t i = 0;
    for (; i + kVector <= n; i += kVector) split_vector(x + i, y + i, n, terms, seen);
    if (i < n) {
        float last[kVector] = {};
        uint16_t split[3 * kVector];
        std::copy(x + i, x + n, last);
        split_vector(last, split, kVector, terms, seen);
        for (int k = 0; k < terms; ++k) std::copy(split + k * kVector, split + k * kVector + (n - i), y + k * n + i);
    }
    return std::none_of(seen, seen + kVector, [](uint32_t s) { return s >> 31 != 0; });
}

class Splitter {
  public:
    Splitter(Program program, int terms, const F32Products& keep)
        : p_(std::move(program)), terms_(terms), keep_(keep) {}

    Program run(const Target& target, const std::map<std::string, DimRange>& ranges, SplitOperands& report) {
        const std::map<PrimitiveId, TermProduct> chosen = choose(target, ranges);
        for (const ValueId v : p_.outputs) ++readers_[v];
        for (const Primitive& p : p_.primitives)
            for (const ValueId v : p.inputs()) ++readers_[v];
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive p = std::move(p_.primitives[id]);
            if (const auto product = chosen.find(id); product != chosen.end() && split(p, product->second))
                ++report.products;
            all_.push_back(std::move(p));
        }
        report.constants = constants_;
        report.values = values_;
        p_.primitives = std::move(all_);
        return std::move(p_);
    }

  private:
    std::map<PrimitiveId, TermProduct> choose(const Target& target,
                                              const std::map<std::string, DimRange>& ranges) const {
        std::map<PrimitiveId, TermProduct> chosen;
        std::map<ValueId, size_t> readers;
        const auto read = [&](PrimitiveId id, const TermProduct& product) {
            return p_.primitives[id].expr()->accesses[product.slots.data].value;
        };
        for (const PrimitiveId id : p_.primitives.ids())
            if (auto product = term_product(p_, p_.primitives[id]); product && !keep_.contains(p_, p_.primitives[id])) {
                ++readers[read(id, *product)];
                chosen.emplace(id, std::move(*product));
            }
        const TermCosts costs{p_, target, ranges, terms_};
        std::erase_if(chosen, [&](const auto& c) {
            return !costs.pays(*p_.primitives[c.first].expr(), c.second, readers.at(read(c.first, c.second)));
        });
        return chosen;
    }

    /// False: the product stays, since its weights have no finite terms.
    bool split(Primitive& p, const TermProduct& product) {
        TensorExpr e = with_pairs(*p.expr(), product);
        const size_t block = product.sum, pair = block + 1, inner = block + 2;
        for (const bool weights : {true, false}) {
            const SplitDimension& at = weights ? product.weights : product.data;
            Access& a = e.accesses[weights ? product.slots.weights : product.slots.data];
            const std::map<size_t, Span>& padded = weights ? kNone : product.padded;
            const auto terms = terms_of_value({a.value, at.dim, product.step, padded}, p);
            if (!terms) return false;
            a.value = *terms;
            for (const auto& [d, span] : padded) a.index[d] = a.index[d] - span.first;
            a.valid.clear();
            const Expr first = substitute_sum(at.block, product) + axis(block);
            const Expr term = (weights ? right_term : left_term)(axis(pair), terms_);
            const auto here = a.index.begin() + static_cast<std::ptrdiff_t>(at.dim);
            *here = first;
            a.index.insert(here + 1, {term, Expr(axis(inner))});
        }
        const ValueId weights = p.expr()->accesses[product.slots.weights].value;
        p.kind = tidy(e);
        const std::vector<ValueId> reads = p.inputs();
        if (std::find(reads.begin(), reads.end(), weights) == reads.end() && --readers_[weights] == 0)
            p_.constants.erase(weights);
        return true;
    }

    /// The sum's axis r becomes three, r / step, the pair, and r % step.
    TensorExpr with_pairs(const TensorExpr& e, const TermProduct& product) const {
        TensorExpr out = map_indices(e, [&](Expr x) { return substitute_sum(x, product); });
        const int64_t extent = e.extents[product.sum].constant(), pairs = terms_ == 3 ? 6 : 3;
        out.extents[product.sum] = extent / product.step;
        const auto after = out.extents.begin() + static_cast<std::ptrdiff_t>(product.sum) + 1;
        out.extents.insert(after, {Expr(pairs), Expr(product.step)});
        return out;
    }

    static Expr substitute_sum(Expr x, const TermProduct& product) {
        return substitute(x, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Axis || v.id < product.sum) return std::nullopt;
            if (v.id > product.sum) return axis(v.id + 2);
            return axis(product.sum) * product.step + axis(product.sum + 2);
        });
    }

    /// What is split, and how.
    struct Key {
        ValueId of;
        size_t dim = 0;
        int64_t step = 0;
        std::map<size_t, Span> padded;
        friend bool operator<(const Key& a, const Key& b) {
            return std::tie(a.of, a.dim, a.step, a.padded) < std::tie(b.of, b.dim, b.step, b.padded);
        }
    };
    inline static const std::map<size_t, Span> kNone;

    /// Rows of a matrix are an odd number of lines apart, so that 16 of them map to as many sets of L1.
    bool pads_rows(const Key& key) const {
        return !p_.is_constant(key.of) && key.dim + 1 == p_.values[key.of].shape.size() &&
               2 * key.step == kTileRowBytes;
    }

    std::vector<Expr> split_shape(const Key& key) const {
        std::vector<Expr> shape = p_.values[key.of].shape;
        for (const auto& [d, span] : key.padded) shape[d] = span.count;
        const auto at = shape.begin() + static_cast<std::ptrdiff_t>(key.dim);
        *at = at->constant() / key.step | (pads_rows(key) ? 1 : 0);
        shape.insert(at + 1, {Expr(terms_), Expr(key.step)});
        return shape;
    }

    /// nullopt: a constant that has no finite terms.
    std::optional<ValueId> terms_of_value(const Key& key, const Primitive& reader) {
        const auto [known, is_new] = split_.try_emplace(key);
        if (!is_new) return known->second;
        const bool constant = p_.is_constant(key.of);
        const auto unread = p_.unread.find(key.of);
        Tensor contents;
        if (constant) {
            auto terms = constant_terms(p_.constants.at(key.of), key.dim, key.step, unread == p_.unread.end());
            if (!terms) return std::nullopt;
            contents = std::move(*terms);
        }
        Value value = p_.values[key.of];
        value.name += fmt::format(".terms{}", constants_ + values_);
        value.dtype = DType::BF16;
        value.shape = split_shape(key);
        const ValueId terms = p_.values.push_back(std::move(value));
        known->second = terms;
        if (constant) {
            if (unread != p_.unread.end()) p_.unread.emplace(terms, unread->second);
            p_.constants.emplace(terms, std::move(contents));
            ++constants_;
        } else {
            all_.push_back(splitting(key, terms, reader));
            ++values_;
        }
        return terms;
    }

    std::optional<Tensor> constant_terms(const Tensor& from, size_t dim, int64_t step, bool contents) const {
        Shape shape = from.shape();
        int64_t inner = step, blocks = 1;
        for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
        for (size_t d = 0; d < dim; ++d) blocks *= shape[d];
        blocks *= shape[dim] / step;
        const auto at = shape.begin() + static_cast<std::ptrdiff_t>(dim);
        *at /= step;
        shape.insert(at + 1, {terms_, step});
        Tensor to(DType::BF16, shape, false);
        if (!contents) return to;
        const auto* x = reinterpret_cast<const float*>(from.data());
        auto* y = reinterpret_cast<uint16_t*>(to.mutable_data());
        std::atomic<bool> finite = true;
        parallel_for(static_cast<size_t>(blocks), [&](size_t b) {
            const auto first = static_cast<int64_t>(b) * inner;
            if (!split_run(x + first, y + first * terms_, inner, terms_)) finite = false;
        });
        if (!finite) return std::nullopt;
        return to;
    }

    /// The expression of the terms of a computed value.
    Primitive splitting(const Key& key, ValueId to, const Primitive& reader) const {
        const std::vector<Expr>& shape = p_.values[key.of].shape;
        const size_t dim = key.dim;
        TensorExpr e;
        e.extents = p_.values[to].shape;
        e.spatial = e.extents.size();
        Access from;
        from.value = key.of;
        for (size_t d = 0; d < shape.size(); ++d)
            from.index.push_back(d < dim ? axis(d) : d == dim ? axis(dim) * key.step + axis(dim + 2) : axis(d + 2));
        for (const auto& [d, span] : key.padded) {
            from.index[d] = from.index[d] + span.first;
            for (const Expr inside : {from.index[d], shape[d] - 1 - from.index[d]})
                if (!prove_nonnegative(inside, e.ranges())) from.valid.push_back(inside);
        }
        if (const int64_t blocks = shape[dim].constant() / key.step; !e.extents[dim].is_constant(blocks))
            from.valid.push_back(Expr(blocks - 1) - axis(dim));
        e.accesses = {std::move(from)};
        ScalarBody& b = e.body;
        const ScalarId x = b.access(0, DType::F32);
        const ScalarId most = b.constant(DType::F32, std::numeric_limits<float>::max());
        const ScalarId finite =
            b.select(b.binary(ScalarOp::Le, b.unary(ScalarOp::Abs, x), most), x, b.constant(DType::F32, 0));
        const ScalarId upper = b.int_constant(DType::U32, 0xFFFF0000);
        const ScalarId first = b.bitcast(DType::F32, b.binary(ScalarOp::BitAnd, b.bitcast(DType::U32, finite), upper));
        const auto before = [&](int k) {
            return b.binary(ScalarOp::Lt, b.index(axis(dim + 1)), b.int_constant(DType::I64, k));
        };
        const auto rounded = [&](ScalarId v) { return b.cast(DType::BF16, v); };
        const ScalarId rest = b.binary(ScalarOp::Sub, x, first);
        ScalarId others = rounded(rest);
        if (terms_ == 3) {
            const ScalarId second = rounded(b.binary(ScalarOp::Sub, finite, first));
            others = b.select(before(2), second, rounded(b.binary(ScalarOp::Sub, rest, second)));
        }
        b.set_root(b.select(before(1), first, others));
        Primitive p;
        p.name = reader.name + "/terms";
        p.source = kPrecisionSource;
        p.outputs = {to};
        p.origin.nodes = reader.origin.nodes;
        p.kind = std::move(e);
        return p;
    }

    Program p_;
    const int terms_;
    const F32Products& keep_;
    std::map<ValueId, size_t> readers_;  ///< primitives and outputs
    std::map<Key, std::optional<ValueId>> split_;
    size_t constants_ = 0, values_ = 0;
    IndexVector<PrimitiveId, Primitive> all_;
};

}  // namespace

Program split_operands(Program program, const Target& target, int terms, SplitOperands* report, const F32Products& keep,
                       const std::map<std::string, DimRange>& ranges) {
    SplitOperands own;
    if (target.gpu || !target.bf16_tiles()) return program;
    return Splitter(std::move(program), terms, keep).run(target, ranges, report != nullptr ? *report : own);
}

}  // namespace tilewright
