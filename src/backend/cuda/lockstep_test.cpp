// The executor finds what is planted: races, overruns, threads that miss each other.

#include "backend/cuda/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/lockstep_cases_test.h"
#include "base/error.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

/// A kernel of two warps on x: f32[64] -> y: f32[64], with 256 bytes of shared memory, called s.
KernelText kernel(const std::string& name, const std::string& body, int threads = 64) {
    KernelText k;
    k.name = name;
    k.threads = threads;
    k.shared_bytes = 256;
    k.tensors = {{"x", DType::F32, false}, {"y", DType::F32, true}};
    k.text = fmt::format(
        "TW_KERNEL({}, {})(tw::In<float> x, tw::Out<float> y) {{\n"
        "    const tw::Shared<float> s = tw::shared<float>(0, 64, \"s\");\n"
        "    const int t = tw::thread();\n    {}\n}}\n",
        name, threads, body);
    return k;
}

struct Planted {
    std::string name, body;
    std::vector<std::string> said;  ///< nothing: all is well, and y = 2 x
    int64_t blocks = 1;
};

const std::vector<Planted> kPlanted = {
    {"turned", "tw::put(s, t, x[t]); tw::barrier(); tw::put(y, 63 - t, 2 * s[63 - t]);", {}},
    {"summed_by_shuffles",
     "float v = x[t]; v = tw::reduce_in_warp<tw::Sum, 32>(v); tw::put(y, t, x[t] + (v - v) + x[t]);",
     {}},
    {"summed_by_warps",
     "float v = tw::reduce_in_block<tw::Max, 64>(x[t], s); tw::put(y, t, v == 63 ? 2 * x[t] : v);",
     {}},
    {"vectors",
     "if (t < 16) { float v[4]; tw::load<4>(v, x + 4 * t); tw::store<4>(s + 4 * t, v); } tw::barrier(); "
     "tw::put(y, t, 2 * s[t]);",
     {}},
    {"reads_too_early",
     "tw::put(s, t, x[t]); tw::put(y, 63 - t, s[63 - t]);",
     {"reads element 63 of s, which is not written"}},
    {"races_with_a_writer",
     "tw::put(s, t, x[t]); tw::barrier(); tw::put(s, t, 2 * x[t]); tw::put(y, t, s[t > 0 ? t - 1 : 0]);",
     {"thread 1", "reads element 0 of s, which thread 0 wrote since the last barrier"}},
    {"races_with_a_reader",
     "tw::put(s, t, x[t]); tw::barrier(); tw::put(y, t, s[t / 2]); tw::put(s, t, 0.0f);",
     {"which thread", "since the last barrier"}},
    {"races_after_shuffles",  // a shuffle is no barrier
     "tw::put(s, t, x[t]); tw::shuffle_xor(1, 1); tw::put(y, t, s[t ^ 1]);",
     {"wrote since the last barrier"}},
    {"writes_twice",
     "tw::put(s, t / 2, x[t]); tw::barrier(); tw::put(y, t, s[t / 2]);",
     {"writes element 0 of s, which thread 0 wrote since the last barrier"}},
    {"never_writes_the_rest",
     "if (t < 60) { tw::put(s, t, x[t]); } tw::barrier(); tw::put(y, t, s[t]);",
     {"thread 60", "reads element 60 of s, which is not written"}},
    {"overruns_shared_memory",
     "tw::put(s, t + 1, x[t]); tw::put(y, t, x[t]);",
     {"thread 63", "writes element 64 of s, which has 64"}},
    {"lies_outside_of_shared_memory",
     "const auto far = tw::shared<float>(64, 64, \"far\"); tw::put(far, t, x[t]); tw::put(y, t, x[t]);",
     {"64 elements from byte 64 on lie outside of the 256 bytes"}},
    {"overruns_an_input", "tw::put(y, t, x[t + 4]);", {"thread 60", "reads element 64 of x, which has 64"}},
    {"underruns_an_output", "tw::put(y, t - 1, x[t]);", {"thread 0", "writes element -1 of y"}},
    {"reads_an_output_first", "tw::put(y, t, y[t] + x[t]);", {"reads element 0 of y, which is not written"}},
    {"leaves_elements_out", "if (t != 7) tw::put(y, t, x[t]);", {"element 7 of y is never written"}},
    {"skips_a_barrier",
     "if (t < 32) tw::barrier(); tw::put(y, t, x[t]);",
     {"not every thread comes to the same barrier", "thread 0 is at a barrier", "thread 32 is done"}},
    {"goes_to_two_barriers",
     "if (t < 32) {\n tw::barrier();\n } else {\n tw::barrier();\n }\n tw::put(y, t, x[t]);",
     {"not every thread comes to the same barrier"}},
    {"skips_a_shuffle",
     "float v = x[t]; if (t % 32 != 5) v = tw::shuffle_xor(v, 1); tw::put(y, t, v);",
     {"not every thread comes to the same shuffle", "thread 5 is done"}},
    {"waits_at_different_things",
     "float v = x[t]; if (t < 16) v = tw::shuffle_xor(v, 1); else tw::barrier(); tw::put(y, t, v);",
     {"not every thread comes to the same shuffle"}},
    {"vectors_off_their_bounds",
     "if (t < 15) { float v[4]; tw::load<4>(v, x + 4 * t + 1); } tw::put(y, t, x[t]);",
     {"reads 4 elements at once from element 1 of x, which is not aligned"}},
    {"blocks_write_the_same",
     "tw::put(y, t, 2 * x[t]);",
     {"block 1", "writes element 0 of y, which block 0 also writes"},
     2},
    {"blocks_read_each_other",
     "if (tw::block() == 0) tw::put(y, t, x[t]); else if (y[t] == 0) tw::put(y, t, x[t]);",
     {"block 1", "reads element 0 of y, which block 0 wrote"},
     2},
    {"copies_beside_the_program",
     "if (t < 16) { tw::copy_async<4>(s + 4 * t, x + 4 * t); tw::commit_async(); tw::wait_async<0>(); } "
     "tw::barrier(); tw::put(y, t, 2 * s[t]);",
     {}},
    {"copies_in_groups",  // the first group has arrived, the second may come when it likes
     "if (t < 16) { tw::copy_async<2>(s + 2 * t, x + 2 * t); tw::commit_async(); tw::copy_async<2>(s + 32 + 2 * t, x + "
     "32 + 2 * t); tw::commit_async(); tw::wait_async<1>(); } tw::barrier(); if (t < 32) tw::put(y, t, 2 * s[t]); "
     "if (t < 16) tw::wait_async<0>(); tw::barrier(); if (t >= 32) tw::put(y, t, 2 * s[t]);",
     {}},
    {"waits_for_too_few_copies",
     "if (t < 16) { tw::copy_async<4>(s + 4 * t, x + 4 * t); tw::commit_async(); tw::wait_async<1>(); } "
     "tw::barrier(); tw::put(y, t, s[t]);",
     {"reads element 0 of s before its asynchronous copy was waited for"}},
    {"copies_without_a_barrier",
     "if (t < 16) { tw::copy_async<4>(s + 4 * t, x + 4 * t); tw::commit_async(); tw::wait_async<0>(); } "
     "tw::put(y, t, s[t > 0 ? t - 1 : 0]);",
     {"since the last barrier"}},
    {"copies_over_what_is_read",
     "tw::put(s, t, x[t]); tw::barrier(); tw::put(y, t, s[t]); if (t < 16) { tw::copy_async<4>(s + 4 * t, x + 4 * t); "
     "tw::commit_async(); tw::wait_async<0>(); }",
     {"since the last barrier"}},
    {"copies_off_their_bounds",
     "if (t == 0) tw::copy_async<4>(s + 2, x); tw::put(y, t, x[t]);",
     {"copies 4 elements at once to element 2 of s, which is not aligned"}},
    {"shared_memory_is_forgotten",
     "if (tw::block() == 0) tw::put(s, t, x[t]); tw::barrier(); if (tw::block() == 1) tw::put(y, t, s[t]);",
     {"block 1", "reads element 0 of s, which is not written"},
     2},
};

