#include "driver/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tilewright {

Comparison compare(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance, const std::string& what) {
    Comparison c;
    const auto fail = [&](std::string reason) {
        c.ok = false;
        c.reason = what + ": " + std::move(reason);
        return c;
    };
    if (actual.dtype() != expected.dtype())
        return fail(fmt::format("has type {}, expected {}", to_string(actual.dtype()), to_string(expected.dtype())));
    if (actual.shape() != expected.shape())
        return fail(fmt::format("has shape {}, expected {}", to_string(actual.shape()), to_string(expected.shape())));
    int64_t differing = 0, first = -1, finite = 0;
    double squares = 0;
    for (int64_t i = 0; i < expected.count(); ++i)
        if (const double e = std::fabs(expected.get(i)); std::isfinite(e))
            c.max_magnitude = std::max(c.max_magnitude, e);
    const bool integers = is_integer(expected.dtype());
    for (int64_t i = 0; i < expected.count(); ++i) {
        const double a = actual.get(i), e = expected.get(i);
        double difference = std::fabs(a - e);
        if (integers) {  // 2^62 and 2^62 + 1 are one double
            const int64_t x = actual.get_int(i), y = expected.get_int(i);
            const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
            if (x == y) {
                ++finite;
                continue;
            }
            difference = static_cast<double>((a < e || (a == e && x < y)) ? uy - ux : ux - uy);
        } else if (a == e || (std::isnan(a) && std::isnan(e))) {
            ++finite;
            continue;
        }
        const double allowed = tolerance.max_relative > 0
                                   ? std::max(tolerance.absolute, tolerance.max_relative * c.max_magnitude)
                                   : tolerance.absolute + tolerance.relative * std::fabs(e);
        if (std::isfinite(difference)) {
            c.max_difference = std::max(c.max_difference, difference);
            squares += difference * difference;
            ++finite;
        }
        if (std::isfinite(difference) && difference <= allowed) continue;
        if (first < 0) first = i;
        ++differing;
    }
    if (finite > 0) c.rms_difference = std::sqrt(squares / static_cast<double>(finite));
    if (first >= 0) {
        Shape at(expected.shape().size());
        int64_t rest = first;
        for (size_t d = at.size(); d-- > 0;) {
            at[d] = rest % expected.shape()[d];
            rest /= expected.shape()[d];
        }
        return fail(fmt::format("element {} is {}, expected {} ({} of {} elements differ)", to_string(at),
                                actual.get(first), expected.get(first), differing, expected.count()));
    }
    return c;
}

}  // namespace tilewright
