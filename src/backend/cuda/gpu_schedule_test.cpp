// Kernels of every kind get a schedule for a GPU from the rule, and compute what their stages do.

#include "schedule/gpu/gpu_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "cost/gpu_estimate.h"
#include "cost/target_with_test.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/realise.h"
#include "schedule/construct/etir.h"
#include "schedule/gpu/retarget.h"
#include "schedule/scheduler.h"
#include "tile/examples_test.h"
#include "tile/schedule_cases_test.h"
#include "tile/walk.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TileProgram scheduled(const std::string& stages, Precision precision = Precision::F32,
                      const std::vector<std::vector<size_t>>& rows = {}) {
    Program p = parse_program(stages);
    IndexVector<PrimitiveId, std::vector<size_t>> row_axes(p.primitives.size());
    for (size_t s = 0; s < rows.size(); ++s) row_axes[PrimitiveId(s)] = rows[s];
    return gpu_schedule(std::move(p), row_axes, tilewright::test::on_gpu(a100()), precision);
}

LockstepCase whole(const std::string& name, const TileProgram& p,
                   const std::vector<schedule_cases::Sizes>& sizes = {{}}) {
    LockstepCase c{name, p, {}, 0};
    for (const auto& s : sizes) c.inputs.push_back(schedule_cases::whole_numbers(p.stages, s));
    return c;
}

std::string product(const std::string& m, const std::string& n, const std::string& k, const std::string& type = "f32") {
    return schedule_cases::product(m, n, k, type);
}

TEST(GpuSchedule, PutsLargeProductsOnTheUnitsThatThePrecisionAllows) {
    const auto text = [](Precision precision, const std::string& type) {
        return print(scheduled(product("1024", "1024", "1024", type), precision));
    };
    EXPECT_THAT(text(Precision::F32, "f32"), Not(HasSubstr("matrix")));
    EXPECT_THAT(text(Precision::TF32, "f32"), HasSubstr("matrix tf32"));
    EXPECT_THAT(text(Precision::F16, "f32"), HasSubstr("matrix f16"));
    EXPECT_THAT(text(Precision::F32, "bf16"), HasSubstr("matrix bf16"));
    // Copies run ahead, sums stay until they are stored.
    EXPECT_THAT(text(Precision::F32, "f16"), testing::AllOf(HasSubstr("stages"), HasSubstr("store c")));
    // A vector is read once.
    EXPECT_THAT(print(scheduled(product("1", "1024", "1024"), Precision::F16)), Not(HasSubstr("load")));
}

TEST(GpuSchedule, LetsFourWarpsMultiplyTogetherWhereTheyCan) {
    // Every shape gets a kernel, whether its tiles are whole or not. Some are executed: small ones, for a GPU that has
    // few multiprocessors, so that they are many tiles to it.
    GpuTarget few = h200();
    few.multiprocessors = 2;
    std::vector<LockstepCase> cases;
    int groups = 0, others = 0;
    const auto add = [&](const std::string& stages, Precision precision, bool small) {
        TileProgram t = gpu_schedule(parse_program(stages), IndexVector<PrimitiveId, std::vector<size_t>>(1),
                                     tilewright::test::on_gpu(small ? few : h200()), precision);
        const bool group = print(t).find(" group [") != std::string::npos;
        SCOPED_TRACE(print(t));
        (group ? groups : others) += 1;
        EXPECT_NO_THROW(generate(t, h200()));
        if (group && small && cases.size() < 8)
            cases.push_back(whole(
                stages, t,
                {stages.find("$m") == std::string::npos ? schedule_cases::Sizes{} : schedule_cases::Sizes{{"m", 70}}}));
    };
    for (const auto& [type, precision] : {std::pair("f16", Precision::F32), std::pair("bf16", Precision::F32),
                                          std::pair("f32", Precision::TF32), std::pair("f32", Precision::F16)})
        for (const char* m : {"1", "64", "100", "130", "1024", "$m"})
            for (const char* n : {"64", "72", "100", "1024"})
                for (const char* k : {"16", "32", "72", "100", "768"})
                    add(product(m, n, k, type), precision,
                        std::string(m) == "130" && std::string(n) != "1024" && std::string(k) == "100");
    EXPECT_GT(groups, 15);  // (small products are more blocks on one warp's)
    EXPECT_GT(others, 100);
    // Halves that are made of floats on the way are no tensor that Loads could bring.
    EXPECT_THAT(print(gpu_schedule(parse_program(product("1024", "1024", "1024")),
                                   IndexVector<PrimitiveId, std::vector<size_t>>(1), tilewright::test::on_gpu(h200()),
                                   Precision::F16)),
                testing::AllOf(HasSubstr("matrix f16"), Not(HasSubstr("group"))));
    // Heads of a batch, keys turned; windows of a convolution whose channels lie side by side.
    add(R"TW(program p {
  input q: f16[2, 128, 64]
  input k: f16[2, 128, 64]
  c: f16[2, 128, 128] = [2, 128, 128] sum(i3 < 64) mul(@0, @1) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
  output c
})TW",
        Precision::F32, true);
    add(R"TW(program p {
  input x: f16[1, 6, 66, 32]
  input w: f16[3, 3, 32, 64]
  y: f16[1, 4, 64, 64] = [1, 4, 64, 64] sum(i4 < 3, i5 < 3, i6 < 32) mul(@0, @1) where @0 = x[i0, i1 + i4, i2 + i5, i6], @1 = w[i4, i5, i6, i3]
  output y
})TW",
        Precision::F32, true);
    EXPECT_GE(cases.size(), size_t{4});
    expect_right(cases);
}

