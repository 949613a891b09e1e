#include "program/transform/index_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "program/random_program.h"
#include "program/text.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

/// The program, of whose inputs `m` is a constant with these elements, by row and column.
Program with_mask(const std::string& text, const std::function<double(int64_t row, int64_t column)>& of) {
    Program p = parse_program("program p {\n" + text + "}\n");
    const auto mask =
        std::find_if(p.inputs.begin(), p.inputs.end(), [&](ValueId v) { return p.values[v].name == "m"; });
    Tensor t(p.values[*mask].dtype, evaluate(p.values[*mask].shape, Bindings()));
    const int64_t columns = t.shape().back();
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, of(i / columns, i % columns));
    p.constants.emplace(*mask, std::move(t));
    p.inputs.erase(mask);
    return p;
}

/// The program after the pass: it computes the same, of numbers, infinities and what is none.
std::string without_mask(const Program& p) {
    const Program changed = index_masks(p);
    std::vector<Tensor> inputs = random_inputs(p, 3);
    inputs[0].set(0, std::numeric_limits<double>::quiet_NaN());
    inputs[0].set(1, std::numeric_limits<double>::infinity());
    inputs[0].set(2, kLowest);
    EXPECT_EQ(largest_difference(interpret(p, inputs), interpret(changed, inputs)), 0);
    EXPECT_EQ(verify(changed), std::vector<std::string>());
    return print(changed);
}

const std::string kSelected = R"TW(  input s: f32[2, 6, 9]
  input m: bool[1, 6, 9]
  y: f32[2, 6, 9] = [2, 6, 9] select(@0, @1, -3.4028235e+38f) where @0 = m[0, i1, i2], @1 = s[i0, i1, i2]
  output y
)TW";
const std::string kAdded = R"TW(  input s: f32[2, 6, 9]
  input m: f32[6, 9]
  y: f32[2, 6, 9] = [2, 6, 9] add(@1, @0) where @0 = m[i1, i2], @1 = s[i0, i1, i2]
  output y
)TW";

TEST(IndexMasks, WhatIsNoNumberOrHasNoElementsStays) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    for (const bool above : {false, true}) {
        const Program p = with_mask(kAdded, [&](int64_t i, int64_t j) { return (j > i) == above ? kNone : kLowest; });
        EXPECT_EQ(print(index_masks(p)), print(p)) << above;
    }
    const Program empty = with_mask(R"TW(  input s: f32[0, 6, 9]
  input m: bool[0, 6, 9]
  y: f32[0, 6, 9] = [0, 6, 9] select(@0, @1, -3.4028235e+38f) where @0 = m[i0, i1, i2], @1 = s[i0, i1, i2]
  output y
)TW",
                                    [](int64_t, int64_t) { return 0; });
    EXPECT_EQ(print(index_masks(empty)), print(empty));
}

TEST(IndexMasks, ATriangleOfBooleansIsAComparison) {
    const std::string causal = without_mask(with_mask(kSelected, [](int64_t i, int64_t j) { return j <= i ? 1 : 0; }));
    EXPECT_THAT(causal, HasSubstr("select(ge(index(i1 - i2), 0), @0, -3.4028235e+38f)"));
    EXPECT_THAT(causal, Not(HasSubstr("m[")));
}

TEST(IndexMasks, OnEveryDiagonalAndEitherSide) {
    for (int64_t diagonal = -4; diagonal <= 7; ++diagonal)
        for (const bool above : {false, true}) {
            SCOPED_TRACE(diagonal);
            EXPECT_THAT(without_mask(with_mask(
                            kSelected, [&](int64_t i, int64_t j) { return (i - j + diagonal >= 0) != above ? 1 : 0; })),
                        HasSubstr(above ? "select(lt(" : "select(ge("));
        }
}

