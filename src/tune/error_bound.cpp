#include "tune/error_bound.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "program/analysis/contraction.h"
#include "program/scalar_ops.h"
#include "tile/matrix.h"

namespace tilewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPower = 16;  // the error of Pow in u; those of functions are in their rows
constexpr double kSigmas = 6;

/// The error of one operation. In f64 the reference rounds as well.
double half_ulp(DType t) { return t == DType::F64 ? 0x1p-52 : 0x1p-24; }

/// The error of storage: half a unit in the last place relative to the number, the magnitude of the smallest number,
/// and the overflow threshold.
struct Precision {
    double u = 0, smallest = 0, overflow = 1e38;
};
Precision precision(DType t) {
    switch (t) {
        case DType::F64:
            return {0x1p-53, 0x1p-1022, 1e307};
        case DType::F32:
            return {0x1p-24, 0x1p-126};
        case DType::F16:
            return {0x1p-11, 0x1p-24, 65000};
        case DType::BF16:
            return {0x1p-8, 0x1p-126};
        case DType::F8E4M3FN:
        case DType::F8E4M3FNUZ:
            return {0x1p-4, 0x1p-9};
        case DType::F8E5M2:
        case DType::F8E5M2FNUZ:
            return {0x1p-3, 0x1p-16};
        case DType::F4E2M1:
            return {0x1p-2, 0.5};
        case DType::F8E8M0:
            return {0.5, 0x1p-127};
        default:
            return {};
    }
}

/// True if every value of `from` is a value of `to` (both integers or Bool); otherwise a conversion may wrap.
bool holds_all_of(DType to, DType from) {
    if (from == DType::Bool) return true;
    if (compute_type(to) != to || (is_signed(from) && !is_signed(to))) return false;
    return byte_size(to) > byte_size(from) || to == compute_type(from);
}

/// The slots in which an epilogue reads the reduced value and its bound.
struct AccSlots {
    uint32_t value = 0, error = 0;
};

/// Extends a body by the error of each node. Nodes and errors are in one body; an error is an f64 node, or none for an
/// exact node.
class BodyErrors {
  public:
    explicit BodyErrors(ScalarBody& into) : b_(into) {}

    struct Pair {
        ScalarId value, error;
    };
    /// `error_of`: the slot of the bound of an access, none if it is exact. `acc`: of an epilogue.
    Pair copy(const ScalarBody& from, const std::function<std::optional<uint32_t>(uint32_t slot)>& error_of,
              const std::optional<AccSlots>& acc = {}) {
        IndexVector<ScalarId, Pair> done(from.nodes().size());
        for (const ScalarId id : from.nodes().ids()) {
            ScalarNode n = from[id];
            Pair p;
            if (n.op == ScalarOp::Access || n.op == ScalarOp::Acc) {
                const bool is_acc = n.op == ScalarOp::Acc;
                TW_CHECK(!is_acc || acc, "Acc outside an epilogue");
                const std::optional<uint32_t> error = is_acc ? acc->error : error_of(n.slot);
                p.value = is_acc ? b_.access(acc->value, n.dtype) : b_.add(n);
                if (error) p.error = b_.access(*error, DType::F64);
            } else if (n.op == ScalarOp::Const || n.op == ScalarOp::Index) {
                p.value = b_.add(n);
                // 0.1 is a different number in f32.
                if (n.op == ScalarOp::Const && n.dtype == DType::F32 && static_cast<float>(n.value) != n.value)
                    p.error = number(0x1p-24 * std::fabs(n.value));
            } else {
                const Pair none;
                const Pair a = n.a ? done[n.a] : none, b = n.b ? done[n.b] : none, c = n.c ? done[n.c] : none;
                const DType operand = n.a ? from[n.a].dtype : n.dtype;
                n.a = a.value;
                n.b = b.value;
                n.c = c.value;
                p.value = b_.add(n);
                p.error = error(n, operand, p.value, a, b, c);
            }
            done[id] = p;
        }
        return done[from.root()];
    }

