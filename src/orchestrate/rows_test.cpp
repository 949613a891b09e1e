// Stages that work on the same rows are one kernel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orchestrate/plan.h"
#include "orchestrate/program_test.h"

namespace tilewright {
namespace {

using namespace test;
using testing::ElementsAre;

/// The results of each group's primitives: {"m e s y"}.
std::vector<std::string> row_groups(const Program& p, bool fuse = true) {
    std::vector<std::string> out;
    for (const KernelGroup& g : group_rows(p, fuse)) {
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

TEST(GroupRows, a_softmax_is_one_kernel_row_by_row) {
    const Program p = parse_program(kSoftmaxOfRows);
    EXPECT_THAT(row_groups(p), ElementsAre("m e s y"));
    const std::vector<KernelGroup> found = group_rows(p, true);
    EXPECT_THAT(found[0].row_axes, testing::Each(ElementsAre(0)));
}

TEST(GroupRows, a_layer_normalisation_is_one_kernel_whatever_the_number_of_rows) {
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

TEST(GroupRows, without_fusion_every_primitive_is_a_kernel) {
    EXPECT_THAT(row_groups(parse_program(kSoftmaxOfRows), false), ElementsAre("m", "e", "s", "y"));
}

TEST(GroupRows, products_are_kernels_of_their_own) {
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

TEST(GroupRows, elementwise_stages_alone_are_not_held_together) {
    // Nothing is reduced: fusion has decided already that two passes are right.
    EXPECT_THAT(row_groups(parse_program(R"(program t {
  input x: f32[6, 40]
  a: f32[6, 40] = [6, 40] exp(@0) where @0 = x[i0, i1]
  b: f32[6, 40] = [6, 40] neg(@0) where @0 = a[i0, i1]
  output b
})")),
                ElementsAre("a", "b"));
}

TEST(GroupRows, every_primitive_is_in_one_group_behind_what_it_reads) {
    int together = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program p = fuse_greedily(random_program(seed, 2 + static_cast<int>(seed % 10)));
        std::vector<KernelGroup> found = group_rows(p, true);
        // A group runs where its last primitive stands.
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

}  // namespace
}  // namespace tilewright
