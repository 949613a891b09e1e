#include "orchestrate/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/host_probe.h"
#include "cost/target_with_test.h"
#include "orchestrate/padded_columns.h"
#include "orchestrate/paired_operands.h"
#include "orchestrate/weighted_programs_test.h"
#include "orchestrate/window_runs.h"

namespace tilewright {
namespace {

using test::numbers;
using test::parsed;
using test::target_with_tiles;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// -1, 0 and 1, whose products and short sums bf16 represents.
Tensor signs(const Program& p, ValueId v) {
    Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 7 + i / 5) % 3) - 1);
    return t;
}

double difference(const Program& a, const Program& b, bool whole = false) {
    std::vector<Tensor> inputs;
    for (const ValueId v : a.inputs) inputs.push_back(whole ? signs(a, v) : numbers(a, v, 1));
    const Tensor x = interpret(a, inputs)[0], y = interpret(b, inputs)[0];
    double largest = 0, off = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
        largest = std::max(largest, std::abs(x.get(i)));
        off = std::max(off, std::abs(x.get(i) - y.get(i)));
    }
    return off / largest;
}

constexpr const char* kTwoProducts = R"TW(  input x: f32[64, 32]
  input w1: f32[32, 64]
  input w2: f32[64, 48]
  a: f32[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; a Op
  y: f32[64, 48] = [64, 48] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = w2[i2, i1]  ; y Op
  output y
)TW";

TEST(NarrowOperands, StoresOperandsOfProductsInBf16AndRoundsInputsIntoCopies) {
    const Program p = parsed(kTwoProducts);
    NarrowedOperands report;
    const Program narrow = narrow_operands(p, target_with_tiles(), Precision::BF16, &report);
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    EXPECT_EQ(report.products, 2U);
    EXPECT_EQ(report.constants, 2U);
    EXPECT_EQ(report.values, 1U);
    EXPECT_EQ(report.copies, 1U);
    const std::string text = print(narrow);
    EXPECT_THAT(text, HasSubstr("x.bf16: bf16[64, 32]"));
    EXPECT_THAT(text, HasSubstr("  a: bf16[64, 64]"));
    EXPECT_THAT(text, HasSubstr("  y: f32[64, 48]"));
    EXPECT_THAT(text, HasSubstr("w1.bf16: bf16"));
    EXPECT_THAT(text, Not(HasSubstr("const w1: f32")));
    const double off = difference(p, narrow);
    EXPECT_GT(off, 0);
    EXPECT_LT(off, 0x1p-6);
}

Target with_f16_sums() {
    Target t = restricted(generic_target(VectorIsa::avx512), code_level_from_string("avx512-fp16").value());
    t.sums_in_f16 = true;
    return t;
}

TEST(NarrowOperands, StoresOperandsInF16WhereTheyMayBeSummedInIt) {
    const Program p = parsed(kTwoProducts);
    NarrowedOperands report;
    const Program narrow = narrow_operands(p, with_f16_sums(), Precision::F16, &report);
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    EXPECT_EQ(report.products, 2U);
    const std::string text = print(narrow);
    EXPECT_THAT(text, AllOf(HasSubstr("x.f16: f16[64, 32]"), HasSubstr("  a: f16[64, 64]"), HasSubstr("w1.f16: f16")));
    EXPECT_THAT(text, Not(HasSubstr("bf16")));
    EXPECT_LT(difference(p, narrow), 0x1p-9);
    Target exact = with_f16_sums();
    exact.sums_in_f16 = false;
    EXPECT_EQ(print(narrow_operands(p, exact, Precision::F16)), print(p));
    EXPECT_EQ(print(narrow_operands(p, with_f16_sums(), Precision::F32)), print(p));
    EXPECT_EQ(print(narrow_operands(p, target_with_tiles(), Precision::F16)), print(p)) << "f16, and nothing coarser";
}

