#pragma once
// Which of a plan's steps run side by side.

#include <cstddef>
#include <vector>

#include "program/plan.h"

namespace tilewright {

/// The plan's steps by number, in an order in which they may run; those that stand together run side by side, a thread
/// each. It is the plan's order, one by one, except that of loops with `may_wait` as many as there are `threads` run
/// together. They wait for each other where nothing in between reads what they give, and are alike: as many trips
/// through the same kernels, so that they take equally long. A loop without a partner stays where it was.
///     a recurrence's two directions on two threads:   x W0, loop 0, x W1, loop 1, join   ->   x W0, x W1, {loop 0,
///     loop 1}, join
/// Each loop then has a core's caches for its weights, and no step ends with all threads meeting.
///
/// `may_wait`: by step; only loops whose bodies are kernels alone and that can run whenever their inputs are there.
std::vector<std::vector<size_t>> step_order(const Plan& plan, int threads, const std::vector<bool>& may_wait);

}  // namespace tilewright
