#pragma once

#include <cstdint>

namespace tilewright {

/// n / unit, rounded up: how many tiles of `unit` cover n. Neither is negative.
constexpr int64_t ceil_of(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

}  // namespace tilewright