TEST(NarrowOperands, LeavesWeightsThatF16CannotHold) {
    Program p = parsed(kTwoProducts);
    for (auto& [v, w] : p.constants)
        if (p.values[v].name == "w1") w.set(5, 70000);
    const std::string text = print(narrow_operands(p, with_f16_sums(), Precision::F16));
    EXPECT_THAT(text, AllOf(Not(HasSubstr("w1.f16")), HasSubstr("w2.f16"), Not(HasSubstr("x.f16"))));
}

TEST(NarrowOperands, LeavesProductsInF32WhoseSumsHaveOnlyShortStepsOfF16) {
    const auto text = [](int k) {
        return print(narrow_operands(parsed(fmt::format(R"TW(  input x: f32[64, {0}]
  input w: f32[{0}, 48]
  y: f32[64, 48] = [64, 48] sum(i2 < {0}) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y Op
  output y
)TW",
                                                        k)),
                                     with_f16_sums(), Precision::F16));
    };
    EXPECT_THAT(text(36), HasSubstr("w.f16"));
    EXPECT_THAT(text(34), HasSubstr("w.f16"));
    EXPECT_THAT(text(24), Not(HasSubstr("f16")));
    EXPECT_THAT(text(2 * 67), Not(HasSubstr("f16"))) << "steps of two";
}

/// The program with all products in f32 whose results are named.
Program narrow_but(const Program& p, const std::set<std::string>& results, NarrowedOperands* report = nullptr) {
    Program narrow = narrow_operands(p, target_with_tiles(), Precision::BF16, report, {{}, results});
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    return narrow;
}

TEST(NarrowOperands, LeavesOperandsAndResultsOfChosenProducts) {
    const Program p = parsed(kTwoProducts);
    NarrowedOperands report;
    const std::string first = print(narrow_but(p, {"a"}, &report));
    EXPECT_THAT(first, AllOf(HasSubstr("where @0 = x[i0, i2], @1 = w1[i2, i1]"), HasSubstr("  a: f32[64, 64]")));
    EXPECT_THAT(first, AllOf(HasSubstr("where @0 = a.bf16[i0, i2], @1 = w2.bf16[i2, i1]"), Not(HasSubstr("x.bf16"))))
        << "the other product reads a rounded copy";
    ASSERT_EQ(report.kept.size(), 1U);
    EXPECT_EQ(report.kept[0].result, "a");
    ASSERT_EQ(report.rounded.size(), 1U);
    EXPECT_EQ(report.rounded[0].result, "y");
    const std::string second = print(narrow_but(p, {"y"}));
    EXPECT_THAT(second, AllOf(HasSubstr("  a: f32[64, 64]"), HasSubstr("@0 = a[i0, i2], @1 = w2[i2, i1]")));
    EXPECT_THAT(second, HasSubstr("@0 = x.bf16[i0, i2], @1 = w1.bf16[i2, i1]"));
    EXPECT_EQ(print(narrow_but(p, {"a", "y"})), print(p));
}

TEST(NarrowOperands, ChoosesProductsByAnyOfTheirNodes) {
    Program p = parsed(kTwoProducts);
    p.nodes = {{"fc1", "MatMul"}, {"relu1", "Relu"}, {"fc2", "MatMul"}};
    p.primitives[PrimitiveId(0)].origin.nodes = {0, 1};
    p.primitives[PrimitiveId(1)].origin.nodes = {2};
    const auto narrow = [&](const std::set<std::string>& nodes) {
        return print(narrow_operands(p, target_with_tiles(), Precision::BF16, nullptr, {nodes, {}}));
    };
    EXPECT_EQ(narrow({"relu1"}), print(narrow_but(p, {"a"})));
    EXPECT_EQ(narrow({"fc2"}), print(narrow_but(p, {"y"})));
    EXPECT_EQ(narrow({"fc"}), print(narrow_but(p, {})));
}

