#pragma once
// Rates of a core that the default heuristic assumes of every CPU.
//
// They stand beside the measured rates of Machine (cost/estimate.h) on purpose: a default schedule follows from shapes
// and sizes alone (ScheduleTarget), so that it is the same before and after a calibration, and on every host that
// compiles for the same target. Measured rates differ by a few percent from run to run, and by a factor of two
// between the vector widths.

#include <cstdint>

namespace tilewright {

/// Cycles until the sum of a fused multiply-add can be used: 4 on x86 since Skylake and Zen. Used by Machine's model
/// too.
inline constexpr double kFmaLatencyCycles = 4;

struct AssumedCore {
    double fmas_per_cycle = 2;   ///< whole vectors: two FMA units, x86 since Haswell and Zen 2
    double loads_per_cycle = 2;  ///< whole vectors: two load ports
    double l1_bytes_per_cycle = 64;
    /// Of a panel of vectors that is read again from L2, and that comes from behind L2. No measurement of either is
    /// recorded; calibrated machines have 16 to 32 and about 5.
    double l2_bytes_per_cycle = 14;
    double far_bytes_per_cycle = 8;
    double l1_panel_bytes = 16 * 1024;  ///< the largest panel that stays in L1: half of 32 KiB
    int64_t l1_free_ways = 6;           ///< of eight: the panel's vectors stream through the other two
};
inline constexpr AssumedCore kAssumedCore;

}  // namespace tilewright
