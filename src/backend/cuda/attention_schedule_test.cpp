// Attentions on warpgroups, as chains become schedules: f32 tensors in tf32, divisions that round in front of the
// second product, tiles beyond the end of an axis, and masks of which whole steps are left out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/lockstep_cases_test.h"
#include "cost/gpu_estimate.h"
#include "program/scalar_text.h"
#include "schedule/chain/chain.h"
#include "schedule/chain/chains_test.h"
#include "schedule/scheduler.h"
#include "tile/live_steps.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kCausal = "select(ge(index(i1), index(i2)), mul(acc, 0.5), -inf)";

std::optional<TileProgram> chain_schedule(const Program& stages, Precision precision,
                                          const GpuTarget& target = h200()) {
    Scheduling how;
    how.kind = SchedulerKind::Mcfuser;
    how.target.gpu = target;
    how.precision = precision;
    return make_chain_schedule(stages, how);
}

/// With these types of queries, keys, values, weights and result.
Program stored(Program p, DType type) {
    for (const char* name : {"q", "k", "v", "w", "e"})
        for (const ValueId v : p.values.ids())
            if (p.values[v].name == name) p.values[v].dtype = type;
    return p;
}

/// Sixteenths below a half: the scores have 11 bits at most.
LockstepCase sixteenths(const std::string& name, TileProgram t, double tolerance) {
    std::vector<Tensor> inputs = schedule_cases::whole_numbers(t.stages, {});
    for (Tensor& x : inputs)
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
    return {name, std::move(t), {inputs}, tolerance};
}

TEST(AttentionSchedule, KeepsTheProbabilitiesOfF32InRegistersInTf32) {
    const auto t = chain_schedule(chain::attention(16, 512, 512, 64, 64), Precision::TF32);
    ASSERT_TRUE(t);
    EXPECT_THAT(print(*t), AllOf(HasSubstr("matrix tf32 group [x1 x2 x3]"), HasSubstr("matrix tf32 group [x1 x6 x2]")));
    const std::string text = generate(*t, h200()).text;
    EXPECT_THAT(text, Not(HasSubstr("tw::multiply_tf32(")));
    // A Load of the values pairs numbers of the sum as the threads have the probabilities.
    EXPECT_THAT(print(*t), HasSubstr("split(2, 8) split(3, 2) reorder(0, 2, 4, 1, 3) pad(3, 0, 1)"));
}

TEST(AttentionSchedule, ComputesInTf32WhatItSays) {
    std::vector<LockstepCase> cases;
    for (const auto& [heads, m, n, k, h] :
         std::vector<std::array<int64_t, 5>>{{1, 128, 128, 32, 64}, {2, 64, 96, 16, 24}, {1, 100, 77, 64, 40}})
        if (auto t = chain_schedule(chain::attention(heads, m, n, k, h), Precision::TF32)) {
            EXPECT_THAT(print(*t), HasSubstr("group")) << m << " " << n;
            cases.push_back(sixteenths(fmt::format("{} x {}", m, n), std::move(*t), 4e-3));
        }
    EXPECT_EQ(cases.size(), size_t{3});
    expect_right(cases);
}

TEST(AttentionSchedule, DividesByTheSumBehindTheProductWhereTheModelRoundsBetween) {
    std::vector<LockstepCase> cases;
    for (const DType type : {DType::F16, DType::BF16}) {
        // Whatever the precision: the model's operands have that type.
        auto t = chain_schedule(stored(chain::attention(2, 128, 128, 64, 64), type), Precision::F32);
        ASSERT_TRUE(t);
        EXPECT_THAT(print(*t), HasSubstr(fmt::format("matrix {} group [x1 x6 x2]", to_string(type))));
        cases.push_back(sixteenths(std::string(to_string(type)), std::move(*t), type == DType::F16 ? 4e-3 : 3e-2));
    }
    expect_right(cases);
}