    ScalarId number(double v) { return b_.constant(DType::F64, v); }
    ScalarId wide(ScalarId v) { return b_.cast(DType::F64, v); }
    ScalarId magnitude(ScalarId v) { return b_.unary(ScalarOp::Abs, wide(v)); }
    ScalarId plus(ScalarId x, ScalarId y) { return !x ? y : !y ? x : b_.binary(ScalarOp::Add, x, y); }
    ScalarId minus(ScalarId x, ScalarId y) { return b_.binary(ScalarOp::Sub, x, y); }
    ScalarId times(ScalarId x, ScalarId y) { return b_.binary(ScalarOp::Mul, x, y); }
    ScalarId over(ScalarId x, ScalarId y) { return b_.binary(ScalarOp::Div, x, y); }
    ScalarId larger(ScalarId x, ScalarId y) { return !x ? y : !y ? x : b_.binary(ScalarOp::Max, x, y); }
    ScalarId apart(ScalarId x, ScalarId y) { return b_.unary(ScalarOp::Abs, minus(x, y)); }
    ScalarId where(ScalarOp comparison, ScalarId x, ScalarId y, ScalarId then, ScalarId otherwise) {
        return b_.select(b_.binary(comparison, x, y), then, otherwise);
    }
    // Comparisons with a NaN are false: every select below is written so that NaN selects the larger bound.

    /// `then` if there is an error, else 0.
    ScalarId if_inexact(ScalarId error, double then) {
        return error ? where(ScalarOp::Le, error, number(0), number(0), number(then)) : ScalarId();
    }
    /// The bound of a value when it is stored as `t`.
    ScalarId stored(ScalarId value, ScalarId error, DType t) {
        if (!is_float(t)) return error;
        const auto [u, smallest, overflow] = precision(t);
        const ScalarId size = plus(magnitude(value), error);
        const ScalarId bound = plus(error, plus(times(number(2 * u), size), number(smallest)));
        return where(ScalarOp::Lt, size, number(overflow), bound, number(kInfinity));
    }

  private:
    ScalarId error(const ScalarNode& n, DType operand, ScalarId value, const Pair& a, const Pair& b, const Pair& c) {
        const ScalarId any = plus(plus(a.error, b.error), c.error);
        const bool floats = is_float(n.dtype);
        const ScalarId round = floats ? times(number(half_ulp(n.dtype)), magnitude(value)) : ScalarId();
        const ScalarId smallest = floats ? number(precision(n.dtype).smallest) : ScalarId();
        const auto within = [&](double u) {
            return plus(times(number(u * half_ulp(n.dtype)), magnitude(value)), smallest);
        };
        if (const ScalarFunction* f = scalar_function(n.op)) {
            const ScalarId own = f->ulp == 0 ? ScalarId() : within(2 * f->ulp);
            return plus(own, f->curve == Curve::Gentle ? a.error : over_ends(n, operand, value, a));
        }
        switch (n.op) {
            case ScalarOp::Add:
            case ScalarOp::Sub:
                return plus(any, round);
            case ScalarOp::Table:
                return if_inexact(any, kInfinity);
            case ScalarOp::Mul:
            case ScalarOp::Weigh:
                return plus(round, product_error(a, b));
            case ScalarOp::Div:
                return floats ? plus(round, quotient_error(value, smallest, a, b)) : if_inexact(any, kInfinity);
            case ScalarOp::Min:
            case ScalarOp::Max:
                return larger(a.error, b.error);
            case ScalarOp::Neg:
            case ScalarOp::Abs:
                return a.error;
            case ScalarOp::Sign:
                return near(a.value, ScalarId(), a.error, 2);
            case ScalarOp::Eq:
            case ScalarOp::Ne:
            case ScalarOp::Lt:
            case ScalarOp::Le:
            case ScalarOp::Gt:
            case ScalarOp::Ge:
                return near(a.value, b.value, plus(a.error, b.error), 1);
            case ScalarOp::Select: {
                const ScalarId taken = !b.error && !c.error ? ScalarId()
                                                            : b_.select(a.value, b.error ? b.error : number(0),
                                                                        c.error ? c.error : number(0));
                if (!a.error) return taken;
                const ScalarId either = plus(apart(wide(b.value), wide(c.value)), plus(b.error, c.error));
                return where(ScalarOp::Le, a.error, number(0), taken ? taken : number(0), either);
            }
            case ScalarOp::Cast:
                return cast_error(n, operand, value, a);
            case ScalarOp::Pow:
                return floats ? plus(within(kPower), power_error(value, a, b)) : if_inexact(any, kInfinity);
            default:
                // Remainders, bits, shifts and reinterpretations: exact for exact operands (or one rounding off).
                return plus(round, if_inexact(any, kInfinity));
        }
    }

