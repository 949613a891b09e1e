#include "libraries/phases.h"

#include <algorithm>
#include <map>

#include "program/analysis/contraction.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

/// A spatial dimension of the data: row j + in_phase * p + t + first for the result's row stride * j + p.
struct PhasedWindow {
    size_t dim = 0;  ///< of the data
    size_t pixel = 0;
    std::optional<size_t> phase, tap;
    int64_t stride = 1, taps = 1, first = 0, in_phase = 0;

    /// The tap k = +-p - stride * t + begin - stride * first of the convolution: the sign of p.
    int64_t sign() const { return 1 - stride * in_phase; }
    int64_t begin() const { return stride * (first + taps - 1) + (sign() > 0 ? 0 : stride - 1); }
};

class Unphasing {
  public:
    Unphasing(const Program& stages, const Primitive& p, const Contraction& c, size_t data)
        : stages_(stages),
          p_(p),
          e_(*p.expr()),
          x_(*c.factors[data].slot),
          w_(*c.factors[1 - data].slot),
          conditions_(e_.accesses[x_].valid) {}

    std::optional<Primitive> run(Program& to) {
        if (e_.accesses[x_].fill != 0 || !find_phases() || !find_windows()) return std::nullopt;
        place_axes();
        Primitive out = p_;
        TensorExpr& e = *out.expr();
        e = map_exprs(e_, [&](Expr i) { return substitute_axes(i, moved_); });
        e.extents = extents_;
        e.spatial = spatial_;
        e.accesses[x_] = data();
        e.accesses[w_] = weights(to);
        for (const Expr& i : e.output_index)  // whose rows are those of the convolution
            for (size_t a = 0; a < spatial_; ++a)
                if (!linear_in(i, {VarKind::Axis, static_cast<uint32_t>(a)})) return std::nullopt;
        return out;
    }

  private:
    struct Stride {
        size_t phase = 0;
        int64_t stride = 1;
    };

    bool is_spatial(size_t a) const { return a < e_.spatial; }
    std::vector<size_t> axes_in(Expr e) const {
        std::vector<size_t> out;
        for (const Var v : variables(e))
            if (v.kind == VarKind::Axis) out.push_back(v.id);
        return out;
    }
    bool in(const Access& a, size_t axis) const {
        return std::any_of(a.index.begin(), a.index.end(), [&](Expr i) {
            return uses(i, {VarKind::Axis, static_cast<uint32_t>(axis)});
        });
    }

    /// Dimensions stride * j + p of the result, where p is an axis of `stride` points.
    bool find_phases() {
        for (const Expr& i : e_.output_index) {
            const std::vector<size_t> axes = axes_in(i);
            if (axes.size() != 2) continue;
            for (const auto& [j, p] : {std::pair(axes[0], axes[1]), std::pair(axes[1], axes[0])}) {
                const Expr extent = e_.extents[p];
                if (extent.is_constant() && extent.constant() > 1 && i == axis(j) * extent + axis(p) &&
                    in(e_.accesses[w_], p) && !in(e_.accesses[w_], j))
                    strides_[j] = {p, extent.constant()};
            }
        }
        return !strides_.empty();
    }
    bool is_phase(size_t a) const {
        return std::any_of(strides_.begin(), strides_.end(), [&](const auto& s) { return s.second.phase == a; });
    }

    bool find_windows() {
        const std::vector<Expr>& shape = stages_.values[e_.accesses[x_].value].shape;
        std::map<size_t, int> seen;
        for (size_t d = 0; d < shape.size(); ++d) {
            const Expr index = e_.accesses[x_].index[d];
            const std::vector<size_t> axes = axes_in(index);
            for (const size_t a : axes)
                if (++seen[a] > 1) return false;
            const bool moves = std::any_of(axes.begin(), axes.end(), [&](size_t a) { return is_spatial(a); });
            const bool taps = std::any_of(axes.begin(), axes.end(), [&](size_t a) { return !is_spatial(a); });
            const bool phased = std::any_of(axes.begin(), axes.end(), [&](size_t a) { return strides_.count(a) != 0; });
            const bool groups = std::all_of(axes.begin(), axes.end(), [&](size_t a) { return in(e_.accesses[w_], a); });
            if (!moves || (!phased && (groups || (!taps && index.constant() == 0)))) continue;  // channels, images
            if (!window(d, index, axes)) return false;
            for (const Expr& c : {index, shape[d] - 1 - index}) std::erase(conditions_, c);
        }
        return conditions_.empty() &&
               std::all_of(strides_.begin(), strides_.end(), [&](const auto& s) { return seen[s.first] == 1; });
    }
    bool window(size_t d, Expr index, const std::vector<size_t>& axes) {
        PhasedWindow w;
        w.dim = d;
        int pixels = 0;
        Expr rest = index;
        for (const size_t a : axes) {
            if (is_phase(a))
                w.phase = a;
            else if (is_spatial(a))
                w.pixel = a, ++pixels;
            else if (w.tap || !e_.extents[a].is_constant())
                return false;
            else
                w.tap = a, w.taps = e_.extents[a].constant();
            rest = rest - axis(a);
        }
        if (pixels != 1 || !rest.is_constant()) return false;
        w.first = rest.constant();
        w.in_phase = w.phase ? 1 : 0;
        if (const auto s = strides_.find(w.pixel); s != strides_.end()) {
            if (w.phase && *w.phase != s->second.phase) return false;
            w.phase = s->second.phase;
            w.stride = s->second.stride;
        } else if (w.phase) {
            return false;
        }
        if (std::abs(w.sign()) != 1) return false;
        windows_.push_back(w);
        return true;
    }