/// The schedule of a long attention, of 64 keys a step, for 128 rows and so many keys. `epilogue`: of scores, and of a
/// mask, @2.
TileProgram long_attention(const std::string& epilogue, int64_t keys) {
    const bool masked = epilogue.find("@2") != std::string::npos;
    return parse_tile_program(fmt::format(
        R"TW(tile attention {{
stages {{
program attention {{
  input q: f16[1, 128, 64]
  input k: f16[1, {n}, 64]
  input v: f16[1, {n}, 64]
{input}  c: f32[1, 128, {n}] = [1, 128, {n}] sum(i3 < 64) mul(@0, @1) then {epilogue} where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]{mask}
  r: f32[1, 128, 1] = [1, 128, 1] max(i3 < {n}) @0 where @0 = c[i0, i1, i3]
  p: f32[1, 128, {n}] = [1, 128, {n}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[1, 128, 1] = [1, 128, 1] sum(i3 < {n}) @0 where @0 = p[i0, i1, i3]
  e: f32[1, 128, 64] = [1, 128, 64] sum(i3 < {n}) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: f16[1, 128, 64] = [1, 128, 64] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
  output o
}}
}}
axes x0="1" x1="128" x2="{n}" x3="64" x4="1" x5="1" x6="64"
stage 0 over [x0 x1 x2 x3]
stage 1 over [x0 x1 x4 x2]
stage 2 over [x0 x1 x2]
stage 3 over [x0 x1 x5 x2]
stage 4 over [x0 x1 x6 x2]
stage 5 over [x0 x1 x6]
parallel x0 by 1 {{
  parallel x1 by 64 {{
    load 0 access 0 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
    for x2 by 64 stages 2 {{
      load 4 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
      load 0 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
      compute 0 matrix f16 group [x1 x2 x3] registers [x1=64 x2=64 x3=64] padding local
      compute 1 online vector x2 lanes 4 registers [x2=16] order [x0 x1 x4 x2] padding partition
      compute 2 vector x2 lanes 4 registers [x2=8] order [x0 x1 x2] padding partition
      compute 3 vector x2 lanes 4 registers [x2=16] order [x0 x1 x5 x2] padding partition
      compute 4 matrix f16 group [x1 x6 x2] registers [x1=64 x6=64 x2=64] padding local
    }}
    compute 5 vector x6 lanes 4 registers [x6=8] order [x0 x1 x6] padding partition
  }}
}}
}}
)TW",
        fmt::arg("n", keys), fmt::arg("epilogue", epilogue),
        fmt::arg("input", masked ? fmt::format("  input mask: f32[128, {}]\n", keys) : ""),
        fmt::arg("mask", masked ? ", @2 = mask[i1, i2]" : "")));
}

TEST(AttentionSchedule, DoesForARowWhatItNeedNotDoForAScore) {
    const std::string text = generate(long_attention("mul(acc, 0.125)", 512), h200()).text;
    // Scores stay without their scale, which the maximum of a row gets, and the exponential has as a part of a
    // constant.
    EXPECT_THAT(text, HasSubstr("r_c[r_x1][r_x2] = sum[r_x1][r_x2];"));
    EXPECT_THAT(text, HasSubstr("= tw::Max::of(r_r[r_x1_2], sum_2[r_x1_2] * 0.125f);"));
    EXPECT_THAT(text, HasSubstr("= tw::exp_near(r_c[r_x1_3][r_x2_3], 0.125f, "));
    // The four threads of a row add up their sums behind the last step; results are rescaled where a maximum changed.
    EXPECT_THAT(text, HasSubstr("if (last) {\n"));
    EXPECT_THAT(text, HasSubstr("if (tw::any_of_warp(changed)) {\n"));
    // In few steps most change maxima. What is added to scores leaves them no common factor.
    EXPECT_THAT(generate(long_attention("mul(acc, 0.125)", 256), h200()).text, Not(HasSubstr("any_of_warp")));
    EXPECT_THAT(generate(long_attention("add(mul(acc, 0.125), @2)", 512), h200()).text, Not(HasSubstr(", 0.125f, ")));
}

