// Convolutions with few taps per dimension as three linear primitives in Winograd's basis. Each dimension of the
// window is taken in tiles of m = 2 or 4 outputs or stays direct, independently of the others. For two dimensions of 3
// taps with stride 1, and the same m in both:
//
//     V[a, b, n, c, ty, tx] = sum(i, j)  B[a, i] B[b, j] x[n, c, m*ty + i - 1, m*tx + j - 1]    input tiles
//     U[a, b, o, c]         = sum(p, q)  G[a, p] G[b, q] w[o, c, p, q]                          folded: w is constant
//     M[a, b, n, o, ty, tx] = sum(c)     U[a, b, o, c] V[a, b, n, c, ty, tx]                    (m+2)^2 matrix products
//     y[n, o, h, w]         = sum(a, b)  A[h % m, a] A[w % m, b] M[a, b, n, o, h // m, w // m]
//
// and for three dimensions, the first direct:
//
//     V[a, b, n, c, t, ty, tx] = sum(i, j)  B[a, i] B[b, j] x[n, c, t - 1, m*ty + i - 1, m*tx + j - 1]
//     U[a, b, o, c, k]         = sum(p, q)  G[a, p] G[b, q] w[o, c, k, p, q]
//     M[a, b, n, o, t, ty, tx] = sum(c, k)  U[a, b, o, c, k] V[a, b, n, c, t + k, ty, tx]
//
// A and B are tables in the bodies (program/constant_transform.h), so code generation can use that most of their
// entries are 0 or 1, and that each transform separates into one along each dimension. The consumer of the convolution
// becomes the epilogue of the last primitive.

#include "program/rewrite/winograd.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "program/constant_transform.h"
#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"

