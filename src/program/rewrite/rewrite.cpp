#include "program/rewrite/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "program/rewrite/rules.h"
#include "program/transform/dead_code.h"
#include "program/transform/substitute.h"

namespace tilewright {

namespace {

/// Points of the expression times nodes of its body, as fold_constants counts; none if a size is unknown.
std::optional<int64_t> fold_work(const TensorExpr& e) {
    auto work = static_cast<int64_t>(e.body.nodes().size());
    for (const Expr x : e.extents)
        if (!x.is_constant() || __builtin_mul_overflow(work, x.constant(), &work)) return std::nullopt;
    return work;
}

}  // namespace

RewriteContext::RewriteContext(const Program& program, const FoldOptions& folding)
    : program_(program),
      folding_(folding),
      producers_(program.producers()),
      consumers_(program.consumers()),
      is_output_(program.values.size(), 0),
      foldable_(program.values.size(), 0) {
    for (const ValueId v : program.outputs) is_output_[v] = 1;
    for (const auto& [v, tensor] : program.constants) foldable_[v] = 1;
    for (const Primitive& p : program.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr || !std::all_of(e->accesses.begin(), e->accesses.end(),
                                         [&](const Access& a) { return foldable_[a.value] != 0; }))
            continue;
        const auto work = fold_work(*e);
        if (work && *work <= folding.work && !has_names(*e)) foldable_[p.outputs[0]] = 1;
    }
}

const TensorExpr* RewriteContext::producer(ValueId v) const {
    const PrimitiveId p = producers_[recorded(v)];
    return p ? program_.primitives[p].expr() : nullptr;
}

std::optional<double> RewriteContext::fill(ValueId v) const {
    constexpr int64_t kMost = 65536;
    recorded(v);
    if (const auto it = program_.constants.find(v); it != program_.constants.end()) {
        const Tensor& t = it->second;
        if (program_.unread.count(v) != 0 || t.count() == 0 || t.count() > kMost || !is_float(t.dtype()))
            return std::nullopt;
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
        for (const ValueId v : program_.primitives[at].outputs) recorded(v);
        if (at < earlier || !seen.insert(at).second) continue;  // primitives are in topological order
        for (const ValueId v : program_.primitives[at].inputs())
            if (producers_[v]) stack.push_back(producers_[v]);
    }
    return false;
}

bool too_large(const TensorExpr& e) { return e.accesses.size() > kMaxAccesses || e.body.nodes().size() > kMaxNodes; }

std::vector<const RewriteRule*> rewrite_rules(const RewriteOptions& options) {
    std::vector<const RewriteRule*> out;
    for (const std::span<const RewriteRule> group : {factor_rewrites(), sum_rewrites(), product_rewrites(),
                                                     layout_rewrites(), linear_map_rewrites(), enumerated_rewrites()})
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
    for (const PrimitiveId p : context.program().primitives.ids()) {
        const TensorExpr* e = context.program().primitives[p].expr();
        if (e != nullptr && !too_large(*e)) rule.find(context, p, found);
    }
    return found;
}

