// 3x3 convolutions as three linear primitives in another basis, over tiles of m x m outputs:
//
//     V[a, b, n, c, ty, tx] = sum(i, j)  B[a, i] B[b, j] x[n, c, m*ty + i - 1, m*tx + j - 1]    of tiles of inputs
//     U[a, b, o, c]         = sum(p, q)  G[a, p] G[b, q] w[o, c, p, q]                          folds: w is constant
//     M[a, b, n, o, ty, tx] = sum(c)     U[a, b, o, c] V[a, b, n, c, ty, tx]                    (m+2)^2 matrix products
//     y[n, o, h, w]         = sum(a, b)  A[h % m, a] A[w % m, b] M[a, b, n, o, h // m, w // m]
//
// A and B are tables in the bodies (program/weighed_sum.h): who computes them knows that most of their numbers are 0 or
// 1, and that each of the transformations is one along each dimension. What follows the convolution becomes the
// epilogue of the last. Each dimension's G is multiplied out, as U is computed once.

#include "program/rewrite/winograd.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "program/rewrite/algebra.h"
#include "program/rewrite/rules.h"

namespace tilewright {

const WinogradMatrices& winograd_matrices(int tile) {
    static const WinogradMatrices two = {2,
                                         {{1, 1, 1, 0}, {0, 1, -1, -1}},
                                         {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
                                         {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}};
    static const WinogradMatrices four = {
        4,
        {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}},
        {{1.0 / 4, 0, 0},
         {-1.0 / 6, -1.0 / 6, -1.0 / 6},
         {-1.0 / 6, 1.0 / 6, -1.0 / 6},
         {1.0 / 24, 1.0 / 12, 1.0 / 6},
         {1.0 / 24, -1.0 / 12, 1.0 / 6},
         {0, 0, 1}},
        {{4, 0, -5, 0, 1, 0},
         {0, -4, -4, 1, 1, 0},
         {0, 4, -4, -1, 1, 0},
         {0, -2, -1, 2, 1, 0},
         {0, 2, -1, -2, 1, 0},
         {0, 4, 0, -5, 0, 1}}};
    TW_CHECK(tile == 2 || tile == 4, "tiles of {} outputs", tile);
    return tile == 2 ? two : four;
}

namespace {

/// One dimension of the window: an axis of the result, one of three taps, read at out + tap + offset.
struct WindowDim {
    uint32_t out = 0, tap = 0;
    size_t dim = 0;  ///< of the operand
    Expr offset;
};

struct Convolution3x3 {
    const Access *x, *w;
    WindowDim y_dim, x_dim;
};

/// Dimension d of the operand as out + tap + offset, both axes used in no other dimension.
std::optional<WindowDim> window_dim(const TensorExpr& e, const Access& x, size_t d) {
    const Expr index = x.index[d];
    std::optional<uint32_t> out, tap;
    for (const Var v : variables(index)) {
        if (v.kind != VarKind::Axis) continue;
        std::optional<uint32_t>& which = v.id < e.spatial ? out : tap;
        if (which) return std::nullopt;
        which = v.id;
    }
    if (!out || !tap || !e.extents[*tap].is_constant(3)) return std::nullopt;
    const Expr offset = index - axis(*out) - axis(*tap);
    if (!is_uniform(offset)) return std::nullopt;
    for (size_t k = 0; k < x.index.size(); ++k)
        if (k != d && (uses(x.index[k], {VarKind::Axis, *out}) || uses(x.index[k], {VarKind::Axis, *tap})))
            return std::nullopt;
    return WindowDim{*out, *tap, d, offset};
}

std::optional<Convolution3x3> convolution(const RewriteContext& context, const TensorExpr& e, uint32_t x_slot,
                                          uint32_t w_slot) {
    const Access &x = e.accesses[x_slot], &w = e.accesses[w_slot];
    if (!w.valid.empty() || (!x.valid.empty() && x.fill != 0) || uses_load(x.index) || uses_load(w.index))
        return std::nullopt;
    std::vector<WindowDim> windows;
    for (size_t d = 0; d < x.index.size(); ++d)
        if (const auto dim = window_dim(e, x, d)) windows.push_back(*dim);
    if (windows.size() != 2) return std::nullopt;
    const std::set<uint32_t> w_axes = axes_of(w.index);
    for (const WindowDim& d : windows)
        if (w_axes.count(d.out) != 0 || !bare_dim(context, e, w, d.tap)) return std::nullopt;
    bool sums_more = false;  // over channels that both operands have
    for (auto a = static_cast<uint32_t>(e.spatial); a < e.extents.size(); ++a)
        sums_more = sums_more || (a != windows[0].tap && a != windows[1].tap);
    if (!sums_more) return std::nullopt;
    return Convolution3x3{&x, &w, windows[0], windows[1]};
}

/// matrix[p][i], in a body of f32 or f64.
ScalarId entry(ScalarBody& body, const std::vector<std::vector<double>>& matrix, DType t, Expr p, Expr i) {
    std::vector<double> numbers;
    for (const auto& row : matrix) numbers.insert(numbers.end(), row.begin(), row.end());
    return body.table(t, std::make_shared<const std::vector<double>>(std::move(numbers)),
                      body.index(p * static_cast<int64_t>(matrix[0].size()) + i));
}

/// c[p, q, i, j] = left[p][i] * left[q][j].
ValueId nested(PatchWriter& patch, const std::vector<std::vector<double>>& matrix, DType t, std::string_view role) {
    const auto rows = static_cast<int64_t>(matrix.size()), columns = static_cast<int64_t>(matrix[0].size());
    Tensor out(t, {rows, rows, columns, columns});
    int64_t at = 0;
    for (const auto& p : matrix)
        for (const auto& q : matrix)
            for (const double i : p)
                for (const double j : q) out.set(at++, i * j);
    return patch.constant(std::move(out), role);
}

class Winograd {
  public:
    Winograd(const RewriteContext& context, PrimitiveId at, const Convolution3x3& c, int tile)
        : patch_(context, at),
          e_(*context.program().primitives[at].expr()),
          c_(c),
          tile_(tile),
          matrices_(winograd_matrices(tile)),
          out_(context.program().primitives[at].outputs[0]),
          t_(context.value(out_).dtype) {
        for (uint32_t a = 0; a < e_.extents.size(); ++a)
            if (a != c.y_dim.out && a != c.y_dim.tap && a != c.x_dim.out && a != c.x_dim.tap) plain_.push_back(a);
        shape_ = context.value(c.x->value).shape;
    }