namespace tilewright {

namespace {

constexpr std::array kPoints = {0.0, 1.0, -1.0, 2.0, -2.0};

double power(double x, int n) {
    double out = 1;
    for (; n > 0; --n) out *= x;
    return out;
}

/// F(m, r) by Toom-Cook: rows for the finite points, the last one for infinity.
///     M_j = product of (x - p_l) over all l but j,  N_j = M_j(p_j),  M = product over all
///     A^T[i][j] = p_j^i    G[j][k] = p_j^k / N_j    B^T[j] = coefficients of M_j;  for infinity: those of M
/// With one tap each output is one multiplication. None if there are too few points.
std::optional<WinogradMatrices> filtered(int m, int r) {
    WinogradMatrices out;
    out.tile = m;
    out.taps = r;
    const int finite = m + r - 2, rows = m + r - 1;
    if (r < 1 || m < 2 || (r > 1 && finite > static_cast<int>(kPoints.size()))) return std::nullopt;
    out.a.assign(static_cast<size_t>(m), std::vector<double>(static_cast<size_t>(rows), 0));
    for (int j = 0; j < rows; ++j) {
        const auto row = static_cast<size_t>(j);
        std::vector<double> g(static_cast<size_t>(r), 0), b(static_cast<size_t>(rows), 0);
        if (r == 1) {
            g[0] = b[row] = out.a[row][row] = 1;
        } else {
            std::vector<double> polynomial = {1};  // ascending
            for (int l = 0; l < finite; ++l) {
                if (l == j) continue;
                polynomial.push_back(0);
                for (size_t k = polynomial.size(); k-- > 0;)
                    polynomial[k] = (k > 0 ? polynomial[k - 1] : 0) - kPoints[static_cast<size_t>(l)] * polynomial[k];
            }
            std::copy(polynomial.begin(), polynomial.end(), b.begin());
            if (j == finite) {
                g.back() = out.a.back()[row] = 1;
            } else {
                const double p = kPoints[row];
                double n = 0;
                for (size_t k = 0; k < polynomial.size(); ++k) n += polynomial[k] * power(p, static_cast<int>(k));
                for (int k = 0; k < r; ++k) g[static_cast<size_t>(k)] = power(p, k) / n;
                for (int i = 0; i < m; ++i) out.a[static_cast<size_t>(i)][row] = power(p, i);
            }
        }
        out.g.push_back(std::move(g));
        out.b.push_back(std::move(b));
    }
    out.rough = r > 1 && finite > 3;
    return out;
}

/// Strides: a filter for each input position modulo the stride.
std::optional<WinogradMatrices> stepped(int m, int taps, int step) {
    WinogradMatrices out;
    out.tile = m;
    out.taps = taps;
    out.step = step;
    out.a.resize(static_cast<size_t>(m));
    for (int first = 0; first < std::min(step, taps); ++first) {
        const auto one = filtered(m, (taps - first + step - 1) / step);
        if (!one) return std::nullopt;
        out.rough = out.rough || one->rough;
        const auto spread = [&](const std::vector<double>& numbers, int length) {
            std::vector<double> apart(static_cast<size_t>(length), 0);
            for (size_t k = 0; k < numbers.size(); ++k)
                apart[static_cast<size_t>(first) + k * static_cast<size_t>(step)] = numbers[k];
            return apart;
        };
        for (const auto& g : one->g) out.g.push_back(spread(g, taps));
        for (const auto& b : one->b) out.b.push_back(spread(b, step * (m - 1) + taps));
        for (size_t i = 0; i < out.a.size(); ++i) out.a[i].insert(out.a[i].end(), one->a[i].begin(), one->a[i].end());
    }
    return out;
}

}  // namespace

const WinogradMatrices* winograd_matrices(int tile, int taps, int step) {
    static std::mutex mutex;
    static std::map<std::tuple<int, int, int>, std::optional<WinogradMatrices>> known;
    const std::lock_guard lock(mutex);
    const auto [it, fresh] = known.try_emplace({tile, taps, step});
    if (fresh) it->second = stepped(tile, taps, step);
    const std::optional<WinogradMatrices>& found = it->second;
    return found.has_value() ? &found.value() : nullptr;
}

namespace {

/// One dimension of the window: an axis of the result and one of taps, read at step * out + spacing * tap + offset.
/// The offset may depend on the filter: a transposed convolution with stride 2 in two dimensions has four offsets.
struct WindowDim {
    uint32_t out = 0, tap = 0;
    size_t dim = 0;  ///< of the operand
    int64_t step = 1, spacing = 1;
};

struct Convolution {
    const Access *x, *w;
    std::vector<WindowDim> may;  ///< transformable dimensions: with few taps, stride 1, or adjacent taps with stride 2
    std::vector<WindowDim> other;
};

/// Dimension d of the operand as step * out + spacing * tap + offset, with both axes used in no other dimension.
/// `filters`: axes of the weights.
std::optional<WindowDim> window_dim(const TensorExpr& e, const Access& x, size_t d, const std::set<uint32_t>& filters) {
    const Expr index = x.index[d];
    std::vector<uint32_t> outs, shifts;
    std::optional<uint32_t> tap;
    for (const Var v : variables(index)) {
        if (v.kind == VarKind::Load) return std::nullopt;
        if (v.kind != VarKind::Axis) continue;
        if (v.id < e.spatial) {
            (filters.count(v.id) == 0 ? outs : shifts).push_back(v.id);
        } else {
            if (tap) return std::nullopt;
            tap = v.id;
        }
    }
    if (outs.empty()) std::swap(outs, shifts);
    if (outs.size() != 1 || !tap || !e.extents[*tap].is_constant()) return std::nullopt;
    const uint32_t out = outs[0];
    const auto step = linear_in(index, {VarKind::Axis, out}), spacing = linear_in(index, {VarKind::Axis, *tap});
    if (!step || !spacing) return std::nullopt;
    const auto positive = [](Expr by) { return by.is_constant() && by.constant() > 0; };
    if (!positive(step->coefficient) || !positive(spacing->coefficient)) return std::nullopt;
    for (size_t k = 0; k < x.index.size(); ++k)
        if (k != d && (uses(x.index[k], {VarKind::Axis, out}) || uses(x.index[k], {VarKind::Axis, *tap})))
            return std::nullopt;
    return WindowDim{out, *tap, d, step->coefficient.constant(), spacing->coefficient.constant()};
}

constexpr int kMaxRough = 2;  // dimensions with F(4): a third would make the error five times that of two (winograd.h)
constexpr int64_t kMaxTaps = 7, kMaxStep = 2;

/// Whether the weights are already transformed, as sums over a few taps, by a rewrite that left the other dimensions
/// direct.
bool transformed(const RewriteContext& context, ValueId weights) {
    const TensorExpr* e = context.producer(weights);
    return e != nullptr && e->reducer == Reducer::Sum &&
           std::any_of(e->extents.begin() + static_cast<std::ptrdiff_t>(e->spatial), e->extents.end(),
                       [](Expr x) { return x.is_constant() && x.constant() <= kMaxTaps; });
}

constexpr size_t kMaxDims = 3;  // transformed dimensions of a window: there are 3^n forms of n dimensions

std::optional<Convolution> convolution(const RewriteContext& context, const TensorExpr& e, uint32_t x_slot,
                                       uint32_t w_slot) {
    const Access &x = e.accesses[x_slot], &w = e.accesses[w_slot];
    if (!w.valid.empty() || (!x.valid.empty() && x.fill != 0) || uses_load(x.index) || uses_load(w.index) ||
        transformed(context, w.value))
        return std::nullopt;
    // Conditions on taps that no index uses (a window over one row) would be evaluated once for all taps.
    const std::set<uint32_t> x_axes = axes_of(x.index);
    for (const uint32_t a : axes_of(x.valid))
        if (x_axes.count(a) == 0) return std::nullopt;
    Convolution c{&x, &w, {}, {}};
    const std::set<uint32_t> w_axes = axes_of(w.index);
    std::set<uint32_t> taps;
    for (size_t d = 0; d < x.index.size(); ++d) {
        const auto window = window_dim(e, x, d, w_axes);
        if (!window) continue;
        // Channels are rarely a window: 16 * group + c has as many steps as reduction points.
        if (window->step >= e.extents[window->tap].constant() * window->spacing) continue;
        const bool may = (window->spacing == 1 ? window->step <= kMaxStep : window->step == 1) &&
                         e.extents[window->tap].constant() <= kMaxTaps && w_axes.count(window->out) == 0 &&
                         bare_dim(context, e, w, window->tap);
        (may ? c.may : c.other).push_back(*window);
        taps.insert(window->tap);
    }
    if (c.may.empty() || c.may.size() > kMaxDims) return std::nullopt;
    for (auto a = static_cast<uint32_t>(e.spatial); a < e.extents.size(); ++a)
        if (taps.count(a) == 0) return c;  // a sum over channels that both operands have
    return std::nullopt;
}

/// matrix[p][i], in a body of f32 or f64.
ScalarId entry(ScalarBody& body, const std::vector<std::vector<double>>& matrix, DType t, Expr p, Expr i) {
    std::vector<double> numbers;
    for (const auto& row : matrix) numbers.insert(numbers.end(), row.begin(), row.end());
    return body.table(t, std::make_shared<const std::vector<double>>(std::move(numbers)),
                      body.index(p * static_cast<int64_t>(matrix[0].size()) + i));
}

/// The matrices of a dimension in tiles of m outputs; null if there are none, or if it stays direct (m = 1).
const WinogradMatrices* matrices_of(const TensorExpr& e, const WindowDim& d, int m) {
    if (m == 1) return nullptr;
    return winograd_matrices(m, static_cast<int>(e.extents[d.tap].constant()), static_cast<int>(d.step));
}

/// Outputs whose taps are `spacing` apart are `spacing` convolutions of adjacent taps, each over every `spacing`-th
/// position. All tiles are whole, so that a kernel has the rows of a tile as an axis.
///     24 outputs, taps 3 apart, F(4): outputs 0 3 6 9, 1 4 7 10, 2 5 8 11, then the same 12 further on
bool fills_tiles(const WindowDim& d, Expr outputs, int m) {
    return d.spacing == 1 || (outputs.is_constant() && outputs.constant() % (d.spacing * m) == 0);
}

/// The possible tile sizes of each dimension: 1 (direct), 2 or 4 outputs, if each saves multiplications.
std::vector<std::vector<int>> forms(const TensorExpr& e, const Convolution& c) {
    std::vector<std::vector<int>> out = {{}};
    for (const WindowDim& d : c.may) {
        const Expr outputs = e.extents[d.out];
        std::vector<int> tiles = {1};
        std::vector<Expr> multiplications = {outputs * e.extents[d.tap]};
        for (const int m : {2, 4}) {
            const WinogradMatrices* w = matrices_of(e, d, m);
            if (w == nullptr || !fills_tiles(d, outputs, m)) continue;
            const Expr now = ceil_div(outputs, m) * w->rows();
            const bool gains = std::all_of(multiplications.begin(), multiplications.end(), [&](Expr then) {
                return now.is_constant() ? now.constant() < then.constant() : w->rows() < m * w->taps;
            });
            if (!gains) continue;
            tiles.push_back(m);
            multiplications.push_back(now);
        }
        std::vector<std::vector<int>> next;
        for (const std::vector<int>& form : out)
            for (const int m : tiles) {
                next.push_back(form);
                next.back().push_back(m);
            }
        out = std::move(next);
    }
    std::erase_if(out, [&](const std::vector<int>& form) {
        int rough = 0;
        int64_t rows = 1, inputs = 1;
        for (size_t k = 0; k < form.size(); ++k)
            if (const WinogradMatrices* w = matrices_of(e, c.may[k], form[k])) {
                rough += w->rough ? 1 : 0;
                rows *= w->rows();
                inputs *= w->inputs();
            }
        return rows == 1 || rough > kMaxRough || rows * inputs > kMaxWeights;
    });
    return out;
}

class Winograd {
  public:
    Winograd(const RewriteContext& context, PrimitiveId at, const Convolution& c, const std::vector<int>& form)
        : patch_(context, at),
          e_(*context.program().primitives[at].expr()),
          c_(c),
          out_(context.program().primitives[at].outputs[0]),
          t_(context.value(out_).dtype),
          folds_(context.foldable(c.w->value)),
          most_work_(context.folding().work) {
        for (size_t k = 0; k < form.size(); ++k)
            if (form[k] > 1)
                dims_.push_back({c.may[k], form[k], matrices_of(e_, c.may[k], form[k])});
            else
                kept_.push_back(c.may[k]);
        kept_.insert(kept_.end(), c.other.begin(), c.other.end());
        for (uint32_t a = 0; a < e_.extents.size(); ++a)
            if (std::none_of(dims_.begin(), dims_.end(), [&](const Dim& d) { return a == d.w.out || a == d.w.tap; }))
                plain_.push_back(a);
        shape_ = context.value(c.x->value).shape;
    }

