#include "schedule/dynamic/cover.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace tilewright::dynamic {

namespace {

constexpr double kEqual = 1.005;  // times within half a percent are the same

class Votes {
  public:
    Votes(const std::vector<std::vector<double>>& seconds, const std::vector<double>& weights,
          const std::vector<double>& code, const CoverLimits& limits)
        : seconds_(seconds), weights_(weights), code_(code), limits_(limits) {
        for (size_t s = 0; s < weights.size(); ++s) {
            double best = std::numeric_limits<double>::infinity();
            for (const auto& of_way : seconds) best = std::min(best, of_way[s]);
            TW_CHECK(best < std::numeric_limits<double>::infinity(), "no way is legal at sample {}", s);
            best_.push_back(best);
        }
    }

    /// The greedy weighted set cover of the samples by the ways that are among the k fastest of each.
    Cover cover(size_t k) const {
        std::vector<std::vector<bool>> votes = top(k);
        std::vector<bool> covered(weights_.size(), false);
        Cover out;
        out.votes = k;
        while (std::find(covered.begin(), covered.end(), false) != covered.end()) {
            std::optional<size_t> best;
            double most = 0;
            for (size_t w = 0; w < seconds_.size(); ++w) {
                bool votes_anew = false;  // even if it gains 0, at a sample without weight
                double gain = 0;
                for (size_t s = 0; s < covered.size(); ++s) {
                    if (!votes[w][s] || covered[s]) continue;
                    votes_anew = true;
                    gain += weights_[s] * (seconds_[w][s] == best_[s] ? 1 : best_[s] / seconds_[w][s]);
                }
                gain /= code_[w];
                if (!votes_anew || (best && gain <= most * (1 + 1e-12))) continue;
                most = gain;
                best = w;
            }
            TW_CHECK(best, "no way votes for a sample");
            for (size_t s = 0; s < covered.size(); ++s) covered[s] = covered[s] || votes[*best][s];
            out.ways.push_back(*best);
        }
        std::sort(out.ways.begin(), out.ways.end());
        measure(out);
        return out;
    }

    bool fits(const Cover& c) const { return c.mean_loss <= limits_.mean_loss && c.worst_loss <= limits_.worst_loss; }

  private:
    std::vector<std::vector<bool>> top(size_t k) const {
        std::vector<std::vector<bool>> votes(seconds_.size(), std::vector<bool>(weights_.size(), false));
        for (size_t s = 0; s < weights_.size(); ++s) {
            std::vector<size_t> order(seconds_.size());
            std::iota(order.begin(), order.end(), size_t{0});
            std::stable_sort(order.begin(), order.end(),
                             [&](size_t a, size_t b) { return seconds_[a][s] < seconds_[b][s]; });
            const double last = seconds_[order[std::min(k, order.size()) - 1]][s];
            const double slowest = std::min(std::max(last, best_[s]) * kEqual, best_[s] * limits_.pruned);
            for (size_t w = 0; w < seconds_.size(); ++w) votes[w][s] = seconds_[w][s] <= slowest;
        }
        return votes;
    }

    void measure(Cover& c) const {
        const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
        c.mean_loss = c.worst_loss = 0;
        for (size_t s = 0; s < weights_.size(); ++s) {
            double here = std::numeric_limits<double>::infinity();
            for (const size_t w : c.ways) here = std::min(here, seconds_[w][s]);
            const double loss = best_[s] > 0 ? here / best_[s] - 1 : 0;
            c.mean_loss += loss * weights_[s] / all;
            c.worst_loss = std::max(c.worst_loss, loss);
        }
    }

    const std::vector<std::vector<double>>& seconds_;
    const std::vector<double>& weights_;
    const std::vector<double>& code_;
    const CoverLimits& limits_;
    std::vector<double> best_;
};

}  // namespace

Cover cover_samples(const std::vector<std::vector<double>>& seconds, const std::vector<double>& weights,
                    const std::vector<double>& code, const CoverLimits& limits) {
    TW_CHECK(!seconds.empty() && code.size() == seconds.size(), "{} ways", seconds.size());
    const Votes votes(seconds, weights, code, limits);
    Cover best = votes.cover(1);
    for (size_t k = 2; k <= seconds.size(); ++k) {
        Cover c = votes.cover(k);
        if (!votes.fits(c)) break;
        if (c.ways.size() <= best.ways.size()) best = std::move(c);
    }
    return best;
}

}  // namespace tilewright::dynamic
