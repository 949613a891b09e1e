#pragma once
// From raw timings to figures.

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/target.h"

namespace tilewright {

/// Median and interquartile range over the median; all zero without samples. Quartiles are interpolated linearly
/// between the sorted samples.
Measure summarize(std::vector<double> samples);

/// One timing. `disturbed`: the system took the CPU away from the thread meanwhile.
struct Reading {
    double seconds = 0;
    bool disturbed = false;
};

/// Times `work` on the calling thread.
Reading time_once(const std::function<void()>& work);

/// Takes readings until 31 are undisturbed or `budget` seconds have passed; goes on to twice the budget while fewer
/// than 5 are. Summarizes figure(seconds) over the undisturbed ones, or over all if there is none.
Measure sample(double budget, const std::function<Reading()>& take, const std::function<double(double)>& figure);

/// How many rounds of `work` take about `seconds` when nothing disturbs it; at least 1.
int64_t rounds_for(double seconds, const std::function<void(int64_t rounds)>& work);

/// Pearson's correlation of pairs (x[i], y[i]); 0 where there are fewer than two or one side is constant.
double correlation(const std::vector<double>& x, const std::vector<double>& y);

/// What an access costs on average while so many bytes are gone through again and again.
struct WorkingSet {
    int64_t bytes = 0;
    double ns = 0;
};

/// For each cache level, the largest working set that it still serves: accesses cost less than the geometric mean of
/// what this level and the next one cost. `levels` has the cost in each level and in memory; `curve` ascends in bytes,
/// and one point that stands out alone is overlooked. 0 where two neighbours are less than a fifth apart, or no point
/// qualifies.
std::vector<int64_t> measured_capacities(const std::vector<WorkingSet>& curve, const std::vector<double>& levels);

}  // namespace tilewright
