#include "layout/template.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "program/analysis/contraction.h"

namespace tilewright {

namespace {

std::vector<int64_t> divisors(int64_t n) {
    std::vector<int64_t> out;
    for (int64_t f = 1; f <= n; ++f)
        if (n % f == 0) out.push_back(f);
    return out;
}

/// An index that is a sum of axes: 2*i1 + i4 - 1. Axes of one element, which are 0, are left out.
struct AxisSum {
    std::vector<std::pair<size_t, int64_t>> terms;  ///< axis, coefficient
    int64_t constant = 0;
};

std::optional<AxisSum> axis_sum(Expr e, const std::vector<Expr>& extents) {
    AxisSum out;
    out.constant = e.constant();
    for (const Term& t : e.terms()) {
        if (t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Var || t.atoms[0]->var.kind != VarKind::Axis)
            return std::nullopt;
        const size_t a = t.atoms[0]->var.id;
        if (!extents[a].is_constant(1)) out.terms.emplace_back(a, t.coefficient);
    }
    return out;
}

std::optional<std::vector<AxisSum>> axis_sums(const std::vector<Expr>& index, const std::vector<Expr>& extents) {
    std::vector<AxisSum> out;
    for (const Expr& i : index) {
        auto sum = axis_sum(i, extents);
        if (!sum) return std::nullopt;
        out.push_back(std::move(*sum));
    }
    return out;
}

bool constant_extents(std::span<const Expr> shape) {
    return std::all_of(shape.begin(), shape.end(), [](Expr e) { return e.is_constant() && e.constant() >= 1; });
}

}  // namespace

/// The part that an axis has in a contraction.
enum class AxisRole : uint8_t { Batch, Row, Column, Channel, Tap, Other };

class TemplateMaker {
  public:
    TemplateMaker(const Program& program, PrimitiveId primitive, int levels)
        : program_(program), primitive_(primitive), levels_(levels) {}

    std::optional<LayoutTemplate> make() {
        const TensorExpr* e = program_.primitives[primitive_].expr();
        if (e == nullptr || !constant_extents(e->extents)) return std::nullopt;
        const auto c = contraction(*e);
        if (!c || !c->reads_two()) return std::nullopt;
        e_ = e;
        const ValueId result = program_.primitives[primitive_].outputs[0];
        const auto written = axis_sums(result_index(*e), e->extents);
        if (!written || !constant_extents(program_.values[result].shape) || !select_operands(*c)) return std::nullopt;
        classify(*c);
        find_space(*written);
        out_.result_ = result;
        out_.written_ = result_tensor(*written);
        out_.read_ = {{{primitive_, data_}, data_tensor()}, {{primitive_, weights_}, weights_tensor()}};
        return out_.parameters_.empty() ? std::nullopt : std::optional(std::move(out_));
    }

  private:
    using Dimension = LayoutTemplate::Dimension;
    using Tensor = LayoutTemplate::Tensor;
    using Window = LayoutTemplate::Window;
    static constexpr size_t kWhole = LayoutTemplate::kWhole;

    /// Whether a dimension is read at a reduction axis and a spatial axis of this operand alone.
    bool has_windows(const std::vector<AxisSum>& index) const {
        return std::any_of(index.begin(), index.end(), [&](const AxisSum& s) {
            bool tap = false, row = false;
            for (const auto& [a, coefficient] : s.terms) {
                tap = tap || a >= e_->spatial;
                row = row || (a < e_->spatial && both_.count(a) == 0);
            }
            return tap && row;
        });
    }

    /// Data are read in windows; otherwise weights are constant, or the second factor.
    bool select_operands(const Contraction& c) {
        data_ = *c.factors[0].slot;
        weights_ = *c.factors[1].slot;
        for (const uint32_t slot : {data_, weights_}) {
            const auto sums = axis_sums(e_->accesses[slot].index, e_->extents);
            if (!sums || !constant_extents(program_.values[e_->accesses[slot].value].shape)) return false;
            index_[slot] = *sums;
        }
        const auto uses = [&](uint32_t slot) {
            std::set<size_t> out;
            for (const AxisSum& s : index_[slot])
                for (const auto& [a, coefficient] : s.terms) out.insert(a);
            return out;
        };
        const std::set<size_t> first = uses(data_), second = uses(weights_);
        std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                              std::inserter(both_, both_.begin()));
        const bool slides = has_windows(index_[data_]), other_slides = has_windows(index_[weights_]);
        if (slides && other_slides) return false;
        const auto constant = [&](uint32_t slot) { return program_.is_constant(e_->accesses[slot].value); };
        if (other_slides || (!slides && constant(data_) && !constant(weights_))) std::swap(data_, weights_);
        windows_ = slides || other_slides;
        return true;
    }

