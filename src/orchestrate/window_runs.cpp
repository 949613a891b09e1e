#include "orchestrate/window_runs.h"

#include <algorithm>
#include <optional>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr int64_t kFewChannels = 8;
constexpr int64_t kLeastPadded = 3;  // schedule/default: fewer channels are not interleaved by vectors

/// A convolution over few channels.
struct Windows {
    WeightedContraction product;
    size_t channels = 0, taps = 0;                ///< reduction axes
    size_t channel_dimension = 0, dimension = 0;  ///< of the data: indexed by the channels, by the windows' columns
    int64_t channel_count = 0, padded_channels = 0;

    int64_t run(const TensorExpr& e) const { return padded_channels * e.extents[taps].constant(); }
};

std::optional<size_t> bare_axis(Expr e) {
    const auto v = e.as_var();
    return v && v->kind == VarKind::Axis ? std::optional<size_t>(v->id) : std::nullopt;
}

bool uses_axis(Expr e, size_t a) { return uses(e, {VarKind::Axis, static_cast<uint32_t>(a)}); }

/// The smallest number of channels, zeros included, with which a run has whole steps. Bytes have them with four
/// channels, if not on tile registers.
std::optional<int64_t> padded(int64_t channels, int64_t taps, MatrixType type) {
    for (int64_t c = std::max(channels, kLeastPadded); c <= kFewChannels; ++c)
        if (type == MatrixType::I8 ? c * taps % dot_step(type) == 0 : tile_step(c * taps, type) > 0) return c;
    return std::nullopt;
}

/// Whether the type is one that a factor is stored in: f32 before it is rounded, or a byte.
bool is_stored(DType t, MatrixType type) {
    return type == MatrixType::I8 ? t == DType::U8 || t == DType::I8 : t == DType::F32;
}

/// Whether every dimension of the weights is an axis of its own, which covers it.
bool weights_are_plain(const Program& program, const TensorExpr& e, const Access& w) {
    std::vector<size_t> axes;
    for (size_t d = 0; d < w.index.size(); ++d) {
        const auto a = bare_axis(w.index[d]);
        if (!a || e.extents[*a] != program.values[w.value].shape[d] || !e.extents[*a].is_constant()) return false;
        axes.push_back(*a);
    }
    std::sort(axes.begin(), axes.end());
    return w.valid.empty() && std::adjacent_find(axes.begin(), axes.end()) == axes.end();
}

bool has_columns_and_rows(const TensorExpr& e, const Access& data, const Access& weights, size_t along) {
    bool columns = false, rows = false;
    for (size_t a = 0; a < e.spatial; ++a) {
        if (!index_uses(data.index, a))
            columns = columns || (index_uses(weights.index, a) && e.extents[a].is_constant() &&
                                  e.extents[a].constant() >= kTileColumns);
        else
            rows = rows || (uses_axis(data.index[along], a) && !e.extents[a].is_constant(1));
    }
    return columns && rows;
}

/// Whether the index is s * column + tap + constant, of a spatial axis and the tap.
bool slides_over(const TensorExpr& e, Expr index, size_t tap) {
    const auto by_tap = linear_in(index, {VarKind::Axis, static_cast<uint32_t>(tap)});
    if (!by_tap || !by_tap->coefficient.is_constant(1)) return false;
    for (const Var v : variables(by_tap->rest)) {
        const auto by_column = linear_in(by_tap->rest, v);
        if (v.kind != VarKind::Axis || v.id >= e.spatial || !by_column || !by_column->coefficient.is_constant())
            return false;
    }
    return true;
}

