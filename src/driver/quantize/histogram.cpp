#include "driver/quantize/histogram.h"

#include <algorithm>
#include <cmath>

namespace tilewright::quantize {

namespace {

constexpr size_t kMiddle = Histogram::kBins / 2;
constexpr size_t kLevels = 256;       // of 8 bits
constexpr size_t kStep = 16;          // bins between two ranges that are tried
constexpr double kUnreached = 1e-10;  // the probability of elements that no level represents

/// Relative entropy of the elements, clipped to bins [first, last), and of their quantised form: levels of equally many
/// bins, each with the mean of those of its bins that have elements. Clipped elements count for the outermost bins, but
/// only in the first distribution: so clipping costs, and so do wide levels.
double divergence(std::span<const uint64_t> bins, size_t first, size_t last) {
    const size_t n = last - first;
    std::vector<double> p(n), q(n);
    for (size_t b = 0; b < bins.size(); ++b) p[std::clamp(b, first, last - 1) - first] += static_cast<double>(bins[b]);
    for (size_t level = 0; level < kLevels; ++level) {
        const size_t from = level * n / kLevels, to = (level + 1) * n / kLevels;
        double sum = 0, filled = 0;
        for (size_t k = from; k < to; ++k) {
            sum += static_cast<double>(bins[first + k]);
            filled += bins[first + k] > 0 ? 1 : 0;
        }
        for (size_t k = from; k < to; ++k) q[k] = bins[first + k] > 0 ? sum / filled : 0;
    }
    double all_p = 0, all_q = 0;
    for (size_t k = 0; k < n; ++k) {
        all_p += p[k];
        all_q += q[k];
    }
    if (all_q == 0) return HUGE_VAL;
    double sum = 0;
    for (size_t k = 0; k < n; ++k)
        if (p[k] > 0) sum += p[k] / all_p * std::log(p[k] / all_p / std::max(q[k] / all_q, kUnreached));
    return sum;
}

/// Limits the same distance from 0 at both ends where there are elements of both signs.
Range by_entropy(const Histogram& h) {
    const auto bins = h.bins();
    size_t low = 0, high = bins.size();  // bins with elements
    while (low < kMiddle && bins[low] == 0) ++low;
    while (high > kMiddle && bins[high - 1] == 0) --high;
    const size_t most = std::max(kMiddle - low, high - kMiddle);
    const size_t sides = low < kMiddle && high > kMiddle ? 2 : 1;
    double best = HUGE_VAL;
    size_t width = most;
    for (size_t w = std::min(most, kLevels / sides); w <= most; w += std::min(kStep, std::max<size_t>(most - w, 1))) {
        const size_t first = std::max(low, kMiddle - w), last = std::min(high, kMiddle + w);
        if (last - first < kLevels) continue;
        if (const double d = divergence(bins, first, last); d < best) {
            best = d;
            width = w;
        }
    }
    const double limit = static_cast<double>(width) * h.width();
    return {std::max(h.least(), -limit), std::min(h.most(), limit)};
}

Range by_percentile(const Histogram& h, double percentile) {
    const bool both = h.least() < 0 && h.most() > 0;
    const double outside = (1 - percentile / 100) * static_cast<double>(h.count()) / (both ? 2 : 1);
    const auto bins = h.bins();
    size_t low = 0, high = bins.size();
    double below = 0, above = 0;
    while (low < kMiddle && (below += static_cast<double>(bins[low])) <= outside) ++low;
    while (high > kMiddle && (above += static_cast<double>(bins[high - 1])) <= outside) --high;
    const auto edge = [&](size_t bin) { return (static_cast<double>(bin) - static_cast<double>(kMiddle)) * h.width(); };
    return {std::max(h.least(), edge(low)), std::min(h.most(), edge(high))};
}

}  // namespace

void Histogram::widen(double magnitude) {
    if (magnitude < limit_) return;
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
    const double wanted = std::ldexp(1.0, exponent);
    if (limit_ == 0) limit_ = wanted;
    for (; limit_ < wanted; limit_ *= 2) {
        std::vector<uint64_t> merged(kBins);
        for (size_t b = 0; b < kBins; ++b) merged[kMiddle / 2 + b / 2] += bins_[b];
        bins_ = std::move(merged);
    }
}

void Histogram::add(std::span<const float> elements) {
    double least = least_, most = most_;
    for (const float x : elements)
        if (std::isfinite(x)) {
            least = count_ == 0 ? static_cast<double>(x) : std::min(least, static_cast<double>(x));
            most = count_ == 0 ? static_cast<double>(x) : std::max(most, static_cast<double>(x));
            ++count_;
            if (x == 0) ++zeros_;
        } else {
            ++not_finite_;
        }
    least_ = least;
    most_ = most;
    widen(std::max(-least, most));
    if (limit_ == 0) return;
    const double bins_per_unit = 1 / width();
    for (const float x : elements)
        if (std::isfinite(x) && x != 0) {
            const auto bin = static_cast<int64_t>(std::floor(static_cast<double>(x) * bins_per_unit));
            ++bins_[static_cast<size_t>(bin + static_cast<int64_t>(kMiddle))];
        }
}

std::string_view to_string(Calibration calibration) {
    switch (calibration) {
        case Calibration::MinMax:
            return "minmax";
        case Calibration::Percentile:
            return "percentile";
        case Calibration::Entropy:
            return "entropy";
    }
    return "?";
}

Range range_of(const Histogram& histogram, Calibration calibration, double percentile) {
    Range r = {histogram.least(), histogram.most()};
    if (histogram.count() > histogram.zeros()) {
        if (calibration == Calibration::Percentile) r = by_percentile(histogram, percentile);
        if (calibration == Calibration::Entropy) r = by_entropy(histogram);
    }
    return {std::min(r.least, 0.0), std::max(r.most, 0.0)};
}

}  // namespace tilewright::quantize
