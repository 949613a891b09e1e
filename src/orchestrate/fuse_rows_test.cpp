// Stages that work on the same rows are one kernel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/program_test.h"
#include "orchestrate/refusal_test.h"

namespace tilewright {
namespace {

using namespace test;
using testing::ElementsAre;

/// The results of each group's primitives: {"m e s y"}.
std::vector<std::string> row_groups(const Program& p, bool fuse = true) {
    std::vector<std::string> out;
    for (const KernelGroup& g : fuse ? fuse_rows(p) : single_kernels(p)) {
        out.emplace_back();
        for (const PrimitiveId id : g.primitives)
            out.back() += (out.back().empty() ? "" : " ") + p.values[p.primitives[id].outputs[0]].name;
    }
    return out;
}

const std::string kSoftmaxOfRows = R"(program softmax {
  input x: f32[6, 40]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = x[i0, i2]
  e: f32[6, 40] = [6, 40] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0, 0]
  s: f32[6, 1] = [6, 1] sum(i2 < 40) @0 where @0 = e[i0, i2]
  y: f32[6, 40] = [6, 40] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]
  output y
})";

TEST(FuseRows, a_softmax_is_one_kernel_row_by_row) {
    const Program p = parse_program(kSoftmaxOfRows);
    EXPECT_THAT(row_groups(p), ElementsAre("m e s y"));
    const std::vector<KernelGroup> found = fuse_rows(p);
    EXPECT_THAT(found[0].row_axes, testing::Each(ElementsAre(0)));
}

TEST(FuseRows, a_layer_normalisation_is_one_kernel_whatever_the_number_of_rows) {
    EXPECT_THAT(row_groups(parse_program(R"(program norm {
  input x: f32[$b, 10, 48]
  input g: f32[48]
  m: f32[$b, 10, 1] = [$b, 10, 1] sum(i3 < 48) @0 then div(acc, 48.0) where @0 = x[i0, i1, i3]
  d: f32[$b, 10, 48] = [$b, 10, 48] sub(@0, @1) where @0 = x[i0, i1, i2], @1 = m[i0, i1, 0]
  v: f32[$b, 10, 1] = [$b, 10, 1] sum(i3 < 48) mul(@0, @0) then div(acc, 48.0) where @0 = d[i0, i1, i3]
  y: f32[$b, 10, 48] = [$b, 10, 48] mul(div(@0, sqrt(add(@1, 0.00001))), @2) where @0 = d[i0, i1, i2], @1 = v[i0, i1, 0], @2 = g[i2]
  output y
})")),
                ElementsAre("m d v y"));
}

TEST(FuseRows, without_fusion_every_primitive_is_a_kernel) {
    EXPECT_THAT(row_groups(parse_program(kSoftmaxOfRows), false), ElementsAre("m", "e", "s", "y"));
}

TEST(FuseRows, products_are_kernels_of_their_own) {
    EXPECT_THAT(row_groups(parse_program(R"(program t {
  input x: f32[6, 40]
  input w: f32[40, 40]
  p: f32[6, 40] = [6, 40] sum(i2 < 40) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = p[i0, i2]
  y: f32[6, 40] = [6, 40] sub(@0, @1) where @0 = p[i0, i1], @1 = m[i0, 0]
  output y
})")),
                ElementsAre("p", "m y"));
}

TEST(FuseRows, elementwise_stages_alone_are_not_held_together) {
    // Without a reduction, elementwise fusion has already decided for two passes.
    EXPECT_THAT(row_groups(parse_program(R"(program t {
  input x: f32[6, 40]
  a: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  b: f32[6, 40] = [6, 40] neg(@0) where @0 = a[i0, i1]
  output b
})")),
                ElementsAre("a", "b"));
}

TEST(FuseRows, every_primitive_is_in_one_group_behind_what_it_reads) {
    int together = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program p = fuse_greedily(random_program(seed, 2 + static_cast<int>(seed % 10)));
        std::vector<KernelGroup> found = fuse_rows(p);
        // A group runs at the place of its last primitive.
        std::sort(found.begin(), found.end(),
                  [](const KernelGroup& a, const KernelGroup& b) { return a.primitives.back() < b.primitives.back(); });
        std::set<ValueId> there(p.inputs.begin(), p.inputs.end());
        for (const auto& [v, tensor] : p.constants) there.insert(v);
        std::set<PrimitiveId> seen;
        for (const KernelGroup& g : found) {
            ASSERT_EQ(g.primitives.size(), g.row_axes.size());
            together += g.primitives.size() > 1 ? 1 : 0;
            for (const PrimitiveId id : g.primitives) {
                EXPECT_TRUE(seen.insert(id).second) << "seed " << seed;
                for (const ValueId v : p.primitives[id].inputs())
                    EXPECT_EQ(there.count(v), 1u) << "seed " << seed << "\n" << print(p);
                there.insert(p.primitives[id].outputs[0]);
            }
        }
        EXPECT_EQ(seen.size(), p.primitives.size()) << "seed " << seed;
    }
    EXPECT_GT(together, 50);
}

