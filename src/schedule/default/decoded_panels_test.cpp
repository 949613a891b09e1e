#include "schedule/default/decoded_panels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/target_with_test.h"
#include "program/random_program.h"
#include "program/text.h"
#include "tile/quantised_cases_test.h"

namespace tilewright {
namespace {

using schedule_cases::kEven16;
using schedule_cases::number_of_word;
using schedule_cases::quantised_product;
using test::target_with;
using test::target_with_tiles;
using testing::HasSubstr;

/// The schedule is legal and computes the stages, for `m` rows; its text.
std::string scheduled(const Program& stages, const Target& target, int64_t m = 20) {
    const auto t = decoded_panels(stages, target);
    if (!t) return "";
    EXPECT_EQ(verify(*t), std::vector<std::string>()) << print(*t);
    const std::vector<Tensor> inputs = schedule_cases::whole_numbers(stages, {{"m", m}});
    EXPECT_LE(largest_difference(interpret(stages, inputs), interpret(*t, inputs, {})), 1e-6) << print(*t);
    return print(*t);
}

std::string product(const std::string& m, const std::string& data = "f32") {
    std::string text = quantised_product(m, 64, 8, number_of_word(kEven16, 4));
    return text.replace(text.find("x: f32"), 6, "x: " + data);
}

TEST(DecodedPanels, areMadeByATaskForAllRows) {
    const std::string text = scheduled(parse_program(product("20")), target_with());
    EXPECT_THAT(text, HasSubstr("parallel s1 by"));
    EXPECT_THAT(text, HasSubstr("compute 0 vector s1"));
    EXPECT_THAT(text, HasSubstr("sum(i2 < 64) mul(@0, @1)"));  // of the data and the panel
    EXPECT_NE(scheduled(parse_program(product("$m")), target_with()), "");
}

TEST(DecodedPanels, areInPairsForTileRegisters) {
    const std::string text = scheduled(parse_program(product("40", "bf16")), target_with_tiles(), 40);
    EXPECT_THAT(text, HasSubstr("matrix bf16 tile"));
    EXPECT_THAT(text, HasSubstr("layout \"split(0, 2) reorder(0, 2, 1)\""));
}

TEST(DecodedPanels, haveTheColumnsOfSeveralAxes) {
    // The result is split into heads.
    const Program stages = parse_program(R"TW(program heads {
  input x: f32[20, 32]
  input w: u32[4, 3, 32]
  input s: f32[1, 3, 32]
  y: f32[20, 3, 32] = [20, 3, 32] sum(i3 < 1, i4 < 4, i5 < 8) mul(@0, mul(table{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}(i64(and(shr(@1, u32(index(4*i5))), 15:u32))), @2)) where @0 = x[i0, 32*i3 + 8*i4 + i5], @1 = w[4*i3 + i4, i1, i2], @2 = s[i3, i1, i2]  ; y ""
  output y
})TW");
    const std::string text = scheduled(stages, target_with());
    EXPECT_THAT(text, HasSubstr("parallel s1 by 1"));
    EXPECT_THAT(text, HasSubstr("parallel s2 by"));
}

TEST(DecodedPanels, convertWeightsOfF16) {
    for (const char* data : {"f32", "f16"}) {
        const std::string text = scheduled(parse_program(fmt::format(R"TW(program half {{
  input x: {}[$m, 64]
  input w: f16[2, 64, 32]
  y: f16[$m, 64] = [$m, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1 // 32, i2, i1 % 32]  ; y ""
  output y
}})TW",
                                                                     data)),
                                           target_with());
        EXPECT_THAT(text, HasSubstr("y/panel: f32[64, 64]")) << data;
    }
}

TEST(DecodedPanels, convertWeightsOfF16ForTileRegisters) {
    const std::string text = scheduled(parse_program(R"TW(program half {
  input x: bf16[40, 64]
  input w: f16[2, 64, 32]
  y: f32[40, 64] = [40, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1 // 32, i2, i1 % 32]  ; y ""
  output y
})TW"),
                                       target_with_tiles());
    EXPECT_THAT(text, HasSubstr("y/panel: bf16[64, 64]"));
    EXPECT_THAT(text, HasSubstr("matrix bf16 tile"));
}

TEST(DecodedPanels, areNotForFewRowsOrPlainProducts) {
    EXPECT_EQ(scheduled(parse_program(product("15")), target_with()), "");
    EXPECT_EQ(scheduled(parse_program(R"TW(program plain {
  input x: f32[20, 64]
  input w: f32[64, 64]
  y: f32[20, 64] = [20, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
})TW"),
                        target_with()),
              "");
}

}  // namespace
}  // namespace tilewright
