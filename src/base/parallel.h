#pragma once
// Parallel loops of the compiler over all processors that the process may use.

#include <cstddef>
#include <functional>

namespace tilewright {

/// Calls f(0) to f(n - 1), each once, in any order and on several threads. Rethrows the first exception of a call after
/// all calls that had begun have returned. Starts new threads each time: for work of a millisecond or more.
void parallel_for(size_t n, const std::function<void(size_t)>& f);

}  // namespace tilewright
