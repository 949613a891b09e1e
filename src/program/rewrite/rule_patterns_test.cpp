// Random instances of each rule's pattern, used by rewrite_test.cpp and proof_test.cpp.

#include "program/rewrite/rewrite_test.h"

namespace tilewright {

ValueId PatternWriter::convolution(ValueId x, ValueId w, int64_t pad, int64_t stride, int64_t dilation) {
    return convolution(x, w, std::vector<WindowSteps>(b.shape(x).size() - 2, {pad, stride, dilation}));
}

ValueId PatternWriter::convolution(ValueId x, ValueId w, const std::vector<WindowSteps>& steps) {
    const Dims xs = b.shape(x), ws = b.shape(w);
    const size_t rank = steps.size();
    TensorExpr e;
    e.extents = {xs[0], ws[0]};
    for (size_t d = 0; d < rank; ++d) {
        const Expr reach = (ws[2 + d] - 1) * steps[d].dilation + 1;
        e.extents.push_back(floor_div(xs[2 + d] + 2 * steps[d].pad - reach, steps[d].stride) + 1);
    }
    e.spatial = 2 + rank;
    e.extents.insert(e.extents.end(), ws.begin() + 1, ws.end());
    e.reducer = Reducer::Sum;
    Access image{x, {axis(0), axis(e.spatial)}, {}, 0}, weights{w, {axis(1), axis(e.spatial)}, {}, 0};
    for (size_t d = 0; d < rank; ++d) {
        const Expr tap = axis(e.spatial + 1 + d);
        const Expr at = axis(2 + d) * steps[d].stride + tap * steps[d].dilation - steps[d].pad;
        image.index.push_back(at);
        image.valid.push_back(at);
        image.valid.push_back(xs[2 + d] - 1 - at);
        weights.index.push_back(tap);
    }
    e.accesses = {image, weights};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
    return b.emit(std::move(e), DType::F32, "convolution");
}

namespace {

using W = PatternWriter;

/// a[.., m, k] times a constant or computed b[.., k, n].
struct MatMul {
    Dims batch;
    Expr m, k, n;
    explicit MatMul(W& w) : batch(w.batch()), m(w.longer()), k(w.longer()), n(w.longer()) {}
    ValueId left(W& w) const { return w.input(W::with(batch, {m, k})); }
    ValueId right(W& w) const {
        return w.one_in(2) ? w.weights({k, n}) : w.input(W::with(w.one_in(2) ? batch : Dims(), {k, n}));
    }
};

struct Image {
    Expr n, c, h, o;
    explicit Image(W& w) : n(w.one_in(3) ? symbol("n") : w.dim(2)), c(w.longer(3)), h(w.upto(3, 7)), o(w.longer(4)) {}
    ValueId x(W& w) const { return w.input({n, c, h, h + w.upto(0, 2)}); }
    ValueId weights(W& w, int64_t k) const { return w.weights({o, c, k, k}); }
};

void factor_out_of_sum(W& w) {
    const MatMul p(w);
    const ValueId a = p.left(w), s = w.input(W::with(p.batch, {p.m, 1}));
    w.outputs = {w.b.reduce_map(
        Reducer::Sum, {a, s}, DType::F32,
        [&](ScalarBody& body, std::span<const ScalarId> x) {
            return body.binary(w.one_in(2) ? ScalarOp::Mul : ScalarOp::Div, x[0],
                               body.binary(ScalarOp::Add, x[1], body.constant(DType::F32, 9)));
        },
        {-1}, w.one_in(2), "sum")};
}

void factor_across_sum(W& w) {  // a division of whole rows, or of whole columns on the right
    const MatMul p(w);
    ValueId a = p.left(w), b = p.right(w);
    if (w.one_in(3)) {
        b = w.mul(w.input(W::with(p.batch, {p.k, p.n})), w.input(W::with(p.batch, {Expr(1), p.n})));
    } else {
        const ValueId rows = w.positive(w.input(W::with(w.one_in(3) ? Dims() : p.batch, {p.m, 1})));
        a = w.one_in(2) ? w.div(a, rows) : w.mul(rows, a);
    }
    w.outputs = {w.b.matmul(a, b)};
}

void scale_into_sum(W& w) {
    if (w.one_in(2)) {  // convolution, normalised per channel
        const Image i(w);
        const ValueId y = w.convolution(i.x(w), i.weights(w, w.one_in(2) ? 3 : 1), w.upto(0, 1), w.upto(1, 2));
        const ValueId scaled = w.mul(y, w.weights({i.o, 1, 1}));
        w.outputs = {w.one_in(2) ? scaled
                                 : w.b.map(
                                       {y}, DType::F32,
                                       [](ScalarBody& b, std::span<const ScalarId> x) {
                                           const ScalarId s = b.constant(DType::F32, 0.5);
                                           return b.binary(ScalarOp::Add, b.binary(ScalarOp::Mul, x[0], s),
                                                           b.constant(DType::F32, 3));
                                       },
                                       "affine")};
        return;
    }
    const MatMul p(w);  // attention's scale
    w.outputs = {w.b.binary(w.one_in(2) ? ScalarOp::Mul : ScalarOp::Div, w.b.matmul(p.left(w), p.right(w)), 3.0)};
}

void factor_to_weights(W& w) {
    if (w.one_in(2)) {
        const Image i(w);
        w.outputs = {w.convolution(w.mul(i.x(w), w.weights({i.c, 1, 1})), i.weights(w, 3), 1, 1)};
        return;
    }
    const MatMul p(w);
    const ValueId x = w.tanh(p.left(w));
    w.outputs = {w.b.matmul(w.mul(x, w.weights({p.k})), w.weights({p.k, p.n}))};
}

void shift_to_bias(W& w) {
    if (w.one_in(2)) {
        const Image i(w);
        w.outputs = {w.convolution(w.add(i.x(w), w.weights({i.c, 1, 1})), i.weights(w, 3), w.upto(0, 1), 1)};
        return;
    }
    const MatMul p(w);
    ValueId x = w.add(p.left(w), w.one_in(3) ? w.weights({1}) : w.weights({p.k}));
    if (w.one_in(2)) x = w.b.binary(ScalarOp::Mul, x, 0.5);
    w.outputs = {w.b.matmul(x, w.weights({p.k, p.n}))};
}

void fold_affine_chain(W& w) {
    const Dims d = W::with(w.batch(), {w.longer(), w.longer()});
    ValueId v = w.input(d);
    for (int64_t k = w.upto(2, 4); k > 0; --k) {
        static constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div};
        const ScalarOp op = kOps[w.upto(0, 3)];
        const ValueId c = w.broadcast_weights(d, 2);
        v = op == ScalarOp::Div || w.one_in(2) ? w.b.binary(op, v, c) : w.b.binary(op, c, v);
    }
    w.outputs = {v};
}

void sum_as_product(W& w) {
    const Dims d = W::with(w.batch(), {w.longer(), w.longer()});
    w.outputs = {w.b.reduce(Reducer::Sum, w.input(d), {w.one_in(2) ? -1 : -2}, w.one_in(2), "sum")};
}

void product_as_sum(W& w) {
    const MatMul p(w);
    w.outputs = {w.b.matmul(p.left(w), w.b.full({p.k, w.dim()}, DType::F32, w.one_in(2) ? 1.0 : 0.25))};
}

void common_operand(W& w) {
    const MatMul p(w);
    const ValueId a = p.left(w), s = w.input(W::with(p.batch, {p.k, p.n})), t = w.input(W::with(p.batch, {p.k, p.n}));
    const ScalarOp op = w.one_in(2) ? ScalarOp::Add : ScalarOp::Sub;
    if (w.one_in(2)) {
        w.outputs = {w.b.binary(op, w.b.matmul(a, s), w.b.matmul(a, t))};
    } else {
        const ValueId other = w.input(W::with(p.batch, {p.m, p.k}));
        w.outputs = {w.b.binary(op, w.b.matmul(a, s), w.b.matmul(other, s))};
    }
}

void common_factor(W& w) {
    const Dims d = W::with(w.batch(), {w.longer(), w.longer()});
    const ValueId f = w.one_in(2) ? w.input(d) : w.broadcast_weights(d, 1);
    const ValueId x = w.one_in(2) ? w.mul(f, w.input(d)) : w.mul(w.input(d), f), y = w.mul(f, w.input(d));
    w.outputs = {w.b.binary(w.one_in(2) ? ScalarOp::Add : ScalarOp::Sub, x, y)};
}

void merge_products(W& w) {
    const MatMul p(w);
    if (w.one_in(3)) {  // the right operand is shared
        const ValueId b = w.input(W::with(p.batch, {p.k, p.n}));
        w.outputs = {w.b.matmul(w.input(W::with(p.batch, {p.m, p.k})), b),
                     w.b.matmul(w.input(W::with(p.batch, {w.longer(), p.k})), b)};
        return;
    }
    const ValueId a = w.tanh(p.left(w));
    for (int64_t k = w.upto(2, 4); k > 0; --k) {
        const Expr n = w.longer();
        const bool batched = w.one_in(3);
        const ValueId b = batched ? w.input(W::with(p.batch, {p.k, n})) : w.weights({p.k, n});
        w.outputs.push_back(w.one_in(2) ? w.b.matmul(a, b) : w.tanh(w.b.matmul(a, b)));
    }
}

void reassociate(W& w) {
    const MatMul p(w);
    const Expr l = w.longer();
    const ValueId a = p.left(w), b = p.right(w);
    if (w.one_in(2))
        w.outputs = {w.b.matmul(w.b.matmul(a, b), w.input(W::with(p.batch, {p.n, l})))};
    else
        w.outputs = {w.b.matmul(w.input(W::with(p.batch, {l, p.m})), w.b.matmul(a, b))};
}

void flatten_axes(W& w) {
    const Image i(w);
    w.outputs = {w.convolution(i.x(w), i.weights(w, 1), 0, 1)};
}

void view_into_reader(W& w) {
    const MatMul p(w);
    const ValueId x = w.input(W::with(p.batch, {p.k, p.m}));
    std::vector<int64_t> swapped;
    for (size_t d = 0; d < p.batch.size() + 2; ++d) swapped.push_back(static_cast<int64_t>(d));
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    if (w.one_in(2)) {
        w.outputs = {w.b.matmul(w.b.transpose(x, swapped), p.right(w))};
        return;
    }
    const Dims zeros(p.batch.size() + 2, Expr(0)), ones(p.batch.size() + 2, Expr(1));
    w.outputs = {w.tanh(w.one_in(2) ? w.b.pad(x, ones, zeros, w.one_in(2) ? 0 : 2) : w.b.slice(x, -1, 1, p.m - 1))};
}

/// A view of any kind.
ValueId view_of(W& w, ValueId x, double fill) {
    const auto r = static_cast<int64_t>(w.b.rank(x));
    const Expr last = w.b.shape(x).back();
    switch (w.upto(0, 3)) {
        case 0: {
            std::vector<int64_t> order;
            for (int64_t d = 0; d < r; ++d) order.push_back(r - 1 - d);
            return w.b.transpose(x, order);
        }
        case 1:
            return w.b.slice(x, -1, 1, last - 1);
        case 2:
            return w.b.pad(x, Dims(static_cast<size_t>(r), Expr(1)), Dims(static_cast<size_t>(r), Expr(0)), fill);
        default:
            return w.b.reshape(x, {w.b.count(x)});
    }
}

void map_into_view(W& w) {
    const ValueId x = w.input(W::with(w.batch(), {w.longer(), w.longer()}));
    const ValueId f = w.one_in(2) ? w.tanh(x) : w.mul(x, w.broadcast_weights(w.b.shape(x), 2));
    w.outputs = {view_of(w, f, w.one_in(2) ? 0 : 0.5)};
}

void sum_into_view(W& w) {
    const MatMul p(w);
    w.outputs = {view_of(w, w.b.matmul(p.left(w), p.right(w)), 0)};
}

void view_after_map(W& w) {
    const MatMul p(w);
    const ValueId x = w.input(W::with(p.batch, {p.k, p.m}));
    std::vector<int64_t> order;
    for (size_t d = 0; d < p.batch.size() + 2; ++d) order.push_back(static_cast<int64_t>(d));
    std::rotate(order.begin(), order.begin() + 1, order.end());
    const ValueId v = w.one_in(2) ? w.b.transpose(x, order) : w.b.reshape(x, W::with(p.batch, {p.k * p.m}));
    w.outputs = {w.one_in(2) ? w.tanh(v) : w.mul(v, w.broadcast_weights(w.b.shape(v), 1))};
}

void concat_of_maps(W& w) {
    const Dims d = W::with(w.batch(), {w.longer(), w.longer()});
    std::vector<ValueId> parts;
    const int64_t along = w.one_in(2) ? -1 : -2;
    for (int64_t k = w.upto(2, 3); k > 0; --k) {
        Dims part = d;
        part[part.size() - static_cast<size_t>(-along)] = w.dim();
        parts.push_back(w.b.binary(ScalarOp::Max, w.input(part), 0.0));
    }
    w.outputs = {w.b.concat(parts, along)};
}

void concat_of_slices(W& w) {
    const Dims d = W::with(w.batch(), {w.longer(), w.upto(3, 8)});
    const ValueId x = w.input(d);
    const int64_t length = d.back().constant(), first = w.upto(0, 1), cut = w.upto(first + 1, length - 1);
    w.outputs = {w.b.concat(
        std::vector<ValueId>{w.b.slice(x, -1, first, cut - first), w.b.slice(x, -1, cut, length - cut)}, -1)};
}

void product_of_concat(W& w) {
    const MatMul p(w);
    const Expr more = w.dim();
    const ValueId x = p.left(w), y = w.input(W::with(p.batch, {p.m, more}));
    w.outputs = {w.b.matmul(w.b.concat(std::vector<ValueId>{x, y}, -1), w.weights({p.k + more, p.n}))};
}

/// Rows interpolated between rows, as in upsampling: c_r x[r // 2] + d_r x[m - 1 - r // 2], or c_r x[r // 2] only.
void product_of_linear_map(W& w) {
    const int64_t m = w.upto(2, 4), k = w.upto(2, 4), rows = 2 * m;
    const bool last = w.one_in(2);  // the reduction axis
    const ValueId x = w.input(last ? Dims{m, k} : Dims{k, m});
    const uint32_t along = last ? 1 : 0, row = 1 - along;
    TensorExpr e;
    e.extents = last ? std::vector<Expr>{rows, k} : std::vector<Expr>{k, rows};
    e.spatial = 2;
    std::vector<Expr> near = {axis(0), axis(1)}, far = near;
    near[row] = floor_div(axis(row), 2);
    far[row] = m - 1 - floor_div(axis(row), 2);
    e.accesses = {{x, near, {}, 0}, {w.weights({rows}), {axis(row)}, {}, 0}};
    ScalarId sum = e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32));
    if (w.one_in(2)) {
        e.accesses.push_back({x, far, {}, 0});
        e.accesses.push_back({w.weights({rows}), {axis(row)}, {}, 0});
        const ScalarId other = e.body.binary(ScalarOp::Mul, e.body.access(2, DType::F32), e.body.access(3, DType::F32));
        sum = e.body.binary(ScalarOp::Add, sum, other);
    }
    e.body.set_root(sum);
    const ValueId y = w.b.emit(std::move(e), DType::F32, "enlarged");
    const int64_t n = w.upto(2, 4);
    w.outputs = {last ? w.b.matmul(y, w.weights({k, n}))
                      : w.b.contract("oc,cp->op", w.weights({n, k}), y, DType::F32, "product")};
}

