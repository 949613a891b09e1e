#pragma once
// The machines of the tests, whatever machine runs them: AVX2 with 16 registers of 8 lanes, or AVX-512 with 32 of 16.

#include "orchestrate/options.h"

namespace tilewright::test {

inline Scheduling avx2_scheduling(SchedulerKind kind = SchedulerKind::Mcfuser, int threads = 1) {
    Scheduling how;
    how.kind = kind;
    how.rule.lanes = 8;
    how.rule.vector_registers = 16;
    how.rule.threads = threads;
    how.machine = Machine(generic_target(VectorIsa::avx2), threads);
    return how;
}

/// Whole plans, for 8 lanes or 16.
inline OrchestrateOptions orchestration(Orchestrator orchestrator, int lanes = 8, int threads = 1,
                                        SchedulerKind kind = SchedulerKind::Default) {
    OrchestrateOptions o;
    o.orchestrator = orchestrator;
    o.target.lanes = lanes;
    o.target.vector_registers = lanes == 16 ? 32 : 16;
    o.target.threads = threads;
    o.scheduling.kind = kind;
    o.scheduling.machine = Machine(generic_target(lanes == 16 ? VectorIsa::avx512 : VectorIsa::avx2), threads);
    return o;
}

}  // namespace tilewright::test
