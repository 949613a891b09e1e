#pragma once
// LLVM behind a fence: its fatal errors become exceptions.

#include <cstddef>
#include <functional>
#include <string>

namespace tilewright::cpu {

/// Runs `work` on `threads` threads of its own and returns when all calls have. Throws the first exception that one
/// throws, and InternalError, or RuntimeError where memory ran out, for the first fatal error of LLVM.
///
/// LLVM ends the process after a fatal error ("Cannot select", out of memory) unless its handler does not return. Its
/// code is built without exceptions and may hold locks, so that throwing through it is not safe. The handler parks the
/// thread instead: it sleeps until the process ends, and its stack, module and context are not freed. Fatal errors on
/// threads that are not of this kind are reported as LLVM does, and end the process as they would.
void run_guarded(size_t threads, const std::function<void()>& work);

/// What the calling thread of run_guarded works on, for the message of a fatal error.
void set_guarded_work(const std::string& name);

}  // namespace tilewright::cpu
