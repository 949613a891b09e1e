#include "tune/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/option_error.h"
#include "base/quoted_name.h"

namespace tilewright {

namespace {

constexpr double kNearLimit = 0.05;  ///< of its seconds, above the limit
constexpr int kMostIdle = 4;

}  // namespace

void KernelProgress::add_round(std::optional<double> seconds) {
    const bool improved = seconds && (rounds == 0 || *seconds < best);
    idle = improved ? 0 : idle + 1;
    if (improved) best = *seconds;
    ++rounds;
}

double expected_gain(const KernelProgress& kernel) {
    if (kernel.exhausted || kernel.idle >= kMostIdle) return 0;
    double left = kernel.best - kernel.limit;
    const double near = kNearLimit * kernel.best;
    if (left <= near && kernel.rounds > 0) return 0;
    left = std::max(left, near);  // an estimate may be too low
    return std::ldexp(kernel.calls * left / (kernel.rounds + 1), -kernel.idle);
}

std::optional<size_t> next_kernel(const std::vector<KernelProgress>& kernels) {
    std::optional<size_t> next;
    double most = 0;
    for (size_t k = 0; k < kernels.size(); ++k)
        if (const double gain = expected_gain(kernels[k]); gain > most) {
            most = gain;
            next = k;
        }
    return next;
}

TuningBudget parse_tuning_budget(std::string_view text) {
    const auto refuse = [&] {
        throw OptionError(fmt::format("{} is no budget", quoted_name(text)),
                          "give a number of candidates (1000) or a time (90s, 10m, 1.5h)");
    };
    const char *const begin = text.data(), *const end = begin + text.size();
    double number = 0;
    const auto [unit, error] = std::from_chars(begin, end, number, std::chars_format::fixed);
    if (error != std::errc() || !(number > 0) || !std::isfinite(number)) refuse();
    TuningBudget budget;
    const std::string_view rest(unit, static_cast<size_t>(end - unit));
    if (rest.empty()) {
        constexpr double kMost = 1e12;
        if (number != std::floor(number) || number > kMost) refuse();
        budget.candidates = static_cast<size_t>(number);
        return budget;
    }
    for (const auto& [name, seconds] : {std::pair("s", 1.0), std::pair("m", 60.0), std::pair("h", 3600.0)})
        if (rest == name) budget.seconds = number * seconds;
    if (!budget.seconds) refuse();
    return budget;
}

}  // namespace tilewright