std::optional<Windows> windows_of(const Program& program, const Primitive& p, MatrixType type) {
    const TensorExpr* e = p.expr();
    const auto product = e != nullptr ? weighted_contraction(program, *e) : std::nullopt;
    const auto c = product ? contraction(*e) : std::nullopt;
    const bool bytes = type == MatrixType::I8;
    if (!c || c->type != (bytes ? DType::I32 : DType::F32)) return std::nullopt;
    const Access &data = e->accesses[product->data], &weights = e->accesses[product->weights];
    for (const Access* a : {&data, &weights})
        if (!is_stored(program.values[a->value].dtype, type)) return std::nullopt;
    if (uses_load(data.index) || (!bytes && data.fill != 0)) return std::nullopt;
    if (!weights_are_plain(program, *e, weights)) return std::nullopt;
    for (const Expr condition : data.valid)
        if (!condition_on_index(data, condition)) return std::nullopt;
    Windows out;
    out.product = *product;
    bool channels = false, taps = false;
    for (size_t d = 0; d < data.index.size(); ++d)
        for (size_t r = e->spatial; r < e->extents.size(); ++r) {
            if (!uses_axis(data.index[d], r) || !e->extents[r].is_constant()) continue;
            const int64_t extent = e->extents[r].constant();
            if (bare_axis(data.index[d]) == r && program.values[data.value].shape[d].is_constant(extent) &&
                extent < kFewChannels && !channels) {
                out.channels = r;
                out.channel_dimension = d;
                out.channel_count = extent;
                channels = true;
            } else if (extent > 1 && slides_over(*e, data.index[d], r)) {
                out.taps = r;
                out.dimension = d;
                taps = true;
            }
        }
    if (!channels || !taps || !has_columns_and_rows(*e, data, weights, out.dimension)) return std::nullopt;
    const auto wide = padded(out.channel_count, e->extents[out.taps].constant(), type);
    if (!wide) return std::nullopt;
    out.padded_channels = *wide;
    return out;
}

class Gatherer {
  public:
    Gatherer(Program& program, const Primitive& p, const Windows& w) : p_(program), of_(p), w_(w), e_(*p.expr()) {
        const Access& data = e_.accesses[w_.product.data];
        for (const Expr i : data.index) {
            const Interval interval = bounds(i, e_.ranges());
            lows_.push_back(interval.lo.value_or(Expr(0)));
            highs_.push_back(interval.hi.value_or(Expr(0)));
            known_ = known_ && interval.lo && interval.hi;
        }
    }

    bool known() const { return known_; }

    /// The copy of the data; sets runs_.
    Primitive copy() {
        const Access& data = e_.accesses[w_.product.data];
        Value value = p_.values[data.value];
        value.name = of_.name + ".runs";
        value.shape.clear();
        TensorExpr copy;
        LogicalIndex box;
        for (size_t d = 0; d < data.index.size(); ++d) {
            box.index.emplace_back(0);
            if (d == w_.channel_dimension || d == w_.dimension) continue;
            box.index[d] = axis(copy.extents.size());
            copy.output_index.push_back(box.index[d]);
            copy.extents.push_back(highs_[d] - lows_[d] + 1);
        }
        value.shape = copy.extents;
        const Expr column = axis(copy.extents.size()), channel = axis(copy.extents.size() + 1);
        copy.extents.push_back(highs_[w_.dimension] - lows_[w_.dimension] + 1);
        copy.extents.emplace_back(w_.padded_channels);
        copy.spatial = copy.extents.size();
        copy.output_index.push_back(column * w_.padded_channels + channel);
        value.shape.push_back(copy.extents[copy.spatial - 2] * w_.padded_channels);
        box.index[w_.channel_dimension] = channel;
        box.index[w_.dimension] = column;
        std::vector<Expr> origin = lows_;
        origin[w_.channel_dimension] = 0;
        Access from = copied_access(data, box, origin, p_.values[data.value].shape, false);
        const Ranges ranges = copy.ranges();
        for (Expr& i : from.index) i = simplify(i, ranges);
        for (Expr& i : from.valid) i = simplify(i, ranges);
        std::erase_if(from.valid, [&](Expr condition) { return prove_nonnegative(condition, ranges); });
        copy.accesses = {std::move(from)};
        copy.body.set_root(copy.body.access(0, p_.values[data.value].dtype));
        runs_ = p_.values.push_back(std::move(value));
        Primitive out;
        out.name = of_.name + "/runs";
        out.source = "layout";
        out.outputs = {runs_};
        out.origin = of_.origin;
        out.kind = std::move(copy);
        return out;
    }

