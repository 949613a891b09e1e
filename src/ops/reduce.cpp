// Reductions: Reduce*, ArgMax, ArgMin, CumSum, CumProd.

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/arg_reduce.h"
#include "ops/families.h"
#include "ops/reduce_opaque.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// The axes to reduce; none if unknown at compile time.
std::optional<std::vector<int64_t>> reduced_axes(NodeContext& c) {
    const size_t r = c.rank(0);
    std::vector<int64_t> axes;
    if (c.has(1)) {
        const auto known = c.b.int_contents(c.in(1));
        if (!known || !std::all_of(known->begin(), known->end(), [](Expr e) { return e.is_constant(); })) {
            // Whatever its elements, an empty list is known to be empty.
            if (!c.b.count(c.in(1)).is_constant(0)) return std::nullopt;
        } else {
            for (const Expr e : *known) axes.push_back(e.constant());
        }
    } else {
        axes = c.node.attr_ints("axes", {});
    }
    if (axes.empty() && c.node.attr_int("noop_with_empty_axes", 0) == 0) axes = axis_range(0, r);
    return c.b.normalize_axes(axes, r);
}

/// y = reduce over axes of f(x)
ValueId reduced(NodeContext& c, Reducer reducer, const std::vector<int64_t>& axes, bool keep, DType out,
                const std::function<Sx(Sx)>& f) {
    return c.b.reduce_map(
        reducer, {c.in(0)}, out, [&](ScalarBody& body, Ids x) -> ScalarId { return f(Sx(body, x[0])); }, axes, keep,
        "reduce");
}

ValueId apply(NodeContext& c, ValueId v, DType out, ScalarOp op) {
    return c.b.map(
        {v}, out, [op](ScalarBody& body, Ids x) -> ScalarId { return body.unary(op, x[0]); }, to_string(op));
}

Sx same(Sx x) { return x; }
Sx square(Sx x) { return x * x; }

/// The argument of a root or logarithm of a sum is kept in the compute type.
ValueId reduce_known(NodeContext& c, Reduction kind, const std::vector<int64_t>& axes, bool keep) {
    const DType t = c.dtype(0), wide = compute_type(t);
    switch (kind) {
        case Reduction::Sum:
            return reduced(c, Reducer::Sum, axes, keep, t, same);
        case Reduction::Prod:
            return reduced(c, Reducer::Prod, axes, keep, t, same);
        case Reduction::Max:
            return reduced(c, Reducer::Max, axes, keep, t, same);
        case Reduction::Min:
            return reduced(c, Reducer::Min, axes, keep, t, same);
        case Reduction::Mean:
            return c.b.mean(c.in(0), axes, keep);
        case Reduction::L1:
            return reduced(c, Reducer::Sum, axes, keep, t, [](Sx x) { return x.abs(); });
        case Reduction::SumSquare:
            return reduced(c, Reducer::Sum, axes, keep, t, square);
        case Reduction::L2: {
            if (is_float(t)) return apply(c, reduced(c, Reducer::Sum, axes, keep, wide, square), t, ScalarOp::Sqrt);
            const ValueId sum =
                reduced(c, Reducer::Sum, axes, keep, DType::F64, [](Sx x) { return square(x.cast(DType::F64)); });
            return c.b.cast(apply(c, sum, DType::F64, ScalarOp::Sqrt), t);
        }
        case Reduction::LogSum:
            if (is_float(t)) return apply(c, reduced(c, Reducer::Sum, axes, keep, wide, same), t, ScalarOp::Log);
            return c.b.cast(
                apply(c, reduced(c, Reducer::Sum, axes, keep, DType::F64, [](Sx x) { return x.cast(DType::F64); }),
                      DType::F64, ScalarOp::Log),
                t);
        case Reduction::LogSumExp:
            break;
    }
    // log(sum(exp(x - m))) + m with m = max(x): the exponentials cannot overflow. An infinite maximum is replaced by 0,
    // because inf - inf would hide that the sum is infinite, or 0.
    const DType f = is_float(t) ? wide : DType::F64;
    const ValueId x = is_float(t) ? c.in(0) : c.b.cast(c.in(0), f);
    const ValueId largest = c.b.reduce(Reducer::Max, x, axes, true, "max");
    const ValueId shift = c.b.map(
        {largest}, f,
        [&](ScalarBody& body, Ids v) -> ScalarId {
            const Sx m(body, v[0]);
            return m.apply(ScalarOp::IsInf).choose(m.of(0), m);
        },
        "shift");
    const ValueId sum = c.b.reduce_map(
        Reducer::Sum, {x, shift}, f,
        [&](ScalarBody& body, Ids v) -> ScalarId { return (Sx(body, v[0]) - Sx(body, v[1])).exp(); }, axes, true,
        "sum");
    ValueId y = c.b.map(
        {sum, shift}, f, [&](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]).log() + Sx(body, v[1]); },
        "log");
    y = c.b.cast(y, t);
    return keep ? y : c.b.squeeze(y, axes);
}

template <Reduction kind>
void reduce_lowering(NodeContext& c) {
    const DType t = c.dtype(0);
    const bool ordered = kind == Reduction::Max || kind == Reduction::Min;
    c.require(t != DType::Bool || ordered, "a numeric input is expected, and its type is bool");
    const bool keep = c.node.attr_int("keepdims", 1) != 0;
    if (const auto axes = reduced_axes(c)) return c.out(0, reduce_known(c, kind, *axes, keep));
    c.out(0, reduce_at_run_time(c, kind, keep));
}

// --- ArgMax, ArgMin

template <bool largest>
void arg_reduce(NodeContext& c) {
    const int64_t k = c.axis_attr("axis", 0, c.rank(0));
    const bool last = c.node.attr_int("select_last_index", 0) != 0;
    const ValueId y = first_extremum(c.b, c.in(0), k, largest, last);
    c.out(0, c.node.attr_int("keepdims", 1) != 0 ? y : c.b.squeeze(y, {k}));
}

template <bool product>
void cumulative(NodeContext& c) {
    c.require(c.rank(0) >= 1, "an input of rank 1 or more is expected");
    c.out(0, cumulate(c, product));
}

}  // namespace

std::vector<OpLowering> reduce_lowerings() {
    return {
        {"", "ArgMax", 1, arg_reduce<true>},
        {"", "ArgMin", 1, arg_reduce<false>},
        {"", "CumProd", 26, cumulative<true>},
        {"", "CumSum", 11, cumulative<false>},
        {"", "ReduceL1", 1, reduce_lowering<Reduction::L1>},
        {"", "ReduceL2", 1, reduce_lowering<Reduction::L2>},
        {"", "ReduceLogSum", 1, reduce_lowering<Reduction::LogSum>},
        {"", "ReduceLogSumExp", 1, reduce_lowering<Reduction::LogSumExp>},
        {"", "ReduceMax", 1, reduce_lowering<Reduction::Max>},
        {"", "ReduceMean", 1, reduce_lowering<Reduction::Mean>},
        {"", "ReduceMin", 1, reduce_lowering<Reduction::Min>},
        {"", "ReduceProd", 1, reduce_lowering<Reduction::Prod>},
        {"", "ReduceSum", 1, reduce_lowering<Reduction::Sum>},
        {"", "ReduceSumSquare", 1, reduce_lowering<Reduction::SumSquare>},
    };
}

}  // namespace tilewright