TEST(GpuSchedule, ExchangesOperandsOfFloatsWhereTheRightOneLiesAlongItsColumns) {
    const auto schedule = [](const std::string& a, const std::string& b, const std::string& m = "1024") {
        const std::string sizes = a == "k" ? m + ", 1024" : "1024, " + m;
        return gpu_schedule(
            parse_program(fmt::format("program p {{\n  input a: f32[{}]\n  input b: f32[1024, 1024]\n"
                                      "  c: f32[{m}, 1024] = [{m}, 1024] sum(i2 < 1024) mul(@0, @1) where @0 = a[{}], "
                                      "@1 = b[{}]\n  output c\n}}\n",
                                      sizes, a == "k" ? "i0, i2" : "i2, i0", b == "k" ? "i1, i2" : "i2, i1",
                                      fmt::arg("m", m))),
            IndexVector<PrimitiveId, std::vector<size_t>>(1), tilewright::test::on_gpu(h200()), Precision::TF32);
    };
    const auto text = [](const TileProgram& t) { return generate(t, h200()).text; };
    // Instructions read both along the sum. What lies otherwise, threads bring to registers: it is the left operand.
    EXPECT_THAT(print(schedule("k", "k")), HasSubstr("matrix tf32 group [s0 s1 r2]"));
    EXPECT_THAT(print(schedule("k", "n")), HasSubstr("matrix tf32 group [s1 s0 r2]"));
    EXPECT_THAT(print(schedule("m", "k")), HasSubstr("matrix tf32 group [s0 s1 r2]"));
    for (const TileProgram& t : {schedule("k", "k"), schedule("k", "n"), schedule("m", "k")})
        EXPECT_THAT(text(t), AllOf(HasSubstr("tw::copy_box"), Not(HasSubstr("copy_async"))));
    // Of two, threads transpose the right one; columns of an instruction are no dynamic extent.
    EXPECT_THAT(text(schedule("m", "n")), HasSubstr("load b, by threads: its rows are not swizzled"));
    EXPECT_THAT(print(schedule("k", "n", "$m")), HasSubstr("matrix tf32 group [s0 s1 r2]"));
}

