#pragma once
// Which ways of a region are kept (DietCode §4.3): every sample of sizes votes for its fastest ways, and a weighted set
// cover keeps few ways such that every sample has one that it voted for.

#include <cstddef>
#include <vector>

namespace tilewright::dynamic {

struct CoverLimits {
    double mean_loss = 0.03;   ///< of the kept ways over the fastest, weighted by samples
    double worst_loss = 0.10;  ///< at any sample
    /// Ways that take more than this times the fastest everywhere get no vote: they are dropped before they are
    /// lowered.
    double pruned = 1.5;
};

struct Cover {
    std::vector<size_t> ways;  ///< ascending
    size_t votes = 1;          ///< k of the top-k votes
    double mean_loss = 0, worst_loss = 0;
};

/// `seconds[w][s]`: of way w at sample s; infinite where it is illegal. `weights`: of the samples. `code`: relative
/// cost of keeping each way, such as its bytes of code. k is the largest for which the losses stay within the limits:
/// the larger, the fewer ways are needed. Some way must be legal at every sample.
Cover cover_samples(const std::vector<std::vector<double>>& seconds, const std::vector<double>& weights,
                    const std::vector<double>& code, const CoverLimits& limits = {});

}  // namespace tilewright::dynamic