/// A kernel of four warps: x: f16[64, 16], w: f16[8, 16] -> y: f32[64, 8] = x w^T, both in blocks of eight rows of 16
/// bytes in shared memory; `write`, `begin`, `end` are what a case has in place of the right words.
KernelText group_kernel(const std::string& name, const std::string& write, const std::string& begin,
                        const std::string& end) {
    KernelText k;
    k.name = name;
    k.threads = 128;
    k.shared_bytes = 2048 + 256;
    k.tensors = {{"x", DType::F16, false}, {"w", DType::F16, false}, {"y", DType::F32, true}};
    k.text = fmt::format(R"TW(TW_KERNEL({}, 128)(tw::In<u16> x, tw::In<u16> w, tw::Out<float> y) {{
    const tw::Shared<u16> s = tw::shared<u16>(0, 1152, "s");
    const int t = tw::thread();
    for (int i = 8 * t; i < 8 * t + 8; ++i) tw::put(s, i / 16 * 8 + i / 8 % 2 * 512 + i % 8, x[i]);
    if (t < 16) for (int i = 8 * t; i < 8 * t + 8; ++i) tw::put(s, 1024 + i / 16 * 8 + i / 8 % 2 * 64 + i % 8, w[i]);
    {}
    float sum[2][2] = {{{{0, 0}}, {{0, 0}}}};
    {}
    tw::multiply_group_f16_8<0, 0>(sum[0], sum[1], tw::cores<1024, 128>(s, 0), tw::cores<128, 1024>(s, 1024));
    {}
    for (int i = 0; i < 4; ++i)
        tw::put(y, (t / 32 * 16 + t % 32 / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2, sum[i / 2][i % 2]);
}}
)TW",
                         name, write, begin, end);
    return k;
}

