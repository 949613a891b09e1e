#include "program/builder.h"

#include <algorithm>

#include "base/error.h"
#include "index/expr_size.h"
#include "program/analysis/dynamic.h"

namespace tilewright {

namespace {

constexpr size_t kLong = 400;         ///< characters; dimensions in the last layers of deep networks are shorter
constexpr size_t kLongFromData = 64;  ///< sums and products of a few scalars are shorter
constexpr size_t kMaxFitting = 16;    ///< per common dimension; operators usually have two or three operands

bool is_whole(DType t) { return is_integer(t) || t == DType::Bool; }

/// The element count of a constant shape.
std::optional<int64_t> constant_count(const Dims& shape) {
    const Expr n = product(shape);
    return n.is_constant() ? std::optional(n.constant()) : std::nullopt;
}

/// Replaces load(k) by loads[k] in an expression and simplifies it.
Expr rewrite(Expr e, std::span<const Expr> loads, const Ranges& ranges) {
    const Expr replaced = substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v.kind == VarKind::Load && v.id < loads.size()) return loads[v.id];
        return std::nullopt;
    });
    return simplify(replaced, ranges);
}

/// Simplifies the expression unless it is long: with hundreds of symbols every step would examine all of them.
Expr simplified(Expr e) { return is_long(e) ? e : simplify(e, {}); }

/// The operands of min(a, b), if the expression is just that.
const Atom* as_minimum(Expr e) {
    if (e.terms().size() != 1 || e.constant() != 0) return nullptr;
    const Term& t = e.terms()[0];
    if (t.coefficient != 1 || t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Min) return nullptr;
    return t.atoms[0];
}

/// Whether d >= min(other, 2) for all values of the symbols, including 0: if `d` is 1, `other` is at most 1.
bool is_two_with(Expr d, Expr other) {
    if (const Atom* least = as_minimum(d)) return is_two_with(least->a, other) && is_two_with(least->b, other);
    if (d == other) return true;
    const auto from_zero = [](Expr e) {  // the provers assume symbols >= 1
        return substitute(e, [](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Symbol) return std::nullopt;
            return Expr::var(v) - 1;
        });
    };
    return prove_nonnegative(from_zero(d) - 2, {}) || prove_nonnegative(from_zero(d - other), {});
}

/// The slots that the body uses, and those that indices and conditions of used accesses load from.
std::vector<bool> needed_accesses(const TensorExpr& e) {
    std::vector<bool> needed(e.accesses.size(), false);
    const auto need_loads = [&](Expr x) {
        for (const Var v : variables(x))
            if (v.kind == VarKind::Load && v.id < needed.size()) needed[v.id] = true;
    };
    for (const uint32_t slot : e.body.slots()) needed.at(slot) = true;
    const ScalarBody pruned = e.body.pruned();
    for (const ScalarNode& n : pruned.nodes())
        if (n.op == ScalarOp::Index) need_loads(n.index);
    for (size_t k = e.accesses.size(); k-- > 0;) {  // an index loads only from earlier accesses
        if (!needed[k]) continue;
        for (const Expr x : e.accesses[k].index) need_loads(x);
        for (const Expr x : e.accesses[k].valid) need_loads(x);
    }
    return needed;
}

}  // namespace

void Builder::set_source(std::string node, std::string op, std::string described) {
    source_.reset();
    node_ = std::move(node);
    op_ = std::move(op);
    described_ = described.empty() && !node_.empty() ? fmt::format("node '{}' ({})", node_, op_) : std::move(described);
}

void Builder::set_outputs(std::vector<ValueId> outputs) {
    for (const ValueId v : outputs) materialize(v);
    program_.outputs = std::move(outputs);
}

void Builder::fail(const std::string& message) const {
    throw ModelError(described_.empty() ? message : described_ + ": " + message);
}

// --- requirements