TEST(GpuSchedule, GivesPartsOfLongSumsToBlocksWhereTilesAreFew) {
    const auto best = [](const std::string& stages, Precision precision) {
        return gpu_schedule(parse_program(stages), IndexVector<PrimitiveId, std::vector<size_t>>(1),
                            tilewright::test::on_gpu(h200()), precision);
    };
    const auto splits = [](const TileProgram& t) { return walk(t).split.has_value(); };
    // 24 to 96 tiles of a block, and 132 multiprocessors.
    for (const auto& [m, n, k] : {std::tuple("512", "768", "3072"), std::tuple("64", "768", "3072"),
                                  std::tuple("128", "1024", "8192"), std::tuple("16", "4096", "4096")}) {
        const TileProgram t = best(product(m, n, k, "f16"), Precision::F16);
        EXPECT_TRUE(splits(t)) << print(t);
        // The estimate of the tree is that by which its tiles were chosen: without parts it is slower.
        EXPECT_GT(gpu_estimate(t, h200()).join_seconds, 0);
    }
    for (const auto& [m, n, k] : {std::tuple("4096", "4096", "4096"), std::tuple("512", "3072", "64")})
        EXPECT_FALSE(splits(best(product(m, n, k, "f16"), Precision::F16)));
    // Of one number, or of few columns.
    const std::string sum = R"TW(program p {
  input x: f32[1000000]
  y: f32[] = [] sum(i0 < 1000000) @0 then mul(acc, 0.5) where @0 = x[i0]
  output y
})TW";
    EXPECT_TRUE(splits(best(sum, Precision::F32)));
    std::vector<LockstepCase> cases;
    for (const auto& [type, precision] : {std::pair("f32", Precision::F32), std::pair("f32", Precision::TF32),
                                          std::pair("f16", Precision::F16), std::pair("bf16", Precision::BF16)})
        for (const auto& [m, n, k] : {std::tuple("64", "64", "2048"), std::tuple("20", "24", "3000")})
            if (const TileProgram t = best(product(m, n, k, type), precision); splits(t))
                cases.push_back(whole(fmt::format("{} {}", m, to_string(precision)), t));
    EXPECT_GE(cases.size(), size_t{6});
    cases.push_back(whole("one number", best(R"TW(program p {
  input x: f32[40000]
  y: f32[] = [] sum(i0 < 40000) @0 then mul(acc, 0.5) where @0 = x[i0]
  output y
})TW",
                                             Precision::F32)));
    EXPECT_TRUE(splits(cases.back().program));
    expect_right(cases);
}

TEST(GpuSchedule, TakesWhatFitsTheSharedMemory) {
    GpuTarget small = a100();
    for (const int64_t bytes : {int64_t{163} << 10, int64_t{20} << 10, int64_t{6} << 10}) {
        small.block_shared_bytes = bytes;
        const IndexVector<PrimitiveId, std::vector<size_t>> rows(1);
        const TileProgram t = gpu_schedule(parse_program(product("512", "512", "512", "f16")), rows,
                                           tilewright::test::on_gpu(small), Precision::F32);
        EXPECT_LE(generate(t, small).shared_bytes, bytes);
        EXPECT_THAT(print(t), HasSubstr("matrix f16"));
    }
}

TEST(GpuSchedule, OfProductsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    cases.push_back(whole("f32", scheduled(product("70", "90", "40"))));
    cases.push_back(whole("tf32", scheduled(product("70", "90", "40"), Precision::TF32)));
    cases.push_back(whole("halves", scheduled(product("33", "128", "200", "f16"))));
    cases.push_back(whole("any rows", scheduled(product("$m", "64", "48", "bf16")), {{{"m", 1}}, {{"m", 100}}}));
    cases.push_back(whole("vector", scheduled(product("1", "70", "300"))));
    cases.push_back(whole("batched", scheduled(R"TW(program p {
  input a: f32[3, 20, 32]
  input b: f32[3, 40, 32]
  c: f32[3, 20, 40] = [3, 20, 40] sum(i3 < 32) mul(@0, @1) where @0 = a[i0, i1, i3], @1 = b[i0, i2, i3]
  output c
})TW",
                                               Precision::F16)));
    const std::string convolution = R"TW(program p {
  input x: f32[2, 16, 9, 14]
  input w: f32[24, 16, 3, 3]
  y: f32[2, 24, 9, 14] = [2, 24, 9, 14] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 14 >= 0 else 0, @1 = w[i1, i4, i5, i6]
  output y
})TW";
    cases.push_back(whole("convolution", scheduled(convolution)));
    cases.push_back(whole("convolution on matrix instructions", scheduled(convolution, Precision::BF16)));
    expect_right(cases);
}