    ScalarId product_error(const Pair& a, const Pair& b) {
        ScalarId e;
        if (a.error) e = times(magnitude(b.value), a.error);
        if (b.error) e = plus(e, times(magnitude(a.value), b.error));
        if (a.error && b.error) e = plus(e, times(a.error, b.error));
        return e;
    }

    /// A divisor that overflows flushes values of the size of `smallest` to 0: 1 / (1 + exp(90)). If the divisor may be
    /// 0 there is no bound.
    ScalarId quotient_error(ScalarId value, ScalarId smallest, const Pair& a, const Pair& b) {
        const ScalarId vanished = times(smallest, magnitude(a.value));
        if (!a.error && !b.error) return vanished;
        const ScalarId left = b.error ? minus(magnitude(b.value), b.error) : magnitude(b.value);
        ScalarId e = a.error;
        if (b.error) e = plus(e, times(magnitude(value), b.error));
        return plus(vanished,
                    where(ScalarOp::Gt, left, number(0), over(e, left), if_inexact(plus(a.error, b.error), kInfinity)));
    }

    ScalarId power_error(ScalarId value, const Pair& a, const Pair& b) {
        ScalarId ends;
        if (!a.error && !b.error) return ends;
        const ScalarId x = wide(a.value), y = wide(b.value), r = wide(value);
        for (const double s : {-1.0, 1.0})
            for (const double t : {-1.0, 1.0}) {
                const ScalarId at = b_.binary(ScalarOp::Pow, moved(x, a.error, s), moved(y, b.error, t));
                ends = larger(ends, apart(at, r));
            }
        return ends;
    }

    ScalarId moved(ScalarId x, ScalarId error, double sign) { return error ? plus(x, times(number(sign), error)) : x; }

    /// The error of a monotone or convex function: its largest difference at the ends of the operand's interval. (With
    /// a pole in the interval the values at the ends are far apart.)
    ScalarId over_ends(const ScalarNode& n, DType operand, ScalarId value, const Pair& a) {
        if (!a.error) return {};
        const ScalarId x = b_.cast(DType::F64, a.value), r = wide(value);
        TW_CHECK(is_float(operand), "{} of {}", to_string(n.op), to_string(operand));
        ScalarId ends;
        for (const double s : {-1.0, 1.0}) ends = larger(ends, apart(b_.unary(n.op, moved(x, a.error, s)), r));
        return ends;
    }

    /// `jump` where the sign of x - y is uncertain.
    ScalarId near(ScalarId x, ScalarId y, ScalarId error, double jump) {
        if (!error) return {};
        const ScalarId distance = y ? apart(wide(x), wide(y)) : magnitude(x);
        const ScalarId reached = where(ScalarOp::Gt, distance, error, number(0), number(jump));
        return where(ScalarOp::Le, error, number(0), number(0), reached);
    }

    ScalarId cast_error(const ScalarNode& n, DType operand, ScalarId value, const Pair& a) {
        if (n.dtype == DType::Bool) return near(a.value, ScalarId(), a.error, 1);
        if (is_float(n.dtype)) {
            // Values of smaller float types are rounded here; so is f32 from f64 or an integer.
            if (precision(n.dtype).u < precision(compute_type(operand)).u && is_float(operand)) return a.error;
            const bool kept = is_float(operand) && n.dtype == operand;
            return kept ? a.error : stored(value, a.error, n.dtype);
        }
        if (!a.error) return {};
        if (!is_float(operand)) return holds_all_of(n.dtype, operand) ? a.error : if_inexact(a.error, kInfinity);
        ScalarId ends;
        for (const double s : {-1.0, 1.0}) {
            const ScalarId at = b_.cast(n.dtype, moved(wide(a.value), a.error, s));
            ends = larger(ends, apart(wide(at), wide(value)));
        }
        return ends;
    }

