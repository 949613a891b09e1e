// Operators with data-dependent indices: gathers read and scatters write at the indices.

#include <algorithm>

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/checked_values.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

void require_indices(NodeContext& c, size_t input) {
    c.require(c.dtype(input) == DType::I32 || c.dtype(input) == DType::I64,
              fmt::format("indices must be 32- or 64-bit integers, and are {}", to_string(c.dtype(input))));
}

/// Input 1, each member of its tuples in [-extent, extent - 1]; one index selects `elements`.
ValueId checked_indices(NodeContext& c, const Dims& extents, Expr elements) {
    if (const auto known = c.b.int_contents(c.in(1)))  // Builder::wrapped_index checks constants
        if (std::all_of(known->begin(), known->end(), [](Expr e) { return e.is_constant(); })) return c.in(1);
    std::vector<Expr> lowest, highest;
    for (const Expr d : extents) {
        lowest.push_back(-d);
        highest.push_back(d - 1);
    }
    return checked_values(c, 1, std::move(lowest), std::move(highest), "index", elements);
}

// --- reading

void gather(NodeContext& c) {
    require_indices(c, 1);
    const auto along = static_cast<size_t>(c.axis_attr("axis", 0, c.rank(0)));
    const Dims data = c.shape(0);
    Dims others = data;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(along));
    c.out(0, c.b.gather(c.in(0), checked_indices(c, {data[along]}, product(others)), static_cast<int64_t>(along)));
}

/// out[i, j] = data[indices[i, j], j] (axis 0)
void gather_elements(NodeContext& c) {
    require_indices(c, 1);
    const auto along = static_cast<size_t>(c.axis_attr("axis", 0, c.rank(0)));
    c.require(c.rank(1) == c.rank(0), fmt::format("data of shape {} and indices of shape {} differ in rank",
                                                  to_string(c.shape(0)), to_string(c.shape(1))));
    const ValueId indices = checked_indices(c, {c.shape(0)[along]}, 1);
    TensorExpr e;
    e.extents = c.shape(1);
    e.spatial = e.extents.size();
    Access where{indices, {}, {}, 0}, what{c.in(0), {}, {}, 0};
    for (size_t k = 0; k < e.spatial; ++k) {
        where.index.push_back(axis(k));
        what.index.push_back(k == along ? c.b.wrapped_index(0, indices, c.shape(0)[k]) : axis(k));
    }
    e.accesses = {std::move(where), std::move(what)};
    e.body.set_root(e.body.access(1, c.dtype(0)));
    c.out(0, c.b.emit(std::move(e), c.dtype(0), "gather"));
}

/// out[batch, i, rest] = data[batch, indices[batch, i, 0], indices[batch, i, 1], ..., rest]
void gather_nd(NodeContext& c) {
    require_indices(c, 1);
    const Dims data = c.shape(0), indices = c.shape(1);
    c.require(!indices.empty() && !data.empty(), "the data and the indices should not be scalars");
    const auto batch = static_cast<size_t>(c.b.normalize_axis(c.node.attr_int("batch_dims", 0), indices.size()));
    if (!indices.back().is_constant())
        c.unsupported("the length of an index tuple must be known before the model runs");
    const auto tuple = static_cast<size_t>(indices.back().constant());
    c.require(tuple >= 1 && batch + tuple <= data.size(),
              fmt::format("tuples of {} indices behind {} batch dimensions do not fit data of shape {}", tuple, batch,
                          to_string(data)));
    const auto all = std::span(data);
    const ValueId where_from =
        checked_indices(c, Dims(all.begin() + batch, all.begin() + batch + tuple), product(all.subspan(batch + tuple)));
    TensorExpr e;
    e.extents.assign(indices.begin(), indices.end() - 1);
    const size_t points = e.extents.size();
    e.extents.insert(e.extents.end(), data.begin() + static_cast<std::ptrdiff_t>(batch + tuple), data.end());
    e.spatial = e.extents.size();
    Access what{c.in(0), {}, {}, 0};
    for (size_t k = 0; k < batch; ++k) {
        c.b.require_equal(data[k], indices[k],
                          fmt::format("data of shape {} and indices of shape {} differ in batch "
                                      "dimension {}",
                                      to_string(data), to_string(indices), k));
        what.index.push_back(axis(k));
    }
    for (size_t t = 0; t < tuple; ++t) {
        Access where{where_from, {}, {}, 0};
        for (size_t k = 0; k < points; ++k) where.index.push_back(axis(k));
        where.index.emplace_back(static_cast<int64_t>(t));
        e.accesses.push_back(std::move(where));
        what.index.push_back(c.b.wrapped_index(t, where_from, data[batch + t], t, tuple));
    }
    for (size_t k = points; k < e.spatial; ++k) what.index.push_back(axis(k));
    e.accesses.push_back(std::move(what));
    e.body.set_root(e.body.access(static_cast<uint32_t>(tuple), c.dtype(0)));
    c.out(0, c.b.emit(std::move(e), c.dtype(0), "gather"));
}

