#include "driver/quantize/accuracy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tilewright::quantize {

namespace {

int64_t largest_in(const Tensor& t, int64_t first, int64_t n) {
    int64_t at = 0;
    for (int64_t k = 1; k < n; ++k)
        if (t.get(first + k) > t.get(first + at)) at = k;
    return at;
}

}  // namespace

void Accuracy::add(const std::vector<Tensor>& original, const std::vector<Tensor>& quantised) {
    TW_CHECK(original.size() == sums_.size() && quantised.size() == sums_.size());
    for (size_t o = 0; o < sums_.size(); ++o) {
        const Tensor &a = original[o], &b = quantised[o];
        if (a.shape() != b.shape())
            model_error("output {} has shape {} in the original and {} where it is quantised", names_[o],
                        to_string(a.shape()), to_string(b.shape()));
        Sums& s = sums_[o];
        s.integers = !is_float(a.dtype());
        for (int64_t k = 0; k < a.count(); ++k) {
            const double x = a.get(k), y = b.get(k);
            if (!std::isfinite(x)) continue;
            const double d = std::fabs(x - y);
            s.n += 1;
            s.sum += x;
            s.squares += x * x;
            s.differences += d * d;
            if (!(d <= s.largest)) s.largest = d;
            if (d != 0) ++s.differing;
        }
        const int64_t row = a.rank() > 0 ? a.shape().back() : 0;
        if (row < 2 || s.integers) continue;
        for (int64_t k = 0; k + row <= a.count(); k += row) {
            ++s.rows;
            if (largest_in(a, k, row) == largest_in(b, k, row)) ++s.rows_agree;
        }
    }
}

std::vector<OutputAccuracy> Accuracy::outputs() const {
    std::vector<OutputAccuracy> all;
    for (size_t o = 0; o < sums_.size(); ++o) {
        const Sums& s = sums_[o];
        OutputAccuracy a;
        a.name = names_[o];
        a.elements = static_cast<uint64_t>(s.n);
        a.largest_difference = s.largest;
        a.rows = s.rows;
        a.rows_agree = s.rows_agree;
        if (s.n > 0) {
            const double mean = s.sum / s.n, variance = s.squares / s.n - mean * mean;
            const double spread = std::sqrt(variance > 1e-12 * s.squares / s.n ? variance : s.squares / s.n);
            const double rms = std::sqrt(s.differences / s.n);
            a.error = spread > 0 ? rms / spread : rms;
            if (s.integers) a.error = static_cast<double>(s.differing) / s.n;
            if (std::isnan(a.error)) a.error = HUGE_VAL;
        }
        all.push_back(a);
    }
    return all;
}

double Accuracy::error() const {
    double worst = 0;
    for (const OutputAccuracy& a : outputs()) worst = std::max(worst, a.error);
    return worst;
}

}  // namespace tilewright::quantize
