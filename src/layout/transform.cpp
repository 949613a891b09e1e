// Transforms constants into their layouts at compile time.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

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

/// Interleaves: to[w * i + k] = from[i * across + k * along], k < w. Layouts of matrix instructions have such pairs and
/// quads.
template <class T, int kWidth>
void copy_interleaved(T* to, const T* from, int64_t n, int64_t across, int64_t along) {
    for (int64_t i = 0; i < n; ++i)
        for (int k = 0; k < kWidth; ++k) to[i * kWidth + k] = from[i * across + k * along];
}

/// Copies n x inner elements, whose places in the source are multiples of two strides.
template <class T>
void copy_block(std::byte* to, const std::byte* from, int64_t n, int64_t inner, int64_t across, int64_t along) {
    auto* out = reinterpret_cast<T*>(to);
    const auto* in = reinterpret_cast<const T*>(from);
    if (inner == 2) return copy_interleaved<T, 2>(out, in, n, across, along);
    if (inner == 4) return copy_interleaved<T, 4>(out, in, n, across, along);
    for (int64_t i = 0; i < n; ++i) copy_inner(out + i * inner, in + i * across, inner, along);
}

/// Writes the destination in blocks, each of its last two axes, or of the last one if that were more than kMostBytes;
/// elements excluded by the conditions stay zero. Blocks are in the order of the destination; those of whole cache
/// lines in the order of the source, whose lines each have the elements of several blocks.
class Blocks {
  public:
    Blocks(const Copy& c, std::byte* to, const std::byte* from) : c_(c), to_(to), from_(from) {
        while (c_.extents.size() < 2) insert_axis(0);
        if (const size_t last = c_.extents.size() - 1;
            c_.extents[last - 1] * c_.extents[last] * static_cast<int64_t>(c_.element) > kMostBytes)
            insert_axis(last);
        outer_ = c_.extents.size() - 2;
        rows_ = c_.extents[outer_];
        inner_ = c_.extents[outer_ + 1];
        axes_.resize(outer_);
        strides_.resize(outer_);
        std::iota(axes_.begin(), axes_.end(), size_t{0});
        int64_t stride = 1;
        for (size_t d = outer_; d-- > 0; stride *= c_.extents[d]) strides_[d] = stride;
        count_ = stride;
        if (bytes() < kLine) return;
        const std::vector<int64_t>& steps = c_.source.coefficients;
        std::stable_sort(axes_.begin(), axes_.end(),
                         [&](size_t a, size_t b) { return std::abs(steps[a]) > std::abs(steps[b]); });
    }

    int64_t count() const { return count_; }
    int64_t bytes() const { return rows_ * inner_ * static_cast<int64_t>(c_.element); }

    /// Blocks [begin, end) in their order.
    void write(int64_t begin, int64_t end) const {
        std::vector<int64_t> at(outer_, 0);
        int64_t rest = begin;
        for (size_t k = outer_; k-- > 0; rest /= c_.extents[axes_[k]]) at[axes_[k]] = rest % c_.extents[axes_[k]];
        for (int64_t b = begin; b < end; ++b) {
            block(std::inner_product(at.begin(), at.end(), strides_.begin(), int64_t{0}), at);
            for (size_t k = outer_; k-- > 0;) {
                const size_t d = axes_[k];
                if (++at[d] < c_.extents[d]) break;
                at[d] = 0;
            }
        }
    }

  private:
    /// An axis of one point.
    void insert_axis(size_t at) {
        const auto d = static_cast<std::ptrdiff_t>(at);
        c_.extents.insert(c_.extents.begin() + d, 1);
        c_.source.coefficients.insert(c_.source.coefficients.begin() + d, 0);
        for (Affine& f : c_.conditions) f.coefficients.insert(f.coefficients.begin() + d, 0);
    }

    static int64_t base_of(const Affine& f, const std::vector<int64_t>& at) {
        int64_t base = f.constant;
        for (size_t d = 0; d < at.size(); ++d) base += f.coefficients[d] * at[d];
        return base;
    }

    void block(int64_t b, const std::vector<int64_t>& at) const {
        const int64_t source = base_of(c_.source, at);
        const bool whole = std::all_of(c_.conditions.begin(), c_.conditions.end(), [&](const Affine& f) {
            return base_of(f, at) + std::min<int64_t>(0, f.coefficients[outer_] * (rows_ - 1)) +
                       std::min<int64_t>(0, f.coefficients[outer_ + 1] * (inner_ - 1)) >=
                   0;
        });
        if (whole) {
            copy_elements(b * rows_ * inner_, source, rows_, inner_);
            return;
        }
        for (int64_t r = 0; r < rows_; ++r) {
            int64_t lo = 0, hi = inner_;
            for (const Affine& f : c_.conditions) {
                const int64_t base = base_of(f, at) + f.coefficients[outer_] * r, k = f.coefficients[outer_ + 1];
                if (k == 0) {
                    if (base < 0) hi = 0;
                } else if (k > 0) {
                    lo = std::max(lo, -floor_div(base, k));
                } else {
                    hi = std::min(hi, floor_div(base, -k) + 1);
                }
            }
            if (hi > lo)
                copy_elements((b * rows_ + r) * inner_ + lo,
                              source + c_.source.coefficients[outer_] * r + c_.source.coefficients[outer_ + 1] * lo, 1,
                              hi - lo);
        }
    }

    /// n rows of `inner` elements from element `to` of the destination and element `from` of the source on.
    void copy_elements(int64_t to, int64_t from, int64_t n, int64_t inner) const {
        std::byte* out = to_ + static_cast<size_t>(to) * c_.element;
        const std::byte* in = from_ + static_cast<size_t>(from) * c_.element;
        const int64_t across = c_.source.coefficients[outer_], along = c_.source.coefficients[outer_ + 1];
        switch (c_.element) {
            case 1:
                return copy_block<uint8_t>(out, in, n, inner, across, along);
            case 2:
                return copy_block<uint16_t>(out, in, n, inner, across, along);
            case 4:
                return copy_block<uint32_t>(out, in, n, inner, across, along);
            default:
                return copy_block<uint64_t>(out, in, n, inner, across, along);
        }
    }

    Copy c_;
    std::byte* to_;
    const std::byte* from_;
    static constexpr int64_t kLine = 64, kMostBytes = 64 << 10;
    size_t outer_ = 0;
    std::vector<size_t> axes_;      ///< all but the last two; those of `write`'s outer loops first
    std::vector<int64_t> strides_;  ///< of the axes, in blocks of the destination
    int64_t count_ = 1;
    int64_t rows_ = 1, inner_ = 1;  ///< extents of the last two axes
};

void run_copy(const Copy& c, std::byte* to, const std::byte* from) {
    constexpr int64_t kPieceBytes = int64_t{1} << 20;
    const Blocks blocks(c, to, from);
    const int64_t count = blocks.count(), bytes = blocks.bytes();
    if (count == 0 || bytes == 0) return;
    const int64_t piece = std::max<int64_t>(1, kPieceBytes / bytes), pieces = (count + piece - 1) / piece;
    parallel_for(static_cast<size_t>(pieces), [&](size_t k) {
        const int64_t begin = static_cast<int64_t>(k) * piece;
        blocks.write(begin, std::min(count, begin + piece));
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
    Tensor out(logical.dtype(), physical, !from.valid.empty());
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
    Tensor out(physical.dtype(), shape, false);
    copy(shape, flat(memory, at), {}, byte_size(physical.dtype()), static_cast<std::byte*>(out.mutable_data()),
         static_cast<const std::byte*>(physical.data()));
    return out;
}

}  // namespace tilewright
