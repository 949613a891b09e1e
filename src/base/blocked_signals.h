#pragma once
// Blocks the signals that other threads or programs send.

#include <signal.h>

namespace tilewright {

/// During its lifetime this thread, and those that it starts meanwhile, get no signals but those of their own faults:
/// signals go to the program's other threads, or wait.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        ::sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) ::sigdelset(&all, fault);
        ::pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace tilewright
