#include "tile/online.h"

#include <limits>
#include <map>

#include "tile/walk.h"

namespace tilewright {

namespace {

/// How an expression changes when d is added to the maximum.
enum class Kind : uint8_t {
    Free,    ///< unchanged
    Level,   ///< itself + d
    Fallen,  ///< itself - d
    Scaled,  ///< itself * exp(-d)
    Other,
};
struct Meaning {
    Kind kind = Kind::Free;
    bool zero = false;    ///< the constant 0, which is also Scaled
    bool lowest = false;  ///< the constant -inf, which is also Level and Fallen
};

class Analysis {
  public:
    Analysis(const Program& stages, const std::set<ValueId>& maxima) : p_(stages), maxima_(maxima) {}

    IndexVector<PrimitiveId, std::optional<OnlineScale>> run() {
        for (const PrimitiveId s : p_.primitives.ids()) {
            const Primitive& stage = p_.primitives[s];
            out_.push_back(stage.expr() == nullptr ? std::nullopt : scale_of(*stage.expr()));
            if (out_[s]) scaled_[stage.outputs[0]] = s;
        }
        return std::move(out_);
    }

  private:
    std::optional<OnlineScale> scale_of(const TensorExpr& e) {
        found_.reset();
        if (e.reducer != Reducer::None && e.reducer != Reducer::Sum) return std::nullopt;
        std::vector<Meaning> meanings;
        for (const ScalarNode& n : e.body.nodes()) meanings.push_back(meaning(e, n, meanings));
        if (meanings.empty() || meanings[e.body.root().index()].kind != Kind::Scaled) return std::nullopt;
        for (const Expr& i : found_->index)
            for (const Var v : variables(i))
                if (v.kind != VarKind::Axis || v.id >= e.spatial) return std::nullopt;
        return found_;
    }

    Meaning meaning(const TensorExpr& e, const ScalarNode& n, const std::vector<Meaning>& known) {
        const auto at = [&](ScalarId k) { return known[k.index()]; };
        switch (n.op) {
            case ScalarOp::Const:
                return {Kind::Free, is_float(n.dtype) && n.value == 0,
                        is_float(n.dtype) && n.value == -std::numeric_limits<double>::infinity()};
            case ScalarOp::Index:
                return {};
            case ScalarOp::Access:
                return access(e.accesses[n.slot]);
            case ScalarOp::Add:
            case ScalarOp::Sub: {
                const Kind b = n.op == ScalarOp::Add ? at(n.b).kind : negated(at(n.b).kind);
                return {sum(at(n.a), {b, at(n.b).zero, false})};
            }
            case ScalarOp::Neg:
                return {negated(at(n.a).kind)};
            case ScalarOp::Mul:
                if (at(n.b).kind == Kind::Scaled && at(n.a).kind == Kind::Free) return {Kind::Scaled};
                [[fallthrough]];
            case ScalarOp::Div:
                if (at(n.a).kind == Kind::Scaled && at(n.b).kind == Kind::Free) return {Kind::Scaled};
                break;
            case ScalarOp::Exp:
                if (at(n.a).kind == Kind::Fallen) return {Kind::Scaled};
                break;
            case ScalarOp::Select:
                if (at(n.a).kind == Kind::Free) return {chosen(at(n.b), at(n.c))};
                break;
            default:
                break;
        }
        for (const ScalarId k : {n.a, n.b, n.c})
            if (k && at(k).kind != Kind::Free) return {Kind::Other};
        return {};
    }

    static Kind negated(Kind k) {
        if (k == Kind::Level) return Kind::Fallen;
        if (k == Kind::Fallen) return Kind::Level;
        return k;
    }

    /// The kind of a choice between two terms.
    static Kind chosen(const Meaning& a, const Meaning& b) {
        const auto stays = [](const Meaning& constant, Kind other) {
            return (constant.zero && other == Kind::Scaled) ||
                   (constant.lowest && (other == Kind::Level || other == Kind::Fallen));
        };
        if (a.kind == b.kind || stays(b, a.kind)) return a.kind;
        return stays(a, b.kind) ? b.kind : Kind::Other;
    }

