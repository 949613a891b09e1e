#include "orchestrate/joint/tune_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/clock.h"
#include "orchestrate/joint/decision.h"
#include "orchestrate/joint/layout_choice.h"
#include "orchestrate/joint/layout_options.h"
#include "orchestrate/joint/ppo/cross_exploration.h"
#include "program/analysis/contraction.h"

namespace tilewright::joint {

namespace {

/// The share of a kernel's seconds that another layout must save to be proposed: by measurement, and by estimates,
/// whose error is larger.
constexpr double kMeasuredGain = 0.03, kEstimatedGain = 0.1;

/// Contractions below this share of all contractions' seconds keep the default heuristic's layouts.
constexpr double kLeastShare = 0.01;

/// The share of the time for measurements that searches may use. The rest is for the choice.
constexpr double kSearchShare = 0.6;

class Tuning {
  public:
    Tuning(const ChosenLayouts& given, Schedules& schedules, const Options& options, Report& report)
        : given_(given),
          rule_(without_copies(given)),
          options_(options),
          report_(report),
          how_(schedules, options.measure),
          begin_(now_ms()) {}

    ChosenLayouts run() {
        const size_t program = report_.programs++;
        if (options_.decided) return program < options_.decided->size() ? repeat((*options_.decided)[program]) : given_;
        search();
        ChosenLayouts out = proposals_.empty() ? given_ : choose();
        if (options_.record) options_.record->push_back(chosen_.empty() ? Decision() : Decision{proposals_, chosen_});
        report_.measured += how_.measurements();
        report_.ms += now_ms() - begin_;
        return out;
    }

  private:
    /// Equal contractions in equal layouts of the default heuristic.
    struct Contractions {
        std::vector<SinglePrimitive> all;
        std::vector<Layout> rule;  ///< per tensor
        double seconds = 0;        ///< estimated, of all of them
    };

    std::vector<Contractions> contractions() {
        std::vector<Contractions> out;
        std::map<std::string, size_t> known;
        const KernelExtractor extracted(rule_.program);
        for (const PrimitiveId id : rule_.program.primitives.ids()) {
            const TensorExpr* e = rule_.program.primitives[id].expr();
            if (e == nullptr || !contraction(*e)) continue;
            SinglePrimitive single = single_primitive(rule_.program, extracted, id);
            std::vector<Layout> layouts;
            for (const ValueId v : single.tensors) layouts.push_back(rule_.layout(id, v));
            const auto [it, fresh] = known.try_emplace(single.key + text_of(layouts), out.size());
            if (fresh) out.push_back({{}, std::move(layouts), 0});
            out[it->second].all.push_back(std::move(single));
        }
        for (Contractions& c : out)
            c.seconds = how_.constructed({&c.all[0], c.rule}) * static_cast<double>(c.all.size());
        // The time for measurements may not suffice for all.
        std::stable_sort(out.begin(), out.end(),
                         [](const Contractions& a, const Contractions& b) { return a.seconds > b.seconds; });
        return out;
    }

    void search() {
        const bool loops_only = options_.without == Ablation::LoopsOnly;
        if (loops_only && !options_.ppo) return;
        PpoOptions ppo = options_.ppo.value_or(PpoOptions());
        if (loops_only) ppo.loops += std::exchange(ppo.joint, 0);
        const std::vector<Contractions> all = contractions();
        double total = 0;
        for (const Contractions& c : all) total += c.seconds;
        for (const Contractions& c : all) {
            if (c.seconds < kLeastShare * total) break;
            if (how_.measures() && now_ms() - begin_ > 1e3 * kSearchShare * options_.measure_seconds) break;
            SearchResult found = options_.ppo ? ppo::search_layouts(c.all[0], c.rule, how_, ppo, options_.search.levels)
                                              : search_layouts(c.all[0], c.rule, how_, options_.search);
            for (const SinglePrimitive& single : c.all) propose(single, found);
            report_.contractions.push_back(std::move(found));
        }
    }

    void propose(const SinglePrimitive& single, const SearchResult& found) {
        for (const LayoutCandidate& c : found.best) {
            const double least = c.measured ? kMeasuredGain : kEstimatedGain;
            const double gain = found.rule.total() - c.total();
            if (c.measured != found.rule.measured || gain < least * found.rule.total()) continue;
            for (size_t t = 0; t < single.tensors.size(); ++t)
                if (!(c.layouts[t] == found.rule.layouts[t]))
                    proposals_.push_back({single.tensors[t], c.layouts[t], gain, t + 1 == single.tensors.size()});
        }
    }