TEST(GpuSchedule, OfEverythingElseComputesWhatItSays) {
    std::vector<LockstepCase> cases;
    cases.push_back(whole("transposition", scheduled(schedule_cases::transposition("f32", "70", "90"))));
    cases.push_back(
        whole("pooling", scheduled(schedule_cases::kPooling), {{{"h", 5}, {"w", 40}}, {{"h", 1}, {"w", 2}}}));
    for (const auto& [shape, index] : {std::pair("40, 300", "i0, i1"), std::pair("300, 40", "i1, i0")})
        cases.push_back(whole(index, scheduled(fmt::format(R"TW(program p {{
  input x: f32[{}]
  y: f32[40] = [40] sum(i1 < 300) @0 where @0 = x[{}]
  output y
}})TW",
                                                           shape, index))));
    cases.push_back(whole("rows", scheduled(R"TW(program p {
  input x: f32[9, 40]
  m: f32[9] = [9] max(i1 < 40) @0 where @0 = x[i0, i1]
  y: f32[9, 40] = [9, 40] sub(@0, @1) where @0 = x[i0, i1], @1 = m[i0]
  output y
})TW",
                                            Precision::F32, {{0}, {0}})));
    expect_right(cases);
}

TEST(GpuSchedule, OfChainsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    for (const auto& [stages, precision] :
         {std::pair(chain::two_products(48, 64, 32, 40), Precision::TF32),
          std::pair(chain::attention(2, 40, 64, 32, 16), Precision::F16),
          std::pair(chain::attention(1, 33, 50, 9, 20, "add(mul(acc, 0.5), @2)"), Precision::F32)}) {
        Scheduling how;
        how.kind = SchedulerKind::Mcfuser;
        how.target.gpu = a100();
        how.precision = precision;
        auto t = make_chain_schedule(stages, how);
        ASSERT_TRUE(t);
        EXPECT_LE(generate(*t, a100()).shared_bytes, a100().block_shared_bytes);
        // Sixteenths below a half: the first sums have 11 bits at most, which every type here holds.
        std::vector<Tensor> inputs = schedule_cases::whole_numbers(t->stages, {});
        for (Tensor& x : inputs)
            for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
        cases.push_back({stages.name, std::move(*t), {inputs}, stages.primitives.size() == 2 ? 0 : 2e-3});
    }
    expect_right(cases);
}

/// Products of halves, what lies between them in floats: the second by `softmax` or as it stands.
Program chain_of_halves(const std::string& type, int b, int m, int n, int k, int h, bool softmax) {
    const std::string shape = fmt::format("[{}, {}, {}]", b, m, n);
    return parse_program(fmt::format(
        R"TW(program chain {{
  input q: {type}[{b}, {m}, {k}]
  input k: {type}[{b}, {n}, {k}]
  input v: {type}[{b}, {n}, {h}]
  c: f32{c} = {c} sum(i3 < {k}) mul(@0, @1){then} where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
{rest}  output o
}})TW",
        fmt::arg("type", type), fmt::arg("b", b), fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k),
        fmt::arg("h", h), fmt::arg("c", shape), fmt::arg("then", softmax ? " then mul(acc, 0.125)" : ""),
        fmt::arg(
            "rest",
            softmax
                ? fmt::format(R"TW(  r: f32[{0}, {1}, 1] = [{0}, {1}, 1] max(i3 < {2}) @0 where @0 = c[i0, i1, i3]
  p: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[{0}, {1}, 1] = [{0}, {1}, 1] sum(i3 < {2}) @0 where @0 = p[i0, i1, i3]
  e: f32[{0}, {1}, {3}] = [{0}, {1}, {3}] sum(i3 < {2}) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: {4}[{0}, {1}, {3}] = [{0}, {1}, {3}] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
)TW",
                              b, m, n, h, type)
                : fmt::format(
                      R"TW(  o: {4}[{0}, {1}, {3}] = [{0}, {1}, {3}] sum(i3 < {2}) mul(@0, @1) where @0 = c[i0, i1, i3], @1 = v[i0, i3, i2]
)TW",
                      b, m, n, h, type))));
}

