#include "orchestrate/joint/evaluation.h"

#include <set>

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

}  // namespace tilewright::joint