void Builder::require(Requirement::Kind kind, Expr a, Expr b, const std::function<std::string()>& message,
                      std::string_view what) {
    Requirement r{kind,       a,
                  b,          std::string(what),
                  described_, check_values ? Requirement::Check::Always : Requirement::Check::Free};
    const Expr left = simplified(a), right = simplified(b);
    if (left.is_constant() && right.is_constant()) {
        if (!r.holds(left.constant(), right.constant())) fail(message());
        return;
    }
    if (left == right || simplified(left - right).is_constant(0)) return;
    const bool known = std::any_of(program_.requirements.begin(), program_.requirements.end(), [&](const auto& o) {
        const bool both = (o.a == a && o.b == b) || (o.a == b && o.b == a);
        return o.is_about(r) || (both && (o.kind == Requirement::Kind::Equal ||
                                          (o.kind == kind && kind == Requirement::Kind::Broadcast)));
    });
    if (!known) program_.requirements.push_back(std::move(r));
}

/// Requirements implied by an index that is certainly evaluated. Operators that compare dimensions have already
/// stated theirs, with a specific message; this covers the others:
///     x[i0 + 2], i0 < $n   gives   x's dimension >= $n + 2
/// Indices that depend on axis conditions or on loads are checked by their operators.
void Builder::require_inside(const TensorExpr& e) {
    const Ranges ranges = e.ranges();
    for (const Access& a : e.accesses) {
        std::set<Var> conditional;
        bool certain = true;
        for (const Expr condition : a.valid) {
            const std::vector<Var> used = variables(condition);
            conditional.insert(used.begin(), used.end());
            certain = certain && std::any_of(used.begin(), used.end(), [](Var v) { return v.kind == VarKind::Axis; });
        }
        if (!certain) continue;  // possibly never evaluated
        const Dims dims = shape(a.value);
        for (size_t d = 0; d < dims.size(); ++d) {
            const Expr index = a.index[d];
            if (prove_less(index, dims[d], ranges)) continue;
            // The last point: exact for a sum of axes.
            Expr most = index;
            bool sum = true;
            for (const Var v : variables(index)) {
                if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) continue;
                const auto linear =
                    v.kind == VarKind::Axis && conditional.count(v) == 0 ? linear_in(most, v) : std::nullopt;
                sum = sum && linear && linear->coefficient.is_constant() && linear->coefficient.constant() > 0;
                if (!sum) break;
                most = linear->coefficient * (e.extents[v.id] - 1) + linear->rest;
            }
            if (!sum) continue;
            require(
                Requirement::Kind::AtLeast, dims[d], most + 1,
                [&] {
                    return fmt::format("dimension {} of '{}' is {}, and element {} is read", d,
                                       program_.values[a.value].name, dims[d].text(), most.text());
                },
                "dimensions");
        }
    }
}

// --- names

Origin Builder::origin() {
    if (op_.empty()) return {};
    if (!source_) {
        const auto [it, fresh] = sources_.try_emplace({node_, op_}, static_cast<uint32_t>(program_.nodes.size()));
        if (fresh) program_.nodes.push_back({node_, op_});
        source_ = it->second;
    }
    return {{*source_}, {}};
}

std::string Builder::unique_name(std::string_view role) {
    const std::string base = node_.empty() ? std::string(role) : node_ + "/" + std::string(role);
    for (;;) {
        const int n = used_names_[base]++;
        std::string name = n == 0 ? base : fmt::format("{}.{}", base, n);
        if (n == 0 || used_names_.try_emplace(name, 1).second) return name;
    }
}

std::string Builder::unique_symbol(std::string_view hint) {
    const std::string base = node_.empty() ? std::string(hint) : node_ + "." + std::string(hint);
    std::string name = base;
    for (int n = 2; !symbols_->insert(name).second; ++n) name = fmt::format("{}.{}", base, n);
    return name;
}

Expr Builder::fresh_symbol(std::string_view hint) { return symbol(unique_symbol(hint)); }

