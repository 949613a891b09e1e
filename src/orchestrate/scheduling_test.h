#pragma once
// The machine of the tests: AVX2 with 16 registers of 8 lanes, whatever machine runs them.

#include "orchestrate/plan.h"

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

}  // namespace tilewright::test
