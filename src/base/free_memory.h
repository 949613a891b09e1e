#pragma once
// Memory that the process has freed.

namespace tilewright {

/// Returns what malloc keeps for later to the system: after a compilation the heaps of its threads have up to 60 MB.
void return_free_memory();

}  // namespace tilewright