TEST(GpuSchedule, TakesInstructionsOfFourWarpsForLongChainsOfHalves) {
    const auto tree = [](const Program& stages, const GpuTarget& target) {
        Scheduling how;
        how.kind = SchedulerKind::Mcfuser;
        how.target.gpu = target;
        how.precision = Precision::F16;
        const auto t = make_chain_schedule(stages, how);
        EXPECT_TRUE(t);
        return t ? print(*t) : "";
    };
    const Program attention = chain_of_halves("f16", 16, 4096, 4096, 128, 128, true);
    // Two groups of four warps have 64 rows each; keys and values come a step ahead, swizzled.
    EXPECT_THAT(tree(attention, h200()), testing::AllOf(HasSubstr("stages 2"), HasSubstr("swizzle 128"),
                                                        HasSubstr("matrix f16 group [x1 x2 x3] registers [x1=64"),
                                                        HasSubstr("matrix f16 group [x1 x6 x2] registers [x1=64")));
    EXPECT_THAT(tree(attention, a100()), Not(HasSubstr("group")));
    // Floats are no operands of it.
    EXPECT_THAT(tree(chain_of_halves("f32", 16, 4096, 4096, 128, 128, true), h200()), Not(HasSubstr("group")));
}

TEST(GpuSchedule, GivesHalfOfTheColumnsToABlockWhereThatIsNoPowerOfTwo) {
    // S6: 16 heads of 256 rows are 64 blocks of 64 rows for 132 multiprocessors; two blocks of 64 columns would compute
    // 128 for 80.
    const auto schedule = [](const Program& stages) {
        Scheduling scheduling;
        scheduling.kind = SchedulerKind::Mcfuser;
        scheduling.target.gpu = h200();
        scheduling.precision = Precision::TF32;
        return make_chain_schedule(stages, scheduling);
    };
    const auto t = schedule(chain_of_halves("f32", 16, 256, 256, 80, 80, true));
    ASSERT_TRUE(t);
    EXPECT_THAT(print(*t), AllOf(HasSubstr("parallel x6 by 40"), HasSubstr("matrix tf32 group [x1 x6 x2] registers")));
    // The same of one head is executed.
    TileProgram one = *t;
    const Program head = chain_of_halves("f32", 1, 64, 256, 80, 80, true);
    one.stages = head;
    one.axes[0].extent = 1;
    one.axes[1].extent = 64;
    ASSERT_THAT(verify(one), testing::IsEmpty());
    expect_right({{"one head", one, {random_inputs(head, 11)}, 4e-3}});
}

TEST(GpuSchedule, KeepsScoresOfFloatQueriesThatLieAlongTheRowsInRegisters) {
    // Threads have pairs of rows then (left_along_rows), in the second product as well.
    const std::string text = changed(print(chain_of_halves("f32", 1, 128, 256, 64, 64, true)),
                                     "input q: f32[1, 128, 64]", "input q: f32[1, 64, 128]");
    Scheduling scheduling;
    scheduling.kind = SchedulerKind::Mcfuser;
    scheduling.target.gpu = h200();
    scheduling.precision = Precision::TF32;
    const auto t = make_chain_schedule(parse_program(changed(text, "q[i0, i1, i3]", "q[i0, i3, i1]")), scheduling);
    ASSERT_TRUE(t);
    EXPECT_THAT(generate(*t, h200()).text,
                AllOf(HasSubstr("tw::multiply_group_tf32"), HasSubstr("tw::row_pair_of_group"), Not(HasSubstr("s_c =")),
                      Not(HasSubstr("s_p ="))));
    expect_right({{"queries", *t, {random_inputs(t->stages, 12)}, 4e-3}});
}

