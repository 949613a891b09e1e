#pragma once
// Independent work of the compiler on all processors that the process may use.

#include <cstddef>
#include <functional>

namespace tilewright {

/// Calls f(0) to f(n - 1), each once, in any order and on several threads; throws the first exception that one throws,
/// when all calls that had begun have returned. Threads begin and end with the call: for work of a millisecond or more.
void parallel_for(size_t n, const std::function<void(size_t)>& f);

}  // namespace tilewright
