// Builder: elementwise functions, reductions, products.

#include <algorithm>

#include "base/error.h"
#include "program/builder.h"

namespace tilewright {

namespace {

bool is_predicate(ScalarOp op) { return op == ScalarOp::IsNan || op == ScalarOp::IsInf; }
ScalarId number(ScalarBody& body, DType t, double v) {
    const DType c = compute_type(t);
    return is_float(c) ? body.constant(c, v) : body.int_constant(c, static_cast<int64_t>(v));
}

}  // namespace

// --- elementwise

ValueId Builder::map(std::span<const ValueId> inputs, DType out, const Fn& f, std::string_view role) {
    std::vector<Dims> shapes;
    for (const ValueId v : inputs) shapes.push_back(shape(v));
    TensorExpr e;
    e.extents = broadcast(shapes);
    e.spatial = e.extents.size();
    std::vector<ScalarId> operands;
    for (size_t k = 0; k < inputs.size(); ++k) {
        e.accesses.push_back({inputs[k], broadcast_index(shapes[k], e.extents), {}, 0});
        operands.push_back(e.body.access(static_cast<uint32_t>(k), dtype(inputs[k])));
    }
    e.body.set_root(f(e.body, operands));
    return emit(std::move(e), out, role);
}

ValueId Builder::unary(ScalarOp op, ValueId a) {
    return map(
        {a}, is_predicate(op) ? DType::Bool : dtype(a),
        [op](ScalarBody& body, std::span<const ScalarId> x) { return body.unary(op, x[0]); }, to_string(op));
}

ValueId Builder::binary(ScalarOp op, ValueId a, ValueId b) {
    if (dtype(a) != dtype(b))
        fail(fmt::format("the operands have different types, {} and {}", to_string(dtype(a)), to_string(dtype(b))));
    return map(
        {a, b}, is_comparison(op) ? DType::Bool : dtype(a),
        [op](ScalarBody& body, std::span<const ScalarId> x) { return body.binary(op, x[0], x[1]); }, to_string(op));
}

ValueId Builder::binary(ScalarOp op, ValueId a, double constant) {
    const DType t = dtype(a);
    return map(
        {a}, is_comparison(op) ? DType::Bool : t,
        [&](ScalarBody& body, std::span<const ScalarId> x) { return body.binary(op, x[0], number(body, t, constant)); },
        to_string(op));
}

ValueId Builder::select(ValueId condition, ValueId a, ValueId b) {
    if (dtype(a) != dtype(b))
        fail(fmt::format("the choices have different types, {} and {}", to_string(dtype(a)), to_string(dtype(b))));
    return map(
        {condition, a, b}, dtype(a),
        [](ScalarBody& body, std::span<const ScalarId> x) { return body.select(x[0], x[1], x[2]); }, "select");
}

ValueId Builder::cast(ValueId a, DType to) {
    if (dtype(a) == to) return a;
    const bool rounds = to == DType::F16 || to == DType::BF16;
    return map(
        {a}, to,
        [&](ScalarBody& body, std::span<const ScalarId> x) { return body.cast(rounds ? to : compute_type(to), x[0]); },
        "cast");
}

ValueId Builder::full(Dims out_shape, DType t, double value) {
    TensorExpr e;
    e.extents = std::move(out_shape);
    e.spatial = e.extents.size();
    e.body.set_root(number(e.body, t, value));
    return emit(std::move(e), t, "full");
}

// --- reductions

ValueId Builder::reduce(Reducer reducer, ValueId a, const std::vector<int64_t>& axes, bool keep_dims,
                        std::string_view role) {
    return reduce_map(
        reducer, {a}, dtype(a), [](ScalarBody&, std::span<const ScalarId> x) { return x[0]; }, axes, keep_dims, role);
}

ValueId Builder::reduce_map(Reducer reducer, std::initializer_list<ValueId> inputs, DType out, const Fn& body,
                            const std::vector<int64_t>& axes, bool keep_dims, std::string_view role) {
    std::vector<Dims> shapes;
    for (const ValueId v : inputs) shapes.push_back(shape(v));
    const Dims common = broadcast(shapes);
    const std::vector<int64_t> reduced = normalize_axes(axes, common.size());
    TensorExpr e;
    std::vector<Expr> position(common.size());  // of each common dimension, over the new axes
    for (size_t k = 0; k < common.size(); ++k) {
        const bool gone = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(k)) != reduced.end();
        if (gone && !keep_dims) continue;
        if (!gone) position[k] = axis(e.extents.size());
        e.extents.push_back(gone ? Expr(1) : common[k]);
    }
    e.spatial = e.extents.size();
    for (size_t k = 0; k < common.size(); ++k) {
        if (std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(k)) == reduced.end()) continue;
        position[k] = axis(e.extents.size());
        e.extents.push_back(common[k]);
    }
    e.reducer = e.extents.size() > e.spatial ? reducer : Reducer::None;
    std::vector<ScalarId> operands;
    for (const ValueId v : inputs) {
        Access a{v, broadcast_index(shape(v), common), {}, 0};
        for (Expr& x : a.index) x = substitute_axes(x, position);
        operands.push_back(e.body.access(static_cast<uint32_t>(e.accesses.size()), dtype(v)));
        e.accesses.push_back(std::move(a));
    }
    e.body.set_root(body(e.body, operands));
    return emit(std::move(e), out, role);
}

