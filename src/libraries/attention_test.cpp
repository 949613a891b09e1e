#include "libraries/attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "libraries/attention_programs_test.h"
#include "program/text.h"

namespace tilewright {
namespace {

/// An attention of two examples and three heads, of which `scores` is the epilogue of the first product; @2 is the mask
/// m[`at`]. `shared`: the heads share their keys.
Program attention(const std::string& scores, const std::string& mask = "", const std::string& at = "",
                  bool shared = false) {
    const std::string keys = shared ? "2, 12" : "2, 3, 12", key = shared ? "i0" : "i0, i1";
    return parse_program(
        "program p {\n  input q: f16[2, 3, 10, 16]\n  input k: f16[" + keys + ", 16]\n  input v: f16[" + keys +
        ", 8]\n" + (mask.empty() ? "" : "  input m: " + mask + "\n") +
        "  s: f32[2, 3, 10, 12] = [2, 3, 10, 12] sum(i4 < 16) mul(@0, @1) then " + scores +
        " where @0 = q[i0, i1, i2, i4], @1 = k[" + key + ", i3, i4]" + (mask.empty() ? "" : ", @2 = m[" + at + "]") +
        R"TW(
  t: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] max(i3 < 12) @0 where @0 = s[i0, i1, i2, i3]
  e: f32[2, 3, 10, 12] = [2, 3, 10, 12] exp(sub(@0, @1)) where @0 = s[i0, i1, i2, i3], @1 = t[i0, i1, i2, 0]
  d: f32[2, 3, 10, 1] = [2, 3, 10] -> [i0, i1, i2, 0] sum(i3 < 12) @0 where @0 = e[i0, i1, i2, i3]
  o: f32[2, 3, 10, 8] = [2, 3, 10, 8] sum(i4 < 12) mul(@0, @1) where @0 = e[i0, i1, i2, i4], @1 = v[)TW" +
        key + R"TW(, i4, i3]
  y: f16[2, 3, 10, 8] = [2, 3, 10, 8] div(@0, @1) where @0 = o[i0, i1, i2, i3], @1 = d[i0, i1, i2, 0]
  output y
})TW");
}

std::optional<LibraryAttention> recognised(const Program& stages) {
    auto found = library_attention(stages);
    auto* a = std::get_if<LibraryAttention>(&found);
    return a != nullptr ? std::optional(std::move(*a)) : std::nullopt;
}

TEST(LibraryAttention, HasAScaleAndAMaskThatIsAdded) {
    const auto a = recognised(attention("add(@2, mul(acc, 0.25))", "f16[10, 12]", "i2, i3"));
    ASSERT_TRUE(a);
    EXPECT_EQ(a->scale, 0.25);
    EXPECT_EQ(a->queries.dims, (std::vector<int64_t>{1, 6, 10, 16}));
    ASSERT_TRUE(a->mask);
    EXPECT_EQ(a->mask->dims, (std::vector<int64_t>{1, 1, 10, 12}));
    EXPECT_FALSE(a->selected || a->diagonal);
}

TEST(LibraryAttention, SelectsByATensor) {
    const auto a = recognised(attention("select(@2, mul(acc, 0.25), -inf)", "bool[2, 10, 12]", "i0, i2, i3"));
    ASSERT_TRUE(a);
    ASSERT_TRUE(a->selected);
    EXPECT_EQ(a->selected->tensor, 3u);
    EXPECT_EQ(a->selected->dims, (std::vector<int64_t>{2, 1, 10, 12}));
    EXPECT_EQ(a->selected->strides, (std::vector<int64_t>{120, 120, 12, 1}));
    EXPECT_EQ(a->masked, -std::numeric_limits<double>::infinity());
    EXPECT_EQ(a->scale, 0.25);
}

TEST(LibraryAttention, SelectsByADiagonal) {
    for (const auto& [text, diagonal] : {std::pair("select(ge(index(i2 - i3), 0), acc, -3.4028235e+38f)", 0),
                                         {"select(le(index(i3), index(i2 + 2)), acc, -1e38)", 2},
                                         {"select(lt(index(i3), index(i2)), acc, -inf)", -1},
                                         {"select(gt(index(i3 - i2), 4), -inf, acc)", 4},
                                         {"select(not(gt(index(i3), index(i2))), acc, -inf)", 0},
                                         {"select(ge(index(i2 - i3), 0), acc, -10000.0)", 0},
                                         {"add(select(ge(index(i2 - i3 + 1), 0), 0.0, -inf), acc)", 1}}) {
        const auto a = recognised(attention(text));
        ASSERT_TRUE(a) << text;
        EXPECT_EQ(a->diagonal, diagonal) << text;
    }
}

