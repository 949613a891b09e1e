#include "tile/softmax_sum.h"

#include <algorithm>
#include <optional>

#include "program/analysis/access.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

using Indices = std::vector<Expr>;

Indices in_terms_of(const Indices& axes, const Indices& index) {
    Indices out;
    out.reserve(index.size());
    for (const Expr& i : index) out.push_back(substitute_axes(i, axes));
    return out;
}

std::optional<size_t> plain_axis(const Expr& e) {
    const auto v = e.as_var();
    if (!v || v->kind != VarKind::Axis) return std::nullopt;
    return v->id;
}

/// What a node reads where it is nothing but an access without conditions; null: it is more.
const Access* read_by(const TensorExpr& e, ScalarId id) {
    const ScalarNode& n = e.body[id];
    if (n.op != ScalarOp::Access || !e.accesses[n.slot].valid.empty()) return nullptr;
    return &e.accesses[n.slot];
}

/// The stage's axes at the element `index` of its result; nothing where that does not give each.
std::optional<Indices> axes_at(const TensorExpr& e, const Indices& index) {
    Indices out(e.spatial);
    std::vector<bool> known(e.spatial, false);
    const Indices written = result_index(e);
    for (size_t d = 0; d < written.size(); ++d)
        if (const auto k = plain_axis(written[d]); k && *k < e.spatial) {
            out[*k] = index[d];
            known[*k] = true;
        }
    for (size_t k = 0; k < e.spatial; ++k)
        if (!known[k] && e.extents[k].is_constant(1))
            out[k] = 0;
        else if (!known[k])
            return std::nullopt;
    return out;
}

/// Whether the maximum is over the elements of `x` that the sum adds up: `index`, over the sum's axes. `row`: the
/// element of the maximum.
bool is_maximum_of(const TensorExpr& maximum, const Indices& row, ValueId x, const Indices& index,
                   const TensorExpr& sum) {
    if (maximum.reducer != Reducer::Max || !maximum.epilogue.empty()) return false;
    const Access* read = read_by(maximum, maximum.body.root());
    const auto axes = axes_at(maximum, row);
    if (read == nullptr || read->value != x || !axes) return false;
    std::vector<size_t> reduced;  // axes of the sum
    for (size_t d = 0; d < index.size(); ++d) {
        const auto k = plain_axis(read->index[d]);
        if (k && *k >= maximum.spatial) {
            const auto own = plain_axis(index[d]);
            if (!own || *own < sum.spatial || !(sum.extents[*own] == maximum.extents[*k])) return false;
            if (std::find(reduced.begin(), reduced.end(), *own) != reduced.end()) return false;
            reduced.push_back(*own);
        } else if (const Indices found = in_terms_of(*axes, {read->index[d]}); !(found[0] == index[d])) {
            return false;
        }
    }
    const size_t count = sum.extents.size() - sum.spatial;
    return reduced.size() == count && maximum.extents.size() - maximum.spatial == count;
}

}  // namespace

bool is_softmax_sum(const Program& stages, ValueId value) {
    const auto producers = stages.producers();
    const auto expression = [&](ValueId v) { return producers[v] ? stages.primitives[producers[v]].expr() : nullptr; };
    const TensorExpr* sum = expression(value);
    if (sum == nullptr || sum->reducer != Reducer::Sum || !sum->epilogue.empty()) return false;
    // The terms, which may be a stage of their own.
    const TensorExpr* term = sum;
    Indices axes;
    for (size_t k = 0; k < sum->extents.size(); ++k) axes.push_back(axis(k));
    while (const Access* read = read_by(*term, term->body.root())) {
        const TensorExpr* from = expression(read->value);
        if (from == nullptr || from->reducer != Reducer::None || !from->epilogue.empty()) return false;
        const auto found = axes_at(*from, in_terms_of(axes, read->index));
        if (!found) return false;
        term = from;
        axes = *found;
    }
    const ScalarNode& root = term->body[term->body.root()];
    if (scalar_op_info(root.op).cuda != "exp" || term->body[root.a].op != ScalarOp::Sub) return false;
    const ScalarNode& difference = term->body[root.a];
    const Access *x = read_by(*term, difference.a), *r = read_by(*term, difference.b);
    if (x == nullptr || r == nullptr || expression(r->value) == nullptr) return false;
    return is_maximum_of(*expression(r->value), in_terms_of(axes, r->index), x->value, in_terms_of(axes, x->index),
                         *sum);
}

}  // namespace tilewright