TEST(GpuSchedule, OfLongAttentionsSpillsNoRegisters) {
    std::optional<Nvrtc> nvrtc;
    try {
        nvrtc.emplace();
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    for (const int width : {64, 128}) {
        Scheduling scheduling;
        scheduling.kind = SchedulerKind::Mcfuser;
        scheduling.target.gpu = h200();
        scheduling.precision = Precision::F16;
        const auto t = make_chain_schedule(chain_of_halves("f16", 16, 4096, 4096, width, width, true), scheduling);
        ASSERT_TRUE(t);
        const KernelText text = generate(*t, h200(), "attention");
        EXPECT_THAT(text.text, HasSubstr("tw::multiply_group_f16_"));
        const KernelUse use = nvrtc->uses(device_header() + "\n" + text.text, 90).at("attention");
        EXPECT_EQ(use.spilled_bytes, 0) << width;
        EXPECT_EQ(use.stack_bytes, 0) << width;
        EXPECT_LE(use.registers * text.threads, 65536) << width;
    }
}

TEST(GpuSchedule, OfChainsOnFourWarpsComputesWhatTheySay) {
    // Candidates at random, of all that have whole instructions.
    std::vector<LockstepCase> cases;
    std::mt19937_64 rng(5);
    int cut = 0;
    for (const bool softmax : {false, true}) {
        const char* type = softmax ? "f16" : "bf16";
        const Program stages = chain_of_halves(type, 2, 128, 96, 64, 80, softmax);
        const auto c = chain::make_chain(stages);
        ASSERT_TRUE(c);
        const chain::Space space = chain::make_space(*c);
        const Target target = tilewright::test::on_gpu(h200());
        const Precision precision = softmax ? Precision::F16 : Precision::BF16;
        std::set<std::string> seen;
        for (int k = 0; k < 4000 && seen.size() < 5; ++k) {
            chain::Candidate candidate{space.expressions[rng() % space.expressions.size()], {}};
            for (const auto& sizes : space.sizes) candidate.tiles.push_back(sizes[rng() % sizes.size()]);
            auto realised = chain::realise(*c, candidate, target);
            if (!realised) continue;
            const auto t = for_gpu_groups(std::move(*realised), target, precision);
            if (!t || !verify(*t).empty() || !seen.insert(print(*t)).second) continue;
            const std::string text = generate(*t, h200()).text;
            EXPECT_THAT(text, Not(HasSubstr("tw::multiply_" + std::string(type) + "(")));
            EXPECT_THAT(text, HasSubstr("tw::multiply_group_" + std::string(type)));
            cut += text.find("tw::correction") != std::string::npos ? 1 : 0;
            // Sixteenths below a half: the first sums have 11 bits at most, which is more than bf16 holds.
            std::vector<Tensor> inputs = schedule_cases::whole_numbers(t->stages, {});
            for (Tensor& x : inputs)
                for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
            cases.push_back({stages.name, *t, {inputs}, softmax ? 4e-3 : 3e-2});
        }
        EXPECT_EQ(seen.size(), size_t{5});
    }
    EXPECT_GT(cut, 0) << "no softmax is online";
    expect_right(cases);
}

TEST(GpuSchedule, OfStatesOfTheWalkComputesWhatTheySay) {
    // Gensor's states at random, most of them no good schedules: shapes that tiles do not divide, several axes a block,
    // virtual threads along rows and columns.
    const std::vector<std::pair<Program, Precision>> kernels = {
        {parse_program(product("50", "70", "40")), Precision::F32},
        {parse_program(product("50", "70", "40")), Precision::TF32},
        {parse_program(product("33", "90", "100", "f16")), Precision::F32},
        {parse_program(R"TW(program convolution {
  input x: f32[6, 9, 14]
  input w: f32[20, 6, 3, 3]
  input bias: f32[20]
  y: f32[20, 9, 14] = [20, 9, 14] sum(i3 < 6, i4 < 3, i5 < 3) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + 9 >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + 14 >= 0 else 0, @1 = w[i0, i3, i4, i5], @2 = bias[i0]
  output y
})TW"),
         Precision::F32},
        {parse_program(R"TW(program pool {
  input x: f32[5, 12, 30]
  y: f32[5, 6, 15] = [5, 6, 15] max(i3 < 2, i4 < 2) @0 where @0 = x[i0, 2*i1 + i3, 2*i2 + i4]
  output y
})TW"),
         Precision::F32}};
    std::vector<LockstepCase> cases;
    int interleaved = 0, ahead = 0;
    for (const auto& [stages, precision] : kernels) {
        const construct::Problem p = *construct::make_gpu_problem(stages, tilewright::test::on_gpu(a100()), precision);
        std::mt19937_64 rng(11);
        for (int k = 0; k < 10; ++k) {
            const construct::Realised r = construct::realise(p, construct::random_state(p, rng));
            for (const int64_t v : r.micro.virtual_threads) interleaved += v > 1 ? 1 : 0;
            ahead += r.ahead > 1 ? 1 : 0;
            cases.push_back(whole(fmt::format("{} {}", stages.name, k), construct::to_tile_program(stages, p, r)));
        }
    }
    EXPECT_GT(interleaved, 4);
    EXPECT_GT(ahead, 10);
    expect_right(cases);
}

