#pragma once
// Runs measured candidates in a forked child first, so that a candidate which crashes or does not terminate is stopped.

#include <functional>
#include <string>
#include <vector>

namespace tilewright {

/// Runs each of `works` in a forked child of this process, one after another. Returns one text for each: empty if it
/// finished, otherwise the reason ("stopped after 2.5 s", "ended by signal 11"). A child whose work takes longer than
/// `seconds` is killed, and the next works run in another child.
///
/// A child process is needed because machine code cannot be stopped from another thread: a limit that is checked
/// between tasks does not end a task that loops. In the child a ThreadPool runs its loops on one thread; the child's
/// writes to memory are not visible to the parent. If fork fails, works are not run, and count as finished.
std::vector<std::string> run_in_child(const std::vector<std::function<void()>>& works, double seconds);

}  // namespace tilewright