    ScalarBody& b_;
};

/// Builds the program with bounds.
class Bounds {
  public:
    Bounds(const Program& stages, bool f16_sums) : out_(stages), f16_sums_(f16_sums) {
        out_.primitives = {};
        for (const Primitive& p : stages.primitives) {
            TW_CHECK(p.expr() != nullptr, "stage {} is not a tensor expression", p.name);
            stage(*p.expr(), p.outputs.at(0));
        }
        for (const ValueId v : stages.outputs) {
            const auto it = error_.find(v);
            out_.outputs.push_back(it != error_.end() ? it->second : no_error(v));
        }
    }
    Program take() { return std::move(out_); }

  private:
    ValueId new_value(const char* role, DType t, std::vector<Expr> shape) {
        return out_.values.push_back({fmt::format("{}{}", role, out_.values.size()), t, std::move(shape)});
    }

    void add(TensorExpr e, ValueId v) {
        Primitive p;
        p.outputs = {v};
        p.kind = std::move(e);
        out_.primitives.push_back(std::move(p));
    }

    ValueId no_error(ValueId of) {
        TensorExpr e;
        e.extents = out_.values[of].shape;
        e.spatial = e.extents.size();
        e.body.set_root(e.body.constant(DType::F64, 0));
        const ValueId v = new_value("exact", DType::F64, e.extents);
        add(std::move(e), v);
        return v;
    }

    /// For each access of `e` to an inexact value, appends an access to its bound.
    std::map<uint32_t, uint32_t> read_errors(TensorExpr& e) const {
        std::map<uint32_t, uint32_t> slots;
        const size_t own = e.accesses.size();
        for (size_t k = 0; k < own; ++k) {
            const auto it = error_.find(e.accesses[k].value);
            if (it == error_.end()) continue;
            slots.emplace(k, e.accesses.size());
            Access error = e.accesses[k];
            error.value = it->second;
            error.fill = 0;
            e.accesses.push_back(std::move(error));
        }
        return slots;
    }

    /// The loads that the expression's indices use and that are inexact: the element that is read is unknown.
    static ScalarId of_indices(const TensorExpr& e, const std::map<uint32_t, uint32_t>& errors, BodyErrors& b,
                               ScalarBody& body) {
        std::set<uint32_t> loads;
        const auto look = [&](Expr x) {
            for (const Var v : variables(x))
                if (v.kind == VarKind::Load && errors.count(v.id) != 0) loads.insert(errors.at(v.id));
        };
        for (const Access& a : e.accesses) {
            for (const Expr x : a.index) look(x);
            for (const Expr x : a.valid) look(x);
        }
        for (const ScalarNode& n : e.body.nodes())
            if (n.op == ScalarOp::Index) look(n.index);
        ScalarId all;
        for (const uint32_t slot : loads) all = b.plus(all, b.if_inexact(body.access(slot, DType::F64), kInfinity));
        return all;
    }

    void stage(const TensorExpr& e, ValueId v) {
        if (e.reducer == Reducer::None) {
            TW_CHECK(e.epilogue.empty(), "an epilogue without a reduction");
            add(e, v);
            bound_of_point(e, v, std::nullopt);
            return;
        }
        // acc = reduce(body);  acc_error = its bound;  v = epilogue(acc);  v_error
        const std::vector<Expr> shape(e.extents.begin(), e.extents.begin() + static_cast<ptrdiff_t>(e.spatial));
        TensorExpr reduced = e;
        reduced.epilogue = {};
        reduced.output_index.clear();
        const ValueId acc = new_value("acc", e.body.dtype(), shape);
        add(reduced, acc);
        const ValueId acc_error = bound_of_reduction(reduced, acc);

        TensorExpr last = without_reduction(e, acc);
        const auto acc_slot = static_cast<uint32_t>(last.accesses.size());
        last.accesses.push_back(at_point(acc, e.spatial));
        last.body = with_acc(e, acc_slot);
        add(last, v);
        last.body = e.epilogue;
        bound_of_point(last, v, Reduced{acc_slot, acc, acc_error});
    }