TEST(NarrowOperands, LeavesWhatIsOnlyCopiedToOperandsOfChosenProducts) {
    // Without a chosen product, c and its transposition are stored in bf16.
    const Program p = parsed(R"TW(  input x: f32[64, 32]
  input w1: f32[32, 64]
  input w2: f32[64, 48]
  c: f32[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; c Op
  t: f32[64, 64] = [64, 64] @0 where @0 = c[i1, i0]  ; t Op
  y: f32[64, 48] = [64, 48] sum(i2 < 64) mul(@0, @1) where @0 = t[i0, i2], @1 = w2[i2, i1]  ; y Op
  output y
)TW");
    EXPECT_THAT(print(narrow_but(p, {})), AllOf(HasSubstr("  c: bf16"), HasSubstr("  t: bf16")));
    EXPECT_THAT(print(narrow_but(p, {"y"})), AllOf(HasSubstr("  c: f32"), HasSubstr("  t: f32")));
}

/// softmax(x w1 (x w2)^T) (x w3): queries, keys and values are products with weights.
constexpr const char* kAttention = R"TW(  input x: f32[128, 256]
  input w1: f32[256, 64]
  input w2: f32[256, 64]
  input w3: f32[256, 64]
  q: f32[128, 64] = [128, 64] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; q Op
  k: f32[128, 64] = [128, 64] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w2[i2, i1]  ; k Op
  v: f32[128, 64] = [128, 64] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w3[i2, i1]  ; v Op
  c: f32[128, 128] = [128, 128] sum(i2 < 64) mul(@0, @1) then mul(acc, 0.125) where @0 = q[i0, i2], @1 = k[i1, i2]  ; c Op
  r: f32[128, 1] = [128, 1] max(i2 < 128) @0 where @0 = c[i0, i2]  ; r Op
  e: f32[128, 128] = [128, 128] exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0, 0]  ; e Op
  s: f32[128, 1] = [128, 1] sum(i2 < 128) @0 where @0 = e[i0, i2]  ; s Op
  p: f32[128, 128] = [128, 128] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]  ; p Op
  y: f32[128, 64] = [128, 64] sum(i2 < 128) mul(@0, @1) where @0 = p[i0, i2], @1 = v[i2, i1]  ; y Op
  output y
)TW";

TEST(NarrowOperands, OnAGpuStoresWhatProductsReadAndNothingElse) {
    const Target gpu = with_gpu(generic_target(VectorIsa::avx2), h200());
    for (const Precision precision : {Precision::F16, Precision::BF16}) {
        const std::string type(to_string(precision));
        const Program p = parsed(kAttention);
        NarrowedOperands report;
        const Program narrow = narrow_operands(p, gpu, precision, &report);
        EXPECT_EQ(verify(narrow), std::vector<std::string>());
        const std::string text = print(narrow);
        for (const char* v : {"q", "k", "v", "p"}) EXPECT_THAT(text, HasSubstr(fmt::format("  {}: {}[128", v, type)));
        // Scores, exponentials and sums are no operands.
        for (const char* v : {"c", "r", "e", "s", "y"}) EXPECT_THAT(text, HasSubstr(fmt::format("  {}: f32[128", v)));
        EXPECT_EQ(report.constants, 3U);
        EXPECT_EQ(report.copies, 1U) << "of the input, which three products read";
        EXPECT_LT(difference(p, narrow), precision == Precision::F16 ? 0x1p-8 : 0x1p-5);
    }
    EXPECT_EQ(print(narrow_operands(parsed(kAttention), gpu, Precision::TF32)), print(parsed(kAttention)));
}

TEST(NarrowOperands, LeavesConstantsThatF16CannotHold) {
    const Target gpu = with_gpu(generic_target(VectorIsa::avx2), h200());
    Program p = parsed(kTwoProducts);
    for (auto& [v, t] : p.constants)
        if (p.values[v].name == "w1") t.set(0, 1e5);
    const std::string f16 = print(narrow_operands(p, gpu, Precision::F16)),
                      bf16 = print(narrow_operands(p, gpu, Precision::BF16));
    EXPECT_THAT(f16, AllOf(HasSubstr("w2.f16: f16"), Not(HasSubstr("w1.f16"))));
    EXPECT_THAT(bf16, AllOf(HasSubstr("w1.bf16: bf16"), HasSubstr("w2.bf16: bf16")));
}

