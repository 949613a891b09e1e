#pragma once
// How a stage is split into tasks for threads.

#include "schedule/default_schedule.h"

namespace tilewright {

struct Tasks {
    std::vector<int64_t> inside;  ///< points of each axis in one task
    std::vector<size_t> grid;     ///< axes that are cut, the outermost loop first
    std::vector<size_t> loads;    ///< those of the choice's copies that a task can hold
};

/// Of a program of one stage. One thread gets several tasks only where that saves memory traffic; several threads get
/// about four each, of lengths that leave the slowest the least to do.
Tasks cut_tasks(const Program& stages, const StageChoice& choice, const Target& target);

}  // namespace tilewright