TEST(Lockstep, FindsWhatIsPlantedAroundProductsOfFourWarps) {
    struct Case {
        std::string name, write = "tw::fence_async(); tw::barrier();", begin = "tw::begin_products();",
                          end = "tw::end_products(); tw::wait_products<0>();", said = {};
    };
    const std::vector<Case> cases = {
        {"right"},
        {"without_a_barrier", "tw::fence_async();", Case{}.begin, Case{}.end, "wrote since the last barrier"},
        {"without_a_fence", "tw::barrier();", Case{}.begin, Case{}.end, "and did not fence"},
        {"before_it_is_written", "tw::fence_async(); tw::barrier(); if (t == 0) tw::put(s, 1, u16(0));", Case{}.begin,
         Case{}.end, "element 1 of s, which thread 0 wrote since the last barrier"},
        {"without_a_beginning", Case{}.write, "", Case{}.end, "multiplies without begin_products in front"},
        {"written_while_it_is_read", Case{}.write, Case{}.begin,
         "tw::end_products(); tw::barrier(); if (t == 0) tw::put(s, 0, u16(0)); tw::wait_products<0>();",
         "writes element 0 of s, which a product that is not waited for may read"},
        {"written_before_others_have_waited", Case{}.write, Case{}.begin,
         "tw::end_products(); tw::wait_products<0>(); if (t == 5) tw::put(s, 0, u16(0));", "since the last barrier"},
        {"without_one_warp", Case{}.write, "tw::begin_products(); if (t >= 96) return;", Case{}.end,
         "not every thread comes to the same product of four warps"},
    };
    std::vector<KernelText> kernels;
    for (const Case& c : cases) kernels.push_back(group_kernel(c.name, c.write, c.begin, c.end));
    // Sums that are read before they have arrived are no numbers.
    kernels.push_back(group_kernel("read_too_early", Case{}.write, Case{}.begin, "tw::end_products();"));
    kernels.push_back(group_kernel("one_group_may_be_open", Case{}.write, Case{}.begin,
                                   "tw::end_products(); tw::wait_products<1>();"));
    const Lockstep lockstep(kernels, lockstep_options());
    for (size_t k = 0; k < kernels.size(); ++k) {
        std::vector<Tensor> tensors = {Tensor(DType::F16, {64, 16}), Tensor(DType::F16, {8, 16}),
                                       Tensor(DType::F32, {64, 8})};
        for (int64_t i = 0; i < 1024; ++i) tensors[0].set(i, static_cast<double>(i % 13 - 6));
        for (int64_t i = 0; i < 128; ++i) tensors[1].set(i, static_cast<double>(i % 7 - 3));
        std::string wrong;
        try {
            lockstep.run(k, tensors, {}, 1);
        } catch (const RuntimeError& e) {
            wrong = e.what();
        }
        if (k >= cases.size()) {
            EXPECT_EQ(wrong, "");
            EXPECT_TRUE(std::isnan(tensors[2].get(0))) << kernels[k].name;
        } else if (!cases[k].said.empty()) {
            EXPECT_THAT(wrong, HasSubstr(cases[k].said)) << cases[k].name;
        } else {
            EXPECT_EQ(wrong, "");
            for (int64_t i = 0; i < 512; ++i) {
                double sum = 0;
                for (int64_t j = 0; j < 16; ++j) sum += tensors[0].get(i / 8 * 16 + j) * tensors[1].get(i % 8 * 16 + j);
                ASSERT_EQ(tensors[2].get(i), sum) << i;
            }
        }
    }
}