    void classify(const Contraction& c) {
        const ContractionAxes found = axes(*e_, c);
        roles_.assign(e_->extents.size(), AxisRole::Other);
        const bool swapped = *c.factors[0].slot != data_;
        for (const size_t a : found.batch) roles_[a] = AxisRole::Batch;
        for (const size_t a : swapped ? found.columns : found.rows) roles_[a] = AxisRole::Row;
        for (const size_t a : swapped ? found.rows : found.columns) roles_[a] = AxisRole::Column;
        for (const size_t a : found.sum) roles_[a] = AxisRole::Channel;
        for (const AxisSum& s : index_[data_])
            if (has(s, AxisRole::Row))
                for (const auto& [a, coefficient] : s.terms)
                    if (roles_[a] == AxisRole::Channel) roles_[a] = AxisRole::Tap;
    }

    bool has(const AxisSum& s, AxisRole role) const {
        return std::any_of(s.terms.begin(), s.terms.end(), [&](const auto& t) { return roles_[t.first] == role; });
    }
    /// The axis that is a dimension by itself.
    static std::optional<size_t> plain(const AxisSum& s) {
        if (s.terms.size() != 1 || s.terms[0].second != 1 || s.constant != 0) return std::nullopt;
        return s.terms[0].first;
    }

    /// The rows that are cut into tiles: all but images, the first dimension of several rows.
    void find_space(const std::vector<AxisSum>& written) {
        std::vector<size_t> rows;
        for (const AxisSum& s : written)
            if (const auto a = plain(s); a && roles_[*a] == AxisRole::Row) rows.push_back(*a);
        if (rows.size() > 1 && plain(written[0]) == rows[0] && plain(index_[data_][0]) == rows[0])
            rows.erase(rows.begin());
        convolution_ = windows_ || rows.size() > 1;
        for (size_t k = 0; k < rows.size(); ++k) {
            static constexpr const char* kNames[] = {"w", "h", "d"};
            const size_t from_last = rows.size() - 1 - k;
            const std::string name = !convolution_   ? "m"
                                     : from_last < 3 ? kNames[from_last]
                                                     : "s" + std::to_string(from_last);
            const int64_t extent = e_->extents[rows[k]].constant();
            space_[rows[k]] = add_parameter(name, extent, divisors(extent));
        }
    }

    struct Tile {
        size_t inner = kWhole, outer = kWhole;
    };

    Tile add_parameter(const std::string& name, int64_t extent, std::vector<int64_t> factors) {
        Tile t;
        t.inner = out_.parameters_.size();
        out_.parameters_.push_back({name, extent, factors, false});
        if (levels_ > 1) {
            t.outer = out_.parameters_.size();
            out_.parameters_.push_back({name + "2", extent, std::move(factors), false});
            out_.levels_.emplace_back(t.outer, t.inner);
        }
        return t;
    }

    /// Tiles of a dimension of channels stay in the axis of the role with stride 1 (a group), or are the whole
    /// dimension.
    Tile channel_tile(const std::string& name, const AxisSum& s, AxisRole role, int64_t extent) {
        for (const auto& [a, coefficient] : s.terms) {
            if (roles_[a] != role || coefficient != 1) continue;
            std::vector<int64_t> factors = divisors(e_->extents[a].constant());
            if (factors.back() != extent) factors.push_back(extent);
            const Tile tile = add_parameter(name, extent, std::move(factors));
            out_.parameters_[tile.inner].innermost = true;
            return tile;
        }
        return {};
    }
    static constexpr size_t kNone = SIZE_MAX;
    /// The dimension of channels: the last one of the role, or of batches (depthwise).
    struct Channels {
        size_t dimension = kNone;
        AxisRole role = AxisRole::Batch;
    };
    Channels channel_dimension(const std::vector<AxisSum>& index, AxisRole role) const {
        const size_t d = last_with(index, role);
        return d != kNone ? Channels{d, role} : Channels{last_with(index, AxisRole::Batch), AxisRole::Batch};
    }
    size_t last_with(const std::vector<AxisSum>& index, AxisRole role) const {
        for (size_t d = index.size(); d-- > 0;)
            if (has(index[d], role) && !has(index[d], AxisRole::Row)) return d;
        return kNone;
    }

