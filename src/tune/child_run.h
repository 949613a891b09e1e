#pragma once
// First runs of measured candidates in a forked child, so that one which never ends, or crashes, is stopped.

#include <functional>
#include <string>
#include <vector>

namespace tilewright {

/// Runs each of `works` in a forked child of this process, one after another. Returns one text for each: empty where it
/// finished, else why it did not ("stopped after 2.5 s", "ended by signal 11"). A child whose work takes longer than
/// `seconds` is killed, and the rest goes on in another child.
///
/// A child is used because machine code has no point at which another thread could stop it: a limit that is checked
/// between tasks does not end a task that loops. In the child a ThreadPool runs its loops on one thread; what a work
/// writes to memory is not seen by the parent. Where no child can be made, works are not run, and count as finished.
std::vector<std::string> run_in_child(const std::vector<std::function<void()>>& works, double seconds);

}  // namespace tilewright