TEST(IndexMasks, NumbersThatMaskScoresAreSelected) {
    EXPECT_THAT(without_mask(with_mask(kAdded, [](int64_t i, int64_t j) { return j <= i ? 0 : kLowest; })),
                HasSubstr("add(@0, select(ge(index(i1 - i2), 0), 0.0, -inf))"));
    EXPECT_THAT(without_mask(with_mask(kAdded, [](int64_t i, int64_t j) { return j <= i + 2 ? 1 : -1e38; })),
                HasSubstr("select(ge(index(i1 - i2 + 2), 0), 1.0, "));
}

TEST(IndexMasks, ReadsSomewhereElseInTheConstant) {
    const std::string later = R"TW(  input s: f32[4, 9]
  input m: bool[6, 9]
  y: f32[4, 9] = [4, 9] select(@0, @1, -inf) where @0 = m[i0 + 2, i1], @1 = s[i0, i1]
  output y
)TW";
    EXPECT_THAT(without_mask(with_mask(later, [](int64_t i, int64_t j) { return j <= i ? 1 : 0; })),
                HasSubstr("ge(index(i0 - i1 + 2), 0)"));
}

TEST(IndexMasks, AnEpilogueReadsOne) {
    const std::string scores = R"TW(  input q: f32[6, 4]
  input k: f32[9, 4]
  input m: bool[6, 9]
  y: f32[6, 9] = [6, 9] sum(i2 < 4) mul(@0, @1) then select(@2, acc, -inf) where @0 = q[i0, i2], @1 = k[i1, i2], @2 = m[i0, i1]
  output y
)TW";
    EXPECT_THAT(without_mask(with_mask(scores, [](int64_t i, int64_t j) { return j <= i + 3 ? 1 : 0; })),
                HasSubstr("then select(ge(index(i0 - i1 + 3), 0), acc, -inf)"));
}

TEST(IndexMasks, EveryElementIsCompared) {
    for (int64_t row = 0; row < 6; ++row)
        for (int64_t column = 0; column < 9; ++column) {
            const auto but_one = [&](int64_t i, int64_t j) { return (j <= i) != (i == row && j == column) ? 1 : 0; };
            const auto is_step = [&](int64_t diagonal) {  // that element may make another triangle of it
                for (int64_t i = 0; i < 6; ++i)
                    for (int64_t j = 0; j < 9; ++j)
                        if (but_one(i, j) != (i - j + diagonal >= 0 ? 1 : 0)) return false;
                return true;
            };
            ASSERT_FALSE(is_step(-1) || is_step(0) || is_step(1));
            EXPECT_THAT(without_mask(with_mask(kSelected, but_one)), HasSubstr("m["));
        }
}

TEST(IndexMasks, OtherConstantsStay) {
    const auto stays = [](const std::string& text, const std::function<double(int64_t, int64_t)>& of) {
        EXPECT_THAT(without_mask(with_mask(text, of)), HasSubstr("m["));
    };
    stays(kAdded, [](int64_t i, int64_t j) { return j <= i ? 0 : -1; });            // nothing is masked
    stays(kAdded, [](int64_t i, int64_t j) { return j <= i ? i : kLowest; });       // three numbers
    stays(kAdded, [](int64_t, int64_t) { return kLowest; });                        // one number
    stays(kSelected, [](int64_t i, int64_t j) { return i / 3 == j / 3 ? 1 : 0; });  // blocks
    stays(kSelected, [](int64_t i, int64_t j) { return j <= i && i - j < 3 ? 1 : 0; });
    const std::string conditional = R"TW(  input s: f32[2, 6, 9]
  input m: bool[6, 9]
  y: f32[2, 6, 9] = [2, 6, 9] select(@0, @1, -inf) where @0 = m[i1 - 1, i2] when i1 - 1 >= 0 else 1, @1 = s[i0, i1, i2]
  output y
)TW";
    stays(conditional, [](int64_t i, int64_t j) { return j <= i ? 1 : 0; });
}

}  // namespace
}  // namespace tilewright