TEST(AttentionSchedule, DoesBeforeItsStepsAndForARowWhatItNeedNotDoForAResult) {
    const std::string text = generate(long_attention("mul(acc, 0.125)", 512), h200()).text;
    // Where a thread's results go is computed while the first copies are under way; stores add constants to that.
    const size_t address = text.find("const tw::Out<u16> g_o_from = tw::kept(g_o + ("),
                 steps = text.find("for (int round");
    ASSERT_NE(address, std::string::npos);
    EXPECT_LT(text.find("tw::copy_box("), address);
    EXPECT_LT(address, steps);
    EXPECT_THAT(text, HasSubstr("tw::store<2>(g_o_from + (r_x1_6 * 512 + part_x6 * 8), out);"));
    // One reciprocal for all results of a row. A softmax's sum is at least 1.
    EXPECT_THAT(text, HasSubstr("s[r_x1_6] = tw::reciprocal_from_one(r_s[r_x1_6]);"));
    EXPECT_THAT(text, HasSubstr("= tw::to_f16((r_e[r_x1_6][r_x6_2] * s[r_x1_6]));"));
    TileProgram other = long_attention("mul(acc, 0.125)", 512);
    TensorExpr& terms = std::get<TensorExpr>(other.stages.primitives[PrimitiveId(2)].kind);
    terms.body = parse_scalar(
        "mul(exp(sub(@0, @1)), 0.001)", [](uint32_t) { return DType::F32; }, DType::F32);
    EXPECT_THAT(generate(other, h200()).text, HasSubstr("s[r_x1_6] = tw::reciprocal(r_s[r_x1_6]);"));
}

TEST(AttentionSchedule, IsRightWhereMaximaChangeInEveryStepAndInNone) {
    std::vector<LockstepCase> cases;
    for (const char* epilogue : {"mul(acc, 0.125)", "select(ge(index(i1), index(i2)), mul(acc, 0.125), -inf)"}) {
        LockstepCase c = sixteenths(epilogue, long_attention(epilogue, 512), 4e-3);
        const std::vector<Tensor> inputs = c.inputs[0];
        // Keys that grow, and that shrink, in front of queries of one sign: so do scores.
        for (const bool grow : {true, false}) {
            std::vector<Tensor> x = inputs;
            for (int64_t i = 0; i < x[0].count(); ++i) x[0].set(i, std::abs(x[0].get(i)));
            for (int64_t i = 0; i < x[1].count(); ++i) {
                const int64_t key = i / 64 % 512;
                x[1].set(i, static_cast<double>(grow ? key : 511 - key) / 64);
            }
            c.inputs.push_back(std::move(x));
        }
        // A row of NaNs, and a key of infinities.
        std::vector<Tensor> x = inputs;
        for (int64_t i = 0; i < 64; ++i) x[0].set(64 + i, std::numeric_limits<double>::quiet_NaN());
        c.inputs.push_back(x);
        x = inputs;
        for (int64_t i = 0; i < 64; ++i) x[1].set(300 * 64 + i, std::numeric_limits<double>::infinity());
        c.inputs.push_back(x);
        cases.push_back(std::move(c));
    }
    expect_right(cases);
}

TEST(AttentionSchedule, IsRightWhereTheLowestFloatMasksWholeSteps) {
    // The first keys of every row, as of a shorter example that is padded on the left; and all keys of a few rows,
    // which then weigh the same.
    LockstepCase c = sixteenths("padded", long_attention("add(mul(acc, 0.125), @2)", 512), 4e-3);
    Tensor& mask = c.inputs[0].back();
    ASSERT_EQ(mask.count(), 128 * 512);
    for (int64_t i = 0; i < mask.count(); ++i) mask.set(i, i % 512 < 128 || i / 512 < 3 ? -3.4028234663852886e38 : 0);
    expect_right({c});
}

TEST(AttentionSchedule, TakesWholeInstructionsBeyondTheEndOfAnAxis) {
    std::vector<LockstepCase> cases;
    for (const int64_t n : {int64_t{197}, int64_t{77}}) {
        auto t = chain_schedule(stored(chain::attention(1, n, n, 64, 64), DType::F16), Precision::F16);
        ASSERT_TRUE(t);
        EXPECT_THAT(print(*t), HasSubstr("matrix f16 group")) << n;
        cases.push_back(sixteenths(fmt::format("{} tokens", n), std::move(*t), 4e-3));
    }
    expect_right(cases);
}

