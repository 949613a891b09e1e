#include "orchestrate/optimal/lazy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tilewright::optimal {

namespace {

constexpr double kAskedAtOnce = 0.5;  // share of the cost of a solution's unmeasured kernels

}  // namespace

LazySearch::LazySearch(Choice choice, std::vector<bool> known, BlpOptions options)
    : said_(std::move(choice)), now_(said_), known_(std::move(known)), options_(std::move(options)) {
    TW_CHECK(known_.size() == said_.candidates.size());
}

void LazySearch::solve_now() {
    BlpOptions round = options_;
    // An initial plan with a kernel that cannot run is dropped.
    if (std::any_of(round.start.begin(), round.start.end(),
                    [&](size_t k) { return std::isinf(now_.candidates[k].cost); }))
        round.start.clear();
    round.seconds = std::max(0.0, options_.seconds - spent_);
    BlpResult blp = solve(now_, round);
    // The reported relaxation is the first program's; times and counts are sums.
    if (result_.solutions > 0) blp.root = result_.blp.root;
    spent_ += blp.seconds;
    rounds_ += blp.rounds;
    loop_rows_ += blp.loop_rows;
    blp.seconds = spent_;
    blp.rounds = rounds_;
    blp.loop_rows = loop_rows_;
    result_.blp = std::move(blp);
    ++result_.solutions;
}

std::vector<size_t> LazySearch::most_expensive_unknown() const {
    std::vector<size_t> out;
    double all = 0;
    for (const size_t k : result_.blp.chosen)
        if (!known_[k]) {
            out.push_back(k);
            all += now_.candidates[k].cost;
        }
    const auto cost = [&](size_t k) { return now_.candidates[k].cost; };
    std::sort(out.begin(), out.end(),
              [&](size_t a, size_t b) { return cost(a) != cost(b) ? cost(a) > cost(b) : a < b; });
    double some = 0;
    size_t n = 0;
    while (n < out.size() && (n == 0 || some < kAskedAtOnce * all)) some += cost(out[n++]);
    out.resize(n);
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<size_t> LazySearch::next() {
    if (done_) return {};
    if (!requested_.empty()) {
        // Some kernels of the solution are measured now. Check whether it is still as cheap as any plan can be.
        const double truly = now_.cost(result_.blp.chosen);
        if (truly <= result_.blp.bound && result_.undercut == undercut_before_) {
            requested_ = most_expensive_unknown();
            done_ = requested_.empty();
            if (done_) result_.blp.objective = truly;
            return requested_;
        }
        if (!std::isinf(truly)) options_.start = result_.blp.chosen;
    }
    solve_now();
    requested_ = most_expensive_unknown();
    undercut_before_ = result_.undercut;
    done_ = requested_.empty();
    return requested_;
}

void LazySearch::tell(const std::vector<size_t>& which, const std::vector<double>& costs) {
    TW_CHECK(costs.size() == which.size(), "{} costs of {} candidates", costs.size(), which.size());
    for (size_t i = 0; i < which.size(); ++i) {
        const size_t k = which[i];
        TW_CHECK(costs[i] >= 0, "candidate {} is measured at {}", k, costs[i]);
        result_.undercut += costs[i] < said_.candidates[k].cost ? 1 : 0;
        now_.candidates[k].cost = costs[i];
        known_[k] = true;
    }
    result_.measured += which.size();
}

void LazySearch::stop() {
    if (done_) return;
    const double bound = result_.blp.bound;
    const Choice all = now_;
    for (size_t k = 0; k < known_.size(); ++k)
        if (!known_[k]) now_.candidates[k].cost = std::numeric_limits<double>::infinity();
    solve_now();
    if (result_.blp.status == BlpStatus::Infeasible) {
        now_ = all;
        solve_now();
    }
    result_.blp.bound = std::min(bound, result_.blp.objective);
    if (result_.blp.bound < result_.blp.objective) result_.blp.status = BlpStatus::Feasible;
    done_ = true;
}

}  // namespace tilewright::optimal