namespace {

/// Primitives in topological order, each as early as its place in `all` allows; none if there is a cycle.
std::optional<IndexVector<PrimitiveId, Primitive>> sorted(std::vector<Primitive> all, size_t values) {
    constexpr size_t kNobody = SIZE_MAX;
    std::vector<size_t> makes(values, kNobody);
    std::map<Var, size_t> binds;  // scalars only: symbols are bound by inputs or by operands
    for (size_t k = 0; k < all.size(); ++k) {
        for (const ValueId v : all[k].outputs) makes[v.index()] = k;
        if (const auto* read = std::get_if<ReadScalar>(&all[k].kind)) binds[*scalar(read->name).as_var()] = k;
    }
    enum class State : uint8_t { Untouched, Begun, Done };
    std::vector<State> state(all.size(), State::Untouched);
    std::vector<size_t> order;
    const auto visit = [&](const auto& self, size_t k) -> bool {
        if (state[k] != State::Untouched) return state[k] == State::Done;
        state[k] = State::Begun;
        for (const ValueId v : all[k].inputs())
            if (makes[v.index()] != kNobody && !self(self, makes[v.index()])) return false;
        if (!binds.empty())
            for (const Var name : names_used(all[k]))
                if (const auto it = binds.find(name); it != binds.end() && !self(self, it->second)) return false;
        state[k] = State::Done;
        order.push_back(k);
        return true;
    };
    for (size_t k = 0; k < all.size(); ++k)
        if (!visit(visit, k)) return std::nullopt;
    IndexVector<PrimitiveId, Primitive> out;
    for (const size_t k : order) out.push_back(std::move(all[k]));
    return out;
}

/// New primitives get the origins of all primitives that the patch removes. (Patches of whole pieces set them
/// themselves.)
void inherit_origins(Program& program, const std::vector<std::pair<ValueId, Origin>>& before) {
    IndexVector<ValueId, char> kept(program.values.size(), 0);
    bool any = false;
    for (const Primitive& p : program.primitives) {
        any = any || p.origin.nodes.empty();
        if (!p.origin.nodes.empty())
            for (const ValueId v : p.outputs) kept[v] = 1;
    }
    if (!any) return;
    Origin gone;
    for (const auto& [v, origin] : before)
        if (kept[v] == 0) gone.add(origin);
    for (Primitive& p : program.primitives)
        if (p.origin.nodes.empty()) p.origin = gone;
}

/// None if the result would be cyclic.
std::optional<Program> with_patch(Program out, const Patch& patch) {
    // A redefinition takes the place of the old definition; a new primitive precedes its successor in the patch.
    std::map<ValueId, std::pair<size_t, size_t>> runs;
    for (size_t k = 0, begin = 0; k < patch.primitives.size(); ++k)
        if (const ValueId v = patch.primitives[k].outputs[0]; out.values.contains(v))
            runs[v] = {std::exchange(begin, k + 1), k + 1};
    TW_CHECK(!runs.empty(), "a patch that replaces nothing");
    for (const Value& v : patch.values) out.values.push_back(v);
    out.constants.insert(patch.constants.begin(), patch.constants.end());
    std::vector<Primitive> all;
    std::vector<std::pair<ValueId, Origin>> origins;
    for (Primitive& p : out.primitives) {
        const ValueId made = p.outputs.empty() ? ValueId() : p.outputs[0];
        if (made && !p.origin.nodes.empty()) origins.emplace_back(made, p.origin);
        const auto run = made ? runs.find(made) : runs.end();
        if (run == runs.end())
            all.push_back(std::move(p));
        else
            for (size_t k = run->second.first; k < run->second.second; ++k) all.push_back(patch.primitives[k]);
    }
    auto primitives = sorted(std::move(all), out.values.size());
    if (!primitives) return std::nullopt;
    out.primitives = std::move(*primitives);
    out = eliminate_dead_code(std::move(out));
    inherit_origins(out, origins);
    return out;
}

}  // namespace

Program apply(Program program, const Patch& patch) {
    auto out = with_patch(std::move(program), patch);
    TW_CHECK(out, "a rewrite makes a value depend on itself");
    return with_unique_names(std::move(*out));
}

Program with_unique_names(Program program) {
    std::unordered_set<std::string> names;
    for (Value& v : program.values) {
        if (names.insert(v.name).second) continue;
        const std::string base = v.name;
        for (int n = 1; !names.insert(v.name).second; ++n) v.name = fmt::format("{}.{}", base, n);
    }
    return program;
}

std::optional<Program> apply_later(const Program& program, const Patch& patch, size_t known) {
    IndexVector<ValueId, char> there(program.values.size(), 0), computed(program.values.size(), 0);
    for (const ValueId v : program.inputs) there[v] = 1;
    for (const auto& [v, tensor] : program.constants) there[v] = 1;
    for (const Primitive& p : program.primitives)
        for (const ValueId v : p.outputs) there[v] = computed[v] = 1;
    const size_t by = program.values.size() - known;
    const auto moved = [&](ValueId v) { return v.index() < known ? v : ValueId(v.index() + by); };
    Patch later;
    later.values = patch.values;
    for (const auto& [v, tensor] : patch.constants) later.constants.emplace(moved(v), tensor);
    for (Primitive p : patch.primitives) {
        for (const ValueId v : p.inputs())
            if (v.index() < known && there[v] == 0) return std::nullopt;
        for (ValueId& v : p.outputs) {
            if (v.index() < known && computed[v] == 0) return std::nullopt;
            v = moved(v);
        }
        for (Access& a : p.expr()->accesses) a.value = moved(a.value);
        later.primitives.push_back(std::move(p));
    }
    return with_patch(program, later);
}

}  // namespace tilewright
