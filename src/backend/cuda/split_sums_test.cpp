// Split-K inside a kernel: blocks with parts of a sum, of which the last to arrive adds them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/fake_gpu_test.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "base/error.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

LockstepCase whole(const std::string& name, const TileProgram& p,
                   const std::vector<schedule_cases::Sizes>& sizes = {{}}) {
    LockstepCase c{name, p, {}, 0};
    for (const auto& s : sizes) c.inputs.push_back(schedule_cases::whole_numbers(p.stages, s));
    return c;
}

/// A kernel of one stage `y = ... x ...` over axes that are named in order.
TileProgram one_stage(const std::string& stage, const std::string& axes, const std::string& body) {
    return schedule_cases::kernel("program p {\n" + stage + "\n  output y\n}", axes + "\n" + body);
}

TEST(SplitSums, OfProductsOnEveryUnitAreThoseOfTheWhole) {
    std::vector<LockstepCase> cases;
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")})
        for (const bool group : {false, true})
            for (const bool swizzled : {false, true})
                for (const int stages : {1, 3}) {
                    if (swizzled && !group) continue;
                    MatrixProduct p = {"128", "64", "328", type, unit};  // the last part has 8 points
                    p.group = group;
                    p.swizzled = swizzled;
                    p.stages = stages;
                    p.split = "64";
                    p.b_turned = std::string(unit) == "tf32";
                    cases.push_back(
                        whole(fmt::format("{}, {}, {}, {}", unit, group, swizzled, stages), matrix_product(p)));
                }
    // Rows and columns that end inside of a tile; heads of a batch.
    MatrixProduct p = {"70", "72", "256", "f16", "f16"};
    p.split = "128";
    p.batch = "2";
    cases.push_back(whole("a batch", matrix_product(p)));
    expect_right(cases);
}

TEST(SplitSums, HaveAsManyPartsAsTheDynamicSumNeeds) {
    MatrixProduct p = {"$m", "64", "$k", "f16", "f16"};
    p.split = "64";
    std::vector<LockstepCase> cases;
    // No part, one that is not full, several.
    cases.push_back(
        whole("warps", matrix_product(p), {{{"m", 70}, {"k", 0}}, {{"m", 3}, {"k", 40}}, {{"m", 65}, {"k", 300}}}));
    cases.push_back(whole("cores",
                          one_stage(R"TW(  input a: f32[$m, $k]
  input b: f32[$k, 24]
  y: f32[$m, 24] = [$m, 24] sum(i2 < $k) mul(@0, @1) then mul(acc, 0.5) where @0 = a[i0, i2], @1 = b[i2, i1])TW",
                                    R"TW(axes m="$m" n="24" k="$k"
stage 0 over [m n k])TW",
                                    R"TW(parallel m by 16 { parallel n by 16 { parallel k by 32 {
  for k by 8 stages 2 {
    load 0 access 0 layout "" padding local
    load 0 access 1 layout "" padding local
    compute 0 vector n lanes 4 registers [m=4 n=4] padding local
  }
  store y padding local
} } })TW"),
                          {{{"m", 17}, {"k", 0}}, {{"m", 3}, {"k", 20}}, {{"m", 33}, {"k", 100}}}));
    expect_right(cases);
}

/// Without loops in a block, its threads share the part of a sum: by shuffles in a warp, through shared memory beyond.
TEST(SplitSums, OfRowsAreAddedByThreadsFirstAndThenByBlocks) {
    std::vector<LockstepCase> cases;
    for (const char* reducer : {"sum", "max", "min"})
        for (const auto& [type, then] : {std::pair("f32", " then add(acc, 1.0)"), std::pair("f32", ""),
                                         std::pair("i32", ""), std::pair("f16", " then add(acc, 1.0)")})
            for (const char* rows : {"1", "5", "40"}) {
                const std::string text = fmt::format(
                    "  input x: {0}[{1}, 1000]\n"
                    "  y: {0}[{1}] = [{1}] {2}(i1 < 1000) @0{3} where @0 = x[i0, i1]",
                    type, rows, reducer, then);
                cases.push_back(whole(fmt::format("{} of {} rows of {}", reducer, rows, type),
                                      one_stage(text, fmt::format("axes m=\"{}\" k=\"1000\"\nstage 0 over [m k]", rows),
                                                R"TW(parallel m by 8 { parallel k by 256 {
  compute 0 vector k lanes 4 registers [k=4] padding local
} })TW")));
            }
    // One number of all; and a buffer that a Store writes.
    for (const char* store : {"", "  store y padding local\n"})
        cases.push_back(whole("one number", one_stage("  input x: f32[4000]\n"
                                                      "  y: f32[] = [] sum(i0 < 4000) @0 where @0 = x[i0]",
                                                      "axes k=\"4000\"\nstage 0 over [k]",
                                                      fmt::format("parallel k by 512 {{\n  compute 0 vector k lanes 4 "
                                                                  "registers [k=4] padding local\n{}}}",
                                                                  store))));
    // More tiles than threads: some threads have several, with a room for each.
    cases.push_back(
        whole("many columns", one_stage("  input x: f32[100, 3000]\n"
                                        "  y: f32[3000] = [3000] sum(i1 < 100) @0 where @0 = x[i1, i0]",
                                        "axes n=\"3000\" k=\"100\"\nstage 0 over [n k]",
                                        "parallel n by 1024 { parallel k by 30 {\n"
                                        "  compute 0 vector n lanes 2 registers [n=2] padding local\n} }")));
    expect_right(cases);
}