TEST(GpuSchedule, OfStatesOfFourWarpsComputesWhatTheySay) {
    std::vector<LockstepCase> cases;
    int boxes = 0;
    for (const auto& [m, n, k, type, precision] :
         std::vector<std::tuple<const char*, const char*, const char*, const char*, Precision>>{
             {"130", "72", "96", "f16", Precision::F32},
             {"128", "128", "160", "bf16", Precision::F32},
             {"70", "48", "64", "f32", Precision::TF32},
             {"72", "132", "96", "f32", Precision::TF32}}) {
        const Program stages = parse_program(product(m, n, k, type));
        EXPECT_FALSE(construct::make_gpu_problem(stages, tilewright::test::on_gpu(a100()), precision,
                                                 true));  // sm_80 has no such instructions
        const auto p = construct::make_gpu_problem(stages, tilewright::test::on_gpu(h200()), precision, true);
        ASSERT_TRUE(p);
        std::mt19937_64 rng(5);
        for (int state = 0; state < 8; ++state) {
            const construct::Realised r = construct::realise(*p, construct::random_state(*p, rng));
            const TileProgram t = construct::to_tile_program(stages, *p, r);
            ASSERT_THAT(print(t), HasSubstr(" group ["));
            EXPECT_NEAR(gpu_estimate(t, h200()).seconds / r.seconds, 1, 0.1) << print(t);
            boxes += generate(t, h200()).maps.empty() ? 0 : 1;
            cases.push_back(whole(fmt::format("{} {}", type, state), t));
        }
    }
    EXPECT_GT(boxes, 10);
    expect_right(cases);
}

TEST(GpuSchedule, ChoosesTheUnitByItsEstimate) {
    Scheduling how;
    how.kind = SchedulerKind::Gensor;
    const IndexVector<PrimitiveId, std::vector<size_t>> rows(1);
    const auto unit_of = [&](const std::string& m, const GpuTarget& target) {
        how.target.gpu = target;
        const std::string text = print(make_schedule(parse_program(product(m, "2048", "2048", "f16")), rows, how));
        return text.find(" group [") != std::string::npos     ? "four warps"
               : text.find("matrix f16") != std::string::npos ? "a warp"
                                                              : "none";
    };
    EXPECT_STREQ(unit_of("2048", h200()), "four warps");
    EXPECT_STREQ(unit_of("2048", a100()), "a warp");
    EXPECT_STREQ(unit_of("32", h200()), "a warp");  // fewer rows than an instruction of four has
}

TEST(GpuSchedule, LetsBlocksThatRunTogetherShareTheirOperands) {
    const auto scheduled_on = [&](const GpuTarget& target, const std::string& stages) {
        return gpu_schedule(parse_program(stages), IndexVector<PrimitiveId, std::vector<size_t>>(1),
                            tilewright::test::on_gpu(target), Precision::F32);
    };
    // 132 blocks of 128 x 256: 16 times 9 of them read less than 4 times 32.
    EXPECT_THAT(
        print(scheduled_on(h200(), product("8192", "8192", "8192", "bf16"))),
        AllOf(HasSubstr("parallel s0 by 2048 {\n  parallel s1 by 256 {\n    parallel s0 by 128 {\n      for r2 by "
                        "64 stages 4 {"),
              HasSubstr("registers [s0=64 s1=256 r2=64]")));
    // What the second-level cache holds anyway goes as it comes.
    EXPECT_THAT(print(scheduled_on(h200(), product("1024", "1024", "1024", "bf16"))),
                Not(HasSubstr("      parallel s0")));
    GpuTarget few = h200();
    few.multiprocessors = 2;
    few.sm_blocks = 1;
    few.l2_bytes = 1 << 12;
    // Two blocks at a time: two rows of tiles, column by column.
    const TileProgram t = scheduled_on(few, product("500", "512", "64", "f16"));
    EXPECT_THAT(print(t), HasSubstr("parallel s0 by 256 {\n  parallel s1 by 256 {\n    parallel s0 by 128 {\n"));
    const auto inputs = schedule_cases::whole_numbers(t.stages, {});
    EXPECT_EQ(largest_difference(interpret(t.stages, inputs), interpret(t, inputs, {})),
              0);  // for other machines as well
    expect_right({whole("two rows of tiles together", t)});
    // As many as are asked for, the rule's first.
    const Program stages = parse_program(product("8192", "8192", "8192", "bf16"));
    const std::vector<TileProgram> all =
        gpu_product_schedules(stages, tilewright::test::on_gpu(h200()), Precision::F32, 5);
    ASSERT_EQ(all.size(), size_t{5});
    EXPECT_EQ(print(all[0]), print(scheduled_on(h200(), product("8192", "8192", "8192", "bf16"))));
    for (size_t k = 1; k < 5; ++k) EXPECT_NE(print(all[k]), print(all[k - 1]));
}

