// Layouts by the default heuristic. Activations of convolutions keep a block of channels (or all of them) contiguous at
// every pixel, and weights are packed in the order in which the micro-kernel reads them. Both are ALT layouts of
// values; later passes do not distinguish named layouts.

#include "orchestrate/layouts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "layout/propagate.h"
#include "orchestrate/elements.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/constant_transform.h"
#include "program/transform/axes.h"
#include "program/transform/tidy.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

/// The dimension that axis `a` moves by one element, alone or as the fastest term of an index whose other axes are the
/// weights': channel 16 * group + c of a grouped convolution, not pixel 2 * y + tap.
std::optional<size_t> fastest_in(const TensorExpr& e, const std::vector<Expr>& index, const Access& weights, size_t a) {
    const Var self{VarKind::Axis, static_cast<uint32_t>(a)};
    for (size_t d = 0; d < index.size(); ++d) {
        const auto linear = linear_in(index[d], self);
        if (!linear || !linear->coefficient.is_constant(1)) continue;
        if (linear->rest.is_constant(0)) return d;
        if (linear->rest.constant() != 0 || !e.extents[a].is_constant()) continue;
        bool part = true;
        for (const Var v : variables(linear->rest)) {
            const auto other = linear_in(linear->rest, v);
            part = part && v.kind == VarKind::Axis && index_uses(weights.index, v.id) && other &&
                   other->coefficient.is_constant() && other->coefficient.constant() % e.extents[a].constant() == 0;
        }
        if (part) return d;
    }
    return std::nullopt;
}

/// Maximum elements of a channel block. Pixels a multiple of 4 KiB apart would conflict in one set of L1. Blocks of a
/// vector's lanes were slower for products that reduce many channels, because every block is another stream.
constexpr int64_t kMostBlock = 512;

/// Makes dimension `dim` the last in memory: [N, 256, H, W] -> [N, H, W, 256], [N, 2048, H, W] -> [N, 4, H, W, 512]
/// (on a GPU, which has no such sets, [N, H, W, 2048]).
std::optional<Layout> channel_block(const std::vector<Expr>& shape, size_t dim, const Target& target) {
    const int lanes = target.micro_lanes();
    if (!shape[dim].is_constant() || dim + 1 >= shape.size()) return std::nullopt;
    const int64_t extent = shape[dim].constant();
    if (extent < lanes / 2) return std::nullopt;
    Layout layout;
    layout::Reorder reorder;
    if (!target.gpu && extent % kMostBlock == 0 && extent > kMostBlock) {
        layout.primitives.emplace_back(layout::Split{dim, kMostBlock});
        for (size_t d = 0; d <= shape.size(); ++d)
            if (d != dim + 1) reorder.permutation.push_back(d);
        reorder.permutation.push_back(dim + 1);
    } else {
        for (size_t d = 0; d < shape.size(); ++d)
            if (d != dim) reorder.permutation.push_back(d);
        reorder.permutation.push_back(dim);
    }
    layout.primitives.emplace_back(reorder);
    return layout;
}

/// The tiles that a linear transform writes or reads.
struct MapTiles {
    /// The number of first dimensions that are rows of the writing transform, or columns of the reading one.
    size_t rows = 0;
    /// Of this value, or of the larger of the tiles and their products: both are cut at the same tiles.
    int64_t elements = 0;
};