TEST(NarrowOperands, IsTheSameForDotProducts) {
    Target dots = target_with_tiles();
    dots.features = {"avx512bf16"};
    assume_unit_rates(dots);
    const Program p = parsed(kTwoProducts);
    EXPECT_EQ(print(narrow_operands(p, dots, Precision::BF16)),
              print(narrow_operands(p, target_with_tiles(), Precision::BF16)));
}

TEST(NarrowOperands, LeavesMachinesWithoutMatrixInstructionsAlone) {
    const Program p = parsed(kTwoProducts);
    EXPECT_EQ(print(narrow_operands(p, generic_target(VectorIsa::avx512), Precision::BF16)), print(p));
}

TEST(NarrowOperands, KeepsWhatStatisticsAreComputedFromInF32) {
    // The product's result is squared and summed, as by a normalisation, and is also an operand.
    const Program narrow = narrow_operands(parsed(R"TW(  input x: f32[64, 32]
  input w1: f32[32, 64]
  input w2: f32[64, 48]
  a: f32[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; a Op
  s: f32[64] = [64] sum(i1 < 64) mul(add(@0, 1.0), add(@0, 2.0)) where @0 = a[i0, i1]  ; s Op
  m: f32[64] = [64] sum(i1 < 64) exp(@0) where @0 = a[i0, i1]  ; m Op
  y: f32[64, 48] = [64, 48] sum(i2 < 64) mul(@0, @1) then add(acc, add(@2, @3)) where @0 = a[i0, i2], @1 = w2[i2, i1], @2 = s[i0], @3 = m[i0]  ; y Op
  output y
)TW"),
                                           target_with_tiles(), Precision::BF16);
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    EXPECT_THAT(print(narrow), HasSubstr("  a: f32[64, 64]"));
    EXPECT_THAT(print(narrow), HasSubstr("a.bf16: bf16[64, 64]"));
}

TEST(NarrowOperands, LeavesProductsThatDoNotFitTileRegisters) {
    // Odd sums, and few columns.
    for (const char* text : {R"TW(  input x: f32[64, 33]
  input w1: f32[33, 64]
  y: f32[64, 64] = [64, 64] sum(i2 < 33) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; y Op
  output y
)TW",
                             R"TW(  input x: f32[64, 32]
  input w1: f32[32, 8]
  y: f32[64, 8] = [64, 8] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; y Op
  output y
)TW"})
        EXPECT_EQ(print(narrow_operands(parsed(text), target_with_tiles(), Precision::BF16)), print(parsed(text)));
}

/// Attention's products over `n` keys of 32 elements: s = q k', then y = s v.
std::string attention(int n) {
    return fmt::format(R"TW(  input q: f32[2, 40, 32]
  input k: f32[2, {0}, 32]
  input v: f32[2, {0}, 48]
  s: f32[2, 40, {0}] = [2, 40, {0}] sum(i3 < 32) mul(@0, @1) where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]  ; s Op
  y: f32[2, 40, 48] = [2, 40, 48] sum(i3 < {0}) mul(@0, @1) where @0 = s[i0, i1, i3], @1 = v[i0, i3, i2]  ; y Op
  output y
)TW",
                       n);
}

