#pragma once
// What the command prints when it crashes.

namespace tilewright {

/// On SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT, writes one line and the calls on the stack to standard error, as
/// module and offset (`addr2line -e MODULE OFFSET` names them); then the process ends by that signal, as without a
/// report. For the command alone: a library leaves its host's handlers.
void report_crashes();

}  // namespace tilewright
