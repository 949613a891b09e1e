#include "program/rewrite/search.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"
#include "program/form_hash.h"
#include "program/rewrite/pieces.h"
#include "program/transform/common_subexpressions.h"

namespace tilewright {

namespace {

struct State {
    Program program;
    double cost = 0;
    size_t number = 0;  ///< in order of discovery, which decides among equals
    std::vector<std::string_view> way;
    bool inexact = false;  ///< some rule on the way is
};

struct Dearer {
    bool operator()(const State& a, const State& b) const {
        return a.cost != b.cost ? a.cost > b.cost : a.number > b.number;
    }
};

class Search {
  public:
    Search(const RewriteSearch& options, RewriteReport& report)
        : options_(options), report_(report), rules_(rewrite_rules(options.rules)) {}

    State run(const Program& start) {
        most_ = static_cast<size_t>(static_cast<double>(start.primitives.size()) * options_.growth);
        exact_ = best_ = {start, cost(start), 0, {}, false};
        seen_ = {structure_hash(start)};
        queue_.push(best_);
        size_t since = 0;
        for (size_t taken = 0; taken < options_.budget && since < options_.patience && !queue_.empty(); ++taken) {
            const State state = queue_.top();
            queue_.pop();
            ++report_.taken;
            const double before = best_.cost;
            expand(state);
            since = best_.cost < before ? 0 : since + 1;
        }
        return judged(start);
    }

    double cost(const Program& program) {
        ++report_.costed;
        const RewriteContext context(program, options_.rules.folding);
        return options_.cost ? options_.cost(context) : analytic_cost(context);
    }

  private:
    struct Gain {
        Patch patch;
        const RewriteRule* rule;
        double cost = 0;  ///< of the program with this patch alone
    };

    void expand(const State& state) {
        const RewriteContext context(state.program, options_.rules.folding);
        std::vector<Gain> gains;
        for (const RewriteRule* rule : rules_)
            for (Patch& patch : find_all(context, *rule)) {
                const auto found = consider(apply(state.program, patch), state, *rule);
                if (found && *found < state.cost) gains.push_back({std::move(patch), rule, *found});
            }
        if (gains.size() > 1) together(state, std::move(gains));
    }

    /// One program with all patches that gain, the best first, as far as each still gains: rewrites of different places
    /// need not be found again one after the other.
    void together(const State& state, std::vector<Gain> gains) {
        std::stable_sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) { return a.cost < b.cost; });
        State all{merge_common_subexpressions(apply(state.program, gains[0].patch)), gains[0].cost, 0, state.way,
                  state.inexact};
        go(all, *gains[0].rule);
        bool more = false;
        for (size_t k = 1; k < gains.size(); ++k) {
            auto next = apply_later(all.program, gains[k].patch, state.program.values.size());
            if (!next) continue;
            *next = merge_common_subexpressions(std::move(*next));
            const double with = cost(*next);
            if (!(with < all.cost) || next->primitives.size() > most_) continue;
            all.program = std::move(*next);
            all.cost = with;
            go(all, *gains[k].rule);
            more = true;
        }
        if (more && seen_.insert(structure_hash(all.program)).second) queue(std::move(all));
    }

    /// Queues what is new and not too dear. Its cost, if it is new.
    std::optional<double> consider(Program program, const State& from, const RewriteRule& rule) {
        program = merge_common_subexpressions(std::move(program));
        if (program.primitives.size() > most_ || !seen_.insert(structure_hash(program)).second) return std::nullopt;
        const double its = cost(program);
        if (!(its < options_.alpha * best_.cost)) return its;
        State found{std::move(program), its, 0, from.way, from.inexact};
        go(found, rule);
        queue(std::move(found));
        return its;
    }

    static void go(State& state, const RewriteRule& rule) {
        state.way.push_back(rule.name);
        state.inexact = state.inexact || rule.inexact;
    }

    /// The best that `judge` agrees to.
    State judged(const Program& start) {
        if (!options_.judge || best_.way.empty()) return std::move(best_);
        const auto asked = [&](const Program& p) { return options_.judge(RewriteContext(p, options_.rules.folding)); };
        const double before = asked(start);
        const auto accepted = [&](const State& found, double margin) {
            const double gain = before - asked(found.program);
            if (gain <= before * margin) return false;
            report_.gain += gain;
            return true;
        };
        if (accepted(best_, best_.inexact ? options_.inexact_margin : options_.margin)) return std::move(best_);
        ++report_.judged_away;
        if (best_.inexact && !exact_.way.empty() && accepted(exact_, options_.margin)) return std::move(exact_);
        return {start, cost(start), 0, {}, false};
    }

