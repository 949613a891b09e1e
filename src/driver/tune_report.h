#pragma once
// What `tilewright tune` and tilewright_tune_file say of a tuning.

#include <cstdint>
#include <map>
#include <string>

#include "compile/tune_plan.h"

namespace tilewright {

/// What was tuned, and how.
struct TunedModel {
    std::string name, budget;
    int threads = 1;
    std::map<std::string, int64_t> assumed;  ///< sizes of dynamic dimensions in whole runs that were not given
};

/// A table with a line for each kernel, and the times of whole runs.
std::string to_text(const TuneReport& report, const TunedModel& of);
/// The keys are in `tilewright tune --help`.
std::string to_json(const TuneReport& report, const TunedModel& of);
/// "conv1 (112 candidates; 31.2 us, by default 40.1), 34 s left"
std::string to_text(const TuningState& state);

}  // namespace tilewright
