#include "orchestrate/paired_operands.h"

#include <algorithm>
#include <optional>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

constexpr int64_t kLeastRows = 8;  // fewer do not repay the copy
constexpr int64_t kRun = 32;       // elements of a row of a tile register

/// A product of two computed tensors.
struct Product {
    uint32_t left = 0, right = 0;    ///< slots
    size_t columns = 0, sum = 0;     ///< axes
    int64_t extent = 0, padded = 0;  ///< of the sum
};

bool uses_axis(Expr e, size_t a) { return uses(e, {VarKind::Axis, static_cast<uint32_t>(a)}); }

/// Whether neighbours along the axis are contiguous: it is the fastest term of the last index, and in no other.
bool contiguous_along(const std::vector<Expr>& index, size_t a) {
    if (index.empty()) return false;
    const auto linear = linear_in(index.back(), {VarKind::Axis, static_cast<uint32_t>(a)});
    return linear && linear->coefficient.is_constant(1) &&
           std::none_of(index.begin(), index.end() - 1, [&](Expr i) { return uses_axis(i, a); });
}

/// The axis along which the result is contiguous, if it fills vectors.
std::optional<size_t> columns_of(const TensorExpr& e) {
    for (size_t a = e.spatial; a-- > 0;)
        if (contiguous_along(result_index(e), a))
            return e.extents[a].is_constant() && e.extents[a].constant() >= kTileColumns ? std::optional(a)
                                                                                         : std::nullopt;
    return std::nullopt;
}

bool has_rows(const TensorExpr& e, const Access& left, const Access& right) {
    for (size_t a = 0; a < e.spatial; ++a) {
        const bool many = !e.extents[a].is_constant() || e.extents[a].constant() >= kLeastRows;
        if (many && index_uses(left.index, a) && !index_uses(right.index, a)) return true;
    }
    return false;
}

/// Whether the access reads a computed tensor of f32 or `type`, without conditions.
bool is_plain(const Program& program, const Access& x, DType type) {
    const DType t = program.values[x.value].dtype;
    return (t == DType::F32 || t == type) && !program.is_constant(x.value) && x.valid.empty() && !uses_load(x.index);
}

std::optional<Product> product_of(const Program& program, const Primitive& p, DType type) {
    const TensorExpr* e = p.expr();
    const auto c = e != nullptr ? contraction(*e) : std::nullopt;
    if (!c || c->type != DType::F32 || !c->reads_two()) return std::nullopt;
    const auto columns = columns_of(*e);
    if (!columns) return std::nullopt;
    const uint32_t first = *c->factors[0].slot, second = *c->factors[1].slot;
    const bool of_first = index_uses(e->accesses[first].index, *columns);
    if (of_first == index_uses(e->accesses[second].index, *columns)) return std::nullopt;
    Product out;
    out.columns = *columns;
    out.left = of_first ? second : first;
    out.right = of_first ? first : second;
    const Access &left = e->accesses[out.left], &right = e->accesses[out.right];
    if (!is_plain(program, left, type) || !is_plain(program, right, type) || !has_rows(*e, left, right))
        return std::nullopt;
    for (size_t r = e->spatial; r < e->extents.size(); ++r) {
        if (!index_uses(right.index, r) || !contiguous_along(left.index, r) || !e->extents[r].is_constant() ||
            e->extents[r].constant() < kRun / 2)
            continue;
        out.sum = r;
        out.extent = e->extents[r].constant();
        const bool divides = tile_step(out.extent, MatrixType::BF16) >= kRun / 2;
        out.padded = divides ? out.extent : (out.extent + kRun - 1) / kRun * kRun;
        return out;
    }
    return std::nullopt;
}

/// The spatial axes along which the access moves, without `columns`.
std::vector<size_t> outer_axes(const TensorExpr& e, const Access& x, size_t columns) {
    std::vector<size_t> out;
    for (size_t a = 0; a < e.spatial; ++a)
        if (a != columns && index_uses(x.index, a)) out.push_back(a);
    return out;
}

std::vector<Expr> as_index(const std::vector<size_t>& axes) {
    std::vector<Expr> out;
    out.reserve(axes.size());
    for (const size_t a : axes) out.push_back(axis(a));
    return out;
}

class Pairer {
  public:
    Pairer(const Program& program, DType type, const ProductFilter& may) : p_(program), type_(type), may_(may) {}