    int64_t extent_of(ValueId v, size_t d) const { return program_.values[v].shape[d].constant(); }

    Tensor result_tensor(const std::vector<AxisSum>& index) {
        Tensor t;
        const auto [channel, role] = channel_dimension(index, AxisRole::Column);
        for (size_t d = 0; d < index.size(); ++d) {
            Dimension x;
            x.extent = extent_of(out_.result_, d);
            const auto a = plain(index[d]);
            if (d == channel)
                set(x, columns_ = channel_tile(convolution_ ? "o" : "n", index[d], role, x.extent));
            else if (a && space_.count(*a) != 0)
                set(x, space_.at(*a));
            t.dimensions.push_back(x);
        }
        order(t, {channel});
        return t;
    }

    Tensor data_tensor() {
        const std::vector<AxisSum>& index = index_[data_];
        Tensor t;
        const auto [channel, role] = channel_dimension(index, AxisRole::Channel);
        for (size_t d = 0; d < index.size(); ++d) {
            Dimension x;
            x.extent = extent_of(e_->accesses[data_].value, d);
            if (d == channel) {
                const Tile tile = channel_tile(convolution_ ? "i" : "k", index[d], role, x.extent);
                if (!convolution_ && role == AxisRole::Channel) sum_ = tile;
                set(x, tile);
            } else {
                set_space(x, index[d]);
            }
            t.dimensions.push_back(x);
        }
        order(t, {channel});
        return t;
    }

    Tensor weights_tensor() {
        const std::vector<AxisSum>& index = index_[weights_];
        Tensor t;
        const size_t sum = last_with(index, AxisRole::Channel);
        const auto [column, role] = channel_dimension(index, AxisRole::Column);
        for (size_t d = 0; d < index.size(); ++d) {
            Dimension x;
            x.extent = extent_of(e_->accesses[weights_].value, d);
            if (d == column)
                set(x, convolution_ ? channel_tile("o'", index[d], role, x.extent) : columns_);
            else if (d == sum)
                set(x, convolution_ ? channel_tile("i'", index[d], AxisRole::Channel, x.extent) : sum_);
            t.dimensions.push_back(x);
        }
        order(t, {sum, column});
        if (convolution_) {  // O/o' I/i' KH KW
            t.before = {};
            for (const size_t d : {column, sum})
                if (d != kNone) t.before.push_back(d);
            for (size_t d = 0; d < index.size(); ++d)
                if (d != column && d != sum) t.before.push_back(d);
        }
        return t;
    }

    static void set(Dimension& x, const Tile& tile) {
        x.parameter = tile.inner;
        x.outer = tile.outer;
    }

    void set_space(Dimension& x, const AxisSum& s) {
        Window w;
        std::optional<size_t> row;
        for (const auto& [a, coefficient] : s.terms) {
            if (roles_[a] == AxisRole::Row) {
                if (row || coefficient < 1) return;
                row = a;
                w.stride = coefficient;
                w.results = e_->extents[a].constant();
            } else if (roles_[a] == AxisRole::Tap) {
                const int64_t reach = coefficient * (e_->extents[a].constant() - 1);
                w.span += std::abs(reach);
                w.first += std::min<int64_t>(0, reach);
            } else {
                return;
            }
        }
        if (!row || space_.count(*row) == 0) return;
        w.first += s.constant;
        set(x, space_.at(*row));
        if (w.stride != 1 || w.span != 1 || w.first != 0 || w.results != x.extent) x.window = w;
    }

