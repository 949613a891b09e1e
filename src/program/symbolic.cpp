#include "program/symbolic.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "index/expr_size.h"
#include "program/scalar_eval.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

/// Floats are numbers, integers and Bools are expressions.
struct Known {
    double f = 0;
    Expr i;
};
/// None: unknown at compile time. Allowed where a select, an `and` or a condition does not use it.
using Partial = std::optional<Known>;

bool proves_nonnegative(Expr e) { return prove_nonnegative(e, {}); }
/// e >= 0, if decidable.
std::optional<bool> decide_nonnegative(Expr e) {
    if (proves_nonnegative(e)) return true;
    if (proves_nonnegative(-e - 1)) return false;
    return std::nullopt;
}
std::optional<bool> decide_zero(Expr e) {
    if (e.is_constant()) return e.is_constant(0);
    if (proves_nonnegative(e - 1) || proves_nonnegative(-e - 1)) return false;
    return std::nullopt;
}
Partial truth(std::optional<bool> v) {
    if (!v) return std::nullopt;
    return Known{0, Expr(*v ? 1 : 0)};
}

bool is_number(DType t, const Known& v) { return is_float(t) || v.i.is_constant(); }
ScalarValue number(DType t, const Known& v) {
    return is_float(t) ? ScalarValue{v.f, 0} : ScalarValue{0, v.i.constant()};
}
Known known(ScalarValue v) { return {v.f, Expr(v.i)}; }

/// Types whose range is assumed to hold all dimensions.
bool holds_dimensions(DType t) { return t == DType::I64 || t == DType::I32 || t == DType::U64 || t == DType::U32; }

/// a / b, truncated.
Partial divide(Expr a, Expr b) {
    if (!proves_nonnegative(b - 1)) return std::nullopt;
    if (proves_nonnegative(a)) return Known{0, floor_div(a, b)};
    if (proves_nonnegative(-a)) return Known{0, -floor_div(-a, b)};
    return std::nullopt;
}

Partial power(Expr a, Expr exponent) {
    if (!exponent.is_constant() || exponent.constant() < 0 || exponent.constant() > 8) return std::nullopt;
    Expr p = 1;
    for (int64_t k = 0; k < exponent.constant(); ++k) p = p * a;
    return Known{0, p};
}

Partial compare(ScalarOp op, Expr a, Expr b) {
    const auto flip = [](std::optional<bool> v) { return v ? std::optional<bool>(!*v) : v; };
    switch (op) {
        case ScalarOp::Eq:
            return truth(decide_zero(a - b));
        case ScalarOp::Ne:
            return truth(flip(decide_zero(a - b)));
        case ScalarOp::Ge:
            return truth(decide_nonnegative(a - b));
        case ScalarOp::Lt:
            return truth(flip(decide_nonnegative(a - b)));
        case ScalarOp::Le:
            return truth(decide_nonnegative(b - a));
        default:
            return truth(flip(decide_nonnegative(b - a)));
    }
}

/// Integer operators on expressions.
Partial integer_op(ScalarOp op, DType type, Expr a, Expr b) {
    if (type != DType::Bool && !holds_dimensions(type)) return std::nullopt;
    switch (op) {
        case ScalarOp::Add:
            return Known{0, a + b};
        case ScalarOp::Sub:
            if (!is_signed(type) && !proves_nonnegative(a - b)) return std::nullopt;
            return Known{0, a - b};
        case ScalarOp::Mul:
            return Known{0, a * b};
        case ScalarOp::Neg:
            if (!is_signed(type)) return std::nullopt;
            return Known{0, -a};
        case ScalarOp::Div:
            return divide(a, b);
        case ScalarOp::FloorMod:
            return Known{0, mod(a, b)};
        case ScalarOp::TruncMod:
            if (!proves_nonnegative(a) || !proves_nonnegative(b)) return std::nullopt;
            return Known{0, mod(a, b)};
        case ScalarOp::Min:
            return Known{0, min(a, b)};
        case ScalarOp::Max:
            return Known{0, max(a, b)};
        case ScalarOp::Abs:
            return Known{0, max(a, -a)};
        case ScalarOp::Sign:
            return Known{0, max(min(a, Expr(1)), Expr(-1))};
        case ScalarOp::Pow:
            return power(a, b);
        case ScalarOp::ShiftLeft:
            if (!b.is_constant() || b.constant() < 0 || b.constant() > 30) return std::nullopt;
            return Known{0, a * (int64_t{1} << b.constant())};
        case ScalarOp::ShiftRight:
            if (!b.is_constant() || b.constant() < 0 || b.constant() > 30) return std::nullopt;
            return Known{0, floor_div(a, int64_t{1} << b.constant())};
        default:
            return rounds_to_integer(op) ? Partial(Known{0, a}) : std::nullopt;
    }
}

/// integer_op; none if the result would be expensive to continue with.
Partial short_integer_op(ScalarOp op, DType type, Expr a, Expr b) {
    Partial p = integer_op(op, type, a, b);
    if (p && is_long(p->i)) return std::nullopt;
    return p;
}