/// The layout of the tiles of a constant-coefficient linear transform (program/constant_transform.h): all rows of the
/// matrix are contiguous for as many tiles as L2 holds. A transform with 144 rows would otherwise access memory at 144
/// places at once, which are often so far apart that they share a cache set.
///     [36, 64, 56, 56]: 36 rows of 64 channels in 56 x 56 tiles   ->   [28, 36, 2, 56, 64]
std::optional<Layout> tile_block(const std::vector<Expr>& shape, const MapTiles& of, size_t dim, const Target& target) {
    auto layout = channel_block(shape, dim, target);
    const auto elements = known_elements(shape);
    const size_t rows = of.rows;
    if (!layout || !elements || dim < rows) return layout;
    const int64_t most = target.task_bytes() / 2 / static_cast<int64_t>(sizeof(float));
    if (of.elements <= 2 * most) return layout;
    const auto fits = [&](int64_t n) {
        return static_cast<double>(n) * static_cast<double>(of.elements) <=
               static_cast<double>(most) * static_cast<double>(*elements);
    };
    int64_t near = 1;
    for (size_t d = 0; d < shape.size(); ++d)
        if (d < rows || d == dim) near *= shape[d].constant();
    // From the last dimension on, whole dimensions are contiguous, then as much of one as fits.
    size_t far = shape.size();
    int64_t part = 1;
    for (; far > rows && part == 1; --far) {
        const size_t d = far - 1;
        const int64_t extent = shape[d].constant();
        if (d == dim) continue;
        if (!fits(near * extent)) {
            for (int64_t f = 2; f < extent; ++f)
                if (extent % f == 0 && fits(near * f)) part = f;
            if (part == 1) break;
            near *= part;
        } else {
            near *= extent;
        }
    }
    const size_t parted = part > 1 ? far : shape.size();
    const bool blocks = shape[dim].constant() > kMostBlock && shape[dim].constant() % kMostBlock == 0;
    Layout out;
    layout::Reorder order;
    std::vector<size_t> at(shape.size() + 1, 0);  // position of a dimension, or of the outer part of a split one
    for (size_t d = 0; d < shape.size(); ++d) at[d + 1] = at[d] + (d == parted || (d == dim && blocks) ? 2 : 1);
    if (parted > dim && parted < shape.size()) out.primitives.emplace_back(layout::Split{parted, part});
    if (blocks) out.primitives.emplace_back(layout::Split{dim, kMostBlock});
    if (parted < dim) out.primitives.emplace_back(layout::Split{parted, part});
    for (size_t d = rows; d < far + (parted < shape.size() ? 1 : 0); ++d)
        if (d != dim) order.permutation.push_back(at[d]);
    for (size_t d = 0; d < rows; ++d) order.permutation.push_back(at[d]);
    if (blocks) order.permutation.push_back(at[dim]);
    for (size_t d = far; d < shape.size(); ++d)
        if (d != dim) order.permutation.push_back(at[d + 1] - 1);
    order.permutation.push_back(at[dim + 1] - 1);
    out.primitives.emplace_back(order);
    return out;
}

/// A sliding window: its channel dimension in the operand and in the result.
struct Window {
    size_t in = 0, out = 0;
};

/// Pooling windows with fewer taps than this, or with contiguous vectors, do not justify another layout.
constexpr int64_t kManyTaps = 9;

int64_t taps_of(const TensorExpr& e) {
    int64_t taps = 1;
    for (size_t a = e.spatial; a < e.extents.size(); ++a)
        taps = e.extents[a].is_constant() ? taps * std::min<int64_t>(e.extents[a].constant(), 1 << 20) : 1 << 20;
    return taps;
}

/// Whether vectors along the innermost dimension would be mostly empty, or gather lanes more than `apart` elements
/// apart.
bool walks_badly(const TensorExpr& e, const Access& x, int lanes, int64_t apart = 1) {
    for (size_t a = 0; a < e.spatial; ++a) {
        const auto linear = linear_in(x.index.back(), {VarKind::Axis, static_cast<uint32_t>(a)});
        if (!linear || linear->coefficient.is_constant(0)) continue;
        if (!linear->coefficient.is_constant()) return true;
        if (const int64_t step = linear->coefficient.constant(); step < 1 || step > apart) return true;
        return e.extents[a].is_constant() && e.extents[a].constant() < 2 * lanes;
    }
    return true;
}

