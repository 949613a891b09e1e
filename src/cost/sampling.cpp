#include "cost/sampling.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/error.h"

namespace tilewright {
namespace {

constexpr size_t kEnough = 31;
constexpr size_t kFew = 5;

long context_switches() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

double quantile(const std::vector<double>& sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Measure summarize(std::vector<double> samples) {
    if (samples.empty()) return {};
    std::sort(samples.begin(), samples.end());
    Measure m;
    m.value = quantile(samples, 0.5);
    m.spread = m.value != 0 ? (quantile(samples, 0.75) - quantile(samples, 0.25)) / std::abs(m.value) : 0;
    m.samples = static_cast<int>(samples.size());
    return m;
}

Reading time_once(const std::function<void()>& work) {
    const long switches = context_switches();
    const double start = now_seconds();
    work();
    const double seconds = now_seconds() - start;
    return {seconds, context_switches() != switches};
}

Measure sample(double budget, const std::function<Reading()>& take, const std::function<double(double)>& figure) {
    std::vector<double> clean, all;
    const double start = now_seconds();
    while (clean.size() < kEnough) {
        const double elapsed = now_seconds() - start;
        if (elapsed > 2 * budget || (elapsed > budget && clean.size() >= kFew)) break;
        const Reading reading = take();
        const double value = figure(reading.seconds);
        all.push_back(value);
        if (!reading.disturbed) clean.push_back(value);
    }
    return summarize(clean.empty() ? all : clean);
}

int64_t rounds_for(double seconds, const std::function<void(int64_t)>& work) {
    // Too short a run measures the clock. The number of rounds is doubled until the run takes a quarter of `seconds`,
    // then extrapolated.
    for (int64_t rounds = 1;; rounds *= 2) {
        // A disturbed timing would look like enough rounds, and later runs would measure the clock. It is repeated.
        double took = std::numeric_limits<double>::infinity();
        for (int attempt = 0; attempt < 5; ++attempt) {
            const Reading reading = time_once([&] { work(rounds); });
            took = std::min(took, reading.seconds);
            if (!reading.disturbed) break;
        }
        if (took < seconds / 4 && rounds < (int64_t{1} << 40)) continue;
        return std::max<int64_t>(1, std::llround(static_cast<double>(rounds) * seconds / took));
    }
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
    TW_CHECK(x.size() == y.size(), "{} against {}", x.size(), y.size());
    const auto n = static_cast<double>(x.size());
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        mx += x[i] / n;
        my += y[i] / n;
    }
    for (size_t i = 0; i < x.size(); ++i) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::vector<int64_t> measured_capacities(const std::vector<WorkingSet>& curve, const std::vector<double>& levels) {
    std::vector<int64_t> capacities;
    for (size_t level = 0; level + 1 < levels.size(); ++level) {
        int64_t capacity = 0;
        if (levels[level + 1] >= 1.2 * levels[level]) {
            const double limit = std::sqrt(levels[level] * levels[level + 1]);
            for (size_t i = 0; i < curve.size(); ++i) {
                if (curve[i].ns < limit) {
                    capacity = curve[i].bytes;
                } else if (i + 1 == curve.size() || curve[i + 1].ns >= limit) {
                    break;
                }
            }
        }
        capacities.push_back(capacity);
    }
    return capacities;
}

}  // namespace tilewright
