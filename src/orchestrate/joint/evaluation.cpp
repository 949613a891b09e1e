#include "orchestrate/joint/evaluation.h"

#include <set>

#include "base/error.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::joint {

namespace {

std::string key_of(const Placement& p) { return p.single->key + text_of(p.layouts); }

/// Schedules by the default heuristic, with estimates.
Scheduling by_default(Scheduling how) {
    how.kind = SchedulerKind::Default;
    how.costs = nullptr;
    how.estimates = true;
    return how;
}

}  // namespace

Evaluation::Evaluation(Schedules& schedules, bool measures)
    : schedules_(schedules),
      rule_(by_default(schedules.how())),
      measures_(measures && schedules.costs().measures_kernels()) {}

double Evaluation::by_rule(const Placement& p) { return estimate(p, rule_, by_rule_); }
double Evaluation::constructed(const Placement& p) { return estimate(p, schedules_, constructed_); }

double Evaluation::estimate(const Placement& p, Schedules& by, Known& known) const {
    const auto [it, fresh] = known.try_emplace(key_of(p), kInfinity);
    if (fresh)
        if (const auto kernel = kernel_in_layouts(*p.single, p.layouts, target()))
            it->second = by.kernel(kernel->body).seconds;
    return it->second;
}

std::optional<std::vector<double>> Evaluation::measured(const std::vector<Placement>& all) {
    if (!measures_) return std::nullopt;
    std::vector<KernelCosts::AlternativeKernel> alternatives;
    std::vector<std::string> keys;
    std::set<std::string> asked;
    for (const Placement& p : all) {
        keys.push_back(key_of(p));
        if (measured_.count(keys.back()) != 0 || asked.count(keys.back()) != 0) continue;
        const auto kernel = kernel_in_layouts(*p.single, p.layouts, target());
        if (!kernel) {
            measured_[keys.back()] = kInfinity;
            continue;
        }
        asked.insert(keys.back());
        alternatives.push_back({schedules_.kernel(kernel->body).program, kernel->weights});
    }
    if (!alternatives.empty()) {
        const auto seconds = schedules_.costs().measure_in_turns(alternatives);
        measures_ = seconds.has_value();
        if (!seconds) return std::nullopt;
        measurements_ += seconds->size();
        size_t k = 0;
        for (const std::string& key : keys)
            if (asked.erase(key) != 0) {
                const double s = (*seconds)[k++];
                measured_[key] = s < 0 ? kInfinity : s;
            }
    }
    std::vector<double> out;
    out.reserve(keys.size());
    for (const std::string& key : keys) out.push_back(measured_.at(key));
    return out;
}

std::optional<std::vector<double>> Evaluation::schedules(const std::vector<TileProgram>& all,
                                                         const std::vector<bool>& weights) {
    std::vector<double> out;
    if (!measures_) {
        for (const TileProgram& t : all) out.push_back(rule_.costs().estimate(t));
        return out;
    }
    std::vector<KernelCosts::AlternativeKernel> alternatives;
    alternatives.reserve(all.size());
    for (const TileProgram& t : all) alternatives.push_back({t, weights});
    const auto seconds = schedules_.costs().measure_in_turns(alternatives);
    if (!seconds) return std::nullopt;
    measurements_ += seconds->size();
    for (const double s : *seconds) out.push_back(s < 0 ? kInfinity : s);
    return out;
}

void Evaluation::adopt(const Placement& p, TileProgram schedule, double seconds) {
    const auto kernel = kernel_in_layouts(*p.single, p.layouts, target());
    TW_CHECK(kernel, "a schedule of a kernel that is none");
    constructed_[key_of(p)] = rule_.costs().estimate(schedule);
    if (measures_) measured_[key_of(p)] = seconds;
    schedules_.adopt(kernel->body, std::move(schedule), measures_ ? std::optional(seconds) : std::nullopt);
}

}  // namespace tilewright::joint