std::optional<Window> pooling_window(const TensorExpr& e, int lanes) {
    if (e.reducer == Reducer::None || e.accesses.size() != 1 || taps_of(e) < kManyTaps || constant_transform(e))
        return std::nullopt;
    const std::vector<Expr>& in = e.accesses[0].index;
    const std::vector<Expr> out = result_index(e);
    const auto slides = [&](Expr i) {
        bool spatial = false, tap = false;
        for (const Var v : variables(i))
            if (v.kind == VarKind::Axis) (v.id < e.spatial ? spatial : tap) = true;
        return spatial && tap;
    };
    // Only loads cost anything here. Lanes a few elements apart do not justify a conversion.
    if (in.empty() || !slides(in.back()) || !walks_badly(e, e.accesses[0], lanes, kMostSpread)) return std::nullopt;
    for (size_t d = in.size() - 1; d-- > 0;) {
        const auto a = in[d].as_var();
        if (!a || a->kind != VarKind::Axis || a->id >= e.spatial) continue;
        const auto there = std::find(out.begin(), out.end(), in[d]);
        if (there != out.end()) return Window{d, static_cast<size_t>(there - out.begin())};
    }
    return std::nullopt;
}

/// The operand of a constant-coefficient linear transform, direct or through a unary function.
const Access* mapped(const Primitive& p, const ConstantTransform& map) {
    const TensorExpr& e = *p.expr();
    const ScalarNode& term = e.body[map.term];
    if (term.op == ScalarOp::Access) return &e.accesses[term.slot];
    return e.accesses.size() == 1 && e.body.slots().size() == 1 ? &e.accesses[0] : nullptr;
}
const Access* mapped(const Primitive& p) {
    const auto map = p.expr() != nullptr ? constant_transform(*p.expr()) : std::nullopt;
    return map ? mapped(p, *map) : nullptr;
}

std::map<ValueId, MapTiles> tiles_of_maps(const Program& program) {
    std::map<ValueId, MapTiles> out;
    const auto found = [&](ValueId v, size_t rows) {
        if (rows > 0) out[v] = {rows, known_elements(program.values[v].shape).value_or(0)};
    };
    const auto leading = [](const std::vector<Expr>& index, const std::set<uint32_t>& axes) {
        size_t n = 0;
        while (n < index.size() && index[n].as_var() && axes.count(index[n].as_var()->id) != 0) ++n;
        return n;
    };
    for (const Primitive& p : program.primitives) {
        const auto map = p.expr() != nullptr ? constant_transform(*p.expr()) : std::nullopt;
        const Access* x = map ? mapped(p, *map) : nullptr;
        if (x == nullptr) continue;
        std::set<uint32_t> rows;
        for (size_t k = 0; k < map->rows.size(); ++k)
            if (!map->periodic[k]) rows.insert(map->rows[k]);
        found(p.outputs[0], leading(result_index(*p.expr()), rows));
        found(x->value, leading(x->index, {map->columns.begin(), map->columns.end()}));
    }
    for (const Primitive& p : program.primitives) {
        const auto product = p.expr() != nullptr ? weighted_contraction(program, *p.expr()) : std::nullopt;
        if (!product) continue;
        const auto tiles = out.find(p.expr()->accesses[product->data].value), products = out.find(p.outputs[0]);
        if (tiles == out.end() || products == out.end()) continue;
        tiles->second.elements = products->second.elements =
            std::max(tiles->second.elements, products->second.elements);
    }
    return out;
}

struct Chooser {
    const Program& program;
    const Target& target;
    std::set<ValueId> fixed;  ///< stay row-major
    std::map<ValueId, Layout> layouts = {};
    std::map<ValueId, size_t> channels = {};  ///< the dimension that the layout makes contiguous
    int lanes = target.micro_lanes();
    std::map<ValueId, MapTiles> maps = tiles_of_maps(program);

    void wish(ValueId v, size_t dim) {
        if (fixed.count(v) != 0 || layouts.count(v) != 0) return;
        const std::vector<Expr>& shape = program.values[v].shape;
        const auto map = maps.find(v);
        if (auto layout =
                map == maps.end() ? channel_block(shape, dim, target) : tile_block(shape, map->second, dim, target)) {
            layouts.emplace(v, *layout);
            channels.emplace(v, dim);
        }
    }