Partial cast(DType to, DType from, Expr a) {
    if (to == DType::Bool) {
        const auto zero = decide_zero(a);
        return zero ? truth(!*zero) : std::nullopt;
    }
    if (is_float(to) || !(from == DType::Bool || holds_dimensions(from))) return std::nullopt;
    if (from == DType::Bool) return Known{0, a};
    if (!holds_dimensions(to) || (!is_signed(to) && !proves_nonnegative(a))) return std::nullopt;
    return Known{0, a};
}

class Evaluator {
  public:
    Evaluator(const TensorExpr& expr, std::span<const KnownContents> operands) : expr_(expr), operands_(operands) {}

    /// One point; `acc` is the value of an epilogue's Acc.
    Partial body(const ScalarBody& body, std::span<const Expr> point, const Partial& acc) {
        point_ = point;
        read_.assign(expr_.accesses.size(), std::nullopt);
        done_.assign(expr_.accesses.size(), false);
        std::vector<Partial> values;
        for (const ScalarNode& n : body.nodes()) {
            const auto arg = [&](ScalarId id) { return id ? values[id.index()] : Partial(); };
            const DType operand = n.a ? body[n.a].dtype : n.dtype;
            values.push_back(node(n, operand, arg(n.a), arg(n.b), arg(n.c), acc));
        }
        return values[body.root().index()];
    }

    /// `e` with the point's axes and the loads substituted.
    std::optional<Expr> at_point(Expr e) {
        bool ok = true;
        const Expr r = substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind == VarKind::Axis) return point_[v.id];
            if (v.kind != VarKind::Load) return std::nullopt;
            const Partial p = access(v.id);
            if (!p) {
                ok = false;
                return Expr(0);
            }
            return p->i;
        });
        if (!ok) return std::nullopt;
        return r;
    }

  private:
    Partial access(uint32_t slot) {
        if (!done_[slot]) {
            done_[slot] = true;
            read_[slot] = read(slot);
        }
        return read_[slot];
    }

    Partial read(uint32_t slot) {
        const Access& a = expr_.accesses[slot];
        const KnownContents& from = operands_[slot];
        bool all = true;
        for (const Expr e : a.valid) {
            const auto condition = at_point(e);
            const auto holds = condition ? decide_nonnegative(*condition) : std::nullopt;
            if (holds && !*holds) return known(scalar_from_double(from.dtype, a.fill));
            all = all && holds;
        }
        if (!all) return std::nullopt;
        int64_t flat = 0;
        for (size_t d = 0; d < a.index.size(); ++d) {
            const auto i = at_point(a.index[d]);
            if (!i || !i->is_constant() || i->constant() < 0 || i->constant() >= from.shape[d]) return std::nullopt;
            flat = flat * from.shape[d] + i->constant();
        }
        if (const auto* t = std::get_if<Tensor>(&from.elements))
            return is_float(from.dtype) ? Known{t->get(flat), 0} : Known{0, Expr(t->get_int(flat))};
        return Known{0, std::get<std::vector<Expr>>(from.elements).at(static_cast<size_t>(flat))};
    }

    Partial node(const ScalarNode& n, DType operand, const Partial& a, const Partial& b, const Partial& c,
                 const Partial& acc) {
        switch (n.op) {
            case ScalarOp::Const:
                return known({n.value, n.int_value});
            case ScalarOp::Access:
                return access(n.slot);
            case ScalarOp::Acc:
                return acc;
            case ScalarOp::Index: {
                const auto e = at_point(n.index);
                return e ? Partial(Known{0, *e}) : std::nullopt;
            }
            case ScalarOp::Select:
                if (!a || !a->i.is_constant()) return b && c && !is_float(n.dtype) && b->i == c->i ? b : std::nullopt;
                return a->i.constant() != 0 ? b : c;
            case ScalarOp::BitAnd:
            case ScalarOp::BitOr: {
                // One operand may decide a Bool by itself.
                const Expr decisive = n.op == ScalarOp::BitAnd ? 0 : 1;
                if (n.dtype == DType::Bool && ((a && a->i == decisive) || (b && b->i == decisive)))
                    return Known{0, decisive};
                break;
            }
            case ScalarOp::Mul:
                if (!is_float(n.dtype) && ((a && a->i.is_constant(0)) || (b && b->i.is_constant(0)))) return Known{};
                break;
            default:
                break;
        }
        const int operands = arity(n.op);
        if (!a || (operands > 1 && !b)) return std::nullopt;
        if (is_number(operand, *a) && (operands < 2 || is_number(operand, *b)))
            return known(
                eval_node(n, operand, number(operand, *a), operands > 1 ? number(operand, *b) : ScalarValue{}));
        if (is_float(operand) || n.op == ScalarOp::Table) return std::nullopt;
        if (n.op == ScalarOp::Cast) return cast(n.dtype, operand, a->i);
        if (n.dtype == DType::Bool && operand != DType::Bool) return compare(n.op, a->i, b->i);
        return short_integer_op(n.op, n.dtype, a->i, operands > 1 ? b->i : Expr(0));
    }

    const TensorExpr& expr_;
    std::span<const KnownContents> operands_;
    std::span<const Expr> point_;
    std::vector<Partial> read_;
    std::vector<bool> done_;
};

