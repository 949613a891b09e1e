#include "tile/live_steps.h"

#include <algorithm>
#include <limits>
#include <map>

#include "program/analysis/masks.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

/// What a value is at a masked point.
enum class Meaning : uint8_t { Any, Lowest, Zero };

class Analysis {
  public:
    Analysis(const TileProgram& program, const Walk& tree, const TreePath& loop)
        : p_(program), tree_(tree), loop_(loop), axis_(tree.loops.at(loop)->axis) {}

    std::vector<Expr> run() {
        for (const auto& [path, store] : tree_.stores)
            if (inside(path)) return {};
        for (const auto& [path, compute] : tree_.computes)
            if (inside(path) && !may_leave_out(compute->stage)) return {};
        for (const auto& [path, compute] : tree_.computes)
            if (!inside(path))
                for (const Access& a : expr(compute->stage).accesses)
                    if (meanings_.count(a.value) != 0) return {};
        return std::move(keep_);
    }

  private:
    bool inside(const TreePath& path) const {
        return path.size() > loop_.size() && std::equal(loop_.begin(), loop_.end(), path.begin());
    }
    const TensorExpr& expr(PrimitiveId s) const { return *p_.stages.primitives[s].expr(); }
    std::optional<size_t> own_axis(PrimitiveId s) const {
        const std::vector<size_t>& axes = p_.stage_axes[s];
        const auto it = std::find(axes.begin(), axes.end(), axis_);
        if (it == axes.end()) return std::nullopt;
        return static_cast<size_t>(it - axes.begin());
    }

    /// Whether the stage's results stay as they are without the masked points; notes what its values are there.
    bool may_leave_out(PrimitiveId s) {
        const auto own = own_axis(s);
        if (!own) return true;
        const TensorExpr& e = expr(s);
        const ValueId v = p_.stages.primitives[s].outputs[0];
        Meaning body = meaning(s, e.body, e.body.root(), Meaning::Any);
        if (*own >= e.spatial)
            return (e.reducer == Reducer::Max && body == Meaning::Lowest) ||
                   (e.reducer == Reducer::Sum && body == Meaning::Zero);
        if (is_output(p_, v)) return false;
        const bool reduces = e.reducer != Reducer::None;
        const ScalarBody& last = reduces && !e.epilogue.empty() ? e.epilogue : e.body;
        if (reduces) body = e.epilogue.empty() ? Meaning::Any : meaning(s, last, last.root(), Meaning::Any);
        if (body == Meaning::Any && keep_.empty() && (!reduces || !e.epilogue.empty())) {
            find_masks(s, last, last.root());
            if (!keep_.empty()) body = Meaning::Lowest;
        }
        meanings_[v] = body;
        return true;
    }

    // --- the meaning of expressions

    Meaning meaning(PrimitiveId s, const ScalarBody& body, ScalarId at, Meaning acc) const {
        const ScalarNode& n = body[at];
        const auto of = [&](ScalarId k) { return meaning(s, body, k, acc); };
        switch (n.op) {
            case ScalarOp::Const:
                return !is_float(n.dtype) ? Meaning::Any
                       : n.value == 0     ? Meaning::Zero
                       : is_mask(n)       ? Meaning::Lowest
                                          : Meaning::Any;
            case ScalarOp::Access:
                return read(s, expr(s).accesses[n.slot]);
            case ScalarOp::Acc:
                return acc;
            case ScalarOp::Cast:
                return is_float(n.dtype) ? of(n.a) : Meaning::Any;
            case ScalarOp::Sub:
                return of(n.a) == Meaning::Lowest ? Meaning::Lowest : Meaning::Any;
            case ScalarOp::Add:
                return of(n.a) == Meaning::Lowest || of(n.b) == Meaning::Lowest ? Meaning::Lowest : Meaning::Any;
            case ScalarOp::Mul:
                if (of(n.a) == Meaning::Zero || of(n.b) == Meaning::Zero) return Meaning::Zero;
                return scaled(body, n) && (of(n.a) == Meaning::Lowest || of(n.b) == Meaning::Lowest) ? Meaning::Lowest
                                                                                                     : Meaning::Any;
            case ScalarOp::Div:
                return of(n.a) == Meaning::Zero ? Meaning::Zero : Meaning::Any;
            case ScalarOp::Select:
                return of(n.b) == of(n.c) ? of(n.b) : Meaning::Any;
            default:
                break;
        }
        const ScalarFunction* f = scalar_function(n.op);
        const bool vanishes = f != nullptr && f->reference(-std::numeric_limits<double>::infinity()) == 0;
        return vanishes && of(n.a) == Meaning::Lowest ? Meaning::Zero : Meaning::Any;
    }
    /// A product with a positive constant that leaves a mask a mask.
    static bool scaled(const ScalarBody& body, const ScalarNode& n) {
        const auto plain = [&](ScalarId k) {
            return body[k].op == ScalarOp::Const && body[k].value >= 0x1p-10 && body[k].value <= 0x1p10;
        };
        return plain(n.a) || plain(n.b);
    }

