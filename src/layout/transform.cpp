// Transforms constants into their layouts at compile time.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "layout/layout.h"

namespace tilewright {

namespace {

/// c0 + sum of c[k] * i[k]: an offset or a condition as a function of the loop indices.
struct Affine {
    int64_t constant = 0;
    std::vector<int64_t> coefficients;
};

std::optional<Affine> affine_of(Expr e, size_t axes) {
    Affine a;
    a.coefficients.assign(axes, 0);
    a.constant = e.constant();
    for (const Term& t : e.terms()) {
        if (t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Var || t.atoms[0]->var.kind != VarKind::Axis)
            return std::nullopt;
        a.coefficients.at(t.atoms[0]->var.id) += t.coefficient;
    }
    return a;
}

struct Copy {
    std::vector<int64_t> extents;
    Affine source;                   ///< element offset in the source
    std::vector<Affine> conditions;  ///< each >= 0
    size_t element = 4;
};

template <class T>
void copy_inner(T* to, const T* from, int64_t n, int64_t stride) {
    if (stride == 1) {
        std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
        return;
    }
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}

/// Writes rows [begin, end) of the destination (along its last axis); elements excluded by the conditions stay zero.
void copy_rows(const Copy& c, std::byte* to, const std::byte* from, int64_t begin, int64_t end) {
    const size_t rank = c.extents.size();
    const int64_t inner = rank == 0 ? 1 : c.extents[rank - 1];
    std::vector<int64_t> at(rank, 0);
    int64_t rest = begin;
    for (size_t d = rank < 2 ? 0 : rank - 1; d-- > 0; rest /= c.extents[d]) at[d] = rest % c.extents[d];
    const int64_t stride = rank == 0 ? 0 : c.source.coefficients[rank - 1];
    for (int64_t r = begin; r < end; ++r) {
        int64_t lo = 0, hi = inner;
        for (const Affine& f : c.conditions) {
            int64_t base = f.constant;
            for (size_t d = 0; d + 1 < rank; ++d) base += f.coefficients[d] * at[d];
            const int64_t k = rank == 0 ? 0 : f.coefficients[rank - 1];
            if (k == 0) {
                if (base < 0) hi = 0;
            } else if (k > 0) {
                lo = std::max(lo, -floor_div(base, k));
            } else {
                hi = std::min(hi, floor_div(base, -k) + 1);
            }
        }
        if (hi > lo) {
            int64_t offset = c.source.constant;
            for (size_t d = 0; d + 1 < rank; ++d) offset += c.source.coefficients[d] * at[d];
            offset += stride * lo;
            std::byte* out = to + static_cast<size_t>(r * inner + lo) * c.element;
            const std::byte* in = from + static_cast<size_t>(offset) * c.element;
            switch (c.element) {
                case 1:
                    copy_inner(reinterpret_cast<uint8_t*>(out), reinterpret_cast<const uint8_t*>(in), hi - lo, stride);
                    break;
                case 2:
                    copy_inner(reinterpret_cast<uint16_t*>(out), reinterpret_cast<const uint16_t*>(in), hi - lo,
                               stride);
                    break;
                case 4:
                    copy_inner(reinterpret_cast<uint32_t*>(out), reinterpret_cast<const uint32_t*>(in), hi - lo,
                               stride);
                    break;
                default:
                    copy_inner(reinterpret_cast<uint64_t*>(out), reinterpret_cast<const uint64_t*>(in), hi - lo,
                               stride);
            }
        }
        for (size_t d = rank < 2 ? 0 : rank - 1; d-- > 0;) {
            if (++at[d] < c.extents[d]) break;
            at[d] = 0;
        }
    }
}

void run_copy(const Copy& c, std::byte* to, const std::byte* from) {
    constexpr int64_t kPieceBytes = int64_t{1} << 20;
    const size_t rank = c.extents.size();
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < rank; ++d) rows *= c.extents[d];
    const int64_t row_bytes = (rank == 0 ? 1 : c.extents[rank - 1]) * static_cast<int64_t>(c.element);
    if (rows == 0 || row_bytes == 0) return;
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / row_bytes), pieces = (rows + piece - 1) / piece;
    parallel_for(static_cast<size_t>(pieces), [&](size_t k) {
        const int64_t begin = static_cast<int64_t>(k) * piece;
        copy_rows(c, to, from, begin, std::min(rows, begin + piece));
    });
}