void sum_of_products(W& w) {
    const MatMul p(w);
    const Expr more = w.longer();
    w.outputs = {w.add(w.b.matmul(p.left(w), w.input({p.k, p.n})),
                       w.b.matmul(w.input(W::with(p.batch, {p.m, more})), w.input({more, p.n})))};
}

void enumerated(W& w) {
    const MatMul p(w);
    const ValueId a = p.left(w), b = w.input(W::with(p.batch, {p.k, p.n})), c = w.input(W::with(p.batch, {p.k, p.n}));
    const auto exp = [&](ValueId x) { return w.b.unary(ScalarOp::Exp, w.tanh(x)); };
    w.outputs = {w.one_in(2) ? w.add(w.b.matmul(a, b), w.b.matmul(a, c)) : w.mul(exp(b), exp(c))};
}

/// One, two or three dimensions; windows of a few taps, adjacent or two apart in at least one of them, with stride one
/// or two.
void winograd(W& w) {
    const size_t rank = static_cast<size_t>(w.upto(1, 3)), three = static_cast<size_t>(w.upto(0, int64_t(rank) - 1));
    const Expr c = w.longer(3), o = w.longer(3);
    Dims x = {w.one_in(3) ? symbol("n") : w.dim(2), c}, taps = {o, c};
    std::vector<WindowSteps> steps;
    for (size_t d = 0; d < rank; ++d) {
        const bool plain = d == three || w.one_in(2);
        taps.push_back(plain ? Expr(w.one_in(2) ? 3 : w.upto(2, 5)) : w.dim(3));
        steps.push_back({w.upto(0, 1), w.one_in(2) ? 1 : w.upto(1, 2), plain && !w.one_in(4) ? 1 : w.upto(1, 2)});
        x.push_back(w.upto(5, rank == 3 ? 6 : 9) + (plain && steps.back().dilation > 1 ? 3 : 0));
    }
    w.outputs = {w.convolution(w.input(x), w.weights(taps), steps)};
    if (w.one_in(2)) {
        Dims bias(rank, Expr(1));
        bias.insert(bias.begin(), o);
        w.outputs[0] = w.b.binary(ScalarOp::Max, w.add(w.outputs[0], w.weights(bias)), 0.0);
    }
}

}  // namespace