    /// Whether copies fill vectors with the dimension. Copies write operands that no product has made, such as
    /// concatenated slices of an image: 12 contiguous channels took 700 us, 12 planes take 280.
    bool fills_vectors(ValueId v, size_t dim) const {
        const Expr extent = program.values[v].shape[dim];
        return extent.is_constant() && extent.constant() >= lanes;
    }

    /// The result's dimension that follows the data's channels where the weights do not depend on them: a few numbers
    /// for all channels.
    std::optional<size_t> shared_channels(const TensorExpr& e, const Access& x,
                                          const std::vector<Expr>& weights) const {
        const auto in = channels.find(x.value);
        if (in == channels.end()) return std::nullopt;
        const std::vector<Expr> out = result_index(e);
        for (const Var v : variables(x.index[in->second])) {  // c, or 64 + c for the channels of two products
            if (v.kind != VarKind::Axis || v.id >= e.spatial || index_uses(weights, v.id)) continue;
            const auto walked = linear_in(x.index[in->second], v);
            const auto there = std::find(out.begin(), out.end(), axis(v.id));
            if (walked && walked->coefficient.is_constant(1) && is_uniform(walked->rest) && there != out.end())
                return static_cast<size_t>(there - out.begin());
        }
        return std::nullopt;
    }

    /// The axis of the weights that should be contiguous in the result. None where one already is (a matrix product).
    /// Of several (a projection split into heads: [head, width]), the one with the smallest stride in the weights.
    std::optional<size_t> lane_axis(const TensorExpr& e, const Access& x, const Access& w) const {
        const std::vector<Expr> out = result_index(e);
        const auto strides = axis_strides(program, e, w.value, w.index);
        std::optional<size_t> best;
        int64_t best_stride = 0;
        for (size_t a = 0; a < e.spatial; ++a) {
            if (!index_uses(w.index, a)) continue;
            const auto dim = fastest_in(e, out, w, a);
            if (!dim) continue;
            if (*dim + 1 == out.size()) return std::nullopt;
            if (index_uses(x.index, a) && !fastest_in(e, x.index, w, a)) continue;
            const int64_t stride =
                strides[a] && strides[a]->is_constant() ? std::abs(strides[a]->constant()) : INT64_MAX;
            if (best && stride >= best_stride) continue;
            best = a;
            best_stride = stride;
        }
        return best;
    }

    /// Whether the data is contiguous along the sum as it is: a row of a tile reads one line for many steps.
    bool has_runs(const TensorExpr& e, const Access& x, const Access& w) const {
        if (target.gpu) return false;
        for (size_t a = e.spatial; a < e.extents.size(); ++a)
            if (const auto d = fastest_in(e, x.index, w, a); d && *d + 1 == x.index.size()) return true;
        return false;
    }

    /// The data contiguous along the sum, by the innermost of its axes that can be; nothing where one is already.
    void wish_runs(const TensorExpr& e, const Access& x, const Access& w) {
        std::optional<size_t> dim;
        for (size_t a = e.extents.size(); a-- > e.spatial;) {
            if (!index_uses(w.index, a)) continue;
            const auto d = fastest_in(e, x.index, w, a);
            if (d && *d + 1 == x.index.size()) return;
            if (d && !dim && fills_vectors(x.value, *d)) dim = d;
        }
        if (dim) wish(x.value, *dim);
    }

