#pragma once
// MCFuser's analytical model against measurement (the paper's Fig. 10): candidates of an operator as one kernel, what
// the model says of each, and what it takes.

#include <optional>
#include <string>
#include <vector>

#include "cost/target.h"
#include "program/program.h"
#include "schedule/default_schedule.h"
#include "tune/tuner.h"

namespace tilewright {

struct ChainModelPoint {
    double estimate = 0, seconds = 0;
    std::string candidate;  ///< tiling expression and tiles, axes named by their place: "0(2,1) 0=64 1=512 2=16"
};

struct ChainModel {
    std::vector<ChainModelPoint> points;  ///< of candidates that could be measured, in the model's order
    size_t refused = 0;                   ///< failed or were wrong

    /// Pearson's, of estimates and times; 0 where either is the same everywhere.
    double correlation() const;
    /// At which place of the model's order the fastest stands, from 1.
    size_t rank_of_fastest() const;
    /// The fastest time over that of the best of the model's first `n`: what measuring so many leaves of it.
    double share_of_first(size_t n) const;
};

/// Candidates after pruning, all or `most` of them at random, of the operator whose program this is as one chain.
/// Nothing where it is none.
std::optional<ChainModel> measure_chain_model(const Program& program, const Target& target, const ScheduleTarget& rule,
                                              size_t most, const TuneSettings& settings, TuningDatabase* database,
                                              uint64_t seed = 1);

}  // namespace tilewright
