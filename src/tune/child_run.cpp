#include "tune/child_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <exception>

#include "base/clock.h"

namespace tilewright {
namespace {

/// The child process: writes a byte for each finished run.
[[noreturn]] void work_in_child(const std::vector<std::function<void()>>& works, size_t first, int pipe, pid_t parent) {
    // A crash is the result of a run: handlers that the host has for its own do not see it.
    for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(number, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    for (size_t k = first; k < works.size(); ++k) {
        try {
            works[k]();
        } catch (const std::exception&) {
            ::_exit(1);
        }
        const char done = 1;
        if (::write(pipe, &done, 1) != 1) ::_exit(1);
    }
    ::_exit(0);
}

enum class ChildEvent { Finished, Ended, Late };

/// Waits for the child to report its next run.
ChildEvent wait_for_byte(int pipe, double seconds) {
    const double end = now_ms() + 1e3 * seconds;
    while (true) {
        const double left = end - now_ms();
        if (left <= 0) return ChildEvent::Late;
        pollfd ready{pipe, POLLIN, 0};
        const int n = ::poll(&ready, 1, static_cast<int>(std::min(std::ceil(left), 1e6)));
        if (n <= 0) continue;  // interrupted, or timed out
        char byte = 0;
        const ssize_t got = ::read(pipe, &byte, 1);
        if (got < 0 && errno == EINTR) continue;
        return got == 1 ? ChildEvent::Finished : ChildEvent::Ended;
    }
}

std::string reap(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return "its process ended";  // the host program ignores SIGCHLD
    if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
    return fmt::format("its process ended with status {}", WEXITSTATUS(status));
}

}  // namespace

std::vector<std::string> run_in_child(const std::vector<std::function<void()>>& works, double seconds) {
    std::vector<std::string> faults(works.size());
    for (size_t next = 0; next < works.size();) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) return faults;
        const pid_t parent = ::getpid();
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(ends[0]);
            work_in_child(works, next, ends[1], parent);
        }
        ::close(ends[1]);
        if (child < 0) {
            ::close(ends[0]);
            return faults;
        }
        ChildEvent event = ChildEvent::Finished;
        while (next < works.size() && (event = wait_for_byte(ends[0], seconds)) == ChildEvent::Finished) ++next;
        ::close(ends[0]);
        if (event == ChildEvent::Late) ::kill(child, SIGKILL);
        const std::string ended = reap(child);
        if (next < works.size())
            faults[next++] = event == ChildEvent::Late ? fmt::format("stopped after {:.2g} s", seconds) : ended;
    }
    return faults;
}

}  // namespace tilewright