void Builder::rename(ValueId v, const std::string& name) {
    std::string unique = name;
    for (int n = 1; !used_names_.try_emplace(unique, 1).second; ++n) unique = fmt::format("{}.{}", name, n);
    program_.values[v].name = unique;
}

ValueId Builder::new_value(std::string name, DType dtype, Dims shape) {
    return program_.values.push_back({std::move(name), dtype, std::move(shape)});
}

// --- values and their known contents

ValueId Builder::input(const std::string& name, DType dtype, Dims shape) {
    for (const Expr d : shape)
        for (const Var v : variables(d)) symbols_->insert(var_name(v));
    for (const Expr d : shape)
        if (const auto v = bound_symbol(d)) of_inputs_.insert(*v);
    const ValueId v = new_value({}, dtype, std::move(shape));
    rename(v, name);
    program_.inputs.push_back(v);
    return v;
}

ValueId Builder::constant(Tensor value, std::string_view name) {
    const ValueId v = new_value(unique_name(name), value.dtype(), Dims(value.shape().begin(), value.shape().end()));
    program_.constants.emplace(v, std::move(value));
    return v;
}

ValueId Builder::int_values(std::vector<Expr> elements, Dims shape, DType dtype) {
    const auto count = constant_count(shape);
    TW_CHECK(is_whole(dtype) && count && *count == static_cast<int64_t>(elements.size()));
    if (std::all_of(elements.begin(), elements.end(), [](Expr e) { return e.is_constant(); })) {
        Shape numbers;
        for (const Expr d : shape) numbers.push_back(d.constant());
        Tensor t(dtype, numbers);
        for (size_t i = 0; i < elements.size(); ++i) t.set(static_cast<int64_t>(i), elements[i].constant());
        return constant(std::move(t));
    }
    const ValueId v = new_value(unique_name("integers"), dtype, std::move(shape));
    int_values_.emplace(v, std::move(elements));
    pending_.insert(v);
    return v;
}

void Builder::materialize(ValueId v) {
    const auto it = pending_.find(v);
    if (it == pending_.end()) return;
    pending_.erase(it);
    const std::vector<Expr>& elements = int_values_.at(v);
    const Value& value = program_.values[v];
    TensorExpr e;
    e.extents = value.shape;
    e.spatial = e.extents.size();
    Expr position = 0;
    for (size_t k = 0; k < e.spatial; ++k) position = position * e.extents[k] + axis(k);
    // [n, n * 4, 7]  ->  select(i0 == 0, n, select(i0 == 1, n * 4, 7))
    const Ranges ranges = e.ranges();
    const ScalarId at = e.body.index(simplify(position, ranges));
    ScalarId chain = e.body.index(elements.back());
    for (size_t i = elements.size() - 1; i-- > 0;) {
        const ScalarId here = e.body.binary(ScalarOp::Eq, at, e.body.int_constant(DType::I64, static_cast<int64_t>(i)));
        chain = e.body.select(here, e.body.index(elements[i]), chain);
    }
    e.body.set_root(e.body.cast(compute_type(value.dtype), chain));
    program_.primitives.push_back({value.name, op_, {v}, std::move(e), origin()});
}

const Tensor* Builder::contents(ValueId v) const {
    const auto it = program_.constants.find(v);
    return it == program_.constants.end() ? nullptr : &it->second;
}

std::optional<std::vector<Expr>> Builder::int_contents(ValueId v) const {
    if (const auto it = int_values_.find(v); it != int_values_.end()) return it->second;
    const Tensor* t = contents(v);
    if (t == nullptr || !is_whole(t->dtype()) || t->count() > kMaxKnownElements) return std::nullopt;
    if (t->dtype() == DType::U64)
        for (int64_t i = 0; i < t->count(); ++i)
            if (t->get_int(i) < 0) return std::nullopt;  // beyond 2^63: no Expr represents it
    const std::vector<int64_t> numbers = t->to_ints();
    return std::vector<Expr>(numbers.begin(), numbers.end());
}

