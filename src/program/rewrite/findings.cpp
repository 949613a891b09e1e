#include "program/rewrite/findings.h"

#include <algorithm>

#include "base/hash.h"

namespace tilewright {

namespace {

uint64_t answers(const RewriteContext& context, const std::vector<Asked>& questions) {
    uint64_t h = questions.size();
    for (const Asked& q : questions) h = hash_combine(h, context.answer(q));
    return h;
}

}  // namespace

const Findings::Trace& Findings::trace(const RewriteContext& context, const RewriteRule& rule, PrimitiveId at,
                                       std::vector<Trace>& known) {
    for (auto t = known.rbegin(); t != known.rend(); ++t)
        if (answers(context, t->questions) == t->answers) return *t;
    Trace t;
    t.known = context.program().values.size();
    t.questions.push_back({context.program().primitives[at].outputs[0]});
    context.note(&t.questions);
    rule.find(context, at, t.patches);
    context.note(nullptr);
    ++asked_;
    std::sort(t.questions.begin(), t.questions.end());
    t.questions.erase(std::unique(t.questions.begin(), t.questions.end()), t.questions.end());
    t.answers = answers(context, t.questions);
    return known.emplace_back(std::move(t));
}

const std::vector<Finding>& Findings::find(const RewriteContext& context) {
    found_.clear();
    traces_.resize(rules_.size());
    const Program& p = context.program();
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
