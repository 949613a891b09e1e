#include "libraries/operand_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace tilewright {

namespace {

Expr whole(const Atom& atom) { return atom.a + atom.b * 2; }  // only its variables matter

/// Gives dimensions of one element the stride that a dense tensor would have, as libraries expect it.
void name_strides_of_ones(LibraryOperand& o) {
    std::vector<size_t> order(o.dims.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return (o.dims[a] == 1 ? 0 : o.strides[a]) > (o.dims[b] == 1 ? 0 : o.strides[b]);
    });
    for (size_t d = 0; d < o.dims.size(); ++d) {
        if (o.dims[d] != 1) continue;
        int64_t dense = 1;
        for (size_t k = d + 1; k < o.dims.size(); ++k)
            if (o.dims[k] != 1) dense = std::max(dense, o.strides[k] * o.dims[k]);
        o.strides[d] = dense;
    }
}

}  // namespace

Expr flat_offset(const std::vector<Expr>& shape, const std::vector<Expr>& index) {
    Expr offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset = offset * shape[d] + index[d];
    return offset;
}

LibraryWalks::LibraryWalks(const Program& stages, const TensorExpr& e) : stages_(stages) {
    for (const Expr& x : e.extents) extents_.push_back(x.constant());
}

void LibraryWalks::add(ValueId value, const std::vector<Expr>& index, bool constant) {
    One t;
    const auto in = std::find(stages_.inputs.begin(), stages_.inputs.end(), value);
    t.number = static_cast<size_t>(in - stages_.inputs.begin());  // the output comes after the inputs
    t.type = stages_.values[value].dtype;
    t.constant = constant;
    if (t.type != DType::F32 && t.type != DType::F16 && t.type != DType::BF16)
        throw Refusal{fmt::format("a tensor of type {}", to_string(t.type))};
    const Expr offset = flat_offset(stages_.values[value].shape, index);
    if (constant) {
        t.places = places_of(offset);
    } else {
        const auto coefficients = axis_coefficients(offset, extents_.size());
        for (size_t a = 0; a < extents_.size(); ++a) {
            const bool plain = coefficients[a] && coefficients[a]->is_constant();
            if (!plain && extents_[a] > 1) throw Refusal{"a tensor without constant strides"};
            t.strides.push_back(plain ? coefficients[a]->constant() : 0);
        }
    }
    t.origin = evaluate(offset, Env{std::vector<int64_t>(extents_.size(), 0), {}, nullptr});
    all_.push_back(std::move(t));
}

bool LibraryWalks::moves(size_t t, size_t axis) const {
    const One& o = all_[t];
    if (extents_[axis] == 1) return false;
    if (!o.constant) return o.strides[axis] != 0;
    return std::any_of(o.places[axis].begin(), o.places[axis].end(), [](int64_t p) { return p != 0; });
}

std::vector<Walked> LibraryWalks::merged(std::vector<size_t> axes, size_t by) const {
    std::erase_if(axes, [&](size_t a) { return extents_[a] == 1; });
    const auto width = [&](size_t a) {
        return constant(by) ? all_[by].places[a].back() / (extents_[a] - 1) : std::abs(stride(by, a));
    };
    std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return width(a) > width(b); });
    std::vector<Walked> out;
    for (size_t k = axes.size(); k-- > 0;) {
        if (!out.empty() && follows(axes[k], out.back())) {
            out.back().axes.insert(out.back().axes.begin(), axes[k]);
            out.back().extent *= extents_[axes[k]];
        } else {
            out.push_back({{axes[k]}, extents_[axes[k]]});
        }
    }
    std::reverse(out.begin(), out.end());
    return out;
}

Walked LibraryWalks::one(const std::vector<size_t>& axes, size_t by, const char* what) const {
    const std::vector<Walked> all = merged(axes, by);
    if (all.size() > 1) throw Refusal{fmt::format("{} that do not merge into one axis", what)};
    return all.empty() ? Walked{} : all[0];
}

LibraryOperand LibraryWalks::operand(size_t t, const std::vector<Walked>& dims, bool whole) const {
    const One& o = all_[t];
    LibraryOperand out;
    out.tensor = o.number;
    out.type = o.type;
    out.offset = o.origin;
    for (const Walked& w : dims) {
        const bool here = std::any_of(w.axes.begin(), w.axes.end(), [&](size_t a) { return moves(t, a); });
        out.dims.push_back(here || whole ? w.extent : 1);
        if (!o.constant) {
            out.strides.push_back(here ? stride(t, w) : 0);
            continue;
        }
        std::vector<int64_t> places = {0};
        if (here)
            for (const size_t a : w.axes) {
                std::vector<int64_t> finer;
                for (const int64_t p : places)
                    for (const int64_t q : o.places[a]) finer.push_back(p + q);
                places = std::move(finer);
            }
        out.places.push_back(std::move(places));
    }
    if (!o.constant) name_strides_of_ones(out);
    return out;
}

bool LibraryWalks::follows(size_t outer, const Walked& inner) const {
    return std::all_of(all_.begin(), all_.end(), [&](const One& o) {
        return o.constant || o.strides[outer] == o.strides[inner.axes.back()] * inner.extent;
    });
}

/// Returns the offset that each axis contributes alone, if the contributions are additive.
std::vector<std::vector<int64_t>> LibraryWalks::places_of(Expr offset) const {
    for (const Term& term : offset.terms()) {
        std::set<Var> vars;
        for (const Atom* atom : term.atoms)
            for (const Var v : variables(atom->kind == Atom::Kind::Var ? Expr::var(atom->var) : whole(*atom)))
                vars.insert(v);
        if (vars.size() != 1 || vars.begin()->kind != VarKind::Axis)
            throw Refusal{"a constant whose offset is not additive in its axes"};
    }
    std::vector<int64_t> at(extents_.size(), 0);
    const int64_t origin = evaluate(offset, Env{at, {}, nullptr});
    std::vector<std::vector<int64_t>> out(extents_.size());
    for (size_t a = 0; a < extents_.size(); ++a) {
        if (!uses(offset, {VarKind::Axis, static_cast<uint32_t>(a)})) {
            out[a].assign(static_cast<size_t>(extents_[a]), 0);
            continue;
        }
        for (int64_t x = 0; x < extents_[a]; ++x) {
            at[a] = x;
            out[a].push_back(evaluate(offset, Env{at, {}, nullptr}) - origin);
        }
        at[a] = 0;
    }
    return out;
}

}  // namespace tilewright
