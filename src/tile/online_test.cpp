// Online softmax: the stages that a running maximum scales, the legal trees, and results on hard rows.

#include "tile/online.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tile/online_cases_test.h"

namespace tilewright {
namespace {

void expect_like_stages(const TileProgram& p, const std::vector<Tensor>& inputs) {
    ASSERT_EQ(verify(p), std::vector<std::string>{});
    const Tensor want = interpret(p.stages, inputs).at(0);
    const Tensor got = interpret(p, inputs, {}).at(0);
    for (int64_t i = 0; i < want.count(); ++i) {
        const float w = static_cast<const float*>(want.data())[i], g = static_cast<const float*>(got.data())[i];
        EXPECT_TRUE((std::isnan(w) && std::isnan(g)) || std::abs(w - g) <= 1e-5F) << i << ": " << g << " for " << w;
    }
}

TEST(Online, FindsWhatAMaximumScales) {
    const TileProgram p = parse_tile_program(kAttention);
    const auto scales = online_scales(p.stages, {p.stages.primitives[PrimitiveId(1)].outputs[0]});
    std::string found;
    for (const auto& s : scales) found += s ? fmt::format("{} ", s->index[0].text()) : "- ";
    EXPECT_EQ(found, "- - i0 i0 i0 - ");  // the quotient of two scaled terms is not scaled
}

TEST(Online, FindsItInOtherSpellings) {
    const auto scaled = [](const std::string& body) {
        const std::string text = changed(kAttention, "exp(sub(@0, @1)) where @0 = c[i0, i1], @1 = r[i0]",
                                         body + " where @0 = c[i0, i1], @1 = r[i0], @2 = mask[i0, i1]");
        const TileProgram p = parse_tile_program(text);
        return online_scales(p.stages, {p.stages.primitives[PrimitiveId(1)].outputs[0]})[PrimitiveId(2)].has_value();
    };
    EXPECT_TRUE(scaled("exp(add(neg(@1), add(@0, @2)))"));
    EXPECT_TRUE(scaled("div(mul(@2, exp(sub(@0, @1))), @0)"));
    EXPECT_TRUE(scaled("select(lt(@2, 0.0), 0.0, exp(sub(@0, @1)))"));
    EXPECT_TRUE(scaled("exp(select(lt(@2, 0.0), -inf, sub(@0, @1)))"));
    EXPECT_FALSE(scaled("exp(sub(@1, @0))"));
    EXPECT_FALSE(scaled("exp(sub(@0, add(@1, @1)))"));
    EXPECT_FALSE(scaled("add(exp(sub(@0, @1)), 1.0)"));
    EXPECT_FALSE(scaled("mul(exp(sub(@0, @1)), exp(sub(@0, @1)))"));
    EXPECT_FALSE(scaled("div(@0, exp(sub(@0, @1)))"));
    EXPECT_FALSE(scaled("exp(select(lt(@2, 0.0), 1.0, sub(@0, @1)))"));
}

TEST(Online, GivesWhatTheWholeRowsGive) {
    for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf}) {
        expect_like_stages(parse_tile_program(kAttention), hard_inputs(poison));
        for (const char* step : {"for n by 1", "for n by 4", "for n by 8", "for n by 100"})
            expect_like_stages(parse_tile_program(changed(kAttention, "for n by 3", step)), hard_inputs(poison));
    }
}

TEST(Online, RescalesEveryTileOfTheSumOnce) {
    expect_like_stages(parse_tile_program(changed(kAttention, "    compute 4 padding partition\n",
                                                  "    for h by 2 {\n      compute 4 padding partition\n    }\n")),
                       hard_inputs(0.5F));
}

TEST(Online, RoundTripsThroughText) {
    const TileProgram p = parse_tile_program(kAttention);
    EXPECT_EQ(print(parse_tile_program(print(p))), print(p));
    EXPECT_NE(print(p).find("compute 1 online"), std::string::npos);
}

std::string first_fault(const std::string& from, const std::string& to, const std::string& base = kAttention) {
    const auto faults = verify(parse_tile_program(changed(base, from, to)));
    return faults.empty() ? "" : faults[0];
}

TEST(Online, RefusesTreesThatWouldMixMaxima) {
    EXPECT_EQ(first_fault("compute 1 online", "compute 1"),
              "compute 2 reads 'r' while the loop over n still adds to it");
    EXPECT_EQ(first_fault("exp(sub(@0, @1))", "exp(sub(@1, @0))"),
              "compute 2 reads 'r' while the loop over n still adds to it");
    EXPECT_EQ(first_fault("    compute 4 padding partition\n  }\n", "  }\n  compute 4 padding partition\n"),
              "compute 4 reads 'p', which is valid only within a step of the online maximum 'r'");
    EXPECT_EQ(first_fault("    compute 4 padding partition\n",
                          "    for n by 1 {\n      compute 4 padding partition\n    }\n"),
              "compute 4 does not advance in lockstep with the online maximum 'r'");
    EXPECT_EQ(first_fault("  output o", "  output o\n  output p"), "output 'p' is valid only within a step of 'r'");
    EXPECT_EQ(first_fault("max(i1 < 8)", "min(i1 < 8)"),
              "compute 1: 'r' is marked online, but is not a floating-point maximum in a buffer");
}

}  // namespace
}  // namespace tilewright