std::vector<Expr> Builder::read_ints(ValueId v) {
    if (auto known = int_contents(v)) return *known;
    const auto count = constant_count(shape(v));
    if (!count)
        fail(fmt::format("'{}' determines a shape, but its number of elements (shape {}) is unknown at compile time",
                         program_.values[v].name, to_string(shape(v))));
    if (!is_whole(dtype(v)))
        fail(fmt::format("'{}' must contain integers, but has type {}", program_.values[v].name, to_string(dtype(v))));
    std::vector<Expr> elements;
    for (int64_t i = 0; i < *count; ++i) elements.push_back(read_scalar(v, i));
    if (*count <= kMaxKnownElements) int_values_.emplace(v, elements);
    return elements;
}

Expr Builder::read_int(ValueId v) {
    const std::vector<Expr> elements = read_ints(v);
    if (elements.size() != 1)
        fail(fmt::format("'{}' must contain one number, but has shape {}", program_.values[v].name,
                         to_string(shape(v))));
    return elements.front();
}

Expr Builder::settled(Expr e) {
    const std::vector<Var> names = variables(e);
    const bool data = std::any_of(names.begin(), names.end(), [](Var v) { return v.kind == VarKind::Scalar; });
    if (e.text().size() <= (data ? kLongFromData : kLong) || !is_uniform(e)) return e;
    if (const auto it = settled_.find(e); it != settled_.end()) return it->second;
    TensorExpr computed;
    computed.body.set_root(computed.body.index(e));
    const Expr s = read_scalar(append(std::move(computed), DType::I64, "dimension"), 0);
    settled_.emplace(e, s);
    return s;
}

Expr Builder::read_scalar(ValueId v, int64_t position) {
    materialize(v);
    const Expr e = scalar(unique_symbol(fmt::format("value{}", position)));
    append(ReadScalar{v, position, var_name(*e.as_var())}, {}, "read");
    return e;
}

// --- primitives

std::optional<Expr> Builder::one_integer(ValueId v) const {
    if (!product(shape(v)).is_constant(1)) return std::nullopt;
    const auto elements = int_contents(v);
    return elements ? std::optional(elements->front()) : std::nullopt;
}

/// Simplifies index expressions and conditions, substitutes one-element constants into the body, merges equal
/// accesses and drops unused ones.
TensorExpr Builder::normalized(TensorExpr e) const {
    const Ranges ranges = e.ranges();
    const std::vector<bool> needed = needed_accesses(e);
    TensorExpr out;
    out.extents = e.extents;
    out.spatial = e.spatial;
    out.reducer = e.reducer;
    std::vector<Expr> loads(e.accesses.size(), Expr(0));
    std::vector<std::optional<uint32_t>> slots(e.accesses.size());
    for (size_t k = 0; k < e.accesses.size(); ++k) {
        if (!needed[k]) continue;
        Access a;
        a.value = e.accesses[k].value;
        a.fill = e.accesses[k].fill;
        for (const Expr x : e.accesses[k].index) a.index.push_back(rewrite(x, loads, ranges));
        for (const Expr x : e.accesses[k].valid) {
            const Expr condition = rewrite(x, loads, ranges);
            if (prove_nonnegative(condition, ranges)) continue;
            if (std::find(a.valid.begin(), a.valid.end(), condition) == a.valid.end()) a.valid.push_back(condition);
        }
        if (a.valid.empty()) {
            const Tensor* t = contents(a.value);
            const auto whole = one_integer(a.value);
            if (whole) loads[k] = *whole;
            if (whole || (t != nullptr && t->count() == 1)) continue;
        }
        const auto same = std::find(out.accesses.begin(), out.accesses.end(), a);
        const auto slot = static_cast<uint32_t>(same - out.accesses.begin());
        if (same == out.accesses.end()) out.accesses.push_back(std::move(a));
        slots[k] = slot;
        loads[k] = load(slot);
    }
    const auto map_leaf = [&](ScalarBody& body, const ScalarNode& leaf) -> ScalarId {
        if (leaf.op == ScalarOp::Index) return body.index(rewrite(leaf.index, loads, ranges));
        if (leaf.op != ScalarOp::Access) return {};
        const ValueId value = e.accesses[leaf.slot].value;
        const DType storage = dtype(value);
        if (slots[leaf.slot]) return body.access(*slots[leaf.slot], storage);
        if (const Tensor* t = contents(value)) {
            if (is_whole(storage)) return body.int_constant(leaf.dtype, t->get_int(0));
            return body.constant(leaf.dtype, t->get(0));
        }
        return body.cast(leaf.dtype, body.index(loads[leaf.slot]));
    };
    out.body.set_root(out.body.inline_body(e.body, map_leaf));
    out.body = out.body.pruned();
    return out;
}

