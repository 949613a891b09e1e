#include "program/rewrite/search.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "program/form_hash.h"
#include "program/rewrite/borders.h"
#include "program/rewrite/kept.h"
#include "program/rewrite/match_cache.h"
#include "program/rewrite/pieces.h"
#include "program/transform/common_subexpressions.h"

namespace tilewright {

namespace {

struct State {
    Rewritten what;
    size_t number = 0;  ///< in order of discovery, which breaks ties
};

struct MoreExpensive {
    bool operator()(const State& a, const State& b) const {
        return a.what.cost != b.what.cost ? a.what.cost > b.what.cost : a.number > b.number;
    }
};

class Search {
  public:
    Search(const RewriteSearch& options, RewriteReport& report)
        : options_(options), report_(report), matches_(rewrite_rules(options.rules)) {}

    std::vector<Rewritten> run(const Program& start) {
        const RewriteContext context(start, options_.rules.folding);
        const size_t primitives = size(context);
        most_ = std::max(static_cast<size_t>(static_cast<double>(primitives) * options_.growth),
                         primitives + options_.always);
        const Rewritten first{start, cost(context), {}, false};
        exact_ = best_ = first;
        seen_ = {structure_hash(start)};
        queue_.push({first, 0});
        size_t since = 0;
        for (size_t taken = 0;
             taken < options_.budget && since < options_.patience && !budget_spent() && !queue_.empty(); ++taken) {
            const State state = queue_.top();
            queue_.pop();
            ++report_.taken;
            const double before = best_.cost;
            expand(state.what);
            since = best_.cost < before ? 0 : since + 1;
        }
        std::vector<Rewritten> out;
        for (Rewritten* r : {&best_, &exact_}) {
            if (r->way.empty() || (r == &exact_ && !best_.inexact)) continue;
            r->program = with_unique_names(std::move(r->program));
            out.push_back(std::move(*r));
        }
        out.push_back(first);
        return out;
    }

  private:
    struct Gain {
        Patch patch;
        size_t known;
        const RewriteRule* rule;
        double cost;  ///< of the program with this patch only
    };

    /// Primitives except those that folding will compute.
    static size_t size(const RewriteContext& context) {
        const auto& all = context.program().primitives;
        return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Primitive& p) {
            return p.expr() == nullptr || !context.foldable(p.outputs[0]);
        }));
    }

    bool budget_spent() const { return report_.costed >= options_.programs; }

    double cost(const RewriteContext& context) {
        ++report_.costed;
        return options_.cost ? options_.cost(context) : analytic_cost(context);
    }

    void expand(const Rewritten& from) {
        std::vector<Gain> gains;
        for (const RuleMatch& f : matches_.find(RewriteContext(from.program, options_.rules.folding))) {
            if (budget_spent()) return;
            auto program = apply_later(from.program, *f.patch, f.known);
            if (!program) continue;
            const auto found = consider(std::move(*program), from, *f.rule);
            if (found && *found < from.cost) gains.push_back({*f.patch, f.known, f.rule, *found});
        }
        if (gains.size() > 1) combine(from, std::move(gains));
    }

    /// Applies all profitable patches, best first, as far as each is still profitable: rewrites at different places
    /// need not be found one after the other.
    void combine(const Rewritten& from, std::vector<Gain> gains) {
        std::stable_sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) { return a.cost < b.cost; });
        Rewritten all = from;
        size_t made = 0;
        for (const Gain& gain : gains) {
            // The patch's values are numbered after all added values, so that ids of several patches do not clash.
            auto next = apply_later(all.program, gain.patch, gain.known);
            if (!next || budget_spent()) continue;
            *next = merge_common_subexpressions(std::move(*next));
            const RewriteContext context(*next, options_.rules.folding);
            const double with = made == 0 ? gain.cost : cost(context);
            if (!(with < all.cost) || size(context) > most_) continue;
            all.program = std::move(*next);
            all.cost = with;
            add_rule(all, *gain.rule);
            ++made;
        }
        if (made > 1 && seen_.insert(structure_hash(all.program)).second) queue(std::move(all));
    }

    /// Queues a program that is new and not too expensive. Returns its cost if it is new.
    std::optional<double> consider(Program program, const Rewritten& from, const RewriteRule& rule) {
        program = merge_common_subexpressions(std::move(program));
        if (!seen_.insert(structure_hash(program)).second) return std::nullopt;
        const RewriteContext context(program, options_.rules.folding);
        if (size(context) > most_) return std::nullopt;
        const double program_cost = cost(context);
        if (!(program_cost < options_.alpha * best_.cost)) return program_cost;
        Rewritten found{std::move(program), program_cost, from.way, from.inexact};
        add_rule(found, rule);
        queue(std::move(found));
        return program_cost;
    }

    static void add_rule(Rewritten& state, const RewriteRule& rule) {
        state.way.push_back(rule.name);
        state.inexact = state.inexact || rule.inexact;
    }

    void queue(Rewritten found) {
        if (found.cost < best_.cost) best_ = found;
        if (!found.inexact && found.cost < exact_.cost) exact_ = found;
        queue_.push({std::move(found), ++number_});
    }

    const RewriteSearch& options_;
    RewriteReport& report_;
    MatchCache matches_;
    Rewritten best_, exact_;  ///< of all programs, and of those without inexact rules
    std::priority_queue<State, std::vector<State>, MoreExpensive> queue_;
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
        TW_CHECK(p.expr() != nullptr, "'{}' is not a tensor expression", p.name);
        of[p.outputs[0]] = hash_combine(form_hash(*p.expr(), [&](ValueId v) { return of[v]; }),
                                        static_cast<uint64_t>(program.values[p.outputs[0]].dtype));
    }
    uint64_t h = 4;
    for (const ValueId v : program.outputs) h = hash_combine(h, of[v]);
    return h;
}