/// A kernel of two warps that copies x: f32[8, 32] by TMA, swizzled, and doubles its first 64 elements.
KernelText box_kernel(const std::string& name, const std::string& copy, const std::string& wait) {
    KernelText k;
    k.name = name;
    k.threads = 64;
    k.shared_bytes = 2048 + 16;
    k.tensors = {{"x", DType::F32, false}, {"y", DType::F32, true}};
    k.maps = {{0, {32, 8}, {32, 8}, 128}};
    k.text = fmt::format(
        R"TW(TW_KERNEL({}, 64)(tw::In<float> x, tw::Out<float> y, const TW_GRID_CONSTANT tw::TensorMap map) {{
    const tw::Shared<float> s = tw::shared<float>(0, 512, "s");
    const tw::Shared<u64> a = tw::shared<u64>(2048, 2, "a");
    const int t = tw::thread();
    if (t == 0) tw::begin_arrivals(a, 1);
    tw::barrier();
    {}
    {}
    tw::put(y, t, 2 * s[tw::swizzled<128, 4>(t)]);
}}
)TW",
        name, copy, wait);
    return k;
}

TEST(Lockstep, FindsWhatIsPlantedAroundCopiesOfBoxes) {
    const std::string copy = "if (t == 0) { tw::expect_bytes(a, 1024); tw::copy_box(s, map, a, 0, 0); }",
                      wait = "tw::wait_arrival(a, 0);";
    struct Case {
        std::string name, copy, wait, said;
        int rows = 0;  ///< that y is behind x
    };
    const std::vector<Case> cases = {
        {"right", copy, wait, ""},
        {"outside_there_are_zeros", "if (t == 0) { tw::expect_bytes(a, 1024); tw::copy_box(s, map, a, 0, 7); }", wait,
         "", 7},
        {"twice", copy + wait + "tw::barrier();" + copy, "tw::wait_arrival(a, 1);", ""},
        {"nobody_waits", copy, "", "before its asynchronous copy was waited for"},
        {"one_thread_does_not_wait", copy, "if (t != 5) tw::wait_arrival(a, 0);",
         "before its asynchronous copy was waited for"},
        {"one_thread_waits_for_the_time_before", copy + wait + "tw::barrier();" + copy,
         "if (t == 5) tw::wait_arrival(a, 0); else tw::wait_arrival(a, 1);", "before its asynchronous copy"},
        {"one_thread_is_late", copy, "if (t != 5) tw::wait_arrival(a, 0); tw::shuffle_xor(1, 1);",
         "whose arrival this thread has not waited for"},
        {"too_many_bytes", "if (t == 0) { tw::expect_bytes(a, 1040); tw::copy_box(s, map, a, 0, 0); }", wait,
         "waits without end (line"},
        {"too_few_bytes", "if (t == 0) { tw::expect_bytes(a, 512); tw::copy_box(s, map, a, 0, 0); }", wait,
         "512 bytes more have come than were announced"},
        {"nothing_announced", "if (t == 0) tw::copy_box(s, map, a, 0, 0);", wait, "no bytes were announced"},
        {"nothing_copied", "if (t == 0) tw::expect_bytes(a, 1024);", wait, "fewer bytes come than were announced"},
        {"announced_by_all", "tw::expect_bytes(a, 1024); if (t == 0) tw::copy_box(s, map, a, 0, 0);", wait,
         "announces bytes a second time"},
        {"no_such_arrival", "if (t == 0) { tw::expect_bytes(a + 1, 1024); tw::copy_box(s, map, a + 1, 0, 0); }", wait,
         "is not written"},
        {"not_aligned", "if (t == 0) { tw::expect_bytes(a, 1024); tw::copy_box(s + 32, map, a, 0, 0); }", wait,
         "copies a box to byte 128, which is not aligned"},
        {"over_what_is_read", copy + wait + "const float v = s[t]; tw::put(y, t, v);" + copy, "tw::wait_arrival(a, 1);",
         "before its asynchronous copy was waited for"},
        {"over_what_is_not_fenced", "tw::put(s, t, 1.0f); tw::barrier();" + copy, wait, "wrote and did not fence"},
        {"never_comes", copy, "tw::put(y, t, 2 * x[t]); return;", "ends before copies of boxes have come"},
    };
    std::vector<KernelText> kernels;
    kernels.reserve(cases.size());
    for (const Case& c : cases) kernels.push_back(box_kernel(c.name, c.copy, c.wait));
    const Lockstep lockstep(kernels, lockstep_options());
    for (size_t k = 0; k < cases.size(); ++k) {
        const Case& c = cases[k];
        std::vector<Tensor> tensors = {Tensor(DType::F32, {8, 32}), Tensor(DType::F32, {64})};
        for (int64_t i = 0; i < 256; ++i) tensors[0].set(i, static_cast<double>(i + 1));
        std::string wrong;
        try {
            lockstep.run(k, tensors, {}, 1);
        } catch (const RuntimeError& e) {
            wrong = e.what();
        }
        if (!c.said.empty()) {
            EXPECT_THAT(wrong, HasSubstr(c.said)) << c.name;
            continue;
        }
        EXPECT_EQ(wrong, "") << c.name;
        for (int64_t i = 0; i < 64; ++i) {
            const int64_t from = i + 32 * c.rows;
            EXPECT_EQ(tensors[1].get(i), from < 256 ? 2.0 * static_cast<double>(from + 1) : 0) << c.name << " " << i;
        }
    }
}

