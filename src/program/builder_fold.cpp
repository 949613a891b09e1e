// Builder: folding of constant expressions.

#include <algorithm>

#include "base/error.h"
#include "program/builder.h"
#include "program/symbolic.h"

namespace tilewright {

namespace {

constexpr int64_t kFoldWork = 1 << 24;  ///< points * body nodes of one expression folded while lowering

std::optional<Shape> numbers(std::span<const Expr> dims) {
    Shape s;
    for (const Expr d : dims) {
        if (!d.is_constant()) return std::nullopt;
        s.push_back(d.constant());
    }
    return s;
}

/// Allocates the results of an opaque operator during folding.
class FoldedOutputs final : public OpaqueOutputs {
  public:
    explicit FoldedOutputs(std::span<const std::pair<DType, Dims>> declared)
        : declared_(declared), tensors(declared.size()), made(declared.size(), false) {}
    TensorView allocate(size_t k, std::span<const int64_t> shape) override {
        Tensor& t = tensors.at(k);
        t = Tensor(declared_[k].first, Shape(shape.begin(), shape.end()), false);
        made[k] = true;
        return {t.dtype(), t.shape(), t.mutable_data()};
    }

  private:
    std::span<const std::pair<DType, Dims>> declared_;

  public:
    std::vector<Tensor> tensors;
    std::vector<bool> made;
};

}  // namespace

bool Builder::try_fold(const TensorExpr& expr, DType dtype, const Dims& out_shape, std::string_view role,
                       ValueId& out) {
    const auto shape_numbers = numbers(out_shape);
    if (!shape_numbers) return false;
    const int64_t count = element_count(*shape_numbers);
    // An expression without operands is folded only if it is small enough to be used in shape arithmetic.
    // Quantised weights stay as they are, for products that read them (transform/integer_products.h,
    // transform/quantised_weights.h).
    const auto is_quantised = [&](const Access& a) {
        const DType t = this->dtype(a.value);
        return is_integer(t) && byte_size(t) == 1;
    };
    if (out_shape.size() > 1 && byte_size(dtype) > 1 &&
        std::any_of(expr.accesses.begin(), expr.accesses.end(), is_quantised))
        return false;
    const auto limit = expr.accesses.empty() ? kMaxKnownElements : static_cast<int64_t>(fold_limit);
    if (count > limit) return false;
    bool numeric = !has_names(expr);
    std::vector<Tensor> tensors;
    std::vector<KnownContents> known;
    for (const Access& a : expr.accesses) {
        if (const Tensor* t = contents(a.value)) {
            tensors.push_back(*t);
            known.push_back({t->dtype(), t->shape(), *t});
        } else if (const auto it = int_values_.find(a.value); it != int_values_.end()) {
            numeric = false;
            known.push_back({this->dtype(a.value), *numbers(shape(a.value)), it->second});
        } else {
            return false;
        }
    }
    if (numeric) {
        auto work = static_cast<int64_t>(expr.body.nodes().size());
        for (const Expr d : expr.extents)
            if (__builtin_mul_overflow(work, d.constant(), &work)) return false;
        if (work > kFoldWork) return false;
        out = constant(interpret(expr, tensors, dtype, *shape_numbers, {}), role);
        return true;
    }
    if (count > kMaxKnownElements || is_float(dtype)) return false;
    auto elements = evaluate_symbolic(expr, known, dtype, *shape_numbers);
    if (!elements) return false;
    out = int_values(std::move(*elements), out_shape, dtype);
    return true;
}

std::optional<std::vector<ValueId>> Builder::try_fold(const OpaqueOp& op, std::span<const ValueId> inputs,
                                                      std::span<const std::pair<DType, Dims>> outputs,
                                                      std::string_view role) {
    if (!op.deterministic()) return std::nullopt;
    int64_t read = 0;
    std::vector<TensorView> views;
    for (const ValueId v : inputs) {
        const Tensor* t = v ? contents(v) : nullptr;
        if (v && t == nullptr) return std::nullopt;
        if (t == nullptr) {
            views.push_back({});
            continue;
        }
        read += t->count();
        views.push_back({t->dtype(), t->shape(), const_cast<void*>(t->data())});
    }
    if (read > static_cast<int64_t>(fold_limit)) return std::nullopt;
    int64_t written = 0;
    for (const auto& [t, dims] : outputs) {
        const Expr n = product(dims);
        if (n.is_constant()) written += n.constant();
    }
    if (written > static_cast<int64_t>(fold_limit)) return std::nullopt;
    FoldedOutputs results(outputs);
    op.run(views, results);
    std::vector<ValueId> ids;
    for (size_t k = 0; k < outputs.size(); ++k) {
        TW_CHECK(results.made[k], "{} did not produce output {}", op.print(), k);
        ids.push_back(constant(std::move(results.tensors[k]), role));
    }
    return ids;
}

}  // namespace tilewright