    /// Whole dimensions, tiled ones, and the channels last.
    static void order(Tensor& t, const std::vector<size_t>& channels) {
        const auto is_channel = [&](size_t d) {
            return std::find(channels.begin(), channels.end(), d) != channels.end();
        };
        std::vector<size_t> tiled;
        for (size_t d = 0; d < t.dimensions.size(); ++d) {
            if (is_channel(d)) continue;
            (t.dimensions[d].parameter == kWhole ? t.before : tiled).push_back(d);
        }
        for (const size_t d : channels)
            if (d != kNone) tiled.push_back(d);
        t.before.insert(t.before.end(), tiled.begin(), tiled.end());
        t.within = std::move(tiled);
    }

    const Program& program_;
    const PrimitiveId primitive_;
    const int levels_;
    const TensorExpr* e_ = nullptr;
    LayoutTemplate out_;
    uint32_t data_ = 0, weights_ = 0;  ///< slots
    bool windows_ = false;
    bool convolution_ = false;
    std::map<uint32_t, std::vector<AxisSum>> index_;  ///< by slot
    std::set<size_t> both_;                           ///< axes on which both operands depend
    std::vector<AxisRole> roles_;
    std::map<size_t, Tile> space_;  ///< by axis
    Tile columns_, sum_;            ///< of a product
};

std::optional<LayoutTemplate> layout_template(const Program& program, PrimitiveId primitive, int levels) {
    return TemplateMaker(program, primitive, levels).make();
}

double LayoutTemplate::size() const {
    double n = 1;
    for (const LayoutParameter& p : parameters_) n *= static_cast<double>(p.factors.size());
    return n;
}

bool LayoutTemplate::valid(const LayoutPoint& point) const {
    return std::all_of(levels_.begin(), levels_.end(),
                       [&](const auto& level) { return point[level.first] % point[level.second] == 0; });
}

Layout LayoutTemplate::layout(const Tensor& tensor, const LayoutPoint& point) const {
    constexpr size_t kNowhere = SIZE_MAX;
    struct Places {
        size_t before = kNowhere, middle = kNowhere, within = kNowhere;
    };
    Layout out;
    std::vector<Places> places;
    size_t next = 0;
    for (const Dimension& d : tensor.dimensions) {
        Places at;
        const int64_t all = d.window ? d.window->results : d.extent;
        const int64_t inner = d.parameter == kWhole ? 1 : point[d.parameter];
        const int64_t outer = d.outer == kWhole ? all : point[d.outer];
        const int64_t tile = d.window && outer < all ? outer : inner;
        if (tile == all && (d.window || d.parameter != kWhole)) {
            at.within = next++;
        } else if (d.window) {
            const Window& w = *d.window;
            const int64_t before = std::max<int64_t>(0, -w.first), step = w.stride * tile;
            const int64_t elements = w.stride * (tile - 1) + w.span + std::max<int64_t>(0, w.first);
            const int64_t after = std::max<int64_t>(0, step * (all / tile - 1) + elements - before - d.extent);
            if (before + after > 0) out.primitives.emplace_back(layout::Pad{next, before, after});
            out.primitives.emplace_back(layout::Unfold{next, elements, step});
            at.before = next++;
            at.within = next++;
        } else {
            if (outer < all && outer > 1) out.primitives.emplace_back(layout::Split{next, outer});
            at.before = next++;
            if (outer < all && inner < outer) {
                if (inner > 1) out.primitives.emplace_back(layout::Split{next, inner});
                at.middle = next++;
                if (inner > 1) at.within = next++;
            } else if (outer < all || inner > 1) {
                if (outer == all) out.primitives.emplace_back(layout::Split{next - 1, inner});
                if (outer == all || outer > 1) at.within = next++;
            }
        }
        places.push_back(at);
    }
    layout::Reorder reorder;
    const auto append = [&](const std::vector<size_t>& dimensions, size_t Places::*place) {
        for (const size_t d : dimensions)
            if (places[d].*place != kNowhere) reorder.permutation.push_back(places[d].*place);
    };
    append(tensor.before, &Places::before);
    append(tensor.within, &Places::middle);
    append(tensor.within, &Places::within);
    if (!std::is_sorted(reorder.permutation.begin(), reorder.permutation.end()))
        out.primitives.emplace_back(std::move(reorder));
    return out;
}

LayoutRequests LayoutTemplate::requests(const LayoutPoint& point) const {
    LayoutRequests out;
    out.written[result_] = layout(written_, point);
    for (const auto& [reader, tensor] : read_) out.read[reader] = layout(tensor, point);
    return out;
}

}  // namespace tilewright
