#include "base/file_size_signal.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

bool is_in(const sigset_t& set) { return sigismember(&set, SIGXFSZ) == 1; }

bool is_blocked() {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return is_in(blocked);
}

bool is_pending() {
    sigset_t pending;
    sigpending(&pending);
    return is_in(pending);
}

TEST(NoFileSizeSignal, ConsumesItsOwnSignalsAndRestoresTheMask) {
    {
        const NoFileSizeSignal guard;
        EXPECT_TRUE(is_blocked());
        raise(SIGXFSZ);  // would end this process otherwise
        EXPECT_TRUE(is_pending());
    }
    EXPECT_FALSE(is_blocked());
    EXPECT_FALSE(is_pending());
}

TEST(NoFileSizeSignal, KeepsAPendingSignal) {
    sigset_t signal, before;
    sigemptyset(&signal);
    sigaddset(&signal, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal, &before);
    raise(SIGXFSZ);
    {
        const NoFileSizeSignal guard;
        raise(SIGXFSZ);
    }
    EXPECT_TRUE(is_blocked());
    EXPECT_TRUE(is_pending());
    const timespec at_once{};
    EXPECT_EQ(sigtimedwait(&signal, nullptr, &at_once), SIGXFSZ);
    {
        const NoFileSizeSignal guard;
        raise(SIGXFSZ);
    }
    EXPECT_TRUE(is_blocked()) << "blocked by the caller";
    EXPECT_FALSE(is_pending());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace tilewright