/// A kernel of three blocks that adds the rows of x: f32[3, 32], by parts in scratch memory.
KernelText counting_kernel(const std::string& name, const std::string& arrive, const std::string& join) {
    KernelText k;
    k.name = name;
    k.threads = 32;
    k.scratch_bytes = 256;
    k.counters = Expr(2);
    k.tensors = {{"x", DType::F32, false}, {"y", DType::F32, true}};
    k.text = fmt::format(
        R"TW(TW_KERNEL({}, 32)(tw::In<float> x, tw::Out<float> y, tw::Out<u8> scratch, tw::Out<u32> counters) {{
    const int t = tw::thread();
    const auto part = [&](int block) {{ return tw::scratch<float>(scratch, block * 256, 32, "parts"); }};
    const tw::Out<float> own = part(tw::block());
    tw::put(own, t, x[tw::block() * 32 + t]);
    {}
    float sum = 0;
    for (int p = 0; p < 3; ++p) sum += part(p)[{}];
    tw::put(y, t, sum);
}}
)TW",
        name, arrive, join);
    return k;
}

TEST(Lockstep, FindsWhatIsPlantedAroundBlocksThatCountEachOther) {
    struct Case {
        std::string name, arrive = "if (!tw::last_to_arrive(counters, 3)) return;", join = "t", said = {};
    };
    const std::vector<Case> cases = {
        {"right"},
        {"the_other_counter", "if (!tw::last_to_arrive(counters + 1, 3)) return;"},
        {"other_threads_parts", Case{}.arrive, "31 - t"},
        {"goes_on_without_counting", "if (tw::block() != 2) return;", "t", "which block"},
        {"goes_on_early", "if (!tw::last_to_arrive(counters, 2)) return;", "t", "of parts, which"},
        {"counts_at_two_places",
         "if (!tw::last_to_arrive(counters + tw::block() / 2, tw::block() == 2 ? 1 : 2)) return;", "t", "which block"},
        {"writes_after_it_has_counted",
         "const bool last = tw::last_to_arrive(counters, 3); tw::put(own, t, 1.0f); if (!last) return;", "t",
         "of parts, which block"},
        {"waits_for_a_block_that_does_not_come", "if (!tw::last_to_arrive(counters, 4)) return;", "t",
         "is never written"},
        {"leaves_a_counter_behind", "tw::put(y, t, 1.0f); tw::last_to_arrive(counters + 1, 2); return;", "t",
         "also writes"},
        {"counts_twice", "tw::last_to_arrive(counters, 3);\n tw::last_to_arrive(counters, 3);", "t",
         "comes to a counter a second time"},
        {"no_such_counter", "if (!tw::last_to_arrive(counters + 2, 3)) return;", "t",
         "counts at element 2 of the counters, which has 2"},
        {"some_threads_do_not_count", "if (t < 16) return; if (!tw::last_to_arrive(counters, 3)) return;", "t",
         "not every thread comes to the same barrier"},
    };
    std::vector<KernelText> kernels;
    for (const Case& c : cases) kernels.push_back(counting_kernel(c.name, c.arrive, c.join));
    kernels.push_back(counting_kernel(
        "one_too_few", "if (tw::block() == 1) { tw::put(y, t, 1.0f); tw::last_to_arrive(counters, 2); } return;", "t"));
    const Lockstep lockstep(kernels, lockstep_options());
    for (size_t k = 0; k < kernels.size(); ++k) {
        std::vector<Tensor> tensors = {Tensor(DType::F32, {3, 32}), Tensor(DType::F32, {32})};
        for (int64_t i = 0; i < 96; ++i) tensors[0].set(i, static_cast<double>(i));
        std::string wrong;
        try {
            lockstep.run(k, tensors, {}, 3);
        } catch (const RuntimeError& e) {
            wrong = e.what();
        }
        if (k == cases.size()) {
            EXPECT_THAT(wrong, HasSubstr("counter 0 is 1 behind the kernel, not 0"));
        } else if (!cases[k].said.empty()) {
            EXPECT_THAT(wrong, HasSubstr(cases[k].said)) << cases[k].name;
        } else {
            EXPECT_EQ(wrong, "") << cases[k].name;
            for (int64_t i = 0; i < 32; ++i) {
                const int64_t from = cases[k].join == "t" ? i : 31 - i;
                EXPECT_EQ(tensors[1].get(i), static_cast<double>(3 * from + 96)) << cases[k].name;
            }
        }
    }
}