std::vector<Rewritten> proposals(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    RewriteReport unused;
    return Search(options, report != nullptr ? *report : unused).run(program);
}

Program search(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    RewriteReport unused;
    RewriteReport& r = report != nullptr ? *report : unused;
    std::vector<Rewritten> found = proposals(program, options, &r);
    r.before += found.back().cost;
    r.after += found.front().cost;
    for (const std::string_view rule : found.front().way) ++r.applied[std::string(rule)];
    return std::move(found.front().program);
}

namespace {

/// Equal pieces and their proposals.
struct Distinct {
    std::vector<size_t> where;  ///< positions of the pieces
    std::vector<Rewritten> proposals;
    size_t chosen = 0;  ///< index of the chosen proposal; the last one is the original piece

    bool changes() const { return chosen + 1 < proposals.size(); }
};

class ProgramSearch {
  public:
    /// `known`: the cost of the program's full plan, if it was evaluated.
    ProgramSearch(const Program& program, std::vector<Run> runs, const RewriteSearch& options, RewriteReport& report,
                  std::optional<PlannedCost> known = {})
        : program_(program),
          options_(options),
          report_(report),
          known_(std::move(known)),
          runs_(std::move(runs)),
          pieces_(pieces(program, runs_)) {}

    Program run() {
        group_equal_pieces();
        const std::string key = rewrites_key(program_, runs_, options_);
        if (!key.empty())
            if (const auto text = options_.kept->find(key))
                if (auto chosen = parse_rewrites(*text, first_pieces())) return restore(std::move(*chosen));
        propose();
        Program best = options_.evaluator ? choose_by_full_plans() : with_chosen(piece_of_);
        for (const Distinct& d : distinct_)
            for (size_t k = 0; k < d.where.size(); ++k) {
                report_.before += d.proposals.back().cost;
                report_.after += d.proposals[d.chosen].cost;
                report_.rejected_by_plan += d.chosen > 0 ? 1 : 0;
                for (const std::string_view rule : d.proposals[d.chosen].way) ++report_.applied[std::string(rule)];
            }
        if (!key.empty()) keep(key);
        return best;
    }

    /// For each value of the result, the piece that computes it, or kNoPiece.
    const std::vector<size_t>& piece_of() const { return piece_of_; }
    /// The cost of the result's full plan, if it was evaluated.
    const std::optional<PlannedCost>& planned() const { return known_; }

  private:
    void group_equal_pieces() {
        std::unordered_map<std::string, size_t> known;
        for (size_t k = 0; k < pieces_.size(); ++k) {
            const auto [it, fresh] = known.try_emplace(piece_text(pieces_[k]), distinct_.size());
            if (fresh) distinct_.emplace_back();
            distinct_[it->second].where.push_back(k);
            distinct_of_.push_back(it->second);
        }
        report_.pieces = pieces_.size();
        report_.distinct = distinct_.size();
    }

