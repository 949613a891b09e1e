#include "tool/crash_report.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace tilewright {

namespace {

constexpr int kMostCalls = 64;

/// Only calls that are safe in a signal handler, once `backtrace` has loaded its library.
void on_crash(int number) {
    constexpr const char* kLine = "error: tilewright crashed; please report this with the command and the model\n";
    static_cast<void>(!::write(STDERR_FILENO, kLine, std::strlen(kLine)));
    std::array<void*, kMostCalls> calls{};
    ::backtrace_symbols_fd(calls.data(), ::backtrace(calls.data(), kMostCalls), STDERR_FILENO);
    ::raise(number);  // SA_RESETHAND has restored the default action
}

}  // namespace

void report_crashes() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these report crashes themselves
    std::array<void*, 1> first{};
    ::backtrace(first.data(), 1);
    // Tile registers alone take 8 KB of a signal's frame.
    constexpr size_t kStack = size_t{256} << 10;
    static std::array<char, kStack> stack;
    stack_t own{};
    own.ss_sp = stack.data();
    own.ss_size = stack.size();
    ::sigaltstack(&own, nullptr);
    struct sigaction action {};
    action.sa_handler = on_crash;
    action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::sigaction(number, &action, nullptr);
#endif
}

}  // namespace tilewright
