// Builder: layout primitives, which move elements unchanged.

#include <algorithm>

#include "base/error.h"
#include "program/builder.h"

namespace tilewright {

namespace {

/// axes[0] * d1 * d2 + axes[1] * d2 + axes[2], over dimensions [first, last).
Expr linearize(std::span<const Expr> axes, std::span<const Expr> dims) {
    Expr e = 0;
    for (size_t k = 0; k < dims.size(); ++k) e = e * dims[k] + axes[k];
    return e;
}

/// The inverse: position -> one index per dimension.
void delinearize(Expr position, std::span<const Expr> dims, std::vector<Expr>& out) {
    Expr stride = product(dims);
    for (size_t k = 0; k < dims.size(); ++k) {
        if (dims[k].is_constant(1)) {
            out.push_back(0);
            continue;
        }
        if (k + 1 == dims.size())
            stride = 1;
        else
            stride = product(dims.subspan(k + 1));
        const Expr digit = floor_div(position, stride);
        // The first digit with an extent above 1 needs no modulus, because no digit precedes it.
        const bool first = std::all_of(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(k),
                                       [](Expr d) { return d.is_constant(1); });
        out.push_back(first ? digit : mod(digit, dims[k]));
    }
}

/// Ranges of dimensions of the input and the output that cover the same elements: [a, b) and [c, d).
struct Group {
    size_t in_begin, in_end, out_begin, out_end;
};

/// Cuts both shapes where the products of their leading (then: trailing) dimensions agree.
///     [b, s, 768] -> [b, s, 12, 64]    gives    b : b, s : s, 768 : 12 64
std::vector<Group> matching_groups(const Dims& in, const Dims& out) {
    std::vector<Group> front, back;
    size_t i = 0, j = 0;  // end of the matched leading dimensions
    for (bool found = true; found;) {
        found = false;
        Expr p = 1;
        for (size_t m = i; m < in.size() && !found; ++m) {
            p = p * in[m];
            Expr q = 1;
            for (size_t n = j; n < out.size() && !found; ++n) {
                q = q * out[n];
                if (!(p == q)) continue;
                front.push_back({i, m + 1, j, n + 1});
                i = m + 1;
                j = n + 1;
                found = true;
            }
        }
    }
    size_t in_end = in.size(), out_end = out.size();
    for (bool found = true; found;) {
        found = false;
        Expr p = 1;
        for (size_t m = in_end; m > i && !found; --m) {
            p = p * in[m - 1];
            Expr q = 1;
            for (size_t n = out_end; n > j && !found; --n) {
                q = q * out[n - 1];
                if (!(p == q)) continue;
                back.push_back({m - 1, in_end, n - 1, out_end});
                in_end = m - 1;
                out_end = n - 1;
                found = true;
            }
        }
    }
    if (i < in_end || j < out_end) front.push_back({i, in_end, j, out_end});
    front.insert(front.end(), back.rbegin(), back.rend());
    return front;
}

/// The common dimensions of the parts of a concatenation; a constant is preferred to an unknown dimension.
Dims common_dims(Builder& b, std::span<const ValueId> parts, size_t along) {
    Dims dims = b.shape(parts[0]);
    for (const ValueId v : parts) {
        const Dims& s = b.shape(v);
        if (s.size() != dims.size())
            b.fail(fmt::format("the parts have different ranks: {} and {}", to_string(dims), to_string(s)));
        for (size_t k = 0; k < s.size(); ++k) {
            if (k == along || s[k] == dims[k]) continue;
            b.require_equal(dims[k], s[k],
                            fmt::format("the parts have shapes {} and {}, which differ in dimension {}",
                                        to_string(dims), to_string(s), k));
            if (s[k].is_constant()) dims[k] = s[k];
        }
    }
    return dims;
}

}  // namespace

ValueId Builder::view(ValueId a, Dims out_shape, std::vector<Expr> index, std::string_view role,
                      std::vector<Expr> valid, double fill) {
    bool identity = valid.empty() && out_shape == shape(a);
    for (size_t k = 0; k < index.size() && identity; ++k)
        identity = index[k] == axis(k) || (out_shape[k].is_constant(1) && index[k].is_constant(0));
    if (identity) return a;
    TensorExpr e;
    e.extents = std::move(out_shape);
    e.spatial = e.extents.size();
    e.accesses = {{a, std::move(index), std::move(valid), fill}};
    e.body.set_root(e.body.access(0, dtype(a)));
    return emit(std::move(e), dtype(a), role);
}

ValueId Builder::copy(ValueId a, std::string_view role) {
    materialize(a);
    TensorExpr e;
    e.extents = shape(a);
    e.spatial = e.extents.size();
    Access access{a, {}, {}, 0};
    for (size_t k = 0; k < e.spatial; ++k) access.index.push_back(axis(k));
    e.accesses = {std::move(access)};
    e.body.set_root(e.body.access(0, dtype(a)));
    return append(std::move(e), dtype(a), role);
}

ValueId Builder::transpose(ValueId a, const std::vector<int64_t>& permutation) {
    const std::vector<int64_t> p = normalize_axes(permutation, rank(a));
    if (p.size() != rank(a)) fail(fmt::format("the permutation has {} axes and the tensor has {}", p.size(), rank(a)));
    Dims out;
    std::vector<Expr> index(p.size());
    for (size_t k = 0; k < p.size(); ++k) {
        out.push_back(shape(a)[static_cast<size_t>(p[k])]);
        index[static_cast<size_t>(p[k])] = axis(k);
    }
    return view(a, std::move(out), std::move(index), "transpose");
}

ValueId Builder::reshape(ValueId a, Dims out) {
    const Dims& in = shape(a);
    if (in == out) return a;
    const Expr before = product(in), after = product(out);
    require_equal(before, after,
                  fmt::format("{} elements of shape {} do not make a tensor of shape {}", before.text(), to_string(in),
                              to_string(out)),
                  "element counts");
    return reshaped(a, std::move(out));
}

ValueId Builder::reshaped(ValueId a, Dims out) {
    const Dims& in = shape(a);
    if (in == out) return a;
    const Expr after = product(out);
    const bool numbers = std::all_of(out.begin(), out.end(), [](Expr d) { return d.is_constant(); });
    if (const Tensor* t = contents(a); t != nullptr && numbers) {
        Shape s;
        for (const Expr d : out) s.push_back(d.constant());
        return constant(t->reshaped(std::move(s)), "reshape");
    }
    if (pending_.count(a) != 0 && after.is_constant()) return int_values(int_values_.at(a), std::move(out), dtype(a));
    std::vector<Expr> axes, index;
    for (size_t k = 0; k < out.size(); ++k) axes.push_back(axis(k));
    for (const Group& g : matching_groups(in, out)) {
        const Expr position = linearize(std::span(axes).subspan(g.out_begin, g.out_end - g.out_begin),
                                        std::span(out).subspan(g.out_begin, g.out_end - g.out_begin));
        delinearize(position, std::span(in).subspan(g.in_begin, g.in_end - g.in_begin), index);
    }
    return view(a, std::move(out), std::move(index), "reshape");
}

ValueId Builder::expand(ValueId a, const Dims& target) {
    const std::vector<Dims> shapes = {shape(a), target};
    const Dims out = broadcast(shapes);
    return view(a, out, broadcast_index(shape(a), out), "expand");
}

ValueId Builder::unsqueeze(ValueId a, std::vector<int64_t> axes) {
    const size_t r = rank(a) + axes.size();
    axes = normalize_axes(axes, r);
    Dims out;
    size_t next = 0;
    for (size_t k = 0; k < r; ++k) {
        const bool fresh = std::find(axes.begin(), axes.end(), static_cast<int64_t>(k)) != axes.end();
        out.push_back(fresh ? Expr(1) : shape(a)[next++]);
    }
    return reshaped(a, std::move(out));
}

ValueId Builder::squeeze(ValueId a, std::vector<int64_t> axes) {
    axes = normalize_axes(axes, rank(a));
    Dims out;
    for (size_t k = 0; k < rank(a); ++k) {
        const Expr d = shape(a)[k];
        if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(k)) == axes.end())
            out.push_back(d);
        else
            require_equal(
                d, 1, fmt::format("dimension {} of shape {} is not 1 and cannot be squeezed", k, to_string(shape(a))));
    }
    return reshaped(a, std::move(out));
}