    /// A value of the loop at the point where the reader stands; others are unknown.
    Meaning read(PrimitiveId reader, const Access& a) const {
        const auto known = meanings_.find(a.value);
        if (known == meanings_.end() || !a.valid.empty()) return Meaning::Any;
        const PrimitiveId writer = p_.stages.producers()[a.value];
        const std::vector<Expr> written = result_index(expr(writer));
        for (size_t d = 0; d < written.size(); ++d)
            if (!(in_kernel(writer, written[d]) == in_kernel(reader, a.index[d]))) return Meaning::Any;
        return known->second;
    }
    /// Over the kernel's axes; those of one point are 0.
    Expr in_kernel(PrimitiveId s, Expr e) const {
        std::vector<Expr> axes;
        for (size_t k = 0; k < p_.stage_axes[s].size(); ++k)
            axes.push_back(expr(s).extents[k].is_constant(1) ? Expr(0) : axis(p_.stage_axes[s][k]));
        return substitute_axes(e, axes);
    }

    // --- masks

    /// Collects the conditions without which the node is -infinity.
    void find_masks(PrimitiveId s, const ScalarBody& body, ScalarId at) {
        const ScalarNode& n = body[at];
        switch (n.op) {
            case ScalarOp::Select:
                if (is_mask(body[n.c])) {
                    add_condition(s, body, n.a, false);
                    find_masks(s, body, n.b);
                } else if (is_mask(body[n.b])) {
                    add_condition(s, body, n.a, true);
                    find_masks(s, body, n.c);
                }
                return;
            case ScalarOp::Add:
                find_masks(s, body, n.b);
                [[fallthrough]];
            case ScalarOp::Sub:
            case ScalarOp::Cast:
                return find_masks(s, body, n.a);
            case ScalarOp::Mul:
                if (!scaled(body, n)) return;
                return find_masks(s, body, body[n.a].op == ScalarOp::Const ? n.b : n.a);
            default:
                return;
        }
    }

    void add_condition(PrimitiveId s, const ScalarBody& body, ScalarId at, bool negated) {
        const ScalarNode& n = body[at];
        if (n.op == ScalarOp::BitNot) return add_condition(s, body, n.a, !negated);
        if (n.op == ScalarOp::BitAnd && !negated) {
            add_condition(s, body, n.a, false);
            return add_condition(s, body, n.b, false);
        }
        if (n.op == ScalarOp::BitOr && negated) {
            add_condition(s, body, n.a, true);
            return add_condition(s, body, n.b, true);
        }
        const auto keep = index_condition(body, at, negated);
        if (!keep) return;
        const Expr here = in_kernel(s, *keep);
        const auto along = linear_in(here, {VarKind::Axis, static_cast<uint32_t>(axis_)});
        if (!along || !(along->coefficient.is_constant(1) || along->coefficient.is_constant(-1))) return;
        for (const Var v : variables(here)) {
            const auto linear = linear_in(here, v);
            if (v.kind == VarKind::Load || !linear) return;
            if (v.kind == VarKind::Axis && !linear->coefficient.is_constant()) return;
        }
        keep_.push_back(here);
    }

    const TileProgram& p_;
    const Walk& tree_;
    const TreePath& loop_;
    const size_t axis_;
    std::map<ValueId, Meaning> meanings_;  ///< of values that the loop makes along its axis
    std::vector<Expr> keep_;
};

}  // namespace

std::vector<Expr> live_conditions(const TileProgram& program, const Walk& walk, const TreePath& loop) {
    return Analysis(program, walk, loop).run();
}

LiveRange live_range(const std::vector<Expr>& conditions, size_t axis, const std::vector<AxisBounds>& ranges) {
    LiveRange out;
    for (const Expr& keep : conditions) {
        const auto along = linear_in(keep, {VarKind::Axis, static_cast<uint32_t>(axis)});
        Expr most = along->rest;  // the largest over the other axes' ranges
        for (const Var v : variables(along->rest)) {
            if (v.kind != VarKind::Axis) continue;
            const auto linear = linear_in(most, v);
            const AxisBounds& r = ranges.at(v.id);
            most = linear->rest + linear->coefficient * (linear->coefficient.constant() > 0 ? r.hi - 1 : r.lo);
        }
        if (along->coefficient.is_constant(-1))
            out.end = out.end ? min(*out.end, most + 1) : most + 1;
        else
            out.begin = out.begin ? max(*out.begin, -most) : -most;
    }
    return out;
}

}  // namespace tilewright
