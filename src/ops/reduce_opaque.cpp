#include "ops/reduce_opaque.h"

#include "base/error.h"

namespace tilewright {

ValueId reduce_at_run_time(NodeContext& c, Reduction kind, bool keep) {
    const Expr n = c.b.count(c.in(1));
    const bool none = c.node.attr_int("noop_with_empty_axes", 0) != 0;
    if (!keep && !n.is_constant())
        c.unsupported("how many axes are reduced decides the output's rank, and is not known before the model runs");
    const int64_t gone = keep ? 0 : n.constant();
    const auto r = static_cast<int64_t>(c.rank(0));
    c.require(gone <= r, fmt::format("{} axes are reduced of a tensor of rank {}", gone, r));
    Dims shape;
    for (int64_t k = 0; k < r - gone; ++k) shape.push_back(c.b.fresh_symbol(fmt::format("d{}", k)));
    return c.b
        .emit_opaque(opaque::reduction(kind, keep, none), {c.in(0), c.in(1)}, {{c.dtype(0), std::move(shape)}},
                     "reduce")
        .front();
}

ValueId cumulate(NodeContext& c, bool product) {
    const bool exclusive = c.node.attr_int("exclusive", 0) != 0, reverse = c.node.attr_int("reverse", 0) != 0;
    c.require(c.b.count(c.in(1)).is_constant(1), "'axis' must be a scalar");
    return c.b
        .emit_opaque(opaque::cumulative(product, exclusive, reverse), {c.in(0), c.in(1)}, {{c.dtype(0), c.shape(0)}},
                     product ? "cumprod" : "cumsum")
        .front();
}

}  // namespace tilewright