ValueId Builder::slice(ValueId a, int64_t along, Expr start, Expr count, Expr step) {
    const auto k = static_cast<size_t>(normalize_axis(along, rank(a)));
    Dims out = shape(a);
    out[k] = count;
    std::vector<Expr> index;
    for (size_t d = 0; d < out.size(); ++d) index.push_back(axis(d));
    index[k] = start + axis(k) * step;
    return view(a, std::move(out), std::move(index), "slice");
}

/// Maximum parts per concatenation: each part is a select on every element, in one kernel. More parts are first
/// concatenated in groups.
constexpr size_t kMaxParts = 64;

ValueId Builder::concat(std::span<const ValueId> parts, int64_t along) {
    if (parts.empty()) fail("there is nothing to concatenate");
    if (parts.size() > kMaxParts) {
        std::vector<ValueId> groups;
        groups.reserve(parts.size() / kMaxParts + 1);
        for (size_t at = 0; at < parts.size(); at += kMaxParts)
            groups.push_back(concat(parts.subspan(at, std::min(kMaxParts, parts.size() - at)), along));
        return concat(groups, along);
    }
    const auto k = static_cast<size_t>(normalize_axis(along, rank(parts[0])));
    TensorExpr e;
    e.extents = common_dims(*this, parts, k);
    e.spatial = e.extents.size();
    std::vector<std::pair<ScalarId, Expr>> pieces;  // the element, and the end of its part
    Expr offset = 0;
    for (const ValueId v : parts) {
        if (dtype(v) != dtype(parts[0]))
            fail(fmt::format("the parts have different types, {} and {}", to_string(dtype(parts[0])),
                             to_string(dtype(v))));
        const Expr d = shape(v)[k];
        if (d.is_constant(0)) continue;
        Access access{v, {}, {axis(k) - offset, offset + d - 1 - axis(k)}, 0};
        for (size_t n = 0; n < e.spatial; ++n) access.index.push_back(n == k ? axis(n) - offset : axis(n));
        pieces.emplace_back(e.body.access(static_cast<uint32_t>(e.accesses.size()), dtype(v)), offset + d);
        e.accesses.push_back(std::move(access));
        offset = offset + d;
    }
    if (pieces.empty()) return parts[0];
    if (pieces.size() == 1) return e.accesses[0].value;
    e.extents[k] = offset;
    // select(i0 < 2, a[i0], select(i0 < 5, b[i0 - 2], c[i0 - 5]))
    ScalarId chain = pieces.back().first;
    for (size_t n = pieces.size() - 1; n-- > 0;) {
        const ScalarId left = e.body.index(axis(k) - pieces[n].second);
        const ScalarId inside = e.body.binary(ScalarOp::Lt, left, e.body.int_constant(DType::I64, 0));
        chain = e.body.select(inside, pieces[n].first, chain);
    }
    e.body.set_root(chain);
    return emit(std::move(e), dtype(parts[0]), "concat");
}

