#include "orchestrate/append_in_place.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "index/expr.h"
#include "opaque/operators.h"

namespace tilewright {

namespace {

/// A concatenation of an input and `added`, computed by `primitive`.
struct Candidate {
    Append append;
    PrimitiveId primitive;
    ValueId past, added, present;
};

template <class T>
std::vector<T> rows_first(const std::vector<T>& dims, size_t axis) {
    return rows_first(std::span<const T>(dims), axis);
}

/// The dimension along which the second operand follows the first, where the expression is a concatenation of two.
std::optional<size_t> concatenated_along(const Program& p, const TensorExpr& e) {
    if (e.reducer != Reducer::None || e.accesses.size() != 2 || !e.output_index.empty() || !e.epilogue.empty())
        return std::nullopt;
    const Access &first = e.accesses[0], &second = e.accesses[1];
    const std::vector<Expr>& dims = p.values[first.value].shape;
    if (first.value == second.value || dims.size() != e.spatial || second.index.size() != e.spatial)
        return std::nullopt;
    std::optional<size_t> along;
    for (size_t d = 0; d < e.spatial; ++d) {
        const auto plain = [&](Expr index) { return index == axis(d) || (e.extents[d].is_constant(1) && index == 0); };
        if (!plain(first.index[d])) return std::nullopt;
        if (plain(second.index[d])) continue;
        if (along || second.index[d] != axis(d) - dims[d]) return std::nullopt;
        along = d;
    }
    if (!along) return std::nullopt;
    // select(i < n, first[i], second[i - n])
    ScalarBody body;
    const ScalarId a = body.access(0, p.values[first.value].dtype), b = body.access(1, p.values[second.value].dtype);
    const ScalarId before =
        body.binary(ScalarOp::Lt, body.index(axis(*along) - dims[*along]), body.int_constant(DType::I64, 0));
    body.set_root(body.select(before, a, b));
    return e.body.print() == body.print() ? along : std::nullopt;
}

class Appends {
  public:
    explicit Appends(const Program& p) : p_(p), producers_(p.producers()), consumers_(p.consumers()) {
        for (size_t k = 0; k < p.outputs.size(); ++k)
            if (const auto c = candidate(k)) found_.push_back(*c);
        keep_alike();
        keep_bound();
    }
    const std::vector<Candidate>& found() const { return found_; }

  private:
    std::optional<Candidate> candidate(size_t output) const {
        const ValueId present = p_.outputs[output];
        const PrimitiveId id = producers_[present];
        const TensorExpr* e = id ? p_.primitives[id].expr() : nullptr;
        const auto along = e != nullptr ? concatenated_along(p_, *e) : std::nullopt;
        if (!along || std::count(p_.outputs.begin(), p_.outputs.end(), present) != 1) return std::nullopt;
        const ValueId past = e->accesses[0].value, added = e->accesses[1].value;
        const auto input = std::find(p_.inputs.begin(), p_.inputs.end(), past);
        const bool taken =
            std::any_of(found_.begin(), found_.end(), [&](const Candidate& c) { return c.past == past; });
        if (input == p_.inputs.end() || taken || !read_by_expressions(past) || !read_by_expressions(present))
            return std::nullopt;
        if (std::find(p_.outputs.begin(), p_.outputs.end(), past) != p_.outputs.end()) return std::nullopt;
        const auto symbol = p_.values[past].shape[*along].as_var();
        if (!symbol || symbol->kind != VarKind::Symbol) return std::nullopt;
        const auto position = static_cast<size_t>(input - p_.inputs.begin());
        return Candidate{{position, output, *along}, id, past, added, present};
    }

    bool read_by_expressions(ValueId v) const {
        return std::all_of(consumers_[v].begin(), consumers_[v].end(),
                           [&](PrimitiveId id) { return p_.primitives[id].expr() != nullptr; });
    }

    /// Only those of which as many rows are known, and added, as of the first.
    void keep_alike() {
        if (found_.empty()) return;
        const auto rows = [this](ValueId v, const Candidate& c) { return p_.values[v].shape[c.append.axis]; };
        const Candidate first = found_[0];
        std::erase_if(found_, [&](const Candidate& c) {
            return rows(c.past, c) != rows(first.past, first) || rows(c.added, c) != rows(first.added, first);
        });
    }

