#include "runtime/arena.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace tilewright {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

int64_t rounded(int64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

bool alive_together(const BufferLife& a, const BufferLife& b) {
    for (int64_t step = a.first_step; step <= a.last_step; ++step)
        if (b.first_step <= step && step <= b.last_step) return true;
    return false;
}

/// The peak of live bytes over steps 0 .. 99, counted step by step.
int64_t busiest(const std::vector<BufferLife>& buffers) {
    int64_t most = 0;
    for (int64_t step = 0; step < 100; ++step) {
        int64_t live = 0;
        for (const BufferLife& b : buffers)
            if (b.first_step <= step && step <= b.last_step) live += rounded(b.bytes);
        most = std::max(most, live);
    }
    return most;
}

std::vector<BufferLife> any_buffers() {
    const auto n = *rc::gen::inRange<size_t>(0, 40);
    std::vector<BufferLife> out(n);
    for (BufferLife& b : out) {
        b.bytes = *rc::gen::inRange<int64_t>(0, 2000);
        b.first_step = *rc::gen::inRange<int64_t>(0, 30);
        b.last_step = b.first_step + *rc::gen::inRange<int64_t>(0, 12);
    }
    return out;
}

RC_GTEST_PROP(PlanMemory, BuffersAliveTogetherNeverOverlap, ()) {
    const auto buffers = any_buffers();
    const MemoryPlan plan = plan_memory(buffers);
    RC_ASSERT(plan.offsets.size() == buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
        RC_ASSERT(plan.offsets[i] >= 0);
        RC_ASSERT(plan.offsets[i] % kBufferAlignment == 0);
        RC_ASSERT(plan.offsets[i] + buffers[i].bytes <= plan.total);
        for (size_t j = 0; j < i; ++j) {
            if (!alive_together(buffers[i], buffers[j]) || buffers[i].bytes == 0 || buffers[j].bytes == 0) continue;
            RC_ASSERT(plan.offsets[i] + buffers[i].bytes <= plan.offsets[j] ||
                      plan.offsets[j] + buffers[j].bytes <= plan.offsets[i]);
        }
    }
}

RC_GTEST_PROP(PlanMemory, TotalLiesBetweenTheBusiestStepAndTheSum, ()) {
    const auto buffers = any_buffers();
    const MemoryPlan plan = plan_memory(buffers);
    int64_t sum = 0;
    for (const BufferLife& b : buffers) sum += rounded(b.bytes);
    RC_ASSERT(plan.lower_bound == busiest(buffers));
    RC_ASSERT(plan.total >= plan.lower_bound);
    RC_ASSERT(plan.total <= sum);
    RC_ASSERT(plan.total % kBufferAlignment == 0);
}

RC_GTEST_PROP(PlanMemory, GreedyStaysCloseToTheBound, ()) {
    // Not a guarantee of the algorithm; detects regressions of the gap search.
    const auto buffers = any_buffers();
    const MemoryPlan plan = plan_memory(buffers);
    RC_ASSERT(plan.total <= 2 * plan.lower_bound);
}

RC_GTEST_PROP(PlanMemory, IsAFunctionOfItsArguments, ()) {
    const auto buffers = any_buffers();
    RC_ASSERT(plan_memory(buffers).offsets == plan_memory(buffers).offsets);
}

TEST(PlanMemory, OffsetsAreMultiplesOfTheAlignmentThatIsAskedFor) {
    const std::vector<BufferLife> buffers{{64, 0, 1}, {100, 0, 1}, {300, 0, 2}, {1, 1, 2}};
    const MemoryPlan plan = plan_memory(buffers, 256);
    EXPECT_EQ(plan.offsets, (std::vector<int64_t>{512, 768, 0, 1024}));
    EXPECT_EQ(plan.total, 1280);
    EXPECT_EQ(plan.lower_bound, 1280);
}

TEST(PlanMemory, AChainNeedsTwoBuffers) {
    const std::vector<BufferLife> chain{{64, 0, 1}, {64, 1, 2}, {64, 2, 3}, {64, 3, 4}};
    const MemoryPlan plan = plan_memory(chain);
    EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 64, 0, 64}));
    EXPECT_EQ(plan.total, 128);
    EXPECT_EQ(plan.lower_bound, 128);
}