    std::optional<Patch> run() {
        const Expr n = tile_ + 2;
        const Expr tiles_y = ceil_div(e_.extents[c_.y_dim.out], tile_);
        const Expr tiles_x = ceil_div(e_.extents[c_.x_dim.out], tile_);
        const std::set<uint32_t> x_axes = axes_of(c_.x->index), w_axes = axes_of(c_.w->index);

        // V, over a, b, the operand's own axes, the tiles; summed over the tile's inputs.
        const std::vector<uint32_t> of_x = those(x_axes);
        std::vector<Expr> extents = {n, n};
        for (const uint32_t a : of_x) extents.push_back(e_.extents[a]);
        extents.push_back(tiles_y);
        extents.push_back(tiles_x);
        const size_t rank = extents.size();
        extents.push_back(n);
        extents.push_back(n);
        std::vector<Expr> onto(e_.extents.size(), Expr(0));
        for (size_t k = 0; k < of_x.size(); ++k) onto[of_x[k]] = axis(2 + k);
        onto[c_.y_dim.out] = axis(rank - 2) * tile_ + axis(rank);  // with the tap 0
        onto[c_.x_dim.out] = axis(rank - 1) * tile_ + axis(rank + 1);
        Access x = *c_.x;
        if (!through_sums_alone(x)) return std::nullopt;
        for (Expr& i : x.index) i = substitute_axes(i, onto);
        for (Expr& i : x.valid) i = substitute_axes(i, onto);
        for (const WindowDim* d : {&c_.y_dim, &c_.x_dim}) {  // the last tiles may reach beyond
            x.valid.push_back(x.index[d->dim]);
            x.valid.push_back(shape_[d->dim] - 1 - x.index[d->dim]);
        }
        x.fill = 0;
        ExprWriter v(extents, rank, Reducer::Sum);
        const ScalarId b = v.body().binary(ScalarOp::Mul, entry(v.body(), matrices_.b, t_, axis(0), axis(rank)),
                                           entry(v.body(), matrices_.b, t_, axis(1), axis(rank + 1)));
        const ScalarId d = v.read(x.value, t_, x.index, x.valid, x.fill);
        const ValueId tiles = patch_.make(v.finish(v.body().binary(ScalarOp::Weigh, b, d)), t_, "tiles");

        // U, over a, b, the weights' own axes; summed over the taps.
        const std::vector<uint32_t> of_w = those(w_axes);
        std::vector<Expr> w_extents = {n, n};
        for (const uint32_t a : of_w) w_extents.push_back(e_.extents[a]);
        const size_t w_rank = w_extents.size();
        w_extents.push_back(3);
        w_extents.push_back(3);
        std::vector<Expr> w_onto(e_.extents.size(), Expr(0));
        for (size_t k = 0; k < of_w.size(); ++k) w_onto[of_w[k]] = axis(2 + k);
        w_onto[c_.y_dim.tap] = axis(w_rank);
        w_onto[c_.x_dim.tap] = axis(w_rank + 1);
        ExprWriter u(w_extents, w_rank, Reducer::Sum);
        const ScalarId g =
            u.read(nested(patch_, matrices_.g, t_, "G"), t_, {axis(0), axis(1), axis(w_rank), axis(w_rank + 1)});
        std::vector<Expr> w_index = c_.w->index;
        for (Expr& i : w_index) i = substitute_axes(i, w_onto);
        const ScalarId w = u.read(c_.w->value, t_, w_index);
        const ValueId weights = patch_.make(u.finish(u.body().binary(ScalarOp::Mul, g, w)), t_, "weights");

        // M, over a, b, the axes of the result, the tiles; summed over what the convolution sums over but the taps.
        std::vector<Expr> m_extents = {n, n}, m_onto(e_.extents.size(), Expr(0));
        for (const uint32_t a : plain_)
            if (a < e_.spatial) {
                m_onto[a] = axis(m_extents.size());
                m_extents.push_back(e_.extents[a]);
            }
        const size_t at_tiles = m_extents.size();
        m_extents.push_back(tiles_y);
        m_extents.push_back(tiles_x);
        const size_t m_rank = m_extents.size();
        for (const uint32_t a : plain_)
            if (a >= e_.spatial) {
                m_onto[a] = axis(m_extents.size());
                m_extents.push_back(e_.extents[a]);
            }
        std::vector<Expr> u_at = {axis(0), axis(1)}, v_at = u_at;
        for (const uint32_t a : of_w) u_at.push_back(m_onto[a]);
        for (const uint32_t a : of_x) v_at.push_back(m_onto[a]);
        v_at.push_back(axis(at_tiles));
        v_at.push_back(axis(at_tiles + 1));
        ExprWriter m(m_extents, m_rank, Reducer::Sum);
        const ScalarId mu = m.read(weights, t_, u_at), mv = m.read(tiles, t_, v_at);
        const ValueId products = patch_.make(m.finish(m.body().binary(ScalarOp::Mul, mu, mv)), t_, "products");

        // y, summed over a and b.
        std::vector<Expr> y_extents(e_.extents.begin(), e_.extents.begin() + static_cast<std::ptrdiff_t>(e_.spatial));
        const size_t s = y_extents.size();
        y_extents.push_back(n);
        y_extents.push_back(n);
        std::vector<Expr> at = {axis(s), axis(s + 1)};
        for (const uint32_t a : plain_)
            if (a < e_.spatial) at.push_back(axis(a));
        at.push_back(floor_div(axis(c_.y_dim.out), tile_));
        at.push_back(floor_div(axis(c_.x_dim.out), tile_));
        ExprWriter y(y_extents, s, Reducer::Sum);
        const ScalarId a =
            y.body().binary(ScalarOp::Mul, entry(y.body(), matrices_.a, t_, mod(axis(c_.y_dim.out), tile_), axis(s)),
                            entry(y.body(), matrices_.a, t_, mod(axis(c_.x_dim.out), tile_), axis(s + 1)));
        patch_.define(out_, y.finish(y.body().binary(ScalarOp::Weigh, a, y.read(products, t_, at))));
        return patch_.take();
    }