    /// The kind of a sum of two terms.
    static Kind sum(const Meaning& a, const Meaning& b) {
        if (a.kind == Kind::Scaled && (b.kind == Kind::Scaled || b.zero)) return Kind::Scaled;
        if (b.kind == Kind::Scaled && a.zero) return Kind::Scaled;
        if (a.kind == Kind::Free) return b.kind == Kind::Scaled ? Kind::Other : b.kind;
        if (b.kind == Kind::Free) return a.kind == Kind::Scaled ? Kind::Other : a.kind;
        return Kind::Other;
    }

    Meaning access(const Access& a) {
        if (maxima_.count(a.value) != 0)
            return {a.valid.empty() && same({a.value, a.index}) ? Kind::Level : Kind::Other};
        const auto it = scaled_.find(a.value);
        if (it == scaled_.end()) return {};
        const TensorExpr& producer = *p_.primitives[it->second].expr();
        if (!producer.epilogue.empty()) return {Kind::Other};
        const auto axes = axes_read(producer, a.index);
        if (!axes) return {Kind::Other};
        if (!a.valid.empty() && a.fill != 0) return {Kind::Other};
        OnlineScale scale = *out_[it->second];
        for (Expr& i : scale.index) i = substitute_axes(i, *axes);
        return {same(scale) ? Kind::Scaled : Kind::Other};
    }

    /// Returns, per spatial axis of the producer, the index with which a reader reads it. The dimensions of the
    /// producer's result must be axes.
    static std::optional<std::vector<Expr>> axes_read(const TensorExpr& producer, const std::vector<Expr>& index) {
        const std::vector<Expr> written = result_index(producer);
        std::vector<Expr> out(producer.spatial);
        std::vector<bool> found(producer.spatial, false);
        for (size_t d = 0; d < written.size(); ++d) {
            if (written[d].is_constant()) continue;
            const auto v = written[d].as_var();
            if (!v || v->kind != VarKind::Axis) return std::nullopt;
            out[v->id] = index[d];
            found[v->id] = true;
        }
        for (size_t k = 0; k < found.size(); ++k)
            if (!found[k] && !producer.extents[k].is_constant(1)) return std::nullopt;
        return out;
    }

    bool same(const OnlineScale& scale) {
        if (found_) return found_->maximum == scale.maximum && found_->index == scale.index;
        found_ = scale;
        return true;
    }

    const Program& p_;
    const std::set<ValueId>& maxima_;
    IndexVector<PrimitiveId, std::optional<OnlineScale>> out_;
    std::map<ValueId, PrimitiveId> scaled_;
    std::optional<OnlineScale> found_;  ///< of the current expression
};

}  // namespace

IndexVector<PrimitiveId, std::optional<OnlineScale>> online_scales(const Program& stages,
                                                                   const std::set<ValueId>& maxima) {
    return Analysis(stages, maxima).run();
}

std::set<ValueId> online_maxima(const TileProgram& program) {
    std::set<ValueId> out;
    for (const auto& [path, compute] : walk(program).computes)
        if (compute->online) out.insert(program.stages.primitives[compute->stage].outputs.at(0));
    return out;
}

std::map<ValueId, OnlineMaximum> online_stages(const TileProgram& program, const Walk& walk) {
    std::map<ValueId, OnlineMaximum> out;
    for (const auto& [path, compute] : walk.computes)
        if (compute->online) out[program.stages.primitives[compute->stage].outputs.at(0)] = {compute->stage, path};
    return out;
}

std::optional<RescaledSum> rescaled_sum(const TileProgram& program, const Walk& walk,
                                        const std::map<ValueId, OnlineMaximum>& online,
                                        const std::optional<OnlineScale>& scale, PrimitiveId stage,
                                        const TreePath& path) {
    const TensorExpr& sum = *program.stages.primitives[stage].expr();
    if (!scale || sum.reducer == Reducer::None) return std::nullopt;
    const OnlineMaximum& maximum = online.at(scale->maximum);
    if (!inside_reduction(program, walk, maximum.stage, maximum.at, path)) return std::nullopt;
    Access factor;
    factor.value = scale->maximum;
    factor.index = scale->index;
    RescaledSum out{sum, scale->maximum};
    out.expr.accesses.push_back(std::move(factor));
    return out;
}

}  // namespace tilewright
