#pragma once
// Statistics of raw timings.

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/target.h"

namespace tilewright {

/// Median, and interquartile range relative to the median; all zero without samples. Quartiles are interpolated
/// linearly between the sorted samples.
Measure summarize(std::vector<double> samples);

/// One timing. `disturbed`: the thread was preempted meanwhile.
struct Reading {
    double seconds = 0;
    bool disturbed = false;
};

/// Times `work` on the calling thread.
Reading time_once(const std::function<void()>& work);

/// Takes readings until 31 are undisturbed or `budget` seconds have passed. It continues up to twice the budget while
/// fewer than 5 are undisturbed. Summarizes figure(seconds) over the undisturbed readings, or over all if there are
/// none.
Measure sample(double budget, const std::function<Reading()>& take, const std::function<double(double)>& figure);

/// The number of rounds of `work` that take about `seconds` when undisturbed; at least 1.
int64_t rounds_for(double seconds, const std::function<void(int64_t rounds)>& work);

/// Pearson's correlation of pairs (x[i], y[i]); 0 where there are fewer than two or one side is constant.
double correlation(const std::vector<double>& x, const std::vector<double>& y);

/// The average time of an access in a repeated traversal of so many bytes.
struct WorkingSet {
    int64_t bytes = 0;
    double ns = 0;
};

/// For each cache level, the bytes of the largest working set that it serves: accesses cost less than the geometric
/// mean of the costs of this level and the next. `levels` has the cost of each level and of memory. `curve` ascends in
/// bytes; a single outlier is ignored. 0 where the costs of two neighbours differ by less than a fifth, or no point
/// qualifies.
std::vector<int64_t> measured_capacities(const std::vector<WorkingSet>& curve, const std::vector<double>& levels);

}  // namespace tilewright
