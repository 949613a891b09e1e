#include "orchestrate/optimal/orchestrate.h"

#include "base/clock.h"
#include "orchestrate/optimal/acceptance.h"
#include "orchestrate/optimal/choice.h"
#include "orchestrate/optimal/emit.h"
#include "orchestrate/optimal/neighbours.h"

namespace tilewright::optimal {

Grouped group_optimally(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                        Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report,
                        const RunGrouped& run) {
    const double start = now_ms();
    PieceChoice choice(program, greedy, options, schedules, limits, report);
    Acceptance acceptance(choice, options, schedules, report, run);
    choice.list();
    do {
        choice.solve();
        if (run && options.optimal.profile != Profile::None) acceptance.compare();
    } while (acceptance.refuses_libraries() && choice.withdraw_refused());
    const size_t first = report.kernels.size();
    Grouped out = emit(choice, options, schedules, report).grouped;
    if (options.keep_refusals) explain_neighbours(choice, options, first, report);
    report.ms += now_ms() - start;
    return out;
}

}  // namespace tilewright::optimal
