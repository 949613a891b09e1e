#include "orchestrate/optimal/lazy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tilewright::optimal {

std::string_view to_string(Profile p) {
    switch (p) {
        case Profile::None:
            return "none";
        case Profile::Lazy:
            return "lazy";
        case Profile::Full:
            return "full";
    }
    return "";
}

LazyResult solve_lazily(const Choice& choice, Profile profile, const MeasureCandidates& measure,
                        const BlpOptions& options) {
    LazyResult result;
    Choice now = choice;  // with what is measured in place of what was said
    std::vector<bool> known(choice.candidates.size(), profile == Profile::None);
    const auto ask = [&](const std::vector<size_t>& which) {
        const std::vector<double> costs = measure(which);
        TW_CHECK(costs.size() == which.size(), "{} costs of {} candidates", costs.size(), which.size());
        for (size_t i = 0; i < which.size(); ++i) {
            TW_CHECK(costs[i] >= 0, "candidate {} is measured at {}", which[i], costs[i]);
            result.undercut += costs[i] < choice.candidates[which[i]].cost ? 1 : 0;
            now.candidates[which[i]].cost = costs[i];
            known[which[i]] = true;
        }
        result.measured += which.size();
    };
    if (profile == Profile::Full) {
        std::vector<size_t> all;
        for (size_t k = 0; k < choice.candidates.size(); ++k)
            if (!std::isinf(choice.candidates[k].cost)) all.push_back(k);
        ask(all);
    }
    BlpOptions round = options;
    double spent = 0;
    size_t rounds = 0, loop_rows = 0;
    for (;;) {
        // A start whose kernels turned out not to run is none.
        if (std::any_of(round.start.begin(), round.start.end(),
                        [&](size_t k) { return std::isinf(now.candidates[k].cost); }))
            round.start.clear();
        round.seconds = std::max(0.0, options.seconds - spent);
        result.blp = solve(now, round);
        ++result.solutions;
        spent += result.blp.seconds;
        rounds += result.blp.rounds;
        loop_rows += result.blp.loop_rows;
        std::vector<size_t> unknown;
        for (const size_t k : result.blp.chosen)
            if (!known[k]) unknown.push_back(k);
        if (unknown.empty()) break;
        std::sort(unknown.begin(), unknown.end());
        const double bound = result.blp.bound;
        const size_t undercut = result.undercut;
        ask(unknown);
        const double truly = now.cost(result.blp.chosen);
        if (truly <= bound && result.undercut == undercut) {
            result.blp.objective = truly;
            break;
        }
        round.start = result.blp.chosen;
    }
    result.blp.seconds = spent;
    result.blp.rounds = rounds;
    result.blp.loop_rows = loop_rows;
    return result;
}

}  // namespace tilewright::optimal