TEST(LibraryAttention, IgnoresDimensionsOfOnePoint) {
    const auto one = recognised(parse_program(R"TW(program p {
  input q: f16[1, 3, 10, 16]
  input k: f16[1, 3, 12, 16]
  input v: f16[1, 3, 12, 8]
  s: f32[1, 3, 10, 12] = [3, 10, 12] -> [0, i0, i1, i2] sum(i3 < 16) mul(@0, @1) where @0 = q[0, i0, i1, i3], @1 = k[0, i0, i2, i3]
  t: f32[1, 3, 10, 1] = [3, 10] -> [0, i0, i1, 0] max(i2 < 12) @0 where @0 = s[0, i0, i1, i2]
  e: f32[1, 3, 10, 12] = [3, 10, 12] -> [0, i0, i1, i2] exp(sub(@0, @1)) where @0 = s[0, i0, i1, i2], @1 = t[0, i0, i1, 0]
  d: f32[1, 3, 10, 1] = [3, 10] -> [0, i0, i1, 0] sum(i2 < 12) @0 where @0 = e[0, i0, i1, i2]
  o: f32[1, 3, 10, 8] = [3, 10, 8] -> [0, i0, i1, i2] sum(i3 < 12) mul(@0, @1) where @0 = e[0, i0, i1, i3], @1 = v[0, i0, i3, i2]
  y: f16[1, 3, 10, 8] = [3, 10, 8] -> [0, i0, i1, i2] div(@0, @1) where @0 = o[0, i0, i1, i2], @1 = d[0, i0, i1, 0]
  output y
})TW"));
    ASSERT_TRUE(one);
    EXPECT_EQ(one->result.dims, (std::vector<int64_t>{1, 3, 10, 8}));
}

TEST(LibraryAttention, TakesConditionsTogether) {
    const auto both = recognised(attention("select(and(ge(index(i2 - i3), 0), @2), acc, -inf)", "bool[12]", "i3"));
    EXPECT_TRUE(both && both->diagonal && both->selected);
    const auto added = recognised(attention("select(ge(index(i2 - i3), 0), add(@2, acc), -inf)", "f16[12]", "i3"));
    EXPECT_TRUE(added && added->diagonal && added->mask);
    const auto nested =
        recognised(attention("select(ge(index(i2 - i3), 0), select(@2, acc, -inf), -inf)", "bool[12]", "i3"));
    EXPECT_TRUE(nested && nested->diagonal && nested->selected);
}

TEST(LibraryAttention, HasNoOtherConditions) {
    for (const std::string text :
         {"select(ge(index(i3 - i2), 0), acc, -inf)",                                  // above a diagonal
          "select(ge(index(i2 - 2*i3), 0), acc, -inf)",                                // no diagonal
          "select(ge(index(i1 + i2 - i3), 0), acc, -inf)",                             // another one for each head
          "select(and(ge(index(i2 - i3), 0), ge(index(i3 - i2 + 4), 0)), acc, -inf)",  // a window
          "mul(select(ge(index(i2 - i3), 0), acc, -inf), 0.25)",                       // scaled behind it
          "select(ge(index(i2 - i3), 0), select(ge(index(i2 - i3), -1), acc, -1e38), -inf)"})  // two numbers
        EXPECT_FALSE(recognised(attention(text))) << text;
    EXPECT_FALSE(recognised(attention("select(not(@2), acc, -inf)", "bool[12]", "i3")));
    EXPECT_FALSE(recognised(attention("select(@2, acc, -inf)", "bool[12]", "11 - i3")));
}

TEST(LibraryAttention, HasHeadsThatShareKeys) {
    // As rows.
    const auto plain = recognised(attention("mul(acc, 0.25)", "", "", true));
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->queries.dims, (std::vector<int64_t>{1, 2, 30, 16}));
    EXPECT_EQ(plain->keys.dims, (std::vector<int64_t>{1, 2, 12, 16}));
    EXPECT_TRUE(recognised(attention("select(@2, acc, -inf)", "bool[12]", "i3", true)));
    // As heads, where a diagonal counts the rows.
    const auto causal = recognised(attention("select(ge(index(i2 - i3), 0), acc, -inf)", "", "", true));
    ASSERT_TRUE(causal);
    EXPECT_EQ(causal->diagonal, 0);
    EXPECT_EQ(causal->queries.dims, (std::vector<int64_t>{1, 6, 10, 16}));
    EXPECT_EQ(causal->queries.strides, (std::vector<int64_t>{960, 160, 16, 1}));
    EXPECT_EQ(causal->keys.dims, (std::vector<int64_t>{1, 2, 12, 16}));
    EXPECT_EQ(causal->values.dims, (std::vector<int64_t>{1, 2, 12, 8}));
    EXPECT_EQ(causal->result.dims, (std::vector<int64_t>{1, 6, 10, 8}));
    // A mask of each head moves with the heads.
    const auto masked = recognised(
        attention("select(ge(index(i2 - i3), 0), add(@2, acc), -inf)", "f16[2, 3, 10, 12]", "i0, i1, i2, i3", true));
    ASSERT_TRUE(masked && masked->mask);
    EXPECT_EQ(masked->mask->dims, (std::vector<int64_t>{1, 6, 10, 12}));
}

TEST(LibraryAttention, ReadsColumnsOfAWiderTensor) {
    const auto a = recognised(parse_program(test::kColumnsOfOneTensor));
    ASSERT_TRUE(a);
    EXPECT_EQ(a->queries.offset, 0);
    EXPECT_EQ(a->keys.offset, 48);
    EXPECT_EQ(a->values.offset, 96);
    EXPECT_EQ(a->keys.strides, (std::vector<int64_t>{1440, 16, 144, 1}));
    EXPECT_EQ(a->result.strides, (std::vector<int64_t>{480, 16, 48, 1}));
}

}  // namespace
}  // namespace tilewright
