#include "cost/cycle_rates.h"

#include <algorithm>

#include "base/error.h"
#include "cost/cache_sets.h"

namespace tilewright {

namespace {

constexpr double kOccupied = 0.8;  // usable share of a cache; other data takes the remainder

}  // namespace

CycleRates::CycleRates(const Target& target) : workers(std::max(1, target.workers)) {
    ghz = target.ghz.value;
    const double vector_bytes = target.vector_bits / 8.0;
    fmas_per_cycle = std::max(0.5, target.fma_gflops_1.value / (2 * target.lanes(DType::F32) * ghz));
    if (target.bf16_dots())
        dots_per_cycle =
            std::clamp(target.dot_gflops_1.value / (4 * target.lanes(DType::F32) * ghz), 0.25, fmas_per_cycle);
    if (target.f16_sums())
        f16_per_cycle =
            std::clamp(target.f16_gflops_1.value / (4 * target.lanes(DType::F32) * ghz), 0.25, fmas_per_cycle);
    byte_words = target.byte_dots() && !target.byte_dot_instructions();
    if (target.byte_dots()) byte_dots_per_cycle = byte_words ? fmas_per_cycle / 2 : fmas_per_cycle;
    fma_latency = target.nominal.fma_latency;
    dispatch_cycles = workers > 1 ? target.dispatch_us.value * 1e3 * ghz : 0;
    for (const CacheLevel& c : target.caches) {
        Level level;
        level.bytes = static_cast<double>(c.usable_bytes()) * kOccupied;
        if (c.level >= 3) level.bytes /= std::min(std::max(1, c.shared_by), workers);
        level.bytes_per_cycle = c.load_gbps.value / ghz;
        level.latency = c.latency_ns.value * ghz;
        level.way_bytes = way_bytes(c);
        if (level.way_bytes > 0)
            level.ways = static_cast<double>(c.bytes) / static_cast<double>(level.way_bytes) * kOccupied;
        caches.push_back(level);
    }
    TW_CHECK(!caches.empty());
    loads_per_cycle = std::max(0.5, caches[0].bytes_per_cycle / vector_bytes);
    memory.bytes_per_cycle =
        workers > 1 ? target.memory_gbps_all.value / ghz / workers : target.memory_gbps_1.value / ghz;
    memory.latency = target.memory_latency_ns.value * ghz;
    memory.bytes = 1e18;
}

}  // namespace tilewright