TEST(PlanMemory, ABufferGoesToTheSmallestGapThatFits) {
    // Step 0 is full. In step 1 buffers 1 and 4 leave gaps of 576 and 192 bytes: the 40 bytes go to the latter.
    const std::vector<BufferLife> buffers{{640, 0, 1}, {576, 0, 0}, {512, 0, 1}, {256, 0, 1},
                                          {192, 0, 0}, {128, 0, 1}, {40, 1, 1}};
    const MemoryPlan plan = plan_memory(buffers);
    EXPECT_EQ(plan.offsets[6], plan.offsets[4]);
    EXPECT_EQ(plan.total, plan.lower_bound);
}

TEST(PlanMemory, ABufferForTheWholeRunAndOthersInTurn) {
    const std::vector<BufferLife> buffers{{100, 0, 9}, {1000, 0, 2}, {1000, 3, 5}, {1000, 6, 9}};
    EXPECT_EQ(plan_memory(buffers).total, 1024 + 128);
}

TEST(PlanMemory, NothingAndEmptyBuffersNeedNothing) {
    EXPECT_EQ(plan_memory({}).total, 0);
    EXPECT_EQ(plan_memory({}).lower_bound, 0);
    const MemoryPlan plan = plan_memory(std::vector<BufferLife>{{0, 0, 5}, {0, 2, 3}});
    EXPECT_EQ(plan.total, 0);
    EXPECT_EQ(plan.offsets, (std::vector<int64_t>{0, 0}));
}

TEST(PlanMemory, OtherOrdersAreTriedAfterTheLargestFirst) {
    const std::vector<std::vector<BufferLife>> missed{
        {{128, 2, 3}, {128, 3, 5}, {64, 0, 2}, {192, 0, 0}},   // bytes times steps succeeds
        {{128, 3, 3}, {192, 1, 2}, {128, 3, 4}, {128, 1, 3}},  // longest lifetime succeeds
        {{192, 2, 4}, {128, 0, 1}, {128, 1, 1}, {128, 1, 3}},  // first step succeeds
    };
    for (const auto& buffers : missed) {
        const MemoryPlan plan = plan_memory(buffers);
        EXPECT_EQ(plan.total, plan.lower_bound);
    }
}

TEST(PlanMemory, SizesThatOverflowAreRefused) {
    EXPECT_THROW(plan_memory(std::vector<BufferLife>{{kLargest, 0, 0}}), RuntimeError);
    EXPECT_THROW(plan_memory(std::vector<BufferLife>{{kLargest / 2, 0, 0}, {kLargest / 2, 1, 1}, {64, 2, 2}}),
                 RuntimeError);
}

TEST(PlanMemory, InvalidBuffersAreInternalErrors) {
    EXPECT_THROW(plan_memory(std::vector<BufferLife>{{-1, 0, 0}}), InternalError);
    EXPECT_THROW(plan_memory(std::vector<BufferLife>{{1, 3, 2}}), InternalError);
}

TEST(Arena, StartsEmpty) {
    const Arena arena;
    EXPECT_EQ(arena.capacity(), 0);
    EXPECT_EQ(arena.data(), nullptr);
}

TEST(Arena, GivesWritableAlignedMemory) {
    for (const int64_t bytes : {1, 64, 65, 4096, 3 << 20}) {
        Arena arena;
        arena.reserve(bytes);
        EXPECT_GE(arena.capacity(), bytes);
        EXPECT_EQ(arena.capacity() % kBufferAlignment, 0);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % kBufferAlignment, 0U);
        std::memset(arena.data(), 0x5A, static_cast<size_t>(arena.capacity()));
        EXPECT_EQ(arena.data()[bytes - 1], std::byte{0x5A});
    }
}

TEST(Arena, LargeBlocksStartAtAHugePage) {
    Arena arena;
    arena.reserve(5 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (2U << 20), 0U);
}

TEST(Arena, StaysPutWhileItIsLargeEnough) {
    Arena arena;
    arena.reserve(1000);
    std::byte* const before = arena.data();
    arena.reserve(0);
    arena.reserve(999);
    arena.reserve(arena.capacity());
    EXPECT_EQ(arena.data(), before);
    arena.reserve(100000);
    EXPECT_GE(arena.capacity(), 100000);
}

TEST(Arena, MovesWithItsBlock) {
    Arena a;
    a.reserve(100);
    std::byte* const block = a.data();
    const Arena b = std::move(a);
    EXPECT_EQ(b.data(), block);
}

TEST(Arena, ReportsOutOfMemory) {
    Arena arena;
    arena.reserve(100);
    EXPECT_THROW(arena.reserve(kLargest), RuntimeError);
    EXPECT_EQ(arena.capacity(), 0);
    EXPECT_EQ(arena.data(), nullptr);
    arena.reserve(100);
    EXPECT_GE(arena.capacity(), 100);
}

}  // namespace
}  // namespace tilewright
