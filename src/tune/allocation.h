#pragma once
// The division of a budget of measurements among the kernels of a model.
//
// The budget is given out in rounds of a few candidates, each to the kernel from which the model is expected to gain
// most. That is the scheme of Ansor's task scheduler (OSDI 2020, section 6), which follows the gradient of the model's
// time. Ansor predicts a kernel's gain from its own history, from the guess that t more rounds could bring its time to
// 0 after t rounds, and from the throughput of similar kernels. Here a lower bound of each kernel's time is known, and
// replaces both 0 and the similar kernels:
//
//     expected gain of the next round = calls * (best - limit) / (rounds + 1) / 2^idle
//
// where `idle` counts the rounds since the last improvement. Nothing is random, so that a run which recalls the times
// of an interrupted one takes the same decisions.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// What is known of a kernel.
struct KernelProgress {
    double calls = 1;        ///< in a run of the model
    double best = 0;         ///< seconds of its fastest schedule; before the first round an estimate
    double limit = 0;        ///< a lower bound of its seconds; 0: none is known
    int rounds = 0;          ///< that it has had
    int idle = 0;            ///< of these, without an improvement since the last one
    bool exhausted = false;  ///< there are no other candidates
    /// Adds a round, in which `seconds` was the best time; nothing: no candidate could be run.
    void add_round(std::optional<double> seconds);
};

/// Seconds of a run that the next round is expected to save. 0: the kernel gets no more rounds, because less than 5 %
/// of its measured time is above its limit, it has not improved in four rounds, or it has no other candidates.
double expected_gain(const KernelProgress& kernel);

/// The kernel of the next round, the first of equal ones; nothing: none is expected to gain.
std::optional<size_t> next_kernel(const std::vector<KernelProgress>& kernels);

/// A limit of candidates, or of time.
struct TuningBudget {
    std::optional<size_t> candidates;
    std::optional<double> seconds;
};
/// Parses a number of candidates ("1000"), or a time with its unit: "90s", "10m", "1.5h". Throws OptionError.
TuningBudget parse_tuning_budget(std::string_view text);

}  // namespace tilewright