ValueId Builder::emit(TensorExpr expr, DType dtype, std::string_view role) {
    TW_CHECK(!expr.body.empty() && expr.output_index.empty() && expr.epilogue.empty());
    TW_CHECK((expr.reducer == Reducer::None) == (expr.spatial == expr.extents.size()), "{}/{}", node_, role);
    for (const Access& a : expr.accesses)
        TW_CHECK(a.index.size() == rank(a.value), "{}/{}: {} indices into '{}' of shape {}", node_, role,
                 a.index.size(), program_.values[a.value].name, to_string(shape(a.value)));
    for (Expr& d : expr.extents) {
        d = settled(d);
        if (d.is_constant() && d.constant() < 0) fail(fmt::format("a dimension of {} would be {}", role, d.text()));
    }
    TensorExpr e = normalized(std::move(expr));
    require_inside(e);
    const DType got = e.body.dtype();
    TW_CHECK(compute_type(got) == compute_type(dtype), "{}/{}: the body returns {}, the output is {}", node_, role,
             to_string(got), to_string(dtype));
    const Dims out_shape(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
    ValueId folded;
    if (try_fold(e, dtype, out_shape, role, folded)) return folded;
    return append(std::move(e), dtype, role);
}

ValueId Builder::append(TensorExpr e, DType dtype, std::string_view role) {
    Dims out_shape(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
    return append(decltype(Primitive::kind)(std::move(e)), {{dtype, std::move(out_shape)}}, role).front();
}

std::vector<ValueId> Builder::append(decltype(Primitive::kind) kind, std::vector<std::pair<DType, Dims>> outputs,
                                     std::string_view role) {
    Primitive p;
    p.name = unique_name(role);
    p.source = op_;
    p.origin = origin();
    p.kind = std::move(kind);
    for (const ValueId v : p.inputs()) materialize(v);
    for (size_t k = 0; k < outputs.size(); ++k) {
        std::string name = outputs.size() == 1 ? p.name : fmt::format("{}_{}", p.name, k);
        p.outputs.push_back(new_value(std::move(name), outputs[k].first, std::move(outputs[k].second)));
    }
    std::vector<ValueId> ids = p.outputs;
    program_.primitives.push_back(std::move(p));
    return ids;
}

std::vector<ValueId> Builder::emit_opaque(std::shared_ptr<const OpaqueOp> op, std::vector<ValueId> inputs,
                                          std::vector<std::pair<DType, Dims>> outputs, std::string_view role) {
    if (auto folded = try_fold(*op, inputs, outputs, role)) return *folded;
    return append(Opaque{std::move(op), std::move(inputs)}, std::move(outputs), role);
}

std::vector<ValueId> Builder::emit_control(std::variant<TensorExpr, Opaque, ReadScalar, If, Loop> kind,
                                           std::vector<std::pair<DType, Dims>> outputs, std::string_view role) {
    return append(std::move(kind), std::move(outputs), role);
}

// --- helpers

int64_t Builder::normalize_axis(int64_t axis, size_t rank) const {
    const auto r = static_cast<int64_t>(rank);
    if (axis < -r || axis >= r) fail(fmt::format("axis {} is outside [{}, {}]", axis, -r, r - 1));
    return axis < 0 ? axis + r : axis;
}

std::vector<int64_t> Builder::normalize_axes(const std::vector<int64_t>& axes, size_t rank) const {
    std::vector<int64_t> out;
    for (const int64_t a : axes) {
        out.push_back(normalize_axis(a, rank));
        if (std::count(out.begin(), out.end(), out.back()) > 1) fail(fmt::format("axis {} is given twice", a));
    }
    return out;
}

Dims Builder::broadcast(std::span<const Dims> shapes) {
    size_t r = 0;
    for (const Dims& s : shapes) r = std::max(r, s.size());
    const auto fit = [&](Requirement::Kind kind, Expr a, Expr b) {
        require(
            kind, a, b,
            [&] {
                std::vector<std::string> texts;
                for (const Dims& t : shapes) texts.push_back(to_string(t));
                return fmt::format("shapes {} do not broadcast: {} against {}", fmt::join(texts, " and "), a.text(),
                                   b.text());
            },
            "dimensions");
    };
    Dims out(r, Expr(1));
    for (const Dims& s : shapes) {
        for (size_t k = 0; k < s.size(); ++k) {
            Expr& d = out[r - s.size() + k];
            const Expr other = s[k];
            if (d == other || other.is_constant(1)) continue;
            if (d.is_constant(1)) {
                d = other;
            } else if (other.is_constant()) {
                fit(Requirement::Kind::Spread, d, other);  // the unknown dimension is 1 or the same number
                d = other;
            } else if (d.is_constant()) {
                fit(Requirement::Kind::Spread, other, d);
            } else if (made_of_[d].count(other) == 0) {
                fit(Requirement::Kind::Broadcast, d, other);
                d = common_dimension(d, other);
            }
        }
    }
    return out;
}

Expr Builder::common_dimension(Expr d, Expr other) {
    const Expr both = simplified(max(d, other));
    std::set<Expr> parts = made_of_[d];
    parts.merge(std::set<Expr>(made_of_[other]));
    if (parts.size() > kMaxFitting) parts.clear();
    parts.insert({d, other});
    std::set<Expr>& known = made_of_[both];
    known.merge(parts);
    return both;
}

/// Whether the requirements on the input dimensions imply that `d` equals `whole`, the common dimension of a broadcast:
///     d = min($s, 1024), whole = $s:  it is required that d is 1 or $s, and if it is 1, $s is 1
bool Builder::spans_whole(Expr d, Expr whole) const {
    const auto parts = made_of_.find(whole);
    if (parts == made_of_.end() || parts->second.count(d) == 0 || is_long(whole)) return false;
    for (const Expr p : parts->second) {
        // A later check would come after kernels that rely on it.
        const std::vector<Var> names = variables(p);
        if (!std::all_of(names.begin(), names.end(), [&](Var v) { return of_inputs_.count(v) != 0; })) return false;
        if (!is_two_with(d, p)) return false;
    }
    // Kernels are measured at sizes that are not checked (tune/operands.h), and the relation should hold there too.
    const auto number = [](Expr e) { return substitute(e, [](Var) { return std::optional(Expr(kAssumedExtent)); }); };
    return number(d) == number(whole);
}

std::vector<Expr> Builder::broadcast_index(const Dims& a, const Dims& out) const {
    TW_CHECK(a.size() <= out.size());
    std::vector<Expr> index;
    const size_t shift = out.size() - a.size();
    for (size_t k = 0; k < a.size(); ++k) {
        const Expr i = axis(k + shift);
        if (a[k] == out[k + shift] || spans_whole(a[k], out[k + shift]))
            index.push_back(i);
        else if (a[k].is_constant(1))
            index.push_back(0);
        else
            index.push_back(min(i, a[k] - 1));  // valid both for a dimension of 1 and for the full extent
    }
    return index;
}

}  // namespace tilewright
