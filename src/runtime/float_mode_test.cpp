#include "runtime/float_mode.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "runtime/thread_pool.h"

namespace tilewright {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

// Separate functions: the compiler moves arithmetic across changes of the mode, but not calls.

/// The calling thread's result for a subnormal product.
[[gnu::noinline]] float half_of(float x) {
    const volatile float in = x;
    return in * 0.5F;
}
/// The calling thread's result for a subnormal operand with a normal product.
[[gnu::noinline]] float enlarged(float x) {
    const volatile float in = x;
    return in * 0x1p30F;
}
[[gnu::noinline]] float one_plus(float x) {
    const volatile float in = x;
    return 1.0F + in;
}
[[gnu::noinline]] float inverse(float x) {
    const volatile float in = x;
    return 1.0F / in;
}

#if defined(__x86_64__) || defined(__aarch64__)

TEST(FloatMode, FlushesSubnormalsInItsScopeOnly) {
    ASSERT_GT(half_of(kSmallest), 0.0F);
    {
        const ScopedFloatMode mode(FloatMode::of_kernels(false));
        EXPECT_EQ(half_of(kSmallest), 0.0F);
        EXPECT_EQ(enlarged(std::numeric_limits<float>::denorm_min()), 0.0F);
        EXPECT_EQ(half_of(2 * kSmallest), kSmallest);
    }
    EXPECT_GT(half_of(kSmallest), 0.0F);
    const ScopedFloatMode mode(FloatMode::of_kernels(true));
    EXPECT_GT(half_of(kSmallest), 0.0F);
    EXPECT_GT(enlarged(std::numeric_limits<float>::denorm_min()), 0.0F);
}

TEST(FloatMode, RestoresTheCallersRoundingAndFlags) {
    std::fesetround(FE_UPWARD);
    std::feclearexcept(FE_ALL_EXCEPT);
    {
        const ScopedFloatMode mode(FloatMode::of_kernels(false));
        EXPECT_EQ(one_plus(0x1p-30F), 1.0F);
        EXPECT_EQ(inverse(0), std::numeric_limits<float>::infinity());
    }
    EXPECT_GT(one_plus(0x1p-30F), 1.0F);
#if defined(__x86_64__)
    EXPECT_EQ(std::fetestexcept(FE_DIVBYZERO), 0);
#endif
    std::fesetround(FE_TONEAREST);
}

TEST(FloatMode, TasksRunInTheCallersMode) {
    ThreadPool pool(4);
    for (const bool keep : {false, true, false}) {
        const ScopedFloatMode mode(FloatMode::of_kernels(keep));
        std::vector<float> got(4000, -1);
        std::atomic<int> workers = 0;
        parallel_for(pool, static_cast<int64_t>(got.size()), [&](int64_t begin, int64_t end, int worker) {
            workers |= 1 << worker;
            // Long enough for the other workers to start.
            if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            for (int64_t i = begin; i < end; ++i) got[static_cast<size_t>(i)] = half_of(kSmallest);
        });
        EXPECT_GT(workers, 1) << "only the caller took part";
        for (const float g : got) ASSERT_EQ(g, keep ? kSmallest / 2 : 0.0F);
    }
}

#endif

}  // namespace
}  // namespace tilewright
