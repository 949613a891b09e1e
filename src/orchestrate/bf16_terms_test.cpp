#include "orchestrate/bf16_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cost/target_with_test.h"
#include "orchestrate/layouts.h"
#include "orchestrate/weighted_programs_test.h"

namespace tilewright {
namespace {

using test::numbers;
using test::parsed;
using test::target_with_tiles;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Program split(const Program& p, int terms = 3, SplitOperands* report = nullptr, const F32Products& keep = {}) {
    Program out = split_operands(p, target_with_tiles(), terms, report, keep);
    EXPECT_EQ(verify(out), std::vector<std::string>());
    return out;
}

Tensor result(const Program& p, const std::vector<Tensor>& inputs) { return interpret(p, inputs).at(0); }

Tensor magnitudes(const Tensor& t) {
    Tensor out(t.dtype(), t.shape());
    for (int64_t i = 0; i < t.count(); ++i) out.set(i, std::abs(t.get(i)));
    return out;
}

/// The largest difference, relative to the sum of the magnitudes of an element's products. The interpreter adds up in
/// double precision.
double difference(const Program& a, const Program& b) {
    std::vector<Tensor> inputs, positive;
    for (const ValueId v : a.inputs) {
        inputs.push_back(numbers(a, v, 1));
        positive.push_back(magnitudes(inputs.back()));
    }
    Program sums = a;
    for (auto& [v, t] : sums.constants) t = magnitudes(t);
    const Tensor x = result(a, inputs), y = result(b, inputs), most = result(sums, positive);
    double off = 0;
    for (int64_t i = 0; i < x.count(); ++i) off = std::max(off, std::abs(x.get(i) - y.get(i)) / most.get(i));
    return off;
}

constexpr const char* kProduct = R"TW(  input x: f32[64, 256]
  input w: f32[256, 128]
  y: f32[64, 128] = [64, 128] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y Op
  output y
)TW";

TEST(SplitOperands, MakesThreeTermsOfBothOperandsAndSixProducts) {
    const Program p = parsed(kProduct);
    SplitOperands report;
    const Program terms = split(p, 3, &report);
    EXPECT_EQ(report.products, 1U);
    EXPECT_EQ(report.constants, 1U);
    EXPECT_EQ(report.values, 1U);
    const std::string text = print(terms);
    EXPECT_THAT(text, HasSubstr("bf16[64, 9, 3, 32]")) << "rows of 8 blocks would be 24 lines apart";
    EXPECT_THAT(text, AllOf(HasSubstr("bf16[8, 3, 32, 128]"), HasSubstr("sum(i2 < 8, i3 < 6, i4 < 32)")));
    EXPECT_THAT(text, Not(HasSubstr("const w: f32")));
    const double off = difference(p, terms);
    EXPECT_LT(off, 0x1p-23);
    EXPECT_GT(off, 0) << "pairs of the smallest terms are dropped";
}

TEST(SplitOperands, SumsAreStepsOfSixteenToThirtyTwoProducts) {
    // 20 blocks of 26 x 263 weights, no multiple of 16.
    const Program p = parsed(R"TW(  input x: f32[64, 520]
  input w: f32[520, 263]
  y: f32[64, 263] = [64, 263] sum(i2 < 520) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y Op
  output y
)TW");
    const Program terms = split(p);
    EXPECT_THAT(print(terms), HasSubstr("bf16[20, 3, 26, 263]"));
    EXPECT_LT(difference(p, terms), 0x1p-23);
}

TEST(SplitOperands, MakesTwoTermsAndThreeProductsWhere16BitsSuffice) {
    const Program p = parsed(kProduct), terms = split(p, 2);
    EXPECT_THAT(print(terms), AllOf(HasSubstr("bf16[64, 9, 2, 32]"), HasSubstr("i3 < 3, i4 < 32)")));
    const double off = difference(p, terms);
    EXPECT_LT(off, 0x1p-14);
    EXPECT_GT(off, 0x1p-22);
}

/// The terms of each element of x [16, 256] in the order of memory, [16, 9, terms, 32].
Tensor terms_of(const Tensor& x, int terms) {
    Program p = split(parsed(kProduct), terms);
    p.primitives.resize(1);
    p.outputs = p.primitives[PrimitiveId(0)].outputs;
    return result(p, {x});
}

TEST(SplitOperands, ThreeTermsAreExactlyTheNumber) {
    constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::min();
    const std::vector<float> special = {
        0.0F,      -0.0F,         1.0F,   -1.0F / 3,       kMost, -kMost, 0x1.fffffep127F, 0x1.fefffep127F,
        0x1p-100F, 0x1.000002p0F, 3e-20F, kLeast * 0x1p17F};
    Tensor x(DType::F32, {64, 256});
    for (int64_t i = 0; i < x.count(); ++i)
        x.set(i, i < static_cast<int64_t>(special.size()) ? static_cast<double>(special[static_cast<size_t>(i)])
                                                          : std::ldexp(std::sin(static_cast<double>(i)), i % 97 - 48));
    const Tensor t = terms_of(x, 3);
    for (int64_t i = 0; i < x.count(); ++i) {
        const int64_t at = i / 256 * 9 * 96 + i % 256 / 32 * 96 + i % 32;
        EXPECT_EQ(t.get(at) + t.get(at + 32) + t.get(at + 64), x.get(i)) << x.get(i);
    }
    for (int64_t i = 8 * 96; i < 9 * 96; ++i) EXPECT_EQ(t.get(i), 0) << "padding";
}

TEST(SplitOperands, InfinitiesAndNaNsAreTheLastTerm) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const int terms : {2, 3}) {
        Tensor x(DType::F32, {64, 256});
        x.set(0, inf);
        x.set(1, -inf);
        x.set(2, std::nan(""));
        const Tensor t = terms_of(x, terms);
        for (int64_t i = 0; i < 3; ++i)
            for (int k = 0; k + 1 < terms; ++k) EXPECT_EQ(t.get(i + 32L * k), 0);
        EXPECT_EQ(t.get(32L * (terms - 1)), inf);
        EXPECT_EQ(t.get(32L * (terms - 1) + 1), -inf);
        EXPECT_TRUE(std::isnan(t.get(32L * (terms - 1) + 2)));
    }
}