    static Access at_point(ValueId v, size_t axes) {
        Access a;
        a.value = v;
        for (size_t k = 0; k < axes; ++k) a.index.push_back(axis(k));
        return a;
    }

    static ScalarBody with_acc(const TensorExpr& e, uint32_t slot) {
        ScalarBody body;
        if (e.epilogue.empty()) {
            body.set_root(body.access(slot, e.body.dtype()));
            return body;
        }
        body.set_root(body.inline_body(e.epilogue, [&](ScalarBody& b, const ScalarNode& n) {
            return n.op == ScalarOp::Acc ? b.access(slot, n.dtype) : ScalarId();
        }));
        return body;
    }

    /// The expression over its spatial axes only. Accesses keep their positions (indices refer to them); those that
    /// only the reduction makes become reads of `acc`.
    static TensorExpr without_reduction(const TensorExpr& e, ValueId acc) {
        std::set<uint32_t> needed;
        const auto need = [&](const auto& self, uint32_t slot) -> void {
            if (!needed.insert(slot).second) return;
            std::vector<Expr> exprs = e.accesses[slot].index;
            exprs.insert(exprs.end(), e.accesses[slot].valid.begin(), e.accesses[slot].valid.end());
            for (const Expr x : exprs)
                for (const Var v : variables(x))
                    if (v.kind == VarKind::Load) self(self, v.id);
        };
        if (!e.epilogue.empty()) {
            for (const uint32_t slot : e.epilogue.slots()) need(need, slot);
            for (const ScalarNode& n : e.epilogue.nodes())
                if (n.op == ScalarOp::Index)
                    for (const Var v : variables(n.index))
                        if (v.kind == VarKind::Load) need(need, v.id);
        }
        TensorExpr out = e;
        out.extents.resize(e.spatial);
        out.reducer = Reducer::None;
        out.epilogue = {};
        for (uint32_t k = 0; k < out.accesses.size(); ++k)
            if (needed.count(k) == 0) out.accesses[k] = at_point(acc, e.spatial);
        return out;
    }

    struct Reduced {
        uint32_t slot = 0;  ///< the slot in which the expression reads it
        ValueId value, error;
    };

    /// Adds the bound of v, which `e` produces: its body is a body, or with `reduced` an epilogue (empty: Acc).
    void bound_of_point(TensorExpr e, ValueId v, const std::optional<Reduced>& reduced) {
        std::map<uint32_t, uint32_t> errors = read_errors(e);
        std::optional<AccSlots> acc;
        const auto error_slot = static_cast<uint32_t>(e.accesses.size());
        if (reduced) {
            acc = {reduced->slot, error_slot};
            e.accesses.push_back(at_point(reduced->error, e.spatial));
        }
        ScalarBody body;
        BodyErrors b(body);
        BodyErrors::Pair p;
        if (reduced && e.body.empty())
            p = {body.access(reduced->slot, out_.values[reduced->value].dtype), body.access(error_slot, DType::F64)};
        else
            p = b.copy(e.body, lookup(errors), acc);
        const ScalarId root = b.plus(b.stored(p.value, p.error, out_.values[v].dtype), of_indices(e, errors, b, body));
        if (!root) return;
        body.set_root(root);
        e.body = body.pruned();
        const ValueId error = new_value("error", DType::F64, out_.values[v].shape);
        add(std::move(e), error);
        error_.emplace(v, error);
    }

    static std::function<std::optional<uint32_t>(uint32_t)> lookup(const std::map<uint32_t, uint32_t>& errors) {
        return [&errors](uint32_t slot) {
            const auto it = errors.find(slot);
            return it == errors.end() ? std::nullopt : std::optional(it->second);
        };
    }