TEST(PairOperands, CopiesTheRightFactorsOfComputedTensorsIntoPairs) {
    const Program p = parsed(attention(64));
    const PairedOperands paired = pair_operands(p, DType::BF16);
    EXPECT_EQ(verify(paired.program), std::vector<std::string>());
    EXPECT_EQ(paired.products.size(), 2U);
    EXPECT_THAT(print(paired.program), HasSubstr("s.pairs: bf16[2, 16, 64, 2]"));
    EXPECT_THAT(print(paired.program), HasSubstr("y.pairs: bf16[2, 32, 48, 2]"));
    NarrowedOperands report;
    const Program narrow = narrow_operands(p, target_with_tiles(), Precision::BF16, &report);
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    EXPECT_EQ(report.products, 2U);
    EXPECT_THAT(print(narrow), HasSubstr("  s: bf16[2, 40, 64]"));
    EXPECT_EQ(difference(p, narrow, true), 0);
}

TEST(PairOperands, PadsASumThatNoStepDivides) {
    const Program p = parsed(attention(37));
    const Program paired = pair_operands(p, DType::BF16).program;
    EXPECT_EQ(verify(paired), std::vector<std::string>());
    EXPECT_THAT(print(paired), HasSubstr("y.pairs: bf16[2, 32, 48, 2]"));
    EXPECT_THAT(print(paired), HasSubstr("y.padded: bf16[2, 40, 64]"));
    EXPECT_EQ(difference(p, paired, true), 0);
}

TEST(NarrowOperands, HalvesTheWeightsOfProductsOfOneRow) {
    const Program narrow = narrow_operands(parsed(R"TW(  input x: f32[1, 256]
  input w: f32[256, 256]
  y: f32[1, 256] = [1, 256] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y Op
  output y
)TW"),
                                           target_with_tiles(), Precision::BF16);
    EXPECT_EQ(verify(narrow), std::vector<std::string>());
    EXPECT_THAT(print(narrow), HasSubstr("const w.bf16: bf16[256, 256]"));
    EXPECT_THAT(print(narrow), Not(HasSubstr("x.bf16")));
}

/// A convolution of 3 x 3 windows with padding 1 and the given stride.
std::string convolution(int channels, int stride, const std::string& batch, int taps = 3) {
    return fmt::format(R"TW(  input x: f32[{2}, {0}, 11, 13]
  input w: f32[16, {0}, 3, {3}]
  input b: f32[16]
  y: f32[{2}, 16, 5, 6] = [{2}, 16, 5, 6] sum(i4 < {0}, i5 < 3, i6 < {3}) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i4, {1}*i2 + i5 - 1, {1}*i3 + i6 - 1] when {1}*i2 + i5 - 1 >= 0 and -{1}*i2 - i5 + 11 >= 0 and {1}*i3 + i6 - 1 >= 0 and -{1}*i3 - i6 + 13 >= 0 else 0, @1 = w[i1, i4, i5, i6], @2 = b[i1]  ; y Op
  output y
)TW",
                       channels, stride, batch, taps);
}

TEST(WindowRuns, MakeTheSumOverChannelsAndColumnsOneAxis) {
    for (const int channels : {1, 3, 4, 5})
        for (const int stride : {1, 2})
            for (const int taps : {2, 3, 5}) {
                const Program p = parsed(convolution(channels, stride, "2", taps));
                const Program runs = gather_window_runs(p, MatrixType::BF16);
                EXPECT_EQ(verify(runs), std::vector<std::string>());
                EXPECT_EQ(runs.primitives.size(), 2U) << channels << " channels";
                EXPECT_EQ(difference(p, runs), 0) << print(runs);
                NarrowedOperands report;
                narrow_operands(p, target_with_tiles(), Precision::BF16, &report);
                EXPECT_EQ(report.products, 1U);
            }
}

TEST(WindowRuns, OfBytesKeepTheirPadding) {
    const Program p = parsed(R"TW(  input x: u8[1, 3, 11, 13]
  input w: i8[16, 3, 3, 3]
  y: i32[1, 16, 11, 13] = [1, 16, 11, 13] sum(i4 < 3, i5 < 3, i6 < 3) mul(i32(@0), i32(@1)) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 11 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 13 >= 0 else 7, @1 = w[i1, i4, i5, i6]  ; y Op
  output y
)TW");
    EXPECT_EQ(print(gather_window_runs(p, MatrixType::BF16)), print(p));
    const Program runs = gather_window_runs(p, MatrixType::I8);
    EXPECT_EQ(verify(runs), std::vector<std::string>());
    EXPECT_THAT(print(runs), HasSubstr("y.runs: u8[1, 13, 60]"));
    EXPECT_EQ(difference(p, runs), 0) << print(runs);
}