Known identity(Reducer r, DType t) {
    if (r == Reducer::Prod) return {1, 1};
    if (r == Reducer::Max) return t == DType::Bool ? Known{} : known(scalar_from_double(t, -HUGE_VAL));
    if (r == Reducer::Min) return known(scalar_from_double(t, HUGE_VAL));
    return {};
}

/// acc combined with one more element; floats must be numbers.
Partial reduce(Reducer r, DType t, const Partial& acc, const Partial& v, bool first) {
    const ScalarOp op = r == Reducer::Sum    ? ScalarOp::Add
                        : r == Reducer::Prod ? ScalarOp::Mul
                        : r == Reducer::Max  ? (t == DType::Bool ? ScalarOp::BitOr : ScalarOp::Max)
                                             : (t == DType::Bool ? ScalarOp::BitAnd : ScalarOp::Min);
    if (t == DType::Bool) {
        const Expr decisive = op == ScalarOp::BitOr ? 1 : 0;
        if ((acc && acc->i == decisive) || (v && v->i == decisive)) return Known{0, decisive};
    }
    if (first) return v;
    if (!acc || !v) return std::nullopt;
    if (is_number(t, *acc) && is_number(t, *v)) return known(eval_scalar(op, t, t, number(t, *acc), number(t, *v)));
    return is_float(t) ? std::nullopt : short_integer_op(op, t, acc->i, v->i);
}

/// Moves to the next point of axes [begin, end), row-major; false after the last.
bool advance(std::vector<Expr>& point, const Shape& extents, size_t begin, size_t end) {
    for (size_t k = end; k-- > begin;) {
        const int64_t next = point[k].constant() + 1;
        point[k] = next < extents[k] ? Expr(next) : Expr(0);
        if (next < extents[k]) return true;
    }
    return false;
}

std::optional<std::vector<Expr>> evaluate_all(const TensorExpr& expr, std::span<const KnownContents> operands,
                                              DType out, std::span<const int64_t> out_shape, int64_t limit) {
    TW_CHECK(operands.size() == expr.accesses.size(), "{} operands for {} accesses", operands.size(),
             expr.accesses.size());
    if (is_float(out)) return std::nullopt;
    Shape extents;
    int64_t points = 1, reduced = 1;
    for (size_t k = 0; k < expr.extents.size(); ++k) {
        if (!expr.extents[k].is_constant()) return std::nullopt;
        const int64_t e = expr.extents[k].constant();
        if (e < 0 || __builtin_mul_overflow(points, std::max<int64_t>(e, 1), &points) || points > limit)
            return std::nullopt;
        if (k >= expr.spatial) reduced *= e;
        extents.push_back(e);
    }
    const int64_t count = element_count(out_shape);
    std::vector<Expr> result(static_cast<size_t>(count));
    if (count == 0) return result;

    Evaluator evaluator(expr, operands);
    const DType body_type = expr.body.dtype();
    std::vector<Expr> point(extents.size(), Expr(0));
    do {
        Partial v;
        if (expr.reducer == Reducer::None) {
            v = evaluator.body(expr.body, point, {});
        } else if (reduced == 0) {
            v = identity(expr.reducer, body_type);
        } else {
            bool first = true;
            do {
                v = reduce(expr.reducer, body_type, v, evaluator.body(expr.body, point, {}), first);
                first = false;
            } while (advance(point, extents, expr.spatial, extents.size()));
        }
        if (!expr.epilogue.empty()) v = evaluator.body(expr.epilogue, point, v);
        if (!v) return std::nullopt;
        if (v->i.is_constant()) v->i = wrap_integer(out, v->i.constant());
        int64_t flat = 0;
        for (size_t d = 0; d < out_shape.size(); ++d) {
            const Expr i = expr.output_index.empty() ? point[d] : substitute_axes(expr.output_index[d], point);
            if (!i.is_constant()) return std::nullopt;
            flat = flat * out_shape[d] + i.constant();
        }
        TW_CHECK(flat >= 0 && flat < count, "element {} of {}", flat, count);
        result[static_cast<size_t>(flat)] = v->i;
    } while (advance(point, extents, 0, expr.spatial));
    return result;
}

}  // namespace

std::optional<std::vector<Expr>> evaluate_symbolic(const TensorExpr& expr, std::span<const KnownContents> operands,
                                                   DType out, std::span<const int64_t> out_shape, int64_t limit) {
    try {
        return evaluate_all(expr, operands, out, out_shape, limit);
    } catch (const ModelError&) {  // expressions do not wrap around: an overflow throws where it is built
        return std::nullopt;
    }
}

}  // namespace tilewright