    /// The first piece of each distinct one.
    std::vector<const Piece*> first_pieces() const {
        std::vector<const Piece*> out;
        for (const Distinct& d : distinct_) out.push_back(&pieces_[d.where[0]]);
        return out;
    }

    void keep(const std::string& key) const {
        ChosenRewrites chosen;
        for (const Distinct& d : distinct_)
            chosen.pieces.push_back(d.changes() ? std::optional(d.proposals[d.chosen]) : std::nullopt);
        chosen.report = report_;
        if (const auto text = print(chosen, first_pieces())) options_.kept->keep(key, *text);
    }

    Program restore(ChosenRewrites chosen) {
        for (size_t d = 0; d < distinct_.size(); ++d) {
            if (chosen.pieces[d]) distinct_[d].proposals.push_back(std::move(*chosen.pieces[d]));
            distinct_[d].proposals.emplace_back();
        }
        report_ = std::move(chosen.report);
        known_.reset();
        return with_chosen(piece_of_);
    }

    void propose() {
        std::vector<std::pair<double, size_t>> order;  // the most expensive first
        for (size_t d = 0; d < distinct_.size(); ++d) {
            const RewriteContext context(pieces_[distinct_[d].where[0]].program, options_.rules.folding);
            const double one = options_.cost ? options_.cost(context) : analytic_cost(context);
            order.emplace_back(-one * static_cast<double>(distinct_[d].where.size()), d);
        }
        std::sort(order.begin(), order.end());
        constexpr size_t kAtOnce = 16;  // bounds what is searched beyond the budget
        for (size_t k = 0; k < order.size(); k += kAtOnce)
            propose({order.begin() + k, order.begin() + std::min(k + kAtOnce, order.size())});
    }

    /// Searches pieces on several threads, each as if it was the first. Those that the budget would have cut short are
    /// searched again.
    void propose(std::span<const std::pair<double, size_t>> order) {
        std::vector<RewriteReport> reports(order.size());
        const auto piece = [&](size_t k) -> const Program& {
            return pieces_[distinct_[order[k].second].where[0]].program;
        };
        const auto found = [&](size_t k) -> std::vector<Rewritten>& { return distinct_[order[k].second].proposals; };
        parallel_for(order.size(), [&](size_t k) { found(k) = proposals(piece(k), options_, &reports[k]); });
        for (size_t k = 0; k < order.size(); ++k) {
            if (report_.costed + reports[k].costed < options_.programs) {
                report_.taken += reports[k].taken;
                report_.costed += reports[k].costed;
            } else {
                found(k) = proposals(piece(k), options_, &report_);
            }
        }
    }

    /// The full program with the chosen proposals. `piece_of`: for each of its values, the piece that computes it.
    Program with_chosen(std::vector<size_t>& piece_of) const {
        std::vector<Replacement> replacements;
        std::vector<size_t> of;
        for (const Distinct& d : distinct_)
            for (const size_t k : d.where) {
                if (!d.changes()) continue;
                replacements.push_back({&pieces_[k], &d.proposals[d.chosen].program, &pieces_[d.where[0]]});
                of.push_back(k);
            }
        std::vector<ValueId> first;
        Program out = put_back(program_, replacements, &first);
        piece_of.assign(out.values.size(), kNoPiece);
        for (size_t k = 0; k < runs_.size(); ++k)
            for (size_t p = runs_[k].first; p < runs_[k].second; ++p)
                piece_of[program_.primitives[PrimitiveId(p)].outputs[0].index()] = k;
        for (size_t k = 0; k < first.size(); ++k) {
            const size_t end = k + 1 < first.size() ? first[k + 1].index() : out.values.size();
            std::fill(piece_of.begin() + static_cast<std::ptrdiff_t>(first[k].index()),
                      piece_of.begin() + static_cast<std::ptrdiff_t>(end), of[k]);
        }
        return out;
    }

    /// A full program; `cost` and `of` once it is evaluated.
    struct FullPlan {
        std::vector<size_t> chosen;  ///< per distinct piece
        Program program;
        std::vector<size_t> piece_of;  ///< as of with_chosen
        size_t changes = 0;            ///< number of changed pieces
        std::optional<PlannedCost> cost;
        std::vector<double> of;  ///< per distinct piece, summed over its occurrences
    };

