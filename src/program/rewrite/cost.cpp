#include "program/rewrite/cost.h"

#include <algorithm>
#include <numeric>

#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/analysis/scalar_cost.h"
#include "program/constant_transform.h"
#include "program/rewrite/algebra.h"

namespace tilewright {

namespace {

/// Operations at one point of the expression's axes.
double point_operations(const TensorExpr& e) {
    if (const auto map = map_size(e)) return 2 * map->operations / (map->rows * map->columns);
    return body_operations(e.body) + (e.reducer == Reducer::None ? 0 : 1);
}

class Kernels {
  public:
    Kernels(const RewriteContext& context, const RoughRates& model)
        : c_(context),
          model_(model),
          kernel_(context.program().primitives.size()),
          names_([&sizes = context.program().assumed](Var v) {
              const auto it = sizes.find(v);
              return std::optional(it == sizes.end() ? kAssumedExtent : it->second);
          }) {
        env_.names = &names_;
        std::iota(kernel_.begin(), kernel_.end(), size_t{0});
    }

    double seconds() {
        const Program& p = c_.program();
        // Backwards, so that a reader's kernel is known when its operand joins it.
        const std::vector<PrimitiveId> ids = p.primitives.ids();
        for (auto id = ids.rbegin(); id != ids.rend(); ++id)
            if (const auto reader = joins(*id)) kernel_[id->index()] = kernel_[reader->index()];
        std::vector<double> operations(ids.size(), 0), bytes(ids.size(), 0), constants(ids.size(), 0);
        std::vector<bool> runs(ids.size(), false);
        for (const PrimitiveId id : ids) {
            const Primitive& primitive = p.primitives[id];
            const TensorExpr* e = primitive.expr();
            if (e == nullptr || c_.foldable(primitive.outputs[0]) || free_view(id)) continue;
            const size_t k = kernel_[id.index()];
            runs[k] = true;
            const double points = number(product(e->extents));
            operations[k] += points * point_operations(*e);
            if (!e->epilogue.empty())
                operations[k] += number(product(c_.value(primitive.outputs[0]).shape)) * body_operations(e->epilogue);
            for (const ValueId v : primitive.inputs()) (c_.foldable(v) ? constants : bytes)[k] += read(v, k, points);
            if (kernel_[id.index()] == id.index()) bytes[k] += size(primitive.outputs[0]);
        }
        double total = 0;
        for (size_t k = 0; k < runs.size(); ++k) {
            if (!runs[k]) continue;
            const double compute = operations[k] / model_.operations, memory = bytes[k] / model_.bandwidth;
            total += std::max(compute, memory) + 0.1 * std::min(compute, memory) + constants[k] / model_.memory +
                     model_.kernel;
        }
        return total;
    }

  private:
    double number(Expr e) const { return static_cast<double>(std::max<int64_t>(evaluate(e, env_), 0)); }
    double size(ValueId v) const {
        const Value& value = c_.value(v);
        return number(product(value.shape)) * static_cast<double>(byte_size(value.dtype));
    }

    bool free_view(PrimitiveId id) const {
        const Primitive& p = c_.program().primitives[id];
        return p.expr() != nullptr && is_view(*p.expr()) && !c_.is_output(p.outputs[0]);
    }

    /// The reader whose kernel also computes this primitive.
    std::optional<PrimitiveId> joins(PrimitiveId id) const {
        const Primitive& p = c_.program().primitives[id];
        const TensorExpr* e = p.expr();
        if (e == nullptr || free_view(id) || !c_.read_once(p.outputs[0])) return std::nullopt;
        PrimitiveId reader = c_.consumers(p.outputs[0])[0];
        while (free_view(reader)) {  // readers of a view read its source
            const ValueId view = c_.program().primitives[reader].outputs[0];
            if (!c_.read_once(view)) return std::nullopt;
            reader = c_.consumers(view)[0];
        }
        const TensorExpr* r = c_.program().primitives[reader].expr();
        if (r == nullptr) return std::nullopt;
        if (e->reducer == Reducer::None)
            return contraction(*r) ? std::nullopt : std::optional(reader);  // reads its operands from memory
        const bool epilogue =
            r->reducer == Reducer::None && product(r->extents) == product(c_.value(p.outputs[0]).shape);
        return epilogue ? std::optional(reader) : std::nullopt;
    }

    /// Bytes that kernel k reads of `v`, of which it accesses at most `points` elements.
    double read(ValueId v, size_t k, double points) const {
        const PrimitiveId made = c_.producer_id(v);
        const double most = points * static_cast<double>(byte_size(c_.value(v).dtype));
        if (!made || c_.foldable(v)) return std::min(most, size(v));
        if (kernel_[made.index()] == k) return 0;
        if (free_view(made)) {
            const TensorExpr& e = *c_.program().primitives[made].expr();
            return read(e.accesses[0].value, k, std::min(points, number(product(e.extents))));
        }
        return std::min(most, size(v));
    }

    const RewriteContext& c_;
    const RoughRates& model_;
    std::vector<size_t> kernel_;
    std::function<std::optional<int64_t>(Var)> names_;
    Env env_;
};

}  // namespace

double rough_operations(const TensorExpr& e, const Bindings& sizes) {
    return assumed_points(e.extents, sizes) * (1 + body_operations(e.body));
}

double analytic_cost(const RewriteContext& context, const RoughRates& model) {
    return Kernels(context, model).seconds();
}

}  // namespace tilewright