TEST(Lockstep, FindsWhatIsPlanted) {
    std::vector<KernelText> kernels;
    for (const Planted& p : kPlanted) kernels.push_back(kernel(p.name, p.body));
    const Lockstep lockstep(kernels, lockstep_options());
    for (size_t k = 0; k < kPlanted.size(); ++k) {
        const Planted& p = kPlanted[k];
        std::vector<Tensor> tensors = {Tensor(DType::F32, {64}), Tensor(DType::F32, {64})};
        for (int64_t i = 0; i < 64; ++i) tensors[0].set(i, i);
        std::string wrong;
        try {
            lockstep.run(k, tensors, {}, p.blocks);
        } catch (const RuntimeError& e) {
            wrong = e.what();
        }
        if (p.said.empty()) {
            EXPECT_EQ(wrong, "") << p.name;
            for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(tensors[1].get(i), static_cast<double>(2 * i)) << p.name;
        } else {
            EXPECT_NE(wrong, "") << p.name;
            for (const std::string& s : p.said) EXPECT_THAT(wrong, HasSubstr(s)) << p.name;
        }
    }
}

TEST(Lockstep, SaysWhatTheCompilerRefuses) {
    try {
        const Lockstep lockstep({kernel("wrong", "tw::put(y, t, undeclared);")}, lockstep_options());
        FAIL() << "it was compiled";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), AllOf(HasSubstr("refuses the text of a kernel"), HasSubstr("undeclared")));
    }
    try {
        const Lockstep lockstep({kernel("right", "tw::put(y, t, x[t]);")}, {"no-such-compiler", {}});
        FAIL() << "it was compiled";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("the C++ compiler 'no-such-compiler', which cannot be run"));
    }
}

}  // namespace
}  // namespace tilewright::cuda