    /// The full program with the current choice, not evaluated yet.
    FullPlan plan_of_choice() {
        FullPlan out;
        for (const Distinct& d : distinct_) {
            out.chosen.push_back(d.chosen);
            out.changes += d.changes() ? d.where.size() : 0;
        }
        out.program = with_chosen(out.piece_of);
        return out;
    }

    void evaluate(FullPlan& plan) const {
        if (!plan.cost) plan.cost = options_.evaluator(plan.program);
        plan.of.assign(distinct_.size() + 1, 0);
        for (const PrimitiveId id : plan.program.primitives.ids()) {
            const std::vector<ValueId>& made = plan.program.primitives[id].outputs;
            const size_t piece = made.empty() ? kNoPiece : plan.piece_of[made[0].index()];
            plan.of[piece == kNoPiece ? distinct_.size() : distinct_of_[piece]] += plan.cost->of[id];
        }
    }

    /// Replaces each proposal that does not pay off by the next one, permanently. Returns whether any was replaced.
    bool advance(const FullPlan& before, const FullPlan& now) {
        bool changed = false;
        for (size_t d = 0; d < distinct_.size(); ++d) {
            Distinct& piece = distinct_[d];
            if (!piece.changes()) continue;
            const double margin = piece.proposals[piece.chosen].inexact ? options_.inexact_margin : options_.margin;
            if (before.of[d] - now.of[d] > margin * before.of[d]) continue;
            ++piece.chosen;
            changed = true;
        }
        return changed;
    }

    Program choose_by_full_plans() {
        for (Distinct& d : distinct_) d.chosen = d.proposals.size() - 1;
        std::vector<FullPlan> all = {plan_of_choice()};
        all[0].cost = std::move(known_);
        report_.planned += all[0].cost ? 0 : 1;
        for (Distinct& d : distinct_) d.chosen = 0;
        const auto any = [&] {
            return std::any_of(distinct_.begin(), distinct_.end(), std::mem_fn(&Distinct::changes));
        };
        const auto add = [&] {
            all.push_back(plan_of_choice());
            ++report_.planned;
        };
        if (any()) add();
        parallel_for(all.size(), [&](size_t k) { evaluate(all[k]); });
        while (any() && advance(all.front(), all.back()) && any()) {
            add();
            evaluate(all.back());
        }
        double least = all.front().cost->total;
        for (const FullPlan& p : all) least = std::min(least, p.cost->total);
        FullPlan* selected = nullptr;
        for (FullPlan& p : all)
            if (p.cost->total <= least * (1 + options_.equal) && (selected == nullptr || p.changes < selected->changes))
                selected = &p;
        for (size_t d = 0; d < distinct_.size(); ++d) distinct_[d].chosen = selected->chosen[d];
        report_.planned_before = all.front().cost->total;
        report_.planned_after = selected->cost->total;
        known_ = std::move(selected->cost);
        piece_of_ = std::move(selected->piece_of);
        return std::move(selected->program);
    }

    const Program& program_;
    const RewriteSearch& options_;
    RewriteReport& report_;
    std::optional<PlannedCost> known_;  ///< of the program, then of the result
    std::vector<Run> runs_;
    std::vector<Piece> pieces_;
    std::vector<Distinct> distinct_;
    std::vector<size_t> distinct_of_;  ///< per piece
    std::vector<size_t> piece_of_;     ///< per value of the result
};

/// Adds a search of a search's result.
void add(RewriteReport& r, const RewriteReport& more) {
    r.pieces += more.pieces;
    r.distinct += more.distinct;
    r.taken += more.taken;
    r.costed += more.costed;
    r.after += more.after - more.before;
    r.planned += more.planned;
    r.rejected_by_plan += more.rejected_by_plan;
    if (more.planned > 0) r.planned_after = more.planned_after;
    for (const auto& [rule, times] : more.applied) r.applied[rule] += times;
}

}  // namespace

Program rewrite(const Program& program, const RewriteSearch& options, RewriteReport* report) {
    RewriteReport unused;
    RewriteReport& r = report != nullptr ? *report : unused;
    ProgramSearch first(program, cut(program, options.piece), options, r);
    Program out = first.run();
    if (options.across == 0 || r.costed >= options.programs) return out;
    std::vector<Run> runs = runs_across_pieces(out, first.piece_of(), options);
    if (runs.empty()) return out;
    RewriteReport more;
    ProgramSearch second(out, std::move(runs), options, more, first.planned());
    out = second.run();
    add(r, more);
    return out;
}

}  // namespace tilewright