/// Blocks arrive in another order than that of their parts (emulated.cuh). Of 2^24 + 1 - 2^24 every order has its sum.
TEST(SplitSums, AreAddedInTheOrderOfTheAxis) {
    const TileProgram t =
        one_stage("  input x: f32[8]\n  y: f32[] = [] sum(i0 < 8) @0 where @0 = x[i0]",
                  "axes k=\"8\"\nstage 0 over [k]", "parallel k by 1 {\n  compute 0 padding local\n}");
    ASSERT_EQ(verify(t), std::vector<std::string>());
    const double large = 0x1p24;
    const std::vector<std::vector<double>> rows = {{large, 1, 1, -large, 0, 0, 0, 0},
                                                   {1, 1, large, -large, 0, 0, 0, 0},
                                                   {0, 0, 1, 0, 1, large, 0, -large},
                                                   {-large, 1, 3, 1, large, 1, 1, 1}};
    const TestKernels kernels({generate(t, h200(), "kernel")});
    for (const std::vector<double>& row : rows) {
        float expected = 0;
        for (const double x : row) expected += static_cast<float>(x);
        const Tensor x = Tensor::of<double>(DType::F32, {8}, row);
        EXPECT_EQ(kernels.run(0, t.stages, {x})[0].get(0), expected);
    }
}

TEST(SplitSums, KeepTheirPartsInMemoryWithACounterForEveryTile) {
    MatrixProduct p = {"256", "128", "768", "f16", "f16"};
    p.split = "256";
    const KernelText text = generate(matrix_product(p), h200());
    EXPECT_EQ(print(matrix_product(p)), print(parse_tile_program(print(matrix_product(p)))));
    // A block has 64 x 64 sums of 4 bytes; three blocks have a tile.
    EXPECT_EQ(text.scratch_bytes, 64 * 64 * 4);
    EXPECT_EQ(text.counters, Expr(4 * 2));
    EXPECT_EQ(text.pointers(), text.tensors.size() + 2);
    EXPECT_THAT(text.text, HasSubstr("return;"));
    p.split = "";
    const KernelText one = generate(matrix_product(p), h200());
    EXPECT_FALSE(one.counters);
    EXPECT_THAT(one.text, Not(HasSubstr("last_to_arrive")));
}

TEST(SplitSums, AreLaunchedWithCountersThatAreZero) {
    MatrixProduct p = {"64", "64", "$k", "f16", "f16"};
    p.split = "64";
    const TileProgram t = matrix_product(p);
    const KernelText text = generate(t, a100(), "kernel");
    test::FakeGpu machine;
    machine.argument_count = [](const std::string&) { return size_t{4 + 2 + 1}; };
    int launches = 0;
    machine.run = [&](const std::string&, const std::vector<uint64_t>& arguments, int64_t blocks) {
        EXPECT_EQ(blocks, 3);
        machine.at(arguments[4], static_cast<size_t>(3 * text.scratch_bytes));
        EXPECT_EQ(*static_cast<uint32_t*>(machine.at(arguments[5], 4)), 0U);
        ++launches;
    };
    const Gpu gpu(0, machine.driver());
    gpu.run(gpu.load(text.text, text), text, t.stages, schedule_cases::whole_numbers(t.stages, {{"k", 150}}));
    EXPECT_EQ(machine.wrong, "");
    EXPECT_EQ(launches, 1);
}

}  // namespace
}  // namespace tilewright::cuda