/// Queries, keys and values are columns of one tensor of `width` numbers a head, as one product makes them. `keys`
/// tokens in each of two examples, of which rows follow each other. Two heads of keys, each for `shared` of queries.
Program packed(int64_t keys, int64_t width, int64_t shared = 1) {
    return parse_program(fmt::format(
        R"TW(program packed {{
  input x: f16[{rows}, {all}]
  c: f32[2, {h}, {n}, {n}] = [2, {h}, {n}, {n}] sum(i4 < {w}) mul(@0, @1) then mul(acc, 0.5) where @0 = x[{n}*i0 + i2, {w}*i1 + i4], @1 = x[{n}*i0 + i3, {w}*(i1 // {g}) + i4 + {k}]
  r: f32[2, {h}, {n}, 1] = [2, {h}, {n}] -> [i0, i1, i2, 0] max(i3 < {n}) @0 where @0 = c[i0, i1, i2, i3]
  p: f32[2, {h}, {n}, {n}] = [2, {h}, {n}, {n}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2, i3], @1 = r[i0, i1, i2, 0]
  s: f32[2, {h}, {n}, 1] = [2, {h}, {n}] -> [i0, i1, i2, 0] sum(i3 < {n}) @0 where @0 = p[i0, i1, i2, i3]
  w: f16[2, {h}, {n}, {n}] = [2, {h}, {n}, {n}] div(@0, @1) where @0 = p[i0, i1, i2, i3], @1 = s[i0, i1, i2, 0]
  e: f16[{rows}, {k}] = [2, {n}, {h}, {w}] -> [{n}*i0 + i1, {w}*i2 + i3] sum(i4 < {n}) mul(@0, @1) where @0 = w[i0, i2, i1, i4], @1 = x[{n}*i0 + i4, {w}*(i2 // {g}) + i3 + {v}]
  output e
}})TW",
        fmt::arg("n", keys), fmt::arg("w", width), fmt::arg("g", shared), fmt::arg("h", 2 * shared),
        fmt::arg("rows", 2 * keys), fmt::arg("k", 2 * shared * width), fmt::arg("v", 2 * (shared + 1) * width),
        fmt::arg("all", 2 * (shared + 2) * width)));
}

TEST(AttentionSchedule, ReadsHeadsThatLieSideBySide) {
    std::vector<LockstepCase> cases;
    for (const auto& [keys, width] : std::vector<std::pair<int64_t, int64_t>>{{128, 64}, {64, 80}, {192, 32}}) {
        auto t = chain_schedule(packed(keys, width), Precision::F16);
        ASSERT_TRUE(t);
        EXPECT_THAT(print(*t), HasSubstr("matrix f16 group")) << keys << " keys, " << width << " wide";
        cases.push_back(sixteenths(fmt::format("{} keys, {} wide", keys, width), std::move(*t), 4e-3));
    }
    expect_right(cases);
}

TEST(AttentionSchedule, ReadsNoOtherExampleBehindTheEndOfASum) {
    // Behind the last key of an example are those of the next one. (Behind the last one lies nothing.)
    std::vector<LockstepCase> cases;
    for (const int64_t keys : {int64_t{77}, int64_t{197}}) {
        auto t = chain_schedule(packed(keys, 64), Precision::F16);
        ASSERT_TRUE(t);
        EXPECT_THAT(print(*t), AllOf(HasSubstr("matrix f16"), Not(HasSubstr("group")))) << keys;
        cases.push_back(sixteenths(fmt::format("{} keys", keys), std::move(*t), 4e-3));
    }
    expect_right(cases);
}

TEST(AttentionSchedule, GivesEachHeadThatSharesKeysABlockOfItsOwn) {
    auto t = chain_schedule(packed(128, 64, 2), Precision::F16);
    ASSERT_TRUE(t);
    EXPECT_THAT(print(*t), HasSubstr("matrix f16 group"));
    expect_right({sixteenths("two heads share keys", std::move(*t), 4e-3)});
}

TEST(AttentionSchedule, TakesHeadsOfAnyWholeNumberOfInstructions) {
    std::vector<LockstepCase> cases;
    for (const int64_t width : {int64_t{80}, int64_t{96}, int64_t{48}}) {
        auto t = chain_schedule(stored(chain::attention(2, 128, 128, width, width), DType::F16), Precision::F16);
        ASSERT_TRUE(t);
        EXPECT_THAT(print(*t), HasSubstr("matrix f16 group")) << width;
        cases.push_back(sixteenths(fmt::format("{} wide", width), std::move(*t), 4e-3));
    }
    expect_right(cases);
}

/// As exporters write models with dynamic sizes: keys and values follow the queries' number of tokens.
Program dynamic_attention(const std::string& tokens) {
    return parse_program(fmt::format(
        R"TW(program dynamic {{
  input q: f16[$batch, {n}, 128]
  input k: f16[$batch, {n}, 128]
  input v: f16[$batch, {n}, 128]
  input mask: f32[$batch, {n}]
  c: f32[$batch, 2, {n}, {n}] = [$batch, 2, {n}, {n}] sum(i4 < 64) mul(@0, @1) then add(mul(acc, 0.5), @2) where @0 = q[i0, i2, 64*i1 + i4], @1 = k[i0, i3, 64*i1 + i4], @2 = mask[i0, i3]
  r: f32[$batch, 2, {n}, 1] = [$batch, 2, {n}] -> [i0, i1, i2, 0] max(i3 < {n}) @0 where @0 = c[i0, i1, i2, i3]
  p: f32[$batch, 2, {n}, {n}] = [$batch, 2, {n}, {n}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2, i3], @1 = r[i0, i1, i2, 0]
  s: f32[$batch, 2, {n}, 1] = [$batch, 2, {n}] -> [i0, i1, i2, 0] sum(i3 < {n}) @0 where @0 = p[i0, i1, i2, i3]
  w: f32[$batch, 2, {n}, {n}] = [$batch, 2, {n}, {n}] div(@0, @1) where @0 = p[i0, i1, i2, i3], @1 = s[i0, i1, i2, 0]
  e: f16[$batch, {n}, 128] = [$batch, {n}, 2, 64] -> [i0, i1, 64*i2 + i3] sum(i4 < {n}) mul(@0, @1) where @0 = w[i0, i2, i1, i4], @1 = v[i0, i4, 64*i2 + i3]
  output e
}})TW",
        fmt::arg("n", tokens)));
}