Expr flat(std::span<const Expr> shape, std::span<const Expr> index) {
    Expr offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + index[d];
    return offset;
}

/// out[i] = valid(i) ? in[offset(i)] : 0, by evaluation: the slow path for maps that are not affine.
void evaluate_copy(const Shape& extents, Expr offset, const std::vector<Expr>& valid, size_t element, std::byte* to,
                   const std::byte* from) {
    std::vector<int64_t> at(extents.size(), 0);
    const int64_t count = element_count(extents);
    for (int64_t i = 0; i < count; ++i) {
        Env env;
        env.axes = at;
        if (std::all_of(valid.begin(), valid.end(), [&](Expr e) { return evaluate(e, env) >= 0; }))
            std::memcpy(to + static_cast<size_t>(i) * element,
                        from + static_cast<size_t>(evaluate(offset, env)) * element, element);
        for (size_t d = extents.size(); d-- > 0;) {
            if (++at[d] < extents[d]) break;
            at[d] = 0;
        }
    }
}

void copy(const Shape& extents, Expr offset, const std::vector<Expr>& valid, size_t element, std::byte* to,
          const std::byte* from) {
    std::vector<Expr> e(extents.begin(), extents.end());
    const Ranges ranges = Ranges::of_extents(e);
    Copy c;
    c.extents = extents;
    c.element = element;
    const Expr simple = simplify(offset, ranges);
    const auto source = affine_of(simple, extents.size());
    bool ok = source.has_value();
    if (ok) c.source = *source;
    std::vector<Expr> open;
    for (const Expr& v : valid) {
        const Expr s = simplify(v, ranges);
        if (prove_nonnegative(s, ranges)) continue;
        open.push_back(s);
        const auto a = affine_of(s, extents.size());
        ok = ok && a.has_value();
        if (a) c.conditions.push_back(*a);
    }
    if (ok)
        run_copy(c, to, from);
    else
        evaluate_copy(extents, simple, open, element, to, from);
}

Shape constant_shape(std::span<const Expr> shape) {
    Shape out;
    for (const Expr& e : shape) {
        TW_CHECK(e.is_constant());
        out.push_back(e.constant());
    }
    return out;
}

std::vector<Expr> axes(size_t n) {
    std::vector<Expr> out;
    for (size_t i = 0; i < n; ++i) out.push_back(axis(i));
    return out;
}

}  // namespace

Tensor to_physical(const Layout& layout, const Tensor& logical) {
    if (layout.is_identity()) return logical;
    const std::vector<Expr> shape(logical.shape().begin(), logical.shape().end());
    const Shape physical = constant_shape(physical_shape(layout, shape));
    const LogicalIndex from = logical_index(layout, shape, axes(physical.size()));
    Tensor out(logical.dtype(), physical);
    copy(physical, flat(shape, from.index), from.valid, byte_size(logical.dtype()),
         static_cast<std::byte*>(out.mutable_data()), static_cast<const std::byte*>(logical.data()));
    return out;
}

Tensor to_logical(const Layout& layout, const Tensor& physical, const Shape& shape) {
    if (layout.is_identity()) return physical;
    const std::vector<Expr> dims(shape.begin(), shape.end());
    const std::vector<Expr> memory = physical_shape(layout, dims);
    TW_CHECK(constant_shape(memory) == physical.shape());
    const std::vector<Expr> at = physical_index(layout, dims, axes(shape.size()));
    Tensor out(physical.dtype(), shape);
    copy(shape, flat(memory, at), {}, byte_size(physical.dtype()), static_cast<std::byte*>(out.mutable_data()),
         static_cast<const std::byte*>(physical.data()));
    return out;
}

}  // namespace tilewright
