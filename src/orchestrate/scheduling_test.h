#pragma once
// Fixed targets for tests, independent of the host: AVX2 with 16 registers of 8 lanes, or AVX-512 with 32 of 16.

#include "cost/target_with_test.h"
#include "orchestrate/options.h"

namespace tilewright::test {

inline Scheduling avx2_scheduling(SchedulerKind kind = SchedulerKind::Mcfuser, int workers = 1) {
    Scheduling how;
    how.kind = kind;
    how.target = generic_target(VectorIsa::avx2);
    how.target.workers = workers;
    how.estimates = true;
    return how;
}

/// Options for whole plans, with 8 or 16 lanes.
inline OrchestrateOptions orchestration(Orchestrator orchestrator, int lanes = 8, int workers = 1,
                                        SchedulerKind kind = SchedulerKind::Default) {
    OrchestrateOptions o;
    o.orchestrator = orchestrator;
    o.scheduling.kind = kind;
    o.scheduling.target = target_with({.lanes = lanes, .vector_registers = lanes == 16 ? 32 : 16, .workers = workers});
    o.scheduling.estimates = true;
    return o;
}

}  // namespace tilewright::test