TEST(AttentionSchedule, TakesAnyNumberOfTokensAndExamples) {
    auto t = chain_schedule(dynamic_attention("$seq"), Precision::F16);
    ASSERT_TRUE(t);
    // Rows are blocks of their own, whatever the batch, and keys are streamed.
    EXPECT_THAT(print(*t), AllOf(HasSubstr("matrix f16 group [x2 x3"), HasSubstr("online"), HasSubstr("parallel x2 by"),
                                 HasSubstr("for x3 by")));
    LockstepCase c{"dynamic", *t, {}, 4e-3};
    for (const auto& [batch, seq] : std::vector<std::pair<int64_t, int64_t>>{{1, 128}, {2, 77}, {1, 1}, {3, 65}}) {
        std::vector<Tensor> inputs = schedule_cases::whole_numbers(t->stages, {{"batch", batch}, {"seq", seq}});
        for (Tensor& x : inputs)
            for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
        c.inputs.push_back(std::move(inputs));
    }
    expect_right({c});
}

TEST(AttentionSchedule, OfDynamicSizesReadsNoOtherExampleBehindTheEndOfASum) {
    // The rows of all examples in one dimension: behind the last key of one are those of the next.
    std::string text = print(dynamic_attention("$seq"));
    for (const auto& [before, after] : std::vector<std::pair<std::string, std::string>>{
             {"input v: f16[$batch, $seq, 128]", "input v: f16[$rows, 128]"}, {"v[i0, i4, ", "v[$seq*i0 + i4, "}}) {
        ASSERT_NE(text.find(before), std::string::npos) << text;
        text.replace(text.find(before), before.size(), after);
    }
    auto t = chain_schedule(parse_program(text), Precision::F16);
    ASSERT_TRUE(t);
    EXPECT_THAT(print(*t), AllOf(HasSubstr("matrix f16"), Not(HasSubstr("group"))));
    LockstepCase c{"one dimension of rows", *t, {}, 4e-3};
    std::vector<Tensor> inputs = schedule_cases::whole_numbers(t->stages, {{"batch", 2}, {"seq", 77}, {"rows", 154}});
    for (Tensor& x : inputs)
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, x.get(i) / 16);
    c.inputs.push_back(std::move(inputs));
    expect_right({c});
}