    std::optional<Patch> run() {
        const auto tiles = made_of_tiles();
        if (!tiles) return std::nullopt;
        const ValueId weights = of_weights();
        if (folds_ && work_ > most_work_) return std::nullopt;  // the weights would be transformed in every run
        const ValueId products = multiplied(*tiles, weights);
        combine(products);
        return patch_.take();
    }

  private:
    struct Dim {
        WindowDim w;
        int tile = 2;
        const WinogradMatrices* matrices = nullptr;
    };

    /// V, over the rows of B, the operand's own axes, the tiles; summed over the inputs of a tile. Along a direct
    /// dimension of the window, V has the operand's positions, including those beyond its ends.
    std::optional<ValueId> made_of_tiles() {
        std::vector<Expr> extents, onto(e_.extents.size(), Expr(0));
        for (const Dim& d : dims_) extents.emplace_back(d.matrices->rows());
        for (const uint32_t a : plain_) {
            if (axes_of(c_.x->index).count(a) == 0 || is_kept_tap(a)) continue;
            v_axes_.push_back(a);
            onto[a] = axis(extents.size());
            const WindowDim* window = kept(a);
            extents.push_back(window == nullptr ? e_.extents[a]
                                                : window->step * (e_.extents[a] - 1) +
                                                      window->spacing * (e_.extents[window->tap] - 1) + 1);
        }
        for (const Dim& d : dims_) extents.push_back(ceil_div(e_.extents[d.w.out], d.tile));
        const size_t rank = extents.size();
        for (const Dim& d : dims_) extents.emplace_back(d.matrices->inputs());
        Access x = *c_.x;
        std::vector<std::pair<const WindowDim*, Expr>> places;
        places.reserve(dims_.size() + kept_.size());
        for (size_t k = 0; k < dims_.size(); ++k) {
            const int64_t spacing = dims_[k].w.spacing;
            const Expr tile = axis(rank - dims_.size() + k);
            places.emplace_back(&dims_[k].w, floor_div(tile, spacing) * (dims_[k].tile * dims_[k].w.step * spacing) +
                                                 mod(tile, spacing) + axis(rank + k) * spacing);
        }
        for (const WindowDim& w : kept_) places.emplace_back(&w, onto[w.out]);
        for (auto* exprs : {&x.index, &x.valid})
            for (Expr& i : *exprs) {
                const auto there = at_places(i, places, onto);
                if (!there) return std::nullopt;
                i = *there;
            }
        for (const auto& [window, place] : places) {  // the last tiles and V's positions may be out of bounds
            x.valid.push_back(x.index[window->dim]);
            x.valid.push_back(shape_[window->dim] - 1 - x.index[window->dim]);
        }
        x.fill = 0;
        ExprWriter v(extents, rank, Reducer::Sum);
        ScalarId b;
        for (size_t k = 0; k < dims_.size(); ++k)
            b = times(v.body(), b, entry(v.body(), dims_[k].matrices->b, t_, axis(k), axis(rank + k)));
        const ScalarId d = v.read(x.value, t_, x.index, x.valid, x.fill);
        return patch_.make(v.finish(v.body().binary(ScalarOp::Weigh, b, d)), t_, "tiles");
    }

