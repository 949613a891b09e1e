#pragma once
// The monotonic clock that all measurements use.

#include <chrono>

namespace tilewright {

/// Seconds, milliseconds, microseconds since a fixed moment, by a monotonic clock.
inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline double now_ms() { return now_seconds() * 1e3; }
inline double now_us() { return now_seconds() * 1e6; }

}  // namespace tilewright