    LayoutOptions layout_options() const {
        return joint::layout_options(rule_, proposals_, options_.most_layouts, options_.without);
    }

    LayoutChoice choice_of(const LayoutOptions& options) {
        const bool converts = options_.without != Ablation::ForwardOnly && options_.without != Ablation::BackwardOnly;
        return {rule_, options, how_, options_.most_combinations, converts};
    }

    /// What an earlier search has chosen. The heuristic's layouts, if it was for another program.
    ChosenLayouts repeat(const Decision& decision) {
        for (const Proposal& p : decision.proposals)
            if (p.value.index() >= rule_.program.values.size()) return given_;
        proposals_ = decision.proposals;
        const LayoutOptions options = layout_options();
        const LayoutChoice choice = choice_of(options);
        const size_t candidates = choice.choice().candidates.size();
        for (const size_t k : decision.chosen)
            if (k >= candidates) return given_;
        const optimal::Execution runs = optimal::execute(choice.choice(), decision.chosen);
        return runs.complete && runs.stuck.empty() ? choice.apply(decision.chosen) : given_;
    }

    ChosenLayouts choose() {
        const LayoutOptions options = layout_options();
        const LayoutChoice choice = choice_of(options);
        report_.candidates += choice.choice().candidates.size() - choice.conversions();
        report_.conversions += choice.conversions();
        optimal::Choice costs = choice.choice();
        const bool measures = how_.measures();
        std::vector<bool> known(costs.candidates.size(), true), of_rule = known;
        for (size_t k = 0; k < known.size(); ++k) {
            known[k] = !measures || !choice.decides(k);
            of_rule[k] = std::find(choice.rule().begin(), choice.rule().end(), k) != choice.rule().end();
            if (!measures && !of_rule[k]) costs.candidates[k].cost *= 1 + kEstimatedGain;
        }
        optimal::BlpOptions blp;
        blp.seconds = options_.solve_seconds;
        blp.start = choice.rule();
        optimal::LazySearch search(costs, known, blp);
        if (measures) {
            std::vector<size_t> first;
            for (const size_t k : choice.rule())
                if (!known[k]) first.push_back(k);
            const auto seconds = choice.measure(first);
            if (!seconds) return given_;
            search.tell(first, *seconds);
        }
        for (auto which = search.next(); !which.empty(); which = search.next()) {
            const auto seconds = choice.measure(which);
            if (!seconds) {
                search.stop();
                break;
            }
            search.tell(which, *seconds);
        }
        const optimal::BlpResult& best = search.result().blp;
        report_.rule_seconds += search.cost(choice.rule());
        report_.seconds += best.objective;
        report_.optimal = best.status == optimal::BlpStatus::Optimal;
        for (const size_t k : best.chosen) {
            const PlacedKernel& kernel = choice.kernels()[k];
            report_.converted += kernel.primitive ? 0 : 1;
            report_.changed += kernel.primitive && kernel.options.back() != 0 ? 1 : 0;
        }
        chosen_ = best.chosen;
        return choice.apply(best.chosen);
    }

    const ChosenLayouts& given_;
    const RuleLayouts rule_;
    const Options& options_;
    Report& report_;
    Evaluation how_;
    const double begin_;
    std::vector<Proposal> proposals_;
    std::vector<size_t> chosen_;  ///< candidates of the choice
};

}  // namespace

ChosenLayouts tune_layouts(const ChosenLayouts& rule, Schedules& schedules, const Options& options, Report& report) {
    return Tuning(rule, schedules, options, report).run();
}

std::string Report::print() const {
    size_t points = 0;
    for (const SearchResult& c : contractions) points += c.points;
    const std::string searched = fmt::format("{} contractions, {} layouts compared, {} kernels measured, {:.1f} s",
                                             contractions.size(), points, measured, 1e-3 * ms);
    if (candidates == 0) return searched + ": none gains over the default heuristic's";
    if (rule_seconds == 0) return searched + ": the time ended, and the default heuristic's layouts stay";
    return fmt::format(
        "{}: {:.3f} ms instead of {:.3f}{}, {} values in other layouts, {} conversions ({} candidates, {} "
        "conversions)",
        searched, 1e3 * seconds, 1e3 * rule_seconds, optimal ? "" : " (not proven)", changed, converted, candidates,
        conversions);
}

}  // namespace tilewright::joint
