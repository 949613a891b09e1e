#include "tile/point_evaluator.h"

#include <limits>

#include "base/error.h"

namespace tilewright {

namespace {

std::vector<IndexCode> index_nodes(const ScalarBody& body, const Bindings& bindings) {
    std::vector<IndexCode> out;
    for (const ScalarNode& n : body.nodes())
        out.push_back(n.op == ScalarOp::Index ? IndexCode(n.index, bindings) : IndexCode());
    return out;
}

}  // namespace

PointEvaluator::PointEvaluator(const Program& stages, const TensorExpr& expr, std::vector<Source> sources,
                               const Bindings& bindings)
    : body_(expr.body.pruned()), epilogue_(expr.epilogue.empty() ? ScalarBody() : expr.epilogue.pruned()) {
    body_index_ = index_nodes(body_, bindings);
    epilogue_index_ = index_nodes(epilogue_, bindings);
    for (size_t k = 0; k < expr.accesses.size(); ++k) {
        const Access& a = expr.accesses[k];
        Operand o;
        o.source = sources[k];
        o.dtype = stages.values[a.value].dtype;
        o.index = index_codes(a.index, bindings);
        if (!o.source.decided) o.valid = index_codes(a.valid, bindings);
        o.fill = scalar_from_double(o.dtype, a.fill);
        o.at.resize(a.index.size());
        operands_.push_back(std::move(o));
    }
}

void PointEvaluator::move(std::span<const int64_t> axes, int64_t task, bool lenient) {
    axes_ = axes;
    task_ = task;
    lenient_ = lenient;
    ++point_;
}

int64_t PointEvaluator::loaded(size_t slot) { return access(slot).i; }

ScalarValue PointEvaluator::access(size_t slot) {
    Operand& o = operands_[slot];
    if (o.known == point_) return o.value;
    o.known = point_;
    for (const IndexCode& c : o.valid)
        if (c.at(axes_, this) < 0) return o.value = o.fill;
    for (size_t d = 0; d < o.index.size(); ++d) o.at[d] = o.index[d].at(axes_, this);
    try {
        if (o.source.final != nullptr && !*o.source.final) {
            const Place::Cell& c = o.source.place->cell(o.at);
            TW_CHECK(lenient_ || (c.state == Place::State::Partial && c.task == task_), "{} is not a partial maximum",
                     o.source.place->element(o.at));
            o.value = c.value;
            if (o.value.f == -std::numeric_limits<double>::infinity()) o.value.f = 0;
            return o.value;
        }
        o.value = lenient_ ? o.source.place->cell(o.at).value : o.source.place->read(o.at, task_);
    } catch (const InternalError& e) {
        throw InternalError(fmt::format("access @{}: {}", slot, e.what()));
    }
    return o.value;
}

ScalarValue PointEvaluator::evaluate(const ScalarBody& body, const std::vector<IndexCode>& index, ScalarValue acc) {
    values_.resize(std::max(values_.size(), body.nodes().size()));
    for (const ScalarId id : body.nodes().ids()) {
        const ScalarNode& n = body[id];
        ScalarValue& v = values_[id.index()];
        switch (n.op) {
            case ScalarOp::Const:
                v = {n.value, n.int_value};
                break;
            case ScalarOp::Access:
                v = access(n.slot);
                break;
            case ScalarOp::Acc:
                v = acc;
                break;
            case ScalarOp::Index:
                v = {0, index[id.index()].at(axes_, this)};
                break;
            default: {
                const auto operand = [&](ScalarId k) { return k ? values_[k.index()] : ScalarValue(); };
                const DType type = body[n.op == ScalarOp::Select ? n.b : n.a].dtype;
                v = eval_node(n, type, operand(n.a), operand(n.b), operand(n.c));
            }
        }
    }
    return values_[body.root().index()];
}

}  // namespace tilewright