TEST(AttentionSchedule, TakesHeadsOfNoWholeNumberOfInstructions) {
    std::vector<LockstepCase> cases;
    for (const Precision precision : {Precision::F16, Precision::TF32}) {
        const bool narrow = precision == Precision::F16;
        Program p = chain::attention(2, 64, 64, 26, 26);
        if (narrow) p = stored(std::move(p), DType::F16);
        auto t = chain_schedule(p, precision);
        ASSERT_TRUE(t);
        // Half of 26 in eights is 16: two blocks of columns, and two steps of the scores' sum.
        EXPECT_THAT(print(*t),
                    HasSubstr(narrow ? "matrix f16 [" : "matrix tf32 group [x1 x6 x2] registers [x1=64 x6=16"));
        cases.push_back(sixteenths(fmt::format("26 wide in {}", to_string(precision)), std::move(*t), 4e-3));
    }
    expect_right(cases);
}

TEST(AttentionSchedule, SumsAllKeysWhereTheyAreAnOddNumberOfEights) {
    // An instruction in f16 sums 16 keys, and has eight columns: the columns of the scores are seven, three, thirteen
    // times eight, which are no whole sums of the second product.
    std::vector<LockstepCase> cases;
    for (const int64_t keys : {int64_t{49}, int64_t{24}, int64_t{104}})
        for (const DType type : {DType::F16, DType::BF16}) {
            auto t = chain_schedule(stored(chain::attention(2, 49, keys, 32, 32), type),
                                    type == DType::F16 ? Precision::F16 : Precision::BF16);
            ASSERT_TRUE(t);
            EXPECT_THAT(print(*t), HasSubstr("matrix " + std::string(to_string(type)))) << keys;
            cases.push_back(sixteenths(fmt::format("{} keys in {}", keys, to_string(type)), std::move(*t),
                                       type == DType::F16 ? 4e-3 : 3e-2));
        }
    expect_right(cases);
}

// --- steps that are left out

/// Loops of the program and the conditions under which their points count.
std::vector<std::vector<Expr>> conditions(const TileProgram& t) {
    const Walk tree = walk(t);
    std::vector<std::vector<Expr>> out;
    for (const auto& [path, loop] : tree.loops)
        if (!loop->parallel)
            if (std::vector<Expr> found = live_conditions(t, tree, path); !found.empty()) out.push_back(found);
    return out;
}

/// An attention whose keys are streamed in steps.
TileProgram in_steps(const std::string& scores, int64_t m, int64_t n, int64_t rows, int64_t step, int stages = 2) {
    return schedule_cases::kernel(
        print(chain::factored(chain::unrounded(stored(chain::attention(2, m, n, 64, 64, scores), DType::F16)))),
        fmt::format(R"TW(axes b="2" m="{m}" n="{n}" k="64" h="64" one="1"
stage 0 over [b m n k]
stage 1 over [b m one n]
stage 2 over [b m n]
stage 3 over [b m one n]
stage 4 over [b m h n]
stage 5 over [b m h]
parallel b by 1 {{
  parallel m by {rows} {{
    load 0 access 0 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
    for n by {step} stages {stages} {{
      load 0 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
      load 4 access 1 layout "split(2, 64) reorder(0, 2, 1, 3)" swizzle 128 padding local
      compute 0 matrix f16 group [m n k] registers [m=64 n={step} k=64] padding local
      compute 1 online padding local
      compute 2 padding local
      compute 3 padding local
      compute 4 matrix f16 group [m h n] registers [m=64 h=64 n={step}] padding local
    }}
    compute 5 padding local
  }}
}})TW",
                    fmt::arg("m", m), fmt::arg("n", n), fmt::arg("rows", rows), fmt::arg("step", step),
                    fmt::arg("stages", stages)));
}