    /// U, over the rows of all G, the weights' own axes. Dimensions are transformed one after another, each summed over
    /// its taps, which takes a fraction of the work of one combined transform.
    ValueId of_weights() {
        ValueId made;
        for (size_t k = 0; k < dims_.size(); ++k) {
            std::vector<Expr> extents, onto(e_.extents.size(), Expr(0)), from;
            const auto add = [&](Expr extent) {
                extents.push_back(extent);
                return axis(extents.size() - 1);
            };
            for (size_t d = 0; d <= k; ++d) {
                const Expr row = add(dims_[d].matrices->rows());
                if (d < k) from.push_back(row);
            }
            for (const uint32_t a : plain_)
                if (axes_of(c_.w->index).count(a) != 0) from.push_back(onto[a] = add(e_.extents[a]));
            for (size_t d = k + 1; d < dims_.size(); ++d) onto[dims_[d].w.tap] = add(dims_[d].matrices->taps);
            const size_t rank = extents.size();
            onto[dims_[k].w.tap] = add(dims_[k].matrices->taps);
            for (size_t d = k; d < dims_.size(); ++d) from.push_back(onto[dims_[d].w.tap]);
            ExprWriter u(extents, rank, Reducer::Sum);
            const ScalarId g = u.read(matrix(dims_[k].matrices->g), t_, {axis(k), axis(rank)});
            std::vector<Expr> index = c_.w->index;
            for (Expr& i : index) i = substitute_axes(i, onto);
            const ScalarId w = k == 0 ? u.read(c_.w->value, t_, index) : u.read(made, t_, from);
            TensorExpr stage = u.finish(u.body().binary(ScalarOp::Mul, g, w));
            const Expr points = product(stage.extents);
            if (points.is_constant())
                work_ = std::max(work_, points.constant() * static_cast<int64_t>(stage.body.nodes().size()));
            made = patch_.make(std::move(stage), t_, "weights");
        }
        return made;
    }