    /// Only those whose other dimensions are known without them.
    void keep_bound() {
        std::set<Var> bound;
        for (const ValueId v : p_.inputs)
            if (std::none_of(found_.begin(), found_.end(), [&](const Candidate& c) { return c.past == v; }))
                for (const Expr d : p_.values[v].shape)
                    if (const auto var = d.as_var()) bound.insert(*var);
        std::erase_if(found_, [&](const Candidate& c) {
            const std::vector<Expr>& shape = p_.values[c.past].shape;
            for (size_t d = 0; d < shape.size(); ++d)
                for (const Var v : variables(shape[d]))
                    if (d != c.append.axis && bound.count(v) == 0) return true;
            return false;
        });
    }

    const Program& p_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    const IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    std::vector<Candidate> found_;
};

std::string unused_name(const Program& p, std::string name) {
    const auto used = [&] {
        return std::any_of(p.values.begin(), p.values.end(), [&](const Value& v) { return v.name == name; });
    };
    while (used()) name += '_';
    return name;
}

/// rows[i0, i1, i2, i3] = added[i1, i2, i0, i3], for axis 2
Primitive rows_of(Program& p, const Candidate& c) {
    const size_t k = c.append.axis;
    const Primitive& concat = p.primitives[c.primitive];
    Primitive out{concat.name + "/rows", concat.source, {}, TensorExpr{}, concat.origin};
    std::vector<Expr> shape = p.values[c.present].shape;
    shape[k] = p.values[c.added].shape[k];
    TensorExpr& e = *out.expr();
    e.extents = rows_first(shape, k);
    e.spatial = shape.size();
    Access read{c.added, {}, {}, 0};
    for (size_t d = 0; d < shape.size(); ++d) read.index.push_back(axis(d == k ? 0 : d < k ? d + 1 : d));
    e.accesses.push_back(std::move(read));
    e.body.set_root(e.body.access(0, p.values[c.added].dtype));
    const std::string name = unused_name(p, p.values[c.present].name + "/rows");
    out.outputs = {p.values.push_back({name, p.values[c.added].dtype, e.extents})};
    return out;
}

void apply(Program& p, const Candidate& c) {
    const size_t k = c.append.axis;
    const Primitive rows = rows_of(p, c);
    IndexVector<PrimitiveId, Primitive> primitives;
    for (const PrimitiveId id : p.primitives.ids()) {
        Primitive& primitive = p.primitives[id];
        if (id == c.primitive) {
            primitive.kind = Opaque{opaque::append(), {c.past, rows.outputs[0]}};
            primitives.push_back(rows);
        } else if (TensorExpr* e = primitive.expr()) {
            for (Access& a : e->accesses)
                if (a.value == c.past || a.value == c.present) a.index = rows_first(a.index, k);
        }
        primitives.push_back(std::move(primitive));
    }
    p.primitives = std::move(primitives);
    for (const ValueId v : {c.past, c.present}) p.values[v].shape = rows_first(p.values[v].shape, k);
}

}  // namespace

std::vector<Append> append_in_place(Program& program) {
    std::vector<Candidate> found = Appends(program).found();
    // Last first: a primitive's position does not change by those that are inserted behind it.
    std::sort(found.begin(), found.end(),
              [](const Candidate& a, const Candidate& b) { return b.primitive < a.primitive; });
    for (const Candidate& c : found) apply(program, c);
    std::vector<Append> out;
    for (const Candidate& c : found) out.push_back(c.append);
    std::sort(out.begin(), out.end(), [](const Append& a, const Append& b) { return a.input < b.input; });
    return out;
}

std::optional<AppendedRows> appended_rows(const Program& program, const std::vector<Append>& appends) {
    const auto rows = [&](ValueId v) { return program.values[v].shape[0]; };
    const Expr before = rows(program.inputs[appends.at(0).input]), all = rows(program.outputs[appends[0].output]);
    const auto known = before.as_var(), added = (all - before).as_var();
    if (!known || !added) return std::nullopt;
    return AppendedRows{*known, *added};
}

}  // namespace tilewright