TEST(SplitOperands, AnInfinityTimesAWeightIsWhatItIsInF32) {
    const double inf = std::numeric_limits<double>::infinity();
    Program p = parsed(kProduct);
    Tensor w(DType::F32, {256, 128});
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, i % 3 == 0 ? 0.0 : i % 3 == 1 ? 1.0 : -1.0 / 3);
    p.constants.begin()->second = w;
    Tensor x(DType::F32, {64, 256});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, i / 256 == 1 && i % 256 == 255 ? 0.0 : 1.0);
    for (int64_t i = 0; i < 6; ++i) x.set(256 * 3 + i * 7, i % 2 == 0 ? inf : -inf);
    for (const int terms : {2, 3}) {
        const Tensor expected = result(p, {x}), y = result(split(p, terms), {x});
        for (int64_t i = 0; i < y.count(); ++i)
            if (std::isfinite(expected.get(i)))
                EXPECT_NEAR(y.get(i), expected.get(i), 0.01);
            else
                EXPECT_EQ(std::isnan(y.get(i)), std::isnan(expected.get(i))) << i;
    }
}

TEST(SplitOperands, ProductsWithWeightsThatAreNotFiniteStay) {
    const double inf = std::numeric_limits<double>::infinity(), rounds_to_infinity = std::numeric_limits<float>::max();
    for (const double special : {inf, -inf, std::nan(""), rounds_to_infinity, -rounds_to_infinity}) {
        Program p = parsed(kProduct);
        p.constants.begin()->second.set(128 * 255 + 5, special);
        EXPECT_EQ(print(split(p)), print(p)) << special << ": an infinity times an infinite weight would be NaN";
    }
}