  private:
    /// Of the axes that are neither outputs nor taps of the window, those in the set.
    std::vector<uint32_t> those(const std::set<uint32_t>& set) const {
        std::vector<uint32_t> out;
        for (const uint32_t a : plain_)
            if (set.count(a) != 0) out.push_back(a);
        return out;
    }

    /// Whether the conditions know of out + tap alone: then the tile's input decides them.
    bool through_sums_alone(const Access& x) const {
        return std::all_of(x.valid.begin(), x.valid.end(), [&](Expr c) {
            for (const WindowDim* d : {&c_.y_dim, &c_.x_dim}) {
                const Expr moved = substitute(c, [&](Var v) -> std::optional<Expr> {
                    if (v == Var{VarKind::Axis, d->out}) return axis(d->out) - axis(d->tap);
                    return std::nullopt;
                });
                if (uses(moved, {VarKind::Axis, d->tap})) return false;
            }
            return true;
        });
    }

    PatchWriter patch_;
    const TensorExpr& e_;
    Convolution3x3 c_;
    int tile_;
    const WinogradMatrices& matrices_;
    ValueId out_;
    DType t_;
    std::vector<uint32_t> plain_;
    std::vector<Expr> shape_;
};

void winograd(const RewriteContext& context, PrimitiveId at, int tile, std::vector<Patch>& found) {
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
        if (auto patch = Winograd(context, at, *c, tile).run()) found.push_back(std::move(*patch));
    }
}

}  // namespace

std::span<const RewriteRule> winograd_rewrites() {
    static const std::vector<RewriteRule> rules = {
        {"winograd_2x2", "3x3 convolution = A^T (U V), tiles of 2x2",
         [](const RewriteContext& c, PrimitiveId at, std::vector<Patch>& found) { winograd(c, at, 2, found); }, true},
        {"winograd_4x4", "3x3 convolution = A^T (U V), tiles of 4x4",
         [](const RewriteContext& c, PrimitiveId at, std::vector<Patch>& found) { winograd(c, at, 4, found); }, true},
    };
    return rules;
}

}  // namespace tilewright
