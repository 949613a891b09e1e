#include "ops/arg_reduce.h"

#include <limits>

#include "ops/scalar_math.h"

namespace tilewright {

/// m = max over k of x[k];   y = min over k of (x[k] == m ? k : extent)
ValueId first_extremum(Builder& b, ValueId x, int64_t along, bool largest, bool last) {
    const Dims shape = b.shape(x);
    const auto a = static_cast<size_t>(along);
    const ValueId extremum = b.reduce(largest ? Reducer::Max : Reducer::Min, x, {along}, true, "extremum");
    TensorExpr e;
    e.extents = shape;
    e.extents[a] = 1;
    e.spatial = shape.size();
    e.extents.push_back(shape[a]);
    e.reducer = last ? Reducer::Max : Reducer::Min;
    Access element{x, {}, {}, 0}, best{extremum, {}, {}, 0};
    for (size_t k = 0; k < shape.size(); ++k) {
        element.index.push_back(k == a ? axis(e.spatial) : axis(k));
        best.index.push_back(k == a ? Expr(0) : axis(k));
    }
    e.accesses = {std::move(element), std::move(best)};
    const Sx v(e.body, e.body.access(0, b.dtype(x))), top(e.body, e.body.access(1, b.dtype(x)));
    Sx found = v.apply(ScalarOp::Eq, top);
    if (is_float(b.dtype(x))) found = found.apply(ScalarOp::BitOr, v.apply(ScalarOp::IsNan));
    const Sx none(e.body, e.body.int_constant(DType::I64, last ? -1 : std::numeric_limits<int64_t>::max()));
    e.body.set_root(found.choose(Sx(e.body, e.body.index(axis(e.spatial))), none));
    return b.emit(std::move(e), DType::I64, "position");
}

}  // namespace tilewright