    ValueId bound_of_reduction(TensorExpr e, ValueId acc) {
        double n = 1;
        for (size_t k = e.spatial; k < e.extents.size(); ++k) n *= static_cast<double>(e.extents[k].constant());
        const DType t = e.body.dtype();
        const double u = is_float(t) ? half_ulp(t) : 0;
        std::map<uint32_t, uint32_t> errors = read_errors(e);
        ScalarBody body;
        BodyErrors b(body);
        const BodyErrors::Pair term = b.copy(e.body, lookup(errors));
        ScalarId own = b.plus(term.error, of_indices(e, errors, b, body));
        ScalarId root = own;
        TensorExpr after;  // the remaining computation after the reduction of the terms
        switch (e.reducer) {
            case Reducer::Sum:
                if (u > 0) {
                    const double growth = std::min(n, kSigmas * std::sqrt(n)) * u;
                    root = b.plus(own, b.times(b.number(growth), b.plus(b.magnitude(term.value), own)));
                }
                break;
            case Reducer::Prod: {
                // The product of all (|factor| + error), minus the product of all |factor|.
                const ScalarId most = b.plus(b.magnitude(term.value), own);
                body.set_root(u > 0 || own ? most : b.number(0));
                const ValueId largest = reduce_to("largest", e, body, Reducer::Prod);
                ScalarBody difference;
                BodyErrors d(difference);
                after.extents = out_.values[acc].shape;
                after.spatial = after.extents.size();
                after.accesses = {at_point(largest, e.spatial), at_point(acc, e.spatial)};
                const ScalarId grown = d.times(difference.access(0, DType::F64), d.number(std::pow(1 + u, n)));
                difference.set_root(d.apart(grown, d.magnitude(difference.access(1, t))));
                if (!(u > 0) && !own) difference.set_root(d.number(0));
                after.body = difference.pruned();
                const ValueId error = new_value("error", DType::F64, after.extents);
                add(std::move(after), error);
                return error;
            }
            default:
                break;  // the error of a maximum is at most the largest error of its terms
        }
        if (f16_sums_ && is_f16_product(e)) return f16_sum(e, acc, root, term.value, b, body);
        body.set_root(root ? root : b.number(0));
        return reduce_to("error", e, body, e.reducer == Reducer::Sum || n == 0 ? Reducer::Sum : Reducer::Max);
    }

    bool is_f16_product(const TensorExpr& e) const {
        const auto c = contraction(e);
        const auto in_f16 = [&](size_t k) {
            const auto& slot = c->factors[k].slot;
            return slot && out_.values[e.accesses[*slot].value].dtype == DType::F16;
        };
        return c && c->type == DType::F32 && in_f16(0) && in_f16(1);
    }

    /// The bound of a sum whose steps are in f16. `wide`: of the same term in f32; may be absent.
    ValueId f16_sum(const TensorExpr& e, ValueId acc, ScalarId wide, ScalarId term, BodyErrors& b, ScalarBody& body) {
        constexpr double kAdditions = static_cast<double>(kF16Step) / 2 + 1;
        const Precision f16 = precision(DType::F16);
        const ScalarId size = b.magnitude(term);
        const ScalarId own = b.plus(b.times(b.number(kAdditions * f16.u), size), b.number(f16.smallest / 2));
        body.set_root(b.plus(wide, own));
        const ValueId rounded = reduce_to("error", e, body, Reducer::Sum);
        body.set_root(size);
        const ValueId all = reduce_to("magnitude", e, body, Reducer::Sum);
        TensorExpr after;
        after.extents = out_.values[acc].shape;
        after.spatial = after.extents.size();
        after.accesses = {at_point(rounded, e.spatial), at_point(all, e.spatial)};
        ScalarBody last;
        BodyErrors d(last);
        last.set_root(d.where(ScalarOp::Lt, last.access(1, DType::F64), d.number(f16.overflow),
                              last.access(0, DType::F64), d.number(kInfinity)));
        after.body = last.pruned();
        const ValueId error = new_value("error", DType::F64, after.extents);
        add(std::move(after), error);
        return error;
    }

    ValueId reduce_to(const char* role, TensorExpr e, const ScalarBody& body, Reducer reducer) {
        e.body = body.pruned();
        e.reducer = reducer;
        const ValueId v =
            new_value(role, DType::F64, {e.extents.begin(), e.extents.begin() + static_cast<ptrdiff_t>(e.spatial)});
        add(std::move(e), v);
        return v;
    }

    Program out_;
    const bool f16_sums_;
    std::map<ValueId, ValueId> error_;  // maps a value to its bound; absent: it is exact
};

}  // namespace

Program with_error_bounds(const Program& stages, bool f16_sums) { return Bounds(stages, f16_sums).take(); }

}  // namespace tilewright