std::string rows_refusal(const std::string& text, const std::string& producer, const std::string& reader,
                         const FusionLimits& limits = {}) {
    return refusal(
        parse_program(text), producer, reader, [](const Program& p, const FusionLimits& l) { fuse_rows(p, l); },
        limits);
}

/// m: maximum of rows; y: the difference from it.
std::string rows_text(const std::string& rows, const std::string& columns) {
    return fmt::format(R"(program t {{
  input x: f32[{0}, {1}]
  m: f32[{0}, 1] = [{0}, 1] max(i2 < {1}) @0 where @0 = x[i0, i2]
  y: f32[{0}, {1}] = [{0}, {1}] sub(@0, @1) where @0 = x[i0, i1], @1 = m[i0, 0]
  output y
}})",
                       rows, columns);
}

TEST(FuseRows, gives_no_reason_where_it_fuses) { EXPECT_EQ(rows_refusal(rows_text("8", "64"), "m", "y"), ""); }

TEST(FuseRows, refuses_by_limits_and_sizes_of_rows) {
    EXPECT_EQ(rows_refusal(rows_text("8", "64"), "m", "y", nothing_shared()), "an option forbids fusing the two");
    EXPECT_EQ(rows_refusal(rows_text("2", "200000"), "m", "y"), "a row's intermediate values exceed the cache");
    EXPECT_EQ(rows_refusal(rows_text("8", "$n"), "m", "y"), "the size of a row is unknown at compile time");
    EXPECT_EQ(rows_refusal(R"(program t {
  input x: f32[200, 200]
  m: f32[1, 1] = [1, 1] max(i2 < 200, i3 < 200) @0 where @0 = x[i2, i3]
  y: f32[200, 200] = [200, 200] sub(@0, @1) where @0 = x[i0, i1], @1 = m[0, 0]
  output y
})",
                           "m", "y"),
              "the two share no rows");
}

TEST(FuseRows, refuses_products_of_two_values) {
    const std::string text = R"(program t {
  input x: f32[6, 40]
  input w: f32[40, 40]
  r: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  p: f32[6, 40] = [6, 40] sum(i2 < 40) mul(@0, @1) where @0 = r[i0, i2], @1 = w[i2, i1]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = p[i0, i2]
  output m
})";
    EXPECT_EQ(rows_refusal(text, "r", "p"), "a product of two values starts a kernel of its own");
    EXPECT_EQ(rows_refusal(text, "p", "m"), "a product of two values shares no rows with its readers");
}

TEST(FuseRows, refuses_stages_that_do_not_reduce) {
    EXPECT_EQ(rows_refusal(R"(program t {
  input x: f32[6, 40]
  a: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  b: f32[6, 40] = [6, 40] neg(@0) where @0 = a[i0, i1]
  output b
})",
                           "a", "b"),
              "neither is a reduction");
}

TEST(FuseRows, refuses_producers_before_the_last) {
    const std::string text = R"(program t {
  input x: f32[6, 40]
  input z: f32[6, 40]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = x[i0, i2]
  n: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = z[i0, i2]
  y: f32[6, 40] = [6, 40] sub(@0, @1) where @0 = m[i0, 0], @1 = n[i0, 0]
  output y
})";
    EXPECT_EQ(rows_refusal(text, "m", "y"), "rows are shared with the last kernel it reads from only");
    EXPECT_EQ(rows_refusal(text, "n", "y"), "");
}

TEST(FuseRows, refuses_where_no_order_would_be_left) {
    EXPECT_EQ(rows_refusal(R"(program t {
  input x: f32[6, 40]
  input w: f32[1, 40]
  m: f32[6, 1] = [6, 1] max(i2 < 40) @0 where @0 = x[i0, i2]
  p: f32[6, 40] = [6, 40] sum(i2 < 1) mul(@0, @1) where @0 = m[i0, i2], @1 = w[i2, i1]
  y: f32[6, 40] = [6, 40] sub(@0, @1) where @0 = x[i0, i1], @1 = m[i0, 0]
  output y
  output p
})",
                           "m", "y"),
              "the kernels would depend on each other");
}

TEST(FuseRows, refuses_operands_that_are_padded_or_read_along_different_rows) {
    const auto text = [](const std::string& expression) {
        return "program t {\n  input x: f32[6, 40]\n  m: f32[6, 6] = [6, 6] max(i2 < 40) @0 where @0 = x[i0, i2]\n"
               "  y: f32[6, 6] = [6, 6] " +
               expression + "\n  output y\n}";
    };
    EXPECT_EQ(rows_refusal(text("neg(@0) where @0 = m[i0 - 1, i1] when i0 - 1 >= 0 else 0"), "m", "y"),
              "it pads its operand");
    EXPECT_EQ(rows_refusal(text("sub(@0, @1) where @0 = m[i0, i1], @1 = m[i1, i0]"), "m", "y"),
              "it reads its operand twice, along different rows");
}

}  // namespace
}  // namespace tilewright
