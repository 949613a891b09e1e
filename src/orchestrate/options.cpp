#include "orchestrate/options.h"

#include "orchestrate/schedules.h"

namespace tilewright {

Scheduling scheduling(const OrchestrateOptions& options) {
    Scheduling how = options.scheduling;
    how.rule = options.target;
    return how;
}

std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options) {
    if (options.schedules) return options.schedules;
    return std::make_shared<Schedules>(scheduling(options), options.kept);
}

}  // namespace tilewright
