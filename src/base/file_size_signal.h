#pragma once
// Blocks SIGXFSZ, which ends a process that writes past its file size limit (ulimit -f), during the library's writes.

#include <signal.h>

#include <ctime>

namespace tilewright {

/// During its lifetime a write of this thread past the limit fails with EFBIG without a signal. Signal dispositions of
/// the process are unchanged, and a signal that was pending before stays pending.
class NoFileSizeSignal {
  public:
    NoFileSizeSignal() {
        sigset_t pending;
        ::sigemptyset(&pending);
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGXFSZ) == 1;
        ::sigemptyset(&signal_);
        ::sigaddset(&signal_, SIGXFSZ);
        ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    }
    ~NoFileSizeSignal() {
        const timespec at_once{};
        while (!was_pending_ && ::sigtimedwait(&signal_, nullptr, &at_once) == SIGXFSZ) {
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoFileSizeSignal(const NoFileSizeSignal&) = delete;
    NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

  private:
    sigset_t signal_{}, before_{};
    bool was_pending_ = false;
};

}  // namespace tilewright