TEST(AttentionSchedule, IsEstimatedWithTheInstructionsOfItsMachineCode) {
    // Of a warp, for a score of each of its threads. `slots`: what bench_sass counts (docs/gpu.md).
    for (const auto& [rows, step, slots] : {std::tuple(64, 64, 8.9), {128, 128, 6.9}}) {
        const TileProgram t = in_steps("mul(acc, 0.125)", 4096, 4096, rows, step);
        const GpuTarget gpu = h200();
        const double issued = gpu_estimate(t, gpu).issue_seconds * 4 * gpu.multiprocessors * gpu.ghz * 1e9;
        EXPECT_NEAR(issued / (2.0 * 4096 * 4096 / 32), slots, 0.05 * slots) << step;
    }
    // So what a step has once is shared among more keys.
    const auto t = chain_schedule(stored(chain::attention(16, 4096, 4096, 64, 64), DType::F16), Precision::F16);
    ASSERT_TRUE(t);
    EXPECT_THAT(print(*t), HasSubstr("for x2 by 128 stages 2"));
}

TEST(LiveSteps, FollowFromTheMaskOfTheScores) {
    const auto text = [](const std::string& scores) {
        const auto found =
            chain_schedule(stored(chain::attention(2, 1024, 1024, 64, 64, scores), DType::F16), Precision::F16);
        std::string all;
        if (found)
            for (const auto& loop : conditions(*found))
                for (const Expr& e : loop) all += e.text() + "; ";
        return all;
    };
    EXPECT_THAT(text(kCausal), HasSubstr("i1 - i2"));
    EXPECT_EQ(text("mul(acc, 0.5)"), "");
    // A number that is no mask keeps its rows' scores.
    EXPECT_EQ(text("select(ge(index(i1), index(i2)), mul(acc, 0.5), -10000.0)"), "");
    EXPECT_THAT(text("select(ge(index(i1), index(i2)), select(lt(index(i1 - i2), 256), acc, -inf), -inf)"),
                AllOf(HasSubstr("i1 - i2"), HasSubstr("-i1 + i2 + 255")));
}

TEST(LiveSteps, BoundTheLoopOfABlockOfRows) {
    const Expr rows = axis(0), keys = axis(1);
    const std::vector<AxisBounds> block = {{128, 192}, {0, 1024}};
    const LiveRange causal = live_range({rows - keys}, 1, block);
    EXPECT_EQ(causal.end, Expr(192));
    EXPECT_FALSE(causal.begin);
    const LiveRange window = live_range({rows - keys, keys - rows + 31}, 1, block);
    EXPECT_EQ(window.end, Expr(192));
    EXPECT_EQ(window.begin, Expr(128 - 31));
    EXPECT_EQ(live_range({rows - keys + 512}, 1, block).end, Expr(192 + 512));
}

TEST(LiveSteps, AloneAreComputedAndEstimated) {
    const std::string window =
        "select(ge(index(i1), index(i2)), select(lt(index(i1 - i2), 40), mul(acc, 0.5), -inf), -inf)";
    std::vector<LockstepCase> cases;
    const auto add = [&](const std::string& name, const TileProgram& t, bool first) {
        const std::string text = generate(t, h200()).text;
        EXPECT_THAT(text, HasSubstr("// others are masked")) << name;
        EXPECT_EQ(text.find("const int first_") != std::string::npos, first) << name;
        cases.push_back(sixteenths(name, t, 4e-3));
    };
    for (const int stages : {1, 2, 3}) {
        add(fmt::format("causal, {} stages", stages), in_steps(kCausal, 192, 192, 64, 32, stages), false);
        add(fmt::format("window, {} stages", stages), in_steps(window, 256, 256, 64, 32, stages), true);
    }
    // More keys than rows: the last rows see all of them.
    add("past keys", in_steps("select(ge(index(i1 + 64), index(i2)), mul(acc, 0.5), -inf)", 128, 192, 64, 64), false);
    expect_right(cases);
    // Half of the steps, and of the time of long ones.
    const auto seconds = [](const std::string& scores) {
        return gpu_estimate(in_steps(scores, 8192, 8192, 128, 64), h200()).seconds;
    };
    EXPECT_LT(seconds(kCausal), 0.6 * seconds("mul(acc, 0.5)"));
}

}  // namespace
}  // namespace tilewright::cuda