    /// The convolution over the copy.
    Primitive product() {
        TensorExpr e = e_;
        std::vector<Expr> renamed;
        e.extents.clear();
        for (size_t a = 0; a < e_.extents.size(); ++a) {
            const bool gone = a == w_.channels || a == w_.taps;
            renamed.push_back(gone ? Expr(0) : axis(e.extents.size()));
            if (!gone) e.extents.push_back(e_.extents[a]);
        }
        const Expr k = axis(e.extents.size());
        e.extents.emplace_back(w_.run(e_));
        const auto moved = [&](Expr i) { return substitute_axes(i, renamed); };
        for (uint32_t slot = 0; slot < e.accesses.size(); ++slot) {
            Access& a = e.accesses[slot];
            if (slot == w_.product.data) {
                std::vector<Expr> index;
                for (size_t d = 0; d < a.index.size(); ++d)
                    if (d != w_.channel_dimension && d != w_.dimension) index.push_back(moved(a.index[d]) - lows_[d]);
                index.push_back((moved(a.index[w_.dimension]) - lows_[w_.dimension]) * w_.padded_channels + k);
                a = {runs_, std::move(index), {}, 0};
            } else if (slot == w_.product.weights) {
                std::vector<Expr> index;
                for (const Expr i : a.index)
                    if (bare_axis(i) != w_.channels && bare_axis(i) != w_.taps) index.push_back(moved(i));
                index.push_back(k);
                a = {weights(a), std::move(index), {}, 0};
            } else {
                for (Expr& i : a.index) i = moved(i);
                for (Expr& i : a.valid) i = moved(i);
            }
        }
        Primitive out = of_;
        out.kind = std::move(e);
        return out;
    }

  private:
    /// The weights with their channels and taps as one dimension, the last.
    ValueId weights(const Access& w) {
        const Tensor& from = p_.constants.at(w.value);
        const std::vector<int64_t> strides = row_strides(from.shape());
        Shape shape;
        std::vector<int64_t> kept;  // strides of the other dimensions
        int64_t by_channel = 0, by_tap = 0;
        for (size_t d = 0; d < w.index.size(); ++d) {
            const size_t a = *bare_axis(w.index[d]);
            if (a == w_.channels) {
                by_channel = strides[d];
            } else if (a == w_.taps) {
                by_tap = strides[d];
            } else {
                shape.push_back(from.shape()[d]);
                kept.push_back(strides[d]);
            }
        }
        shape.push_back(w_.run(e_));
        Tensor to(from.dtype(), shape, true);
        const auto unread = p_.unread.find(w.value);
        if (unread == p_.unread.end())
            for (int64_t i = 0; i < to.count(); ++i) {
                const int64_t k = i % shape.back(), c = k % w_.padded_channels;
                if (c >= w_.channel_count) continue;
                int64_t rest = i / shape.back(), offset = c * by_channel + k / w_.padded_channels * by_tap;
                for (size_t d = kept.size(); d-- > 0; rest /= shape[d]) offset += rest % shape[d] * kept[d];
                to.set(i, from.get(offset));
            }
        Value value = p_.values[w.value];
        value.name += ".runs";
        value.shape.assign(shape.begin(), shape.end());
        const ValueId v = p_.values.push_back(std::move(value));
        if (unread != p_.unread.end()) p_.unread.emplace(v, unread->second);
        p_.constants.emplace(v, std::move(to));
        return v;
    }

    static std::vector<int64_t> row_strides(const Shape& shape) {
        std::vector<int64_t> out(shape.size(), 1);
        for (size_t d = shape.size(); d-- > 1;) out[d - 1] = out[d] * shape[d];
        return out;
    }

    Program& p_;
    const Primitive of_;
    const Windows w_;
    const TensorExpr& e_;
    std::vector<Expr> lows_, highs_;  ///< bounds of the data's indices
    bool known_ = true;
    ValueId runs_;
};

}  // namespace

Program gather_window_runs(Program program, MatrixType type, const ProductFilter& may) {
    IndexVector<PrimitiveId, Primitive> all;
    for (const Primitive& p : program.primitives) {
        const auto windows = !may || may(program, p) ? windows_of(program, p, type) : std::nullopt;
        if (!windows) {
            all.push_back(p);
            continue;
        }
        Gatherer gather(program, p, *windows);
        if (!gather.known()) {
            all.push_back(p);
            continue;
        }
        all.push_back(gather.copy());
        all.push_back(gather.product());
    }
    program.primitives = std::move(all);
    return program;
}

}  // namespace tilewright
