#pragma once
// MCFuser's analytical model against measurement (the paper's Fig. 10): estimates and times of the candidates of an
// operator as one kernel.

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
    std::string candidate;  ///< tiling expression and tiles, axes by number: "0(2,1) 0=64 1=512 2=16"
};

struct ChainModel {
    std::vector<ChainModelPoint> points;  ///< of the candidates that could be measured, in the model's order
    size_t refused = 0;                   ///< failed or were wrong

    /// Pearson's correlation of estimates and times; 0 if either is constant.
    double correlation() const;
    /// The position of the fastest candidate in the model's order, from 1.
    size_t rank_of_fastest() const;
    /// The fastest time over that of the best among the model's first `n`: the efficiency of measuring n candidates.
    double share_of_first(size_t n) const;
};

/// Measures the candidates after pruning, all or `most` of them at random, of a program as one chain. Nothing if it is
/// not a chain.
std::optional<ChainModel> measure_chain_model(const Program& program, const Target& target, size_t most,
                                              const TuneSettings& settings, TuningDatabase* database,
                                              uint64_t seed = 1);

}  // namespace tilewright