/// out[i, class] = on if indices[i] == class (negative ones count from the end), else off.
void one_hot(NodeContext& c) {
    c.require(c.b.count(c.in(1)).is_constant(1), "the depth must be a scalar");
    c.require(c.rank(2) == 1, "the values must be [off, on]");
    const Expr depth = c.b.read_int(c.b.cast(c.in(1), DType::I64));
    const size_t r = c.rank(0) + 1;
    const auto along = static_cast<size_t>(c.axis_attr("axis", -1, r));
    TensorExpr e;
    e.extents = c.shape(0);
    e.extents.insert(e.extents.begin() + static_cast<std::ptrdiff_t>(along), depth);
    e.spatial = r;
    Access where{c.in(0), {}, {}, 0};
    for (size_t k = 0; k < r; ++k)
        if (k != along) where.index.push_back(axis(k));
    e.accesses = {std::move(where), {c.in(2), {0}, {}, 0}, {c.in(2), {1}, {}, 0}};
    const DType t = c.dtype(2);
    const Sx index = Sx(e.body, e.body.access(0, c.dtype(0))).cast(DType::I64);
    const Sx own(e.body, e.body.index(axis(along))), from_end(e.body, e.body.index(axis(along) - depth));
    const Sx here = index.apply(ScalarOp::Eq, own).apply(ScalarOp::BitOr, index.apply(ScalarOp::Eq, from_end));
    e.body.set_root(here.choose(Sx(e.body, e.body.access(2, t)), Sx(e.body, e.body.access(1, t))));
    c.out(0, c.b.emit(std::move(e), t, "one_hot"));
}

// --- writing

using opaque::Combine;

Combine combine_attr(NodeContext& c) {
    const std::string reduction = c.node.attr_string("reduction", "none");
    if (reduction == "none") return Combine::Replace;
    if (reduction == "add") return Combine::Add;
    if (reduction == "mul") return Combine::Mul;
    if (reduction == "min") return Combine::Min;
    if (reduction == "max") return Combine::Max;
    c.fail(
        fmt::format("attribute 'reduction' should be none, add, mul, min or max, and is {}", quoted_name(reduction)));
}

void require_updates(NodeContext& c) {
    require_indices(c, 1);
    c.require(c.dtype(2) == c.dtype(0),
              fmt::format("data of type {} cannot be updated with {}", to_string(c.dtype(0)), to_string(c.dtype(2))));
}

void scatter_elements(NodeContext& c) {
    require_updates(c);
    const auto op = opaque::scatter_elements(c.axis_attr("axis", 0, c.rank(0)), combine_attr(c));
    c.out(0, c.b.emit_opaque(op, {c.in(0), c.in(1), c.in(2)}, {{c.dtype(0), c.shape(0)}}, "scatter").front());
}

void scatter_nd(NodeContext& c) {
    require_updates(c);
    const auto op = opaque::scatter_nd(combine_attr(c));
    c.out(0, c.b.emit_opaque(op, {c.in(0), c.in(1), c.in(2)}, {{c.dtype(0), c.shape(0)}}, "scatter").front());
}

