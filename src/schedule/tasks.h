#pragma once
// The division of a stage into tasks for threads.

#include "schedule/default_schedule.h"

namespace tilewright {

struct Tasks {
    std::vector<int64_t> inside;  ///< points of a task along each axis
    std::vector<size_t> grid;     ///< axes that are split, outermost first
    std::vector<size_t> loads;    ///< those of StageChoice::loads whose copies a task can hold
};

/// The tasks of a single-stage program. One thread gets several tasks only where that saves memory traffic. Several
/// threads get about four each, of lengths that minimise the work of the slowest thread.
Tasks cut_tasks(const Program& stages, const StageChoice& choice, const Target& target);

}  // namespace tilewright