    void products() {
        for (const Primitive& p : program.primitives) {
            const TensorExpr* e = p.expr();
            if (e == nullptr) continue;
            if (const Access* x = mapped(p)) {
                if (const auto d = shared_channels(*e, *x, {})) wish(p.outputs[0], *d);
                continue;
            }
            const auto product = weighted_contraction(program, *e);
            if (!product) continue;
            const Access& x = e->accesses[product->data];
            const Access& w = e->accesses[product->weights];
            if (const auto a = lane_axis(*e, x, w)) {
                wish(p.outputs[0], *fastest_in(*e, result_index(*e), w, *a));
                if (const auto d = fastest_in(*e, x.index, w, *a)) wish(x.value, *d);
            } else if (const auto d = shared_channels(*e, x, w.index)) {
                wish(p.outputs[0], *d);
            }
            if (has_runs(*e, x, w) && fixed.count(x.value) == 0) layouts.emplace(x.value, Layout());
            if (layouts.count(p.outputs[0]) == 0 && fixed.count(p.outputs[0]) == 0) continue;
            wish_runs(*e, x, w);
        }
        // The input of a transform has the channel layout of its tiles.
        const std::vector<PrimitiveId> ids = program.primitives.ids();
        for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
            const Primitive& p = program.primitives[*id];
            if (const Access* x = mapped(p))
                if (const auto made = channels.find(p.outputs[0]); made != channels.end()) {
                    const Expr channel = result_index(*p.expr())[made->second];
                    const auto there = std::find(x->index.begin(), x->index.end(), channel);
                    if (there != x->index.end() && channel.as_var())
                        wish(x->value, static_cast<size_t>(there - x->index.begin()));
                }
        }
    }

    /// Pools take the layout of their neighbours; without one, channels are contiguous.
    void windows() {
        for (const Primitive& p : program.primitives)
            if (p.expr() != nullptr)
                if (const auto w = pooling_window(*p.expr(), lanes)) {
                    const ValueId x = p.expr()->accesses[0].value;
                    if (fixed.count(x) == 0 && fixed.count(p.outputs[0]) == 0 && layouts.count(x) == 0 &&
                        layouts.count(p.outputs[0]) == 0) {
                        wish(x, w->in);
                        wish(p.outputs[0], w->out);
                    }
                }
    }

    /// The values that a primitive would read and write with contiguous channels, and their channel dimensions. Empty
    /// where the conversions cost more than they gain.
    std::vector<std::pair<ValueId, size_t>> worth_converting(const Primitive& p) const {
        std::vector<std::pair<ValueId, size_t>> out;
        const TensorExpr* e = p.expr();
        if (e == nullptr) return out;
        if (const Access* x = mapped(p)) {
            for (const ValueId v : {x->value, p.outputs[0]})
                if (const auto dim = channels.find(v); dim != channels.end()) out.emplace_back(v, dim->second);
            return out;
        }
        if (const auto w = pooling_window(*e, lanes)) return {{e->accesses[0].value, w->in}, {p.outputs[0], w->out}};
        const auto product = weighted_contraction(program, *e);
        if (!product) return out;
        const Access& x = e->accesses[product->data];
        const Access& w = e->accesses[product->weights];
        const auto a = lane_axis(*e, x, w);
        if (!a) return out;
        const bool depthwise = index_uses(x.index, *a);
        if (depthwise ? taps_of(*e) < kManyTaps || !walks_badly(*e, x, lanes) : taps_of(*e) < 4L * lanes) return out;
        out.emplace_back(p.outputs[0], *fastest_in(*e, result_index(*e), w, *a));
        if (depthwise)
            if (const auto d = fastest_in(*e, x.index, w, *a)) out.emplace_back(x.value, *d);
        for (size_t r = e->spatial; r < e->extents.size(); ++r)
            if (index_uses(w.index, r))
                if (const auto d = fastest_in(*e, x.index, w, r); d && *d + 1 < x.index.size())
                    out.emplace_back(x.value, *d);
        return out;
    }
};

}  // namespace

Primitive layout_copy(const Program& program, ValueId from, ValueId to) {
    TensorExpr e;
    e.extents = program.values[from].shape;
    e.spatial = e.extents.size();
    Access a;
    a.value = from;
    for (size_t d = 0; d < e.spatial; ++d) a.index.push_back(axis(d));
    e.accesses.push_back(std::move(a));
    e.body.set_root(e.body.access(0, program.values[from].dtype));
    Primitive p;
    p.name = program.values[to].name + "/layout";
    p.source = "layout";
    p.outputs = {to};
    p.kind = std::move(e);
    return p;
}