/// The cache with `update` written along `axis` from write_indices[batch] on; circular mode wraps around at its end.
///     out[b, s] = 0 <= s - w[b] < n ? update[b, s - w[b]] : past[b, s]
void tensor_scatter(NodeContext& c) {
    const auto along = static_cast<size_t>(c.axis_attr("axis", -2, c.rank(0)));
    const std::string mode = c.node.attr_string("mode", "linear");
    c.require(mode == "linear" || mode == "circular",
              fmt::format("attribute 'mode' should be linear or circular, and is {}", quoted_name(mode)));
    c.require(c.rank(1) == c.rank(0) && c.dtype(1) == c.dtype(0), "the update must have the cache's rank and type");
    c.require(along != 0, "the cache is written along a dimension behind the batch");
    for (size_t k = 0; k < c.rank(0); ++k)
        if (k != along)
            c.b.require_equal(c.shape(1)[k], c.shape(0)[k],
                              fmt::format("an update of shape {} does not fit a cache of shape {}",
                                          to_string(c.shape(1)), to_string(c.shape(0))));
    c.b.require_at_least(c.shape(0)[along], c.shape(1)[along],
                         fmt::format("an update of shape {} does not fit a cache of shape {}", to_string(c.shape(1)),
                                     to_string(c.shape(0))));
    TensorExpr e;
    e.extents = c.shape(0);
    e.spatial = e.extents.size();
    const Expr length = c.shape(1)[along], extent = e.extents[along];
    Expr position = axis(along);
    std::vector<Expr> own;
    for (size_t k = 0; k < e.spatial; ++k) own.push_back(axis(k));
    std::optional<uint32_t> where;
    if (c.has(2)) {
        require_indices(c, 2);
        c.require(c.rank(2) == 1,
                  fmt::format("one place per example is expected, and their shape is {}", to_string(c.shape(2))));
        c.b.require_equal(
            c.shape(2)[0], c.shape(0)[0],
            fmt::format("{} places are given for {} examples", c.shape(2)[0].text(), c.shape(0)[0].text()));
        e.accesses.push_back({c.in(2), {axis(0)}, {}, 0});
        where = 0;
        position = position - load(0);
    }
    if (mode == "circular") position = mod(position, extent);
    const auto past = static_cast<uint32_t>(e.accesses.size());
    e.accesses.push_back({c.in(0), own, {}, 0});
    std::vector<Expr> shifted = own;
    shifted[along] = position;
    e.accesses.push_back({c.in(1), shifted, {position, length - 1 - position}, 0});
    const DType t = c.dtype(0);
    Sx from(e.body, e.body.index(axis(along)));
    if (where) from = from - Sx(e.body, e.body.access(*where, c.dtype(2))).cast(DType::I64);
    const Sx end(e.body, e.body.index(length));
    if (mode == "circular") from = from.apply(ScalarOp::FloorMod, Sx(e.body, e.body.index(extent)));
    const Sx inside = from.apply(ScalarOp::Ge, 0).apply(ScalarOp::BitAnd, from.apply(ScalarOp::Lt, end));
    e.body.set_root(inside.choose(Sx(e.body, e.body.access(past + 1, t)), Sx(e.body, e.body.access(past, t))));
    c.out(0, c.b.emit(std::move(e), t, "scatter"));
}

}  // namespace

std::vector<OpLowering> gather_scatter_lowerings() {
    return {
        {"", "Gather", 1, gather},
        {"", "GatherElements", 11, gather_elements},
        {"", "GatherND", 11, gather_nd},
        {"", "OneHot", 9, one_hot},
        {"", "Scatter", 9, scatter_elements},
        {"", "ScatterElements", 11, scatter_elements},
        {"", "ScatterND", 11, scatter_nd},
        {"", "TensorScatter", 24, tensor_scatter},
    };
}

}  // namespace tilewright
