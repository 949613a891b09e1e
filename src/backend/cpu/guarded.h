#pragma once
// Runs LLVM so that its fatal errors become exceptions.

#include <cstddef>
#include <functional>
#include <string>

namespace tilewright::cpu {

/// Runs `work` on `threads` new threads and returns when all calls have returned. Rethrows the first exception; for the
/// first fatal error of LLVM throws InternalError, or RuntimeError if memory ran out.
///
/// LLVM ends the process after a fatal error ("Cannot select", out of memory) unless its handler does not return.
/// LLVM's code is built without exceptions and may hold locks, so that throwing through it is unsafe. The handler
/// therefore parks the thread until the process ends; its stack, module and context are not freed. Fatal errors on
/// other threads are reported by LLVM and end the process.
void run_guarded(size_t threads, const std::function<void()>& work);

/// Names the current work of the calling thread of run_guarded, for the message of a fatal error.
void set_guarded_work(const std::string& name);

}  // namespace tilewright::cpu