ValueId Builder::mean(ValueId a, const std::vector<int64_t>& axes, bool keep_dims) {
    Expr count = 1;
    for (const int64_t k : normalize_axes(axes, rank(a))) count = count * shape(a)[static_cast<size_t>(k)];
    // The sum is accumulated in the compute type: a half-precision sum would overflow where the mean does not.
    const DType wide = compute_type(dtype(a));
    const ValueId sum = reduce_map(
        Reducer::Sum, {a}, wide, [](ScalarBody&, std::span<const ScalarId> x) { return x[0]; }, axes, keep_dims, "sum");
    return map(
        {sum}, dtype(a),
        [&](ScalarBody& body, std::span<const ScalarId> x) {
            return body.binary(ScalarOp::Div, x[0], body.cast(wide, body.index(count)));
        },
        "mean");
}

// --- products

ValueId Builder::matmul(ValueId a, ValueId b, std::string_view role) {
    const size_t ra = rank(a), rb = rank(b);
    if (ra == 0 || rb == 0) fail("a matrix product needs operands of rank 1 or more, and one is a scalar");
    const Dims &sa = shape(a), &sb = shape(b);
    const Expr ka = sa[ra - 1], kb = rb == 1 ? sb[0] : sb[rb - 2];
    require_equal(ka, kb,
                  fmt::format("shapes {} and {} cannot be multiplied: {} columns, {} rows", to_string(sa),
                              to_string(sb), ka.text(), kb.text()));
    const std::vector<Dims> batches = {Dims(sa.begin(), sa.end() - (ra == 1 ? 1 : 2)),
                                       Dims(sb.begin(), sb.end() - (rb == 1 ? 1 : 2))};
    TensorExpr e;
    e.extents = broadcast(batches);
    const Dims batch = e.extents;
    std::vector<Expr> ia = broadcast_index(batches[0], batch), ib = broadcast_index(batches[1], batch);
    if (ra > 1) {
        ia.push_back(axis(e.extents.size()));
        e.extents.push_back(sa[ra - 2]);
    }
    std::optional<Expr> column;
    if (rb > 1) {
        column = axis(e.extents.size());
        e.extents.push_back(sb[rb - 1]);
    }
    e.spatial = e.extents.size();
    const Expr k = axis(e.spatial);
    e.extents.push_back(kb.is_constant() ? kb : ka);
    ia.push_back(k);
    ib.push_back(k);
    if (column) ib.push_back(*column);
    e.reducer = Reducer::Sum;
    e.accesses = {{a, std::move(ia), {}, 0}, {b, std::move(ib), {}, 0}};
    const DType t = compute_type(dtype(a));
    const ScalarId x = e.body.cast(t, e.body.access(0, dtype(a))), y = e.body.cast(t, e.body.access(1, dtype(b)));
    e.body.set_root(e.body.binary(ScalarOp::Mul, x, y));
    return emit(std::move(e), dtype(a), role);
}

ValueId Builder::contract(std::string_view subscripts, ValueId a, ValueId b, DType out, std::string_view role) {
    const size_t arrow = subscripts.find("->"), comma = subscripts.find(',');
    TW_CHECK(arrow != std::string_view::npos && (comma != std::string_view::npos) == static_cast<bool>(b),
             "subscripts '{}'", subscripts);
    const std::string_view result = subscripts.substr(arrow + 2);
    std::vector<std::pair<ValueId, std::string_view>> operands = {{a, subscripts.substr(0, std::min(comma, arrow))}};
    if (b) operands.emplace_back(b, subscripts.substr(comma + 1, arrow - comma - 1));

    std::string labels(result);  // in axis order: the output's, then the reduction axes
    std::vector<std::optional<Expr>> extents(labels.size());
    for (const auto& [v, names] : operands) {
        if (names.size() != rank(v))
            fail(fmt::format("'{}' names {} dimensions of an operand of shape {}", names, names.size(),
                             to_string(shape(v))));
        for (size_t k = 0; k < names.size(); ++k) {
            size_t at = labels.find(names[k]);
            if (at == std::string::npos) {
                at = labels.size();
                labels += names[k];
                extents.emplace_back();
            }
            const Expr d = shape(v)[k];
            std::optional<Expr>& known = extents[at];
            if (known && !d.is_constant(1) && !known->is_constant(1))
                require_equal(*known, d,
                              fmt::format("dimension '{}' is {} in one operand and {} in another", names[k],
                                          known->text(), d.text()));
            if (!known || known->is_constant(1) || (d.is_constant() && !d.is_constant(1))) known = d;
        }
    }
    TensorExpr e;
    for (const auto& d : extents) {
        TW_CHECK(d.has_value(), "subscripts '{}'", subscripts);
        e.extents.push_back(*d);
    }
    e.spatial = result.size();
    e.reducer = e.extents.size() > e.spatial ? Reducer::Sum : Reducer::None;
    const DType t = compute_type(out);
    std::optional<ScalarId> root;
    for (const auto& [v, names] : operands) {
        Access access{v, {}, {}, 0};
        for (size_t k = 0; k < names.size(); ++k)
            access.index.push_back(shape(v)[k].is_constant(1) ? Expr(0) : axis(labels.find(names[k])));
        const ScalarId x = e.body.cast(t, e.body.access(static_cast<uint32_t>(e.accesses.size()), dtype(v)));
        e.accesses.push_back(std::move(access));
        root = root ? e.body.binary(ScalarOp::Mul, *root, x) : x;
    }
    e.body.set_root(*root);
    return emit(std::move(e), out, role);
}

}  // namespace tilewright