const std::vector<RulePattern>& rule_patterns() {
    static const std::vector<RulePattern> patterns = {
        {"factor_out_of_sum", factor_out_of_sum},
        {"factor_across_sum", factor_across_sum},
        {"scale_into_sum", scale_into_sum},
        {"factor_to_weights", factor_to_weights},
        {"shift_to_bias", shift_to_bias},
        {"fold_affine_chain", fold_affine_chain},
        {"sum_as_product", sum_as_product},
        {"product_as_sum", product_as_sum},
        {"common_operand", common_operand},
        {"common_factor", common_factor},
        {"merge_products", merge_products},
        {"reassociate", reassociate},
        {"flatten_axes", flatten_axes},
        {"view_into_reader", view_into_reader},
        {"map_into_view", map_into_view},
        {"sum_into_view", sum_into_view},
        {"view_after_map", view_after_map},
        {"concat_of_maps", concat_of_maps},
        {"concat_of_slices", concat_of_slices},
        {"product_of_concat", product_of_concat},
        {"product_of_linear_map", product_of_linear_map},
        {"sum_of_products", sum_of_products},
        {"enumerated", enumerated},
        {"winograd", winograd, 1e-4},  // its constants, such as 1/6, are not exact in f32
    };
    return patterns;
}

}  // namespace tilewright