    ValueId matrix(const std::vector<std::vector<double>>& m) {
        Tensor out(t_, {static_cast<int64_t>(m.size()), static_cast<int64_t>(m[0].size())});
        int64_t at = 0;
        for (const auto& row : m)
            for (const double x : row) out.set(at++, x);
        return patch_.constant(std::move(out), "G");
    }

    /// M, over the rows, the axes of the result, the tiles; summed over the reduction axes of the convolution except
    /// the taps of transformed dimensions.
    ValueId multiplied(ValueId tiles, ValueId weights) {
        std::vector<Expr> extents, onto(e_.extents.size(), Expr(0)), u_at, v_at;
        for (const Dim& d : dims_) {
            u_at.push_back(axis(extents.size()));
            extents.emplace_back(d.matrices->rows());
        }
        v_at = u_at;
        for (const bool summed : {false, true}) {
            for (const uint32_t a : plain_) {
                if ((a >= e_.spatial) != summed) continue;
                onto[a] = axis(extents.size());
                extents.push_back(e_.extents[a]);
            }
            if (!summed)
                for (const Dim& d : dims_) extents.push_back(ceil_div(e_.extents[d.w.out], d.tile));
        }
        const size_t rank =
            extents.size() - static_cast<size_t>(std::count_if(plain_.begin(), plain_.end(),
                                                               [&](uint32_t a) { return a >= e_.spatial; }));
        for (const uint32_t a : plain_)
            if (axes_of(c_.w->index).count(a) != 0) u_at.push_back(onto[a]);
        for (const uint32_t a : v_axes_) {
            const WindowDim* window = kept(a);
            v_at.push_back(window == nullptr ? onto[a] : window->step * onto[a] + window->spacing * onto[window->tap]);
        }
        for (size_t k = 0; k < dims_.size(); ++k) v_at.push_back(axis(rank - dims_.size() + k));
        ExprWriter m(extents, rank, Reducer::Sum);
        const ScalarId u = m.read(weights, t_, u_at), v = m.read(tiles, t_, v_at);
        return patch_.make(m.finish(m.body().binary(ScalarOp::Mul, u, v)), t_, "products");
    }