    /// The axes of the convolution: rows in place of pixels and phases, its taps in place of those of a phase.
    void place_axes() {
        moved_.assign(e_.extents.size(), Expr(0));
        of_weights_ = moved_;
        const auto window_with = [&](auto member, size_t a) {
            return std::find_if(windows_.begin(), windows_.end(),
                                [&](const PhasedWindow& w) { return w.*member == a; });
        };
        const auto add = [&](Expr extent) {
            extents_.push_back(extent);
            return axis(extents_.size() - 1);
        };
        for (size_t a = 0; a < e_.spatial; ++a) {
            if (is_phase(a)) continue;
            const auto w = window_with(&PhasedWindow::pixel, a);
            const int64_t stride = w == windows_.end() ? 1 : w->stride;
            const Expr row = add(e_.extents[a] * stride);
            rows_[a] = row;
            moved_[a] = floor_div(row, stride);
            of_weights_[a] = row;
            if (stride > 1) moved_[*w->phase] = row - floor_div(row, stride) * stride;
        }
        spatial_ = extents_.size();
        for (size_t a = e_.spatial; a < e_.extents.size(); ++a)
            if (window_with(&PhasedWindow::tap, a) == windows_.end()) moved_[a] = of_weights_[a] = add(e_.extents[a]);
        for (const PhasedWindow& w : windows_) {
            const Expr k = add(w.taps * w.stride);
            taps_.push_back(k);
            if (w.tap) of_weights_[*w.tap] = Expr(w.taps - 1) - floor_div(k, w.stride);
            if (w.stride > 1) of_weights_[*w.phase] = w.sign() > 0 ? mod(k, w.stride) : w.stride - 1 - mod(k, w.stride);
        }
    }

    Access data() const {
        Access out = e_.accesses[x_];
        for (Expr& i : out.index) i = substitute_axes(i, moved_);
        out.valid.clear();
        const std::vector<Expr>& shape = stages_.values[out.value].shape;
        for (size_t k = 0; k < windows_.size(); ++k) {
            const PhasedWindow& w = windows_[k];
            const Expr position = rows_.at(w.pixel) + w.begin() - taps_[k], i = floor_div(position, w.stride);
            out.index[w.dim] = i;
            out.valid.push_back(i);
            out.valid.push_back(shape[w.dim] - 1 - i);
            if (w.stride > 1) out.valid.push_back(-mod(position, w.stride));
        }
        return out;
    }

    /// [groups..., channels of the data..., then channels of the result... and taps..., in the data's order]
    Access weights(Program& to) const {
        const Access &x = e_.accesses[x_], &w = e_.accesses[w_];
        std::vector<Expr> order, filters, after = taps_;
        for (size_t a = 0; a < e_.spatial; ++a) {
            if (is_phase(a) || !in(w, a)) continue;
            (in(x, a) ? order : filters).push_back(of_weights_[a]);
        }
        bool channels_last = false;
        for (size_t a = e_.spatial; a < e_.extents.size(); ++a) {
            const bool tap = std::any_of(windows_.begin(), windows_.end(), [&](const auto& o) { return o.tap == a; });
            if (tap) continue;
            order.push_back(of_weights_[a]);
            channels_last = channels_last || uses(x.index.back(), {VarKind::Axis, static_cast<uint32_t>(a)});
        }
        if (!channels_last) std::swap(filters, after);
        after.insert(after.end(), filters.begin(), filters.end());
        order.insert(order.end(), after.begin(), after.end());

        TensorExpr copy;
        std::vector<Expr> here(extents_.size(), Expr(0));
        for (size_t k = 0; k < order.size(); ++k) {
            const size_t a = order[k].as_var()->id;
            copy.extents.push_back(extents_[a]);
            here[a] = axis(k);
        }
        copy.spatial = order.size();
        Access from = w;
        for (auto* list : {&from.index, &from.valid})
            for (Expr& i : *list) i = substitute_axes(substitute_axes(i, of_weights_), here);
        copy.accesses = {std::move(from)};
        const DType type = stages_.values[w.value].dtype;
        copy.body.set_root(copy.body.access(0, type));
        Primitive p;
        p.name = to.values[p_.outputs[0]].name + "_weights";
        const ValueId v = to.values.push_back({p.name, type, copy.extents});
        p.outputs = {v};
        p.kind = std::move(copy);
        p.origin = p_.origin;
        to.primitives.push_back(std::move(p));
        return {v, order, {}, 0};
    }

    const Program& stages_;
    const Primitive& p_;
    const TensorExpr& e_;
    const size_t x_, w_;  ///< accesses: data, weights
    std::vector<Expr> conditions_;
    std::map<size_t, Stride> strides_;  ///< by pixel axis
    std::vector<PhasedWindow> windows_;
    std::vector<Expr> extents_;  ///< of the convolution
    size_t spatial_ = 0;
    std::map<size_t, Expr> rows_;           ///< by pixel axis
    std::vector<Expr> taps_;                ///< by window
    std::vector<Expr> moved_, of_weights_;  ///< per axis before: over those of the convolution
};

}  // namespace

std::optional<Primitive> without_phases(Program& stages, const Primitive& p) {
    const TensorExpr* e = p.expr();
    const auto c = e == nullptr ? std::nullopt : contraction(*e);
    if (!c || e->reducer != Reducer::Sum || !c->reads_two()) return std::nullopt;
    for (const size_t data : {0, 1}) {
        Program tried = stages;
        if (auto out = Unphasing(stages, p, *c, data).run(tried)) {
            stages = std::move(tried);
            return out;
        }
    }
    return std::nullopt;
}

}  // namespace tilewright