TEST(WindowRuns, KeepADynamicBatch) {
    const Program runs = gather_window_runs(parsed(convolution(3, 2, "$n")), MatrixType::BF16);
    EXPECT_EQ(verify(runs), std::vector<std::string>());
    EXPECT_THAT(print(runs), HasSubstr("y.runs: f32[$n, "));
}

TEST(WindowRuns, LeaveConvolutionsWithChannelsEnough) {
    const Program p = parsed(convolution(8, 1, "1"));
    EXPECT_EQ(print(gather_window_runs(p, MatrixType::BF16)), print(p));
}

/// A convolution with `outputs` channels of `inputs` channels, and a bias.
std::string few(int outputs, int inputs, int taps = 3) {
    return fmt::format(R"TW(  input x: f32[1, {1}, 20, 30]
  input w: f32[{0}, {1}, {2}, {2}]
  input wb: f32[{0}]
  y: f32[1, {0}, 18, 28] = [1, {0}, 18, 28] sum(i4 < {1}, i5 < {2}, i6 < {2}) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6], @2 = wb[i1]  ; y Conv
  output y
)TW",
                       outputs, inputs, taps);
}

TEST(PadColumns, OfFewOutputChannelsToATileRegister) {
    const Program p = parsed(few(3, 32));
    const Program padded = pad_columns(p);
    EXPECT_EQ(verify(padded), std::vector<std::string>()) << print(padded);
    const std::string text = print(padded);
    EXPECT_THAT(text, HasSubstr("w.padded: f32[16, 32, 3, 3]"));
    EXPECT_THAT(text, HasSubstr("y.padded: f32[1, 16, 18, 28]"));
    EXPECT_LT(difference(p, padded), 1e-6);
    NarrowedOperands report;
    narrow_operands(p, target_with_tiles(), Precision::BF16, &report);
    EXPECT_EQ(report.products, 1U);
}

TEST(NarrowOperands, LeavesTheFormOfChosenProducts) {
    for (const std::string& text : {few(3, 32), convolution(3, 2, "2")}) {
        const Program p = parsed(text);
        EXPECT_EQ(print(narrow_but(p, {"y"})), print(p));
    }
    const Program p = parsed(attention(37));
    EXPECT_EQ(print(narrow_but(p, {"s", "y"})), print(p));
    EXPECT_THAT(print(narrow_but(p, {"y"})),
                AllOf(HasSubstr("s.pairs"), Not(HasSubstr("y.pairs")), HasSubstr("  s: f32")));
}

TEST(NarrowOperands, ReportsTheResultOfAProductThatItPads) {
    Program p = parsed(few(3, 32));
    p.primitives[PrimitiveId(0)].origin.parts = {0};
    NarrowedOperands report;
    narrow_but(p, {}, &report);
    ASSERT_EQ(report.rounded.size(), 1U);
    EXPECT_EQ(report.rounded[0].result, "y");
}

TEST(PadColumns, OnlyWhereProductsHaveRunsAndManyTerms) {
    const auto pads = [](const std::string& text) {
        return print(pad_columns(parsed(text))).find(".padded") != std::string::npos;
    };
    EXPECT_TRUE(pads(few(7, 32)));
    EXPECT_FALSE(pads(few(1, 32)));
    EXPECT_FALSE(pads(few(8, 32)));
    EXPECT_FALSE(pads(few(3, 12)));     // no runs of input channels
    EXPECT_FALSE(pads(few(3, 32, 1)));  // 32 terms
}

}  // namespace
}  // namespace tilewright