    void queue(State found) {
        found.number = ++number_;
        if (found.cost < best_.cost) best_ = found;
        if (!found.inexact && found.cost < exact_.cost) exact_ = found;
        queue_.push(std::move(found));
    }

    const RewriteSearch& options_;
    RewriteReport& report_;
    std::vector<const RewriteRule*> rules_;
    State best_, exact_;  ///< of all, and of those without inexact rules
    std::priority_queue<State, std::vector<State>, Dearer> queue_;
    std::unordered_set<uint64_t> seen_;
    size_t most_ = 0, number_ = 0;
};

}  // namespace

uint64_t structure_hash(const Program& program) {
    IndexVector<ValueId, uint64_t> of(program.values.size(), 0);
    for (const ValueId v : program.inputs) of[v] = hash_combine(1, v.value);
    for (const auto& [v, tensor] : program.constants) {
        const auto unread = program.unread.find(v);
        of[v] =
            unread != program.unread.end() ? hash_combine(2, unread->second) : hash_combine(3, contents_hash(tensor));
    }
    for (const Primitive& p : program.primitives) {
        TW_CHECK(p.expr() != nullptr, "'{}' is no tensor expression", p.name);
        of[p.outputs[0]] = hash_combine(form_hash(*p.expr(), [&](ValueId v) { return of[v]; }),
                                        static_cast<uint64_t>(program.values[p.outputs[0]].dtype));
    }
    uint64_t h = 4;
    for (const ValueId v : program.outputs) h = hash_combine(h, of[v]);
    return h;
}

Program search(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    RewriteReport unwanted;
    RewriteReport& r = report != nullptr ? *report : unwanted;
    Search search(options, r);
    State best = search.run(program);
    r.before += search.cost(program);
    r.after += best.cost;
    for (const std::string_view rule : best.way) ++r.applied[std::string(rule)];
    return std::move(best.program);
}

Program rewrite(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    struct Done {
        Program program;
        RewriteReport report;
    };
    RewriteReport unwanted;
    RewriteReport& r = report != nullptr ? *report : unwanted;
    std::unordered_map<std::string, Done> done;
    std::vector<std::pair<Piece, const Done*>> changed;
    for (const auto& run : cut(program, options.piece)) {
        Piece part = piece(program, run);
        const auto [it, fresh] = done.try_emplace(piece_text(part));
        Done& d = it->second;
        if (fresh) {
            d.program = search(part.program, options, &d.report);
            ++r.distinct;
            r.taken += d.report.taken;
            r.costed += d.report.costed;
            r.judged_away += d.report.judged_away;
        }
        ++r.pieces;
        r.before += d.report.before;
        if (d.report.applied.empty())
            r.after += d.report.after;
        else
            changed.emplace_back(std::move(part), &d);
    }
    std::stable_sort(changed.begin(), changed.end(),
                     [](const auto& a, const auto& b) { return a.second->report.gain > b.second->report.gain; });
    const auto with = [&](size_t pieces) {
        Program out = program;
        for (size_t k = 0; k < pieces; ++k) {
            const Patch patch = as_patch(out, changed[k].first, changed[k].second->program);
            out = apply(std::move(out), patch);
        }
        return out;
    };
    Program best = program;
    size_t taken = 0;
    if (options.judge && !changed.empty()) {
        const auto asked = [&](const Program& p) { return options.judge(RewriteContext(p, options.rules.folding)); };
        double least = asked(program);
        for (size_t pieces = changed.size(); pieces > 0; pieces /= 2) {
            Program some = with(pieces);
            const double seconds = asked(some);
            if (!(seconds < least)) continue;
            least = seconds;
            best = std::move(some);
            taken = pieces;
        }
        r.judged_away += changed.size() - taken;
    } else {
        taken = changed.size();
        best = with(taken);
    }
    for (size_t k = 0; k < changed.size(); ++k) {
        const RewriteReport& of = changed[k].second->report;
        r.after += k < taken ? of.after : of.before;
        r.gain += k < taken ? of.gain : 0;
        for (const auto& [rule, times] : of.applied)
            if (k < taken) r.applied[rule] += times;
    }
    return best;
}

}  // namespace tilewright