/// Candidates of G4 and S1 at random, as trees: MCFuser's Figure 10.
struct Drawn {
    TileProgram program;
    double rule_4 = 0;  ///< before there is a tree
};
std::vector<Drawn> drawn(const GpuTarget& target, int tries, uint64_t seed) {
    std::vector<Drawn> out;
    std::mt19937_64 rng(seed);
    for (const Program& stages : {chain::two_products(512, 512, 256, 256), chain::attention(8, 512, 512, 64, 64)}) {
        const auto c = chain::make_chain(stages);
        EXPECT_TRUE(c);
        const chain::Space space = chain::make_space(*c);
        const GpuChainBytes rule_4(*c);
        for (int k = 0; k < tries; ++k) {
            chain::Candidate candidate{space.expressions[rng() % space.expressions.size()], {}};
            for (const auto& sizes : space.sizes) candidate.tiles.push_back(sizes[rng() % sizes.size()]);
            auto tree = chain::realise(*c, candidate, tilewright::test::on_gpu(target));
            if (!tree) continue;
            TileProgram t = for_gpu(std::move(*tree), tilewright::test::on_gpu(target), Precision::F16);
            if (verify(t).empty()) out.push_back({std::move(t), rule_4(candidate)});
        }
    }
    return out;
}

TEST(GpuSchedule, EstimatesWhetherCandidatesOfChainsFitTheSharedMemory) {
    for (const GpuTarget& target : {a100(), h200()}) {
        GpuTarget roomy = target;  // nothing is put elsewhere
        roomy.block_shared_bytes = int64_t{1} << 30;
        const auto limit = static_cast<double>(target.block_shared_bytes);
        int right = 0, all = 0, fitting = 0, lost = 0;
        for (const Drawn& d : drawn(target, 120, 3)) {
            const KernelText text = generate(d.program, roomy);
            EXPECT_EQ(shared_bytes(d.program), text.shared_bytes) << print(d.program);
            const bool fits = static_cast<double>(text.shared_bytes) <= limit, kept = d.rule_4 <= 1.2 * limit;
            ++all;
            fitting += fits ? 1 : 0;
            right += fits == kept ? 1 : 0;
            lost += fits && !kept ? 1 : 0;
        }
        EXPECT_GT(fitting, all / 10);
        EXPECT_LT(fitting, all * 9 / 10);
        EXPECT_GE(right, all * 9 / 10) << right << " of " << all << ", of which " << fitting << " fit";
        EXPECT_LE(lost, all / 50);  // (the paper loses 1.2 %)
    }
}

TEST(GpuSchedule, EstimatesTheSharedMemoryThatPtxasSees) {
    std::optional<Nvrtc> nvrtc;
    try {
        nvrtc.emplace();
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    for (const GpuTarget& target : {a100(), h200()})
        for (const Drawn& d : drawn(target, 3, 11)) {
            GpuTarget roomy = target;
            roomy.block_shared_bytes = int64_t{1} << 30;
            const KernelText text = generate(d.program, roomy, "kernel");
            const int64_t estimate = shared_bytes(d.program).value_or(0);
            std::map<std::string, KernelUse> uses;
            try {
                uses = nvrtc->uses(device_header() + "\n" + text.text, target.capability(),
                                   {fmt::format("-DTW_SHARED_BYTES={}", text.shared_bytes)});
            } catch (const RuntimeError& e) {  // more than static memory may have, 48 KiB on sm_80
                uses = parse_uses(e.what());
            }
            ASSERT_EQ(uses.count("kernel"), size_t{1});
            EXPECT_EQ(uses.at("kernel").shared_bytes, estimate) << print(d.program);
        }
}

}  // namespace
}  // namespace tilewright::cuda
