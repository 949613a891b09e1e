#include "orchestrate/options.h"

#include "orchestrate/schedules.h"

namespace tilewright {

std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options) {
    if (options.schedules) return options.schedules;
    return std::make_shared<Schedules>(options.scheduling, options.kept);
}

}  // namespace tilewright
