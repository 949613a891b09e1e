#include "driver/opspec/part.h"

#include <algorithm>

#include "base/error.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

Shape shape_of(const Program& program, ValueId v) {
    Shape shape;
    for (const Expr d : program.values[v].shape) {
        TW_CHECK(d.is_constant(), "'{}' has the dimension {}, expected a number", program.values[v].name, d.text());
        shape.push_back(d.constant());
    }
    return shape;
}

/// The expression of a primitive of which a part can be computed; null otherwise.
const TensorExpr* divisible(const Primitive& primitive) {
    const TensorExpr* e = primitive.expr();
    return e != nullptr && e->output_index.empty() ? e : nullptr;
}

/// The required elements of each value.
class Needs {
  public:
    explicit Needs(const Program& program)
        : program_(program), needed_(program.values.size()), boxes_(program.values.size()) {}

    bool has(ValueId v) const { return needed_[v.index()]; }
    const Box& of(ValueId v) const {
        TW_CHECK(has(v), "'{}' is not needed", program_.values[v].name);
        return boxes_[v];
    }

    /// Inputs and constants are available completely.
    void add(ValueId v, const Box& box, bool made) {
        Box& known = boxes_[v];
        if (!made)
            known = whole(shape_of(program_, v));
        else if (!has(v))
            known = box;
        else
            for (size_t d = 0; d < box.lo.size(); ++d) {
                known.lo[d] = std::min(known.lo[d], box.lo[d]);
                known.hi[d] = std::max(known.hi[d], box.hi[d]);
            }
        needed_[v.index()] = true;
    }

    /// The region of an operand that is read to compute `box` of the expression's result.
    Box read(const TensorExpr& e, const Access& access, const Box& box) const {
        Ranges ranges = e.ranges();
        for (size_t a = 0; a < e.spatial; ++a) ranges.axes[a] = {Expr(box.lo[a]), Expr(box.hi[a] - 1)};
        Box out = whole(shape_of(program_, access.value));
        for (size_t d = 0; d < access.index.size(); ++d) {
            const Interval i = bounds(access.index[d], ranges);
            const int64_t last = out.hi[d] - 1;
            // An index beyond the tensor belongs to a point where the access is not valid: it is not read.
            if (i.lo && i.lo->is_constant())
                out.lo[d] = std::clamp<int64_t>(i.lo->constant(), 0, std::max<int64_t>(last, 0));
            if (i.hi && i.hi->is_constant())
                out.hi[d] = std::clamp<int64_t>(i.hi->constant() + 1, out.lo[d] + 1, out.hi[d]);
        }
        return out;
    }

  private:
    const Program& program_;
    std::vector<bool> needed_;
    IndexVector<ValueId, Box> boxes_;
};

}  // namespace

int64_t Box::count() const {
    int64_t n = 1;
    for (size_t d = 0; d < lo.size(); ++d) n *= hi[d] - lo[d];
    return n;
}

Box whole(const Shape& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

Program compute_part(const Program& program, const std::vector<Box>& outputs) {
    TW_CHECK(outputs.size() == program.outputs.size());
    const auto producers = program.producers();
    const auto made = [&](ValueId v) { return static_cast<bool>(producers[v]); };
    Needs needs(program);
    for (size_t k = 0; k < outputs.size(); ++k) needs.add(program.outputs[k], outputs[k], made(program.outputs[k]));
    std::vector<PrimitiveId> kept;
    for (size_t i = program.primitives.size(); i-- > 0;) {
        const PrimitiveId id(i);
        const Primitive& p = program.primitives[id];
        if (const TensorExpr* e = divisible(p)) {
            if (!needs.has(p.outputs[0])) continue;
            const Box box = needs.of(p.outputs[0]);
            for (const Access& a : e->accesses) needs.add(a.value, needs.read(*e, a, box), made(a.value));
        } else {
            for (const ValueId v : p.outputs) needs.add(v, whole(shape_of(program, v)), true);
            for (const ValueId v : p.inputs()) needs.add(v, whole(shape_of(program, v)), made(v));
        }
        kept.push_back(id);
    }
    Program out = program;
    out.primitives = {};
    for (const ValueId v : program.values.ids()) {
        if (!needs.has(v)) continue;
        const Box& box = needs.of(v);
        for (size_t d = 0; d < box.lo.size(); ++d) out.values[v].shape[d] = Expr(box.hi[d] - box.lo[d]);
    }
    std::reverse(kept.begin(), kept.end());
    for (const PrimitiveId id : kept) {
        Primitive p = program.primitives[id];
        if (const TensorExpr* e = divisible(p)) {
            const Box& box = needs.of(p.outputs[0]);
            std::vector<Expr> axes;
            axes.reserve(e->extents.size());
            for (size_t a = 0; a < e->extents.size(); ++a)
                axes.push_back(a < e->spatial ? axis(a) + box.lo[a] : axis(a));
            TensorExpr part = map_exprs(*e, [&](Expr x) { return substitute_axes(x, axes); });
            for (size_t a = 0; a < e->spatial; ++a) part.extents[a] = Expr(box.hi[a] - box.lo[a]);
            for (Access& access : part.accesses)
                for (size_t d = 0; d < access.index.size(); ++d)
                    access.index[d] = access.index[d] - needs.of(access.value).lo[d];
            p.kind = std::move(part);
        }
        out.primitives.push_back(std::move(p));
    }
    return out;
}

double point_count(const Program& program) {
    double all = 0;
    for (const Primitive& p : program.primitives)
        if (const TensorExpr* e = p.expr()) {
            double points = 1;
            for (const Expr x : e->extents) points *= static_cast<double>(x.constant());
            all += points;
        }
    return all;
}

Tensor cut(const Tensor& tensor, const Box& box) {
    Shape shape;
    for (size_t d = 0; d < box.lo.size(); ++d) shape.push_back(box.hi[d] - box.lo[d]);
    Tensor out(tensor.dtype(), shape, false);
    std::vector<int64_t> at = box.lo;
    for (int64_t i = 0; i < out.count(); ++i) {
        int64_t from = 0;
        for (size_t d = 0; d < at.size(); ++d) from = from * tensor.shape()[d] + at[d];
        if (is_integer(tensor.dtype()))
            out.set(i, tensor.get_int(from));
        else
            out.set(i, tensor.get(from));
        for (size_t d = at.size(); d-- > 0;) {
            if (++at[d] < box.hi[d]) break;
            at[d] = box.lo[d];
        }
    }
    return out;
}

}  // namespace tilewright