    /// y, summed over the rows.
    void combine(ValueId products) {
        std::vector<Expr> extents(e_.extents.begin(), e_.extents.begin() + static_cast<std::ptrdiff_t>(e_.spatial));
        std::vector<Expr> at;
        for (const Dim& d : dims_) {
            at.push_back(axis(extents.size()));
            extents.emplace_back(d.matrices->rows());
        }
        for (const uint32_t a : plain_)
            if (a < e_.spatial) at.push_back(axis(a));
        for (const Dim& d : dims_)
            at.push_back(floor_div(axis(d.w.out), d.tile * d.w.spacing) * d.w.spacing +
                         mod(axis(d.w.out), d.w.spacing));
        ExprWriter y(extents, e_.spatial, Reducer::Sum);
        ScalarId a;
        for (size_t k = 0; k < dims_.size(); ++k) {
            const Expr row = mod(floor_div(axis(dims_[k].w.out), dims_[k].w.spacing), dims_[k].tile);
            a = times(y.body(), a, entry(y.body(), dims_[k].matrices->a, t_, row, at[k]));
        }
        patch_.define(out_, y.finish(y.body().binary(ScalarOp::Weigh, a, y.read(products, t_, at))));
    }

    static ScalarId times(ScalarBody& body, ScalarId x, ScalarId y) { return x ? body.binary(ScalarOp::Mul, x, y) : y; }

    /// The direct dimension of the window that moves along the axis.
    const WindowDim* kept(uint32_t out) const {
        const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const WindowDim& w) { return w.out == out; });
        return it == kept_.end() ? nullptr : &*it;
    }
    bool is_kept_tap(uint32_t a) const {
        return std::any_of(kept_.begin(), kept_.end(), [&](const WindowDim& w) { return w.tap == a; });
    }

    /// `i` with each window's step * out + spacing * tap replaced by the given position; none if it uses the two axes
    /// in any other way.
    static std::optional<Expr> at_places(Expr i, const std::vector<std::pair<const WindowDim*, Expr>>& places,
                                         std::vector<Expr> onto) {
        Expr moved = 0;
        for (const auto& [w, place] : places) {
            onto[w->out] = onto[w->tap] = 0;
            const Var out{VarKind::Axis, w->out}, tap{VarKind::Axis, w->tap};
            if (!uses(i, out) && !uses(i, tap)) continue;
            const auto by_out = linear_in(i, out), by_tap = linear_in(i, tap);
            if (!by_out || !by_tap || !by_out->coefficient.is_constant() || !by_tap->coefficient.is_constant())
                return std::nullopt;
            const int64_t o = by_out->coefficient.constant(), t = by_tap->coefficient.constant();
            if (o % w->step != 0 || t % w->spacing != 0 || o / w->step != t / w->spacing) return std::nullopt;
            moved += place * (o / w->step);
        }
        return substitute_axes(i, onto) + moved;
    }

    PatchWriter patch_;
    const TensorExpr& e_;
    const Convolution& c_;
    ValueId out_;
    DType t_;
    bool folds_;                    ///< the weights are constant
    int64_t most_work_;             ///< FoldOptions::work
    int64_t work_ = 0;              ///< of their most expensive transform
    std::vector<Dim> dims_;         ///< transformed dimensions
    std::vector<WindowDim> kept_;   ///< direct dimensions of the window
    std::vector<uint32_t> plain_;   ///< axes that are neither outputs nor taps of transformed dimensions
    std::vector<uint32_t> v_axes_;  ///< of those, the axes of V
    std::vector<Expr> shape_;
};

void winograd(const RewriteContext& context, PrimitiveId at, std::vector<Patch>& found) {
    const Primitive& p = context.program().primitives[at];
    const TensorExpr& e = *p.expr();
    if (!is_sum(e, context.value(p.outputs[0]).dtype) || e.accesses.size() != 2) return;
    const std::vector<Factor> all = factors(e.body, e.body.root());
    if (all.size() != 2 || all[0].under || all[1].under) return;
    const auto left = bare_slot(e.body, all[0].node), right = bare_slot(e.body, all[1].node);
    if (!left || !right || left == right) return;
    for (const auto& [x, w] : {std::pair(*left, *right), std::pair(*right, *left)}) {
        const auto c = convolution(context, e, x, w);
        if (!c) continue;
        for (const std::vector<int>& form : forms(e, *c))
            if (auto patch = Winograd(context, at, *c, form).run()) found.push_back(std::move(*patch));
    }
}

}  // namespace

std::span<const RewriteRule> winograd_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"winograd", "convolution of few taps a dimension = A^T (U V), tiles of 1, 2 or 4 outputs a dimension",
         winograd, true},
    };
    return rules;
}

}  // namespace tilewright