ValueId Builder::pad(ValueId a, const Dims& before, const Dims& after, double fill) {
    TW_CHECK(before.size() == rank(a) && after.size() == rank(a));
    Dims out;
    std::vector<Expr> index, valid;
    for (size_t k = 0; k < rank(a); ++k) {
        const Expr d = shape(a)[k];
        out.push_back(before[k] + d + after[k]);
        index.push_back(axis(k) - before[k]);
        valid.push_back(index.back());
        valid.push_back(d - 1 - index.back());
        if (before[k].is_constant(0) && after[k].is_constant(0)) valid.resize(valid.size() - 2);
    }
    return view(a, std::move(out), std::move(index), "pad", std::move(valid), fill);
}

Expr Builder::wrapped_index(size_t slot, ValueId indices, Expr extent, size_t k, size_t n) {
    const auto known = int_contents(indices);
    if (!known) {
        // In bounds for all contents, unless the dimension is empty.
        require_at_least(extent, min(count(indices), 1), "a dimension of 0 is indexed");
        return mod(load(slot), extent);
    }
    bool all_inside = true, all_from_end = true;
    for (size_t i = k; i < known->size(); i += n) {
        const Expr e = (*known)[i];
        const bool inside = prove_nonnegative(e, {}) && prove_less(e, extent, {});
        const bool from_end = prove_nonnegative(-e - 1, {}) && prove_nonnegative(e + extent, {});
        if (e.is_constant() && extent.is_constant() && !inside && !from_end)
            fail(fmt::format("index {} is outside a dimension of {}", e.text(), extent.text()));
        if (e.is_constant())
            require_at_least(extent, e.constant() < 0 ? -e : e + 1,
                             fmt::format("index {} is outside a dimension of {}", e.text(), extent.text()));
        all_inside = all_inside && inside;
        all_from_end = all_from_end && from_end;
    }
    if (all_inside) return load(slot);
    return all_from_end ? load(slot) + extent : mod(load(slot), extent);
}

ValueId Builder::gather(ValueId a, ValueId indices, int64_t along) {
    const auto k = static_cast<size_t>(normalize_axis(along, rank(a)));
    const size_t r = rank(indices);
    const Expr extent = shape(a)[k];
    const Expr taken = wrapped_index(0, indices, extent);
    TensorExpr e;
    Access where{indices, {}, {}, 0}, what{a, {}, {}, 0};
    for (size_t d = 0; d < k; ++d) {
        what.index.push_back(axis(d));
        e.extents.push_back(shape(a)[d]);
    }
    what.index.push_back(taken);
    for (size_t d = 0; d < r; ++d) {
        where.index.push_back(axis(k + d));
        e.extents.push_back(shape(indices)[d]);
    }
    for (size_t d = k + 1; d < rank(a); ++d) {
        what.index.push_back(axis(d + r - 1));
        e.extents.push_back(shape(a)[d]);
    }
    e.spatial = e.extents.size();
    e.accesses = {std::move(where), std::move(what)};
    e.body.set_root(e.body.access(1, dtype(a)));
    return emit(std::move(e), dtype(a), "gather");
}

}  // namespace tilewright
