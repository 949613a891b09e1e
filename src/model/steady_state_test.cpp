// Once shapes repeat, a run takes no memory: nothing is allocated between two runs, on any thread.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "compile/pipeline.h"
#include "model/session.h"
#include "model/sliced_convolution_test.h"
#include "program/builder.h"
#include "program/random_program.h"

// Sanitizers have allocation functions of their own, which a program cannot always replace. There nothing is counted:
// the same runs are made, and the sanitizer watches them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TW_COUNT_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TW_COUNT_ALLOCATIONS 0
#endif
#endif
#ifndef TW_COUNT_ALLOCATIONS
#define TW_COUNT_ALLOCATIONS 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

}  // namespace

#if TW_COUNT_ALLOCATIONS

namespace {

void* counted(std::size_t bytes, std::size_t alignment) {
    if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
    void* p = alignment <= alignof(std::max_align_t)
                  ? std::malloc(bytes)
                  : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}

/// Not inlined: g++ warns of a `free` of what came from `new`.
[[gnu::noinline]] void release(void* p) noexcept { std::free(p); }

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 1); }
void* operator new[](std::size_t bytes) { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }

#endif

namespace tilewright {
namespace {

long allocations_of_a_run(Session& session, const std::vector<Tensor>& inputs) {
    session.run_in_place(inputs);
    session.run_in_place(inputs);
    allocations = 0;
    counting = true;
    session.run_in_place(inputs);
    counting = false;
    return allocations;
}

TEST(SteadyState, TheCountSeesAllocations) {
    if (!TW_COUNT_ALLOCATIONS) GTEST_SKIP() << "a sanitizer has the allocation functions";
    allocations = 0;
    counting = true;
    const auto* p = new int(3);
    counting = false;
    delete p;
    EXPECT_GE(allocations, 1);
}

TEST(SteadyState, ARunOfKernelsAllocatesNothing) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        const Program program = random_program(seed, 8);
        const std::vector<Tensor> inputs = random_inputs(program, seed);
        CompileOptions options;
        options.threads = 2;
        Session session(compile_program(program, options), 2);
        EXPECT_EQ(allocations_of_a_run(session, inputs), 0) << "seed " << seed << "\n" << print(program);
    }
}

TEST(SteadyState, ARunInSlicesAllocatesNothing) {
    const Program program = test::sliced_convolution();
    CompileOptions options;
    options.threads = 2;
    const auto model = compile_program(program, options);
    ASSERT_FALSE(model->plan().slices.empty());
    Session session(model, 2);
    EXPECT_EQ(allocations_of_a_run(session, random_inputs(program, 1)), 0);
}

TEST(SteadyState, NewShapesAllocateOnceAndThenNoMore) {
    Program program;
    Builder b(program);
    const Expr n = symbol("n");
    const ValueId x = b.input("x", DType::F32, {n, 16});
    Tensor w(DType::F32, {16, 32});
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, 0.01 * static_cast<double>(i));
    b.set_outputs({b.matmul(x, b.constant(w, "w"))});
    Session session(compile_program(program, {}), 2);
    for (const int64_t rows : {3, 70, 5}) {
        const std::vector<Tensor> inputs{Tensor(DType::F32, {rows, 16}, true)};
        EXPECT_EQ(allocations_of_a_run(session, inputs), 0) << rows << " rows";
    }
}

}  // namespace
}  // namespace tilewright