namespace {

/// Adds copies, whose layouts are free, of inputs and outputs that a convolution or a pool would read or write much
/// faster in another layout. Inputs and outputs themselves are row-major.
Program free_ends(Program program, const Target& target) {
    const std::set<ValueId> fixed = row_major_values(program);
    Chooser chooser{program, target, {}};
    chooser.products();
    std::map<ValueId, ValueId> copies;  // input -> its copy
    IndexVector<PrimitiveId, Primitive> all;
    for (Primitive p : program.primitives) {
        std::vector<Primitive> after;
        for (const auto& [v, dim] : chooser.worth_converting(p)) {
            const std::vector<Expr> shape = program.values[v].shape;
            const bool pixels = std::any_of(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end(),
                                            [](Expr d) { return !d.is_constant(1); });
            if (fixed.count(v) == 0 || program.is_constant(v) || !pixels || !channel_block(shape, dim, target))
                continue;
            const bool result = v == p.outputs[0];
            auto copy = copies.find(v);
            if (result || copy == copies.end()) {
                Value value = program.values[v];
                value.name += "/channels";
                const ValueId fresh = program.values.push_back(std::move(value));
                if (result) {
                    after.push_back(layout_copy(program, fresh, v));
                    p.outputs[0] = fresh;
                    continue;
                }
                all.push_back(layout_copy(program, v, fresh));
                copy = copies.emplace(v, fresh).first;
            }
            for (Access& a : p.expr()->accesses)
                if (a.value == v) a.value = copy->second;
        }
        all.push_back(std::move(p));
        for (Primitive& q : after) all.push_back(std::move(q));
    }
    program.primitives = std::move(all);
    return program;
}

/// Values that a GPU sums up or compares over many pixels of a channel (an instance normalisation): contiguous channels
/// would leave a block for every few channels, which reads 16 bytes of each line. Candy's took 4.7 ms in place of 0.2.
std::set<ValueId> reduced_by_pixels(const Program& program) {
    constexpr int64_t kMany = 1024;
    std::set<ValueId> out;
    for (const Primitive& p : program.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr || e->reducer == Reducer::None || contraction(*e) || taps_of(*e) < kMany) continue;
        for (const Access& a : e->accesses) out.insert(a.value);
    }
    return out;
}

}  // namespace

PropagateOptions layout_propagation(const Program& program) {
    PropagateOptions out;
    for (const auto& [v, t] : program.constants) out.fixed.insert(v);
    out.complex = [](const Program& p, const Primitive& q) {
        return q.expr() != nullptr && weighted_contraction(p, *q.expr()).has_value();
    };
    out.kept_dimensions = true;
    return out;
}

ChosenLayouts choose_layouts(const Program& given, const Target& target, Boundary boundary) {
    ChosenLayouts chosen;
    chosen.program = boundary == Boundary::RowMajor ? free_ends(given, target) : given;
    const Program& program = chosen.program;
    PropagateOptions propagation = layout_propagation(program);
    if (boundary == Boundary::RowMajor) propagation.fixed.merge(row_major_values(program));
    if (target.gpu) propagation.fixed.merge(reduced_by_pixels(program));
    Chooser chooser{program, target, propagation.fixed};
    chooser.products();
    chooser.windows();
    chosen.values = propagate_layouts(program, std::move(chooser.layouts), propagation);
    // Row-major layouts have stopped the propagation; they are no alternatives for optimal orchestration.
    std::erase_if(chosen.values, [](const auto& of) { return of.second.is_identity(); });
    return chosen;
}

Program assign_layouts(const Program& program, const Target& target) {
    const ChosenLayouts chosen = choose_layouts(program, target);
    return lay_out(chosen.program, chosen.values, target);
}

}  // namespace tilewright
