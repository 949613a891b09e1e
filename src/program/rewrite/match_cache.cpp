#include "program/rewrite/match_cache.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "program/form_hash.h"

namespace tilewright {

namespace {

bool bits_equal(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool same_numbers(const std::vector<double>* a, const std::vector<double>* b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a == b || std::equal(a->begin(), a->end(), b->begin(), b->end(), bits_equal);
}

/// Bodies that differ in dead nodes compare unequal.
bool same_nodes(const ScalarBody& a, const ScalarBody& b) {
    if (a.empty() || b.empty()) return a.empty() == b.empty();
    return a.root() == b.root() &&
           std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(), b.nodes().end(),
                      [](const ScalarNode& x, const ScalarNode& y) {
                          return x.op == y.op && x.dtype == y.dtype && x.a == y.a && x.b == y.b && x.c == y.c &&
                                 bits_equal(x.value, y.value) && x.int_value == y.int_value && x.slot == y.slot &&
                                 x.index == y.index && same_numbers(x.table.get(), y.table.get());
                      });
}

bool same_expression(const TensorExpr& a, const TensorExpr& b) {
    return a.spatial == b.spatial && a.reducer == b.reducer && a.extents == b.extents &&
           a.output_index == b.output_index &&
           std::equal(a.accesses.begin(), a.accesses.end(), b.accesses.begin(), b.accesses.end(),
                      [](const Access& x, const Access& y) {
                          return x.value == y.value && x.index == y.index && x.valid == y.valid &&
                                 bits_equal(x.fill, y.fill);
                      }) &&
           same_nodes(a.body, b.body) && same_nodes(a.epilogue, b.epilogue);
}

uint64_t value_form_hash(const ValueForm& f) {
    uint64_t h = hash_combine(hash_text(f.name), static_cast<uint64_t>(f.dtype));
    for (const Expr e : f.shape) h = hash_combine(h, e.hash());
    h = hash_combine(h, static_cast<uint64_t>(f.is_output) << 1 | static_cast<uint64_t>(f.foldable));
    h = hash_combine(h, static_cast<uint64_t>(f.maker));
    if (f.maker == ValueForm::Maker::Expression)
        h = hash_combine(h, form_hash(*f.expression, [](ValueId u) { return uint64_t{u.value}; }));
    return f.fill ? hash_combine(h, std::bit_cast<uint64_t>(*f.fill)) : h;
}

ValueForm value_form(const RewriteContext& context, ValueId v) {
    const Program& p = context.program();
    const Value& value = p.values[v];
    ValueForm f{value.name, value.dtype, value.shape, context.is_output(v), context.foldable(v), {}, nullptr, {}};
    if (const PrimitiveId maker = context.producer_id(v)) {
        const TensorExpr* e = p.primitives[maker].expr();
        f.maker = e != nullptr ? ValueForm::Maker::Expression : ValueForm::Maker::Other;
        f.expression = e;
    } else if (p.is_constant(v)) {
        f.maker = ValueForm::Maker::Constant;
        f.fill = context.fill(v);
    }
    return f;
}

}  // namespace

bool same_form(const ValueForm& a, const ValueForm& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.is_output == b.is_output &&
           a.foldable == b.foldable && a.maker == b.maker && a.fill.has_value() == b.fill.has_value() &&
           (!a.fill || bits_equal(*a.fill, *b.fill)) && (a.expression == nullptr) == (b.expression == nullptr) &&
           (a.expression == nullptr || same_expression(*a.expression, *b.expression));
}

uint32_t ValueForms::number(uint64_t hash, ValueForm form) {
    std::vector<uint32_t>& candidates = by_hash_[hash];
    for (const uint32_t n : candidates)
        if (same_form(forms_[n - 1], form)) return n;
    if (form.expression != nullptr) form.expression = &expressions_.emplace_back(*form.expression);
    forms_.push_back(std::move(form));
    return candidates.emplace_back(static_cast<uint32_t>(forms_.size()));
}

uint32_t MatchCache::form(const RewriteContext& context, ValueId v) {
    uint32_t& known = value_forms_[v.index()];
    if (known == 0) {
        ValueForm f = value_form(context, v);
        const uint64_t hash = value_form_hash(f);
        known = forms_.number(hash, std::move(f));
    }
    return known;
}

void MatchCache::append_properties(const RewriteContext& context, const RuleDependency& dependency,
                                   std::vector<uint32_t>& out) {
    const Program& p = context.program();
    if (!p.values.contains(dependency.value)) return out.push_back(0);
    if (!dependency.readers) return out.push_back(form(context, dependency.value));
    const size_t count = out.size();
    out.push_back(0);
    for (const PrimitiveId id : context.consumers(dependency.value))
        for (const ValueId v : p.primitives[id].outputs) {
            ++out[count];
            out.push_back(v.value);
            out.push_back(form(context, v));
        }
}

bool MatchCache::unchanged(const RewriteContext& context, const Trace& trace) {
    size_t at = 0;
    for (const RuleDependency& q : trace.dependencies) {
        current_.clear();
        append_properties(context, q, current_);
        if (trace.properties.size() - at < current_.size() ||
            !std::equal(current_.begin(), current_.end(), trace.properties.begin() + static_cast<std::ptrdiff_t>(at)))
            return false;
        at += current_.size();
    }
    return at == trace.properties.size();
}

const MatchCache::Trace& MatchCache::trace(const RewriteContext& context, const RewriteRule& rule, PrimitiveId at,
                                           std::vector<Trace>& known) {
    for (auto t = known.rbegin(); t != known.rend(); ++t)
        if (unchanged(context, *t)) return *t;
    Trace t;
    t.known = context.program().values.size();
    t.dependencies.push_back({context.program().primitives[at].outputs[0]});
    context.record(&t.dependencies);
    rule.find(context, at, t.patches);
    context.record(nullptr);
    ++rule_runs_;
    std::sort(t.dependencies.begin(), t.dependencies.end());
    t.dependencies.erase(std::unique(t.dependencies.begin(), t.dependencies.end()), t.dependencies.end());
    for (const RuleDependency& q : t.dependencies) append_properties(context, q, t.properties);
    return known.emplace_back(std::move(t));
}

const std::vector<RuleMatch>& MatchCache::find(const RewriteContext& context) {
    found_.clear();
    traces_.resize(rules_.size());
    const Program& p = context.program();
    value_forms_.assign(p.values.size(), 0);
    for (size_t k = 0; k < rules_.size(); ++k)
        for (const PrimitiveId at : p.primitives.ids()) {
            const TensorExpr* e = p.primitives[at].expr();
            if (e == nullptr || too_large(*e)) continue;
            const Trace& t = trace(context, *rules_[k], at, traces_[k][p.primitives[at].outputs[0].value]);
            for (const Patch& patch : t.patches) found_.push_back({rules_[k], &patch, t.known});
        }
    return found_;
}

}  // namespace tilewright
