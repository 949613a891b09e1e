#pragma once
// The rates of a target in the cost model's unit, clock cycles of one core.

#include <vector>

#include "cost/target.h"

namespace tilewright {

/// Cycles until a dot product may add to the result of another (Zen 5, measured).
inline constexpr double kDotLatency = 6;

/// The rates of one worker while all workers run. They are calibrated ones where the target has them.
struct CycleRates {
    explicit CycleRates(const Target& target);

    struct Level {
        double bytes = 0;            ///< capacity that the cost model assumes for a worker
        double bytes_per_cycle = 0;  ///< loads served by this level
        double latency = 0;          ///< cycles
        int64_t way_bytes = 0;       ///< (cache_sets.h)
        double ways = 0;             ///< lines of a set that stay in the level
    };
    double ghz = 3;
    int workers = 1;
    double fmas_per_cycle = 2;       ///< vectors
    double dots_per_cycle = 0;       ///< vectors of bf16 dot products; 0: the target has none
    double f16_per_cycle = 0;        ///< vectors of multiply-adds in f16; 0: the target has none
    double byte_dots_per_cycle = 0;  ///< likewise of bytes: as many as multiply-adds, or half as many without VNNI
    bool byte_words = false;         ///< dot products of bytes are two of 16-bit pairs, which are taken apart before
    double loads_per_cycle = 2;      ///< vectors
    double fma_latency = 4;          ///< cycles
    double dispatch_cycles = 0;
    std::vector<Level> caches;  ///< from the first level
    Level memory;
};

}  // namespace tilewright