    PairedOperands run() {
        PairedOperands out;
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive p = p_.primitives[id];
            const auto product = !may_ || may_(p_, p) ? product_of(p_, p, type_) : std::nullopt;
            if (product) {
                read_copies(p, *product);
                out.products.emplace(PrimitiveId(static_cast<uint32_t>(all_.size())), product->left);
            }
            all_.push_back(std::move(p));
        }
        p_.primitives = std::move(all_);
        out.program = std::move(p_);
        return out;
    }

  private:
    void read_copies(Primitive& p, const Product& product) {
        TensorExpr& e = *p.expr();
        Access &left = e.accesses[product.left], &right = e.accesses[product.right];
        const Expr k = axis(product.sum);
        const std::vector<size_t> of_right = outer_axes(e, right, product.columns);
        std::vector<Expr> index = as_index(of_right);
        for (const Expr i : {floor_div(k, 2), Expr(axis(product.columns)), mod(k, 2)}) index.push_back(i);
        right = {copy_pairs(p, product, of_right), std::move(index), {}, 0};
        if (product.padded == product.extent) return;
        const std::vector<size_t> of_left = outer_axes(e, left, product.columns);
        index = as_index(of_left);
        index.push_back(k);
        left = {copy_padded(p, product, of_left), std::move(index), {}, 0};
        e.extents[product.sum] = product.padded;
    }

    /// A copy over axes of the product, which become axes 0, 1, ... in this order.
    static TensorExpr copy_over(const TensorExpr& e, const Product& product, uint32_t slot,
                                const std::vector<size_t>& axes) {
        std::vector<Expr> renamed(e.extents.size(), Expr(0));
        TensorExpr copy;
        for (size_t i = 0; i < axes.size(); ++i) {
            renamed[axes[i]] = axis(i);
            copy.extents.push_back(axes[i] == product.sum ? Expr(product.padded) : e.extents[axes[i]]);
        }
        copy.spatial = axes.size();
        Access from = e.accesses[slot];
        for (Expr& i : from.index) i = substitute_axes(i, renamed);
        if (product.padded != product.extent) from.valid = {Expr(product.extent - 1) - renamed[product.sum]};
        copy.accesses = {std::move(from)};
        return copy;
    }

    /// Adds the copy as a primitive in front of its reader.
    ValueId add(const Primitive& reader, const char* role, std::vector<Expr> shape, TensorExpr copy) {
        const ValueId of = copy.accesses[0].value;
        Value value = p_.values[of];
        value.name = reader.name + "." + role;
        value.dtype = type_;
        value.shape = std::move(shape);
        copy.body.set_root(copy.body.access(0, p_.values[of].dtype));
        Primitive out;
        out.name = reader.name + "/" + role;
        out.source = "layout";
        out.outputs = {p_.values.push_back(std::move(value))};
        out.origin = reader.origin;
        out.kind = std::move(copy);
        all_.push_back(out);
        return out.outputs[0];
    }

    ValueId copy_pairs(const Primitive& p, const Product& product, std::vector<size_t> axes) {
        const size_t outer = axes.size();
        axes.push_back(product.sum);
        axes.push_back(product.columns);
        TensorExpr copy = copy_over(*p.expr(), product, product.right, axes);
        std::vector<Expr> shape(copy.extents.begin(), copy.extents.begin() + static_cast<std::ptrdiff_t>(outer));
        for (size_t a = 0; a < outer; ++a) copy.output_index.push_back(axis(a));
        const Expr k = axis(outer), n = axis(outer + 1);
        for (const Expr i : {floor_div(k, 2), n, mod(k, 2)}) copy.output_index.push_back(i);
        for (const Expr d : {Expr(product.padded / 2), copy.extents.back(), Expr(2)}) shape.push_back(d);
        return add(p, "pairs", std::move(shape), std::move(copy));
    }

    ValueId copy_padded(const Primitive& p, const Product& product, std::vector<size_t> axes) {
        axes.push_back(product.sum);
        TensorExpr copy = copy_over(*p.expr(), product, product.left, axes);
        std::vector<Expr> shape = copy.extents;
        return add(p, "padded", std::move(shape), std::move(copy));
    }

    Program p_;
    const DType type_;
    const ProductFilter& may_;
    IndexVector<PrimitiveId, Primitive> all_;
};

}  // namespace

PairedOperands pair_operands(const Program& program, DType type, const ProductFilter& may) {
    return Pairer(program, type, may).run();
}

}  // namespace tilewright
