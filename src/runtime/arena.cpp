#include "runtime/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tilewright {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 46;  // limit of one block: beyond any machine's address space

/// Rounds up; throws if the result exceeds 63 bits.
int64_t round_up(int64_t bytes, int64_t alignment) {
    if (bytes > std::numeric_limits<int64_t>::max() - (alignment - 1))
        throw RuntimeError(fmt::format("out of memory: a buffer of {} bytes", bytes));
    return (bytes + alignment - 1) / alignment * alignment;
}

bool overlap(const BufferLife& a, const BufferLife& b) {
    return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

/// The peak of the bytes that are live in one step.
int64_t busiest_step(std::span<const BufferLife> buffers) {
    std::vector<std::pair<int64_t, int64_t>> births, deaths;  // step and bytes
    for (const BufferLife& b : buffers) {
        births.emplace_back(b.first_step, b.bytes);
        deaths.emplace_back(b.last_step, b.bytes);
    }
    std::sort(births.begin(), births.end());
    std::sort(deaths.begin(), deaths.end());
    int64_t live = 0, most = 0;
    size_t dead = 0;
    for (const auto& [step, bytes] : births) {
        for (; deaths[dead].first < step; ++dead) live -= deaths[dead].second;
        live += bytes;
        most = std::max(most, live);
    }
    return most;
}

struct Placed {
    int64_t begin = 0, end = 0;
    size_t buffer = 0;
};

/// The start of the smallest gap that fits `buffer` between the live placed buffers. `placed` is sorted by begin.
int64_t best_fit(const std::vector<Placed>& placed, std::span<const BufferLife> buffers, const BufferLife& buffer) {
    int64_t best = -1;
    int64_t best_size = std::numeric_limits<int64_t>::max();
    int64_t free_from = 0;
    for (const Placed& p : placed) {
        if (!overlap(buffers[p.buffer], buffer)) continue;
        const int64_t gap = p.begin - free_from;
        if (gap >= buffer.bytes && gap < best_size) {
            best = free_from;
            best_size = gap;
        }
        free_from = std::max(free_from, p.end);
    }
    return best >= 0 ? best : free_from;
}

/// Places the buffers in the given order; sizes are already rounded and their sum fits 63 bits.
MemoryPlan place(std::span<const BufferLife> buffers, const std::vector<size_t>& order) {
    MemoryPlan plan;
    plan.offsets.assign(buffers.size(), 0);
    std::vector<Placed> placed;
    placed.reserve(buffers.size());
    for (const size_t i : order) {
        if (buffers[i].bytes == 0) continue;
        const int64_t begin = best_fit(placed, buffers, buffers[i]);
        const Placed here{begin, begin + buffers[i].bytes, i};
        placed.insert(std::upper_bound(placed.begin(), placed.end(), here,
                                       [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                      here);
        plan.offsets[i] = begin;
        plan.total = std::max(plan.total, here.end);
    }
    return plan;
}

/// The lifetime of a buffer in steps. A double, as the difference of steps may overflow; used for ranking only.
double steps(const BufferLife& b) { return static_cast<double>(b.last_step) - static_cast<double>(b.first_step) + 1; }

}  // namespace

void Arena::Free::operator()(std::byte* p) const { std::free(p); }

void Arena::reserve(int64_t bytes) {
    TW_CHECK(bytes >= 0, "{} bytes", bytes);
    if (bytes <= capacity_) return;
    block_.reset();  // before the new allocation: both may not fit
    capacity_ = 0;
    const bool huge = bytes >= kHugePage;
    const int64_t alignment = huge ? kHugePage : kBufferAlignment;
    const int64_t size = bytes <= kMostBytes ? round_up(bytes, alignment) : 0;
    if (size != 0)
        block_.reset(
            static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(size))));
    if (!block_) throw RuntimeError(fmt::format("out of memory: {} bytes of working memory", bytes));
    if (huge) madvise(block_.get(), static_cast<size_t>(size), MADV_HUGEPAGE);  // a failure only costs speed
    capacity_ = size;
}

MemoryPlan plan_memory(std::span<const BufferLife> buffers, int64_t alignment) {
    std::vector<BufferLife> rounded(buffers.begin(), buffers.end());
    int64_t sum = 0;
    for (BufferLife& b : rounded) {
        TW_CHECK(b.bytes >= 0 && b.first_step <= b.last_step, "{} bytes in steps {} to {}", b.bytes, b.first_step,
                 b.last_step);
        b.bytes = round_up(b.bytes, alignment);
        if (__builtin_add_overflow(sum, b.bytes, &sum))
            throw RuntimeError(
                fmt::format("out of memory: {} buffers of more than 2^63 bytes together", rounded.size()));
    }

    using Before = bool (*)(const BufferLife&, const BufferLife&);
    constexpr Before kOrders[] = {
        [](const BufferLife& a, const BufferLife& b) {
            return a.bytes != b.bytes ? a.bytes > b.bytes : steps(a) > steps(b);
        },
        [](const BufferLife& a, const BufferLife& b) {
            return static_cast<double>(a.bytes) * steps(a) > static_cast<double>(b.bytes) * steps(b);
        },
        [](const BufferLife& a, const BufferLife& b) {
            return steps(a) != steps(b) ? steps(a) > steps(b) : a.bytes > b.bytes;
        },
        [](const BufferLife& a, const BufferLife& b) {
            return a.first_step != b.first_step ? a.first_step < b.first_step : a.bytes > b.bytes;
        },
    };

    const int64_t bound = busiest_step(rounded);
    MemoryPlan best;
    for (size_t i = 0; i < std::size(kOrders) && (i == 0 || best.total > bound); ++i) {
        std::vector<size_t> order(rounded.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            if (kOrders[i](rounded[a], rounded[b])) return true;
            return !kOrders[i](rounded[b], rounded[a]) && a < b;
        });
        MemoryPlan plan = place(rounded, order);
        if (i == 0 || plan.total < best.total) best = std::move(plan);
    }
    best.lower_bound = bound;
    return best;
}

}  // namespace tilewright