TEST(SplitOperands, PaddingOfWindowsIsPartOfTheSplitData) {
    const Program p = parsed(R"TW(  input x: f32[1, 64, 14, 14]
  input w: f32[128, 64, 3, 3]
  y: f32[1, 128, 14, 14] = [1, 128, 14, 14] sum(i4 < 64, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + 14 >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + 14 >= 0 else 0, @1 = w[i1, i4, i5, i6]  ; y Op
  output y
)TW");
    const Program terms = split(p);
    EXPECT_THAT(print(terms), HasSubstr("bf16[1, 2, 3, 32, 16, 16]"));
    EXPECT_TRUE(terms.primitives[PrimitiveId(1)].expr()->accesses[0].valid.empty());
    EXPECT_LT(difference(p, terms), 0x1p-23);
}

TEST(SplitOperands, ProductsShareTheTermsOfTheirData) {
    SplitOperands report;
    split(parsed(R"TW(  input x: f32[64, 256]
  input w1: f32[256, 128]
  input w2: f32[256, 128]
  y: f32[64, 128] = [64, 128] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w1[i2, i1]  ; y Op
  z: f32[64, 128] = [64, 128] sum(i2 < 256) mul(@0, @1) where @0 = x[i0, i2], @1 = w2[i2, i1]  ; z Op
  output y
  output z
)TW"),
          3, &report);
    EXPECT_EQ(report.products, 2U);
    EXPECT_EQ(report.values, 1U);
}

TEST(SplitOperands, TermsKeepRunsAlongTheSumWhateverTheLayoutOfTheData) {
    // Tokens of h are contiguous, since the weights of its product are a matrix of tokens.
    const Program terms = split(parsed(R"TW(  input x: f32[196, 512]
  input w1: f32[196, 196]
  input w2: f32[512, 2048]
  h: f32[196, 512] = [196, 512] sum(i2 < 196) mul(@0, @1) where @0 = x[i2, i1], @1 = w1[i0, i2]  ; h Op
  y: f32[196, 2048] = [196, 2048] sum(i2 < 512) mul(@0, @1) where @0 = h[i0, i2], @1 = w2[i2, i1]  ; y Op
  output y
)TW"));
    const ChosenLayouts chosen = choose_layouts(terms, target_with_tiles());
    const auto layout_of = [&](const std::string& text) {
        for (const ValueId v : terms.values.ids())
            if (terms.values[v].name.find(text) != std::string::npos) {
                const auto at = chosen.values.find(v);
                return at == chosen.values.end() ? std::string() : print(at->second);
            }
        return std::string("no such value");
    };
    EXPECT_NE(layout_of("h"), "");
    EXPECT_EQ(layout_of("h.terms"), print(Layout()));
}

TEST(SplitOperands, ProductsThatGainNothingStay) {
    const auto product = [](const char* rows, int sum, int columns) {
        return parsed(fmt::format(R"TW(  input x: f32[{0}, {1}]
  input w: f32[{1}, {2}]
  y: f32[{0}, {2}] = [{0}, {2}] sum(i2 < {1}) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y Op
  output y
)TW",
                                  rows, sum, columns));
    };
    const auto stays = [&](const Program& p, const Target& target = target_with_tiles(), const F32Products& keep = {},
                           const std::map<std::string, DimRange>& ranges = {}) {
        return print(split_operands(p, target, 3, nullptr, keep, ranges)) == print(p);
    };
    EXPECT_FALSE(stays(product("128", 256, 256)));
    EXPECT_TRUE(stays(product("4", 256, 256))) << "it takes the time of its weights";
    EXPECT_TRUE(stays(product("$n", 256, 256))) << "a run may have few rows";
    EXPECT_FALSE(
        stays(product("$n", 256, 256), target_with_tiles(), {}, {{"n", {.least = 64, .most = {}, .samples = {}}}}));
    EXPECT_TRUE(stays(product("4096", 32, 32))) << "splitting takes longer than the product";
    EXPECT_TRUE(stays(product("128", 24, 256))) << "the sum is so short that its rounding errors are smaller in f32";
    EXPECT_TRUE(stays(product("128", 257, 256))) << "no step of a tile register divides the sum";
    EXPECT_TRUE(stays(product("128", 256, 256), generic_target(VectorIsa::avx512)));
    F32Products keep;
    keep.results = {"y"};
    EXPECT_TRUE(stays(product("128", 256, 256), target_with_tiles(), keep));
}

}  // namespace
}  // namespace tilewright
