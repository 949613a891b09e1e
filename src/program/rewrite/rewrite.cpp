#include "program/rewrite/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "program/rewrite/rules.h"
#include "program/transform/dead_code.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

/// Points of the expression times nodes of its body, as fold_constants counts; none where a number is not known.
std::optional<int64_t> fold_work(const TensorExpr& e) {
    auto work = static_cast<int64_t>(e.body.nodes().size());
    for (const Expr x : e.extents)
        if (!x.is_constant() || __builtin_mul_overflow(work, x.constant(), &work)) return std::nullopt;
    return work;
}

}  // namespace

RewriteContext::RewriteContext(const Program& program, const FoldOptions& folding)
    : program_(program),
      producers_(program.producers()),
      consumers_(program.consumers()),
      is_output_(program.values.size(), 0),
      foldable_(program.values.size(), 0) {
    for (const ValueId v : program.outputs) is_output_[v] = 1;
    for (const auto& [v, tensor] : program.constants) foldable_[v] = 1;
    for (const Primitive& p : program.primitives) {
        if (p.expr() == nullptr || !names_used(p).empty()) continue;
        const std::vector<ValueId> inputs = p.inputs();
        const auto work = fold_work(*p.expr());
        if (work && *work <= folding.work &&
            std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return foldable_[v] != 0; }))
            foldable_[p.outputs[0]] = 1;
    }
}

const TensorExpr* RewriteContext::producer(ValueId v) const {
    const PrimitiveId p = producers_[v];
    return p ? program_.primitives[p].expr() : nullptr;
}

std::optional<double> RewriteContext::fill(ValueId v) const {
    if (const auto it = program_.constants.find(v); it != program_.constants.end()) {
        const Tensor& t = it->second;
        if (program_.unread.count(v) != 0 || t.count() == 0 || !is_float(t.dtype())) return std::nullopt;
        for (int64_t i = 1; i < t.count(); ++i)
            if (t.get(i) != t.get(0)) return std::nullopt;
        return t.get(0);
    }
    const TensorExpr* e = producer(v);
    if (e == nullptr || !e->accesses.empty() || e->reducer != Reducer::None || !e->epilogue.empty())
        return std::nullopt;
    const ScalarNode& n = e->body[e->body.root()];
    if (n.op != ScalarOp::Const || !is_float(n.dtype)) return std::nullopt;
    return n.value;
}

bool RewriteContext::depends(PrimitiveId later, PrimitiveId earlier) const {
    if (later < earlier || later == earlier) return later == earlier;
    std::set<PrimitiveId> seen;
    std::vector<PrimitiveId> stack = {later};
    while (!stack.empty()) {
        const PrimitiveId at = stack.back();
        stack.pop_back();
        if (at == earlier) return true;
        if (at < earlier || !seen.insert(at).second) continue;  // primitives stand in topological order
        for (const ValueId v : program_.primitives[at].inputs())
            if (producers_[v]) stack.push_back(producers_[v]);
    }
    return false;
}

std::vector<const RewriteRule*> rewrite_rules(const RewriteOptions& options) {
    std::vector<const RewriteRule*> out;
    for (const std::span<const RewriteRule> group :
         {factor_rewrites(), sum_rewrites(), product_rewrites(), layout_rewrites(), enumerated_rewrites()})
        for (const RewriteRule& r : group) out.push_back(&r);
    if (options.winograd)
        for (const RewriteRule& r : winograd_rewrites()) out.push_back(&r);
    return out;
}

const RewriteRule* rewrite_rule(std::string_view name) {
    for (const RewriteRule* r : rewrite_rules({.winograd = true}))
        if (r->name == name) return r;
    return nullptr;
}

std::vector<Patch> find_all(const RewriteContext& context, const RewriteRule& rule) {
    std::vector<Patch> found;
    for (const PrimitiveId p : context.program().primitives.ids())
        if (context.program().primitives[p].expr() != nullptr) rule.find(context, p, found);
    return found;
}

namespace {

/// Primitives in topological order, each as early as its place in `all` allows.
IndexVector<PrimitiveId, Primitive> sorted(std::vector<Primitive> all) {
    std::map<ValueId, size_t> makes;
    std::map<Var, size_t> binds;  // scalars alone: symbols are bound by inputs, or by what is read anyway
    for (size_t k = 0; k < all.size(); ++k) {
        for (const ValueId v : all[k].outputs) makes[v] = k;
        if (const auto* read = std::get_if<ReadScalar>(&all[k].kind)) binds[*scalar(read->name).as_var()] = k;
    }
    enum class State : uint8_t { Untouched, Begun, Done };
    std::vector<State> state(all.size(), State::Untouched);
    std::vector<size_t> order;
    const auto visit = [&](const auto& self, size_t k) -> void {
        if (state[k] == State::Done) return;
        TW_CHECK(state[k] == State::Untouched, "a rewrite makes '{}' depend on itself", all[k].name);
        state[k] = State::Begun;
        for (const ValueId v : all[k].inputs())
            if (const auto it = makes.find(v); it != makes.end()) self(self, it->second);
        if (!binds.empty())
            for (const Var name : names_used(all[k]))
                if (const auto it = binds.find(name); it != binds.end()) self(self, it->second);
        state[k] = State::Done;
        order.push_back(k);
    };
    for (size_t k = 0; k < all.size(); ++k) visit(visit, k);
    IndexVector<PrimitiveId, Primitive> out;
    for (const size_t k : order) out.push_back(std::move(all[k]));
    return out;
}

/// What a patch computes stands for all that is gone. (Patches of whole pieces know better themselves.)
void inherit_origins(const Program& before, Program& after) {
    std::set<ValueId> kept;
    for (const Primitive& p : after.primitives)
        if (!p.origin.nodes.empty()) kept.insert(p.outputs.begin(), p.outputs.end());
    Origin gone;
    for (const Primitive& p : before.primitives)
        if (!p.outputs.empty() && kept.count(p.outputs[0]) == 0) gone.add(p.origin);
    for (Primitive& p : after.primitives)
        if (p.origin.nodes.empty()) p.origin = gone;
}

}  // namespace

Program apply(const Program& program, const Patch& patch) {
    Program out = program;
    std::set<std::string> names;
    for (const Value& v : out.values) names.insert(v.name);
    for (Value v : patch.values) {
        const std::string base = v.name;
        for (int n = 1; !names.insert(v.name).second; ++n) v.name = fmt::format("{}.{}", base, n);
        out.values.push_back(std::move(v));
    }
    out.constants.insert(patch.constants.begin(), patch.constants.end());

    // What the patch computes stands where the first value that it replaces was computed.
    std::set<ValueId> replaced;
    for (const Primitive& p : patch.primitives) replaced.insert(p.outputs.begin(), p.outputs.end());
    std::vector<Primitive> all;
    bool placed = false;
    for (Primitive& p : out.primitives) {
        const bool gone = !p.outputs.empty() && replaced.count(p.outputs[0]) != 0;
        if (gone && !placed) {
            all.insert(all.end(), patch.primitives.begin(), patch.primitives.end());
            placed = true;
        }
        if (!gone) all.push_back(std::move(p));
    }
    TW_CHECK(placed, "a patch that replaces nothing");
    out.primitives = sorted(std::move(all));
    out = eliminate_dead_code(out);
    inherit_origins(program, out);
    return out;
}

}  // namespace tilewright
