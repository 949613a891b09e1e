// The buffers of a tree, and their sizes.

#include <gtest/gtest.h>

#include "base/error.h"
#include "tile/examples_test.h"
#include "tile/online_cases_test.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

/// "c [4, 3] from [m, n] under 0.0": value, box, lower corner over the starts of the axes, scope.
std::vector<std::string> buffers(const std::string& text) {
    const TileProgram t = parse_tile_program(text);
    std::vector<std::string> out;
    for (const Buffer& b : plan_buffers(t).buffers) {
        std::string corner, scope;
        for (const Expr& e : b.base) {
            const Expr named = substitute(e, [&](Var v) -> std::optional<Expr> {
                return v.kind == VarKind::Axis ? std::optional(symbol(t.axes[v.id].name)) : std::nullopt;
            });
            corner += (corner.empty() ? "" : ", ") + named.text();
        }
        for (const size_t i : b.scope) scope += fmt::format("{}{}", scope.empty() ? "" : ".", i);
        out.push_back(fmt::format("{} {} from [{}] under {}", t.stages.values[b.value].name, to_string(b.box), corner,
                                  scope.empty() ? "the root" : scope));
    }
    return out;
}

using Buffers = std::vector<std::string>;

TEST(Buffers, cover_what_is_touched_under_the_innermost_loop_around_their_statements) {
    EXPECT_EQ(buffers(kGemm), (Buffers{"b [2, 3] from [$k, $n] under 0.0.0", "c [4, 3] from [$m, $n] under 0.0"}));
    // The scope of E is m and h; of C, the loop over n; of A's and B's tiles, the loop over k.
    EXPECT_EQ(buffers(kChain), (Buffers{"a [4, 2] from [$m, $k] under 0.0.0.0", "b [2, 3] from [$k, $n] under 0.0.0.0",
                                        "d [3, 4] from [$n, $h] under 0.0.0", "c [4, 3] from [$m, $n] under 0.0.0",
                                        "e [4, 4] from [$m, $h] under 0.0"}));
}

TEST(Buffers, of_windows_reach_as_far_as_the_windows) {
    // 3 rows and 4 columns of outputs of a 3x3 window.
    EXPECT_EQ(buffers(kConvolution)[0], "x [3, 5, 6] from [$i, $h + $p - 1, $q + $w - 1] under 0.0");
}

TEST(Buffers, hold_partial_sums_of_tile_registers_in_whole_vectors) {
    // An output that its Compute writes to memory; of 40 columns the last vector has 8.
    const auto sums = [](const std::string& out) {
        return buffers(fmt::format(R"(tile product {{
stages {{
program product {{
  input a: bf16[64, 128]
  input b: bf16[2, 64, 32, 2]
  c: {} sum(i2 < 128) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2 // 2, i1 % 32, i2 % 2]
  output c
}}
}}
axes m="64" n="40" k="128"
stage 0 over [m n k]
for m by 32 {{
  for k by 64 {{
    compute 0 vector n lanes 16 matrix bf16 tile [m n k] registers [m=32 n=32 k=32] order [n m k] padding partition
  }}
}}
}}
)",
                                   out));
    };
    EXPECT_EQ(sums("bf16[64, 40] = [64, 40]"), (Buffers{"c [32, 48] from [$m, $n] under 0"}));
    // By the axes of the stage, however the result lies.
    EXPECT_EQ(sums("bf16[40, 64] = [64, 40] -> [i1, i0]"), (Buffers{"c [32, 48] from [$m, $n] under 0"}));
}

TEST(Buffers, walked_backwards_begin_at_the_far_end) {
    const std::string text = changed(changed(kSoftmax, "= [$rows, 6] div(@0, @1) where @0 = e[i0, i1]",
                                             "= [$rows, 6] div(@0, @1) where @0 = x[i0, -i1 + 5]"),
                                     "    compute 3", "    load 3 access 0 layout \"\" padding local\n    compute 3");
    EXPECT_EQ(buffers(changed(text, "for c by 1", "for c by 2"))[1], "x [2, 2] from [$row, -$c + 4] under 0.4");
}

TEST(Buffers, have_the_memory_of_their_layout) {
    const BufferPlan plan = plan_buffers(parse_tile_program(kGemm));
    // split(1, 2) reorder(1, 0, 2) of [2, 3]: two blocks of two, the last half empty.
    EXPECT_EQ(plan.buffers[0].physical, (std::vector<int64_t>{2, 2, 2}));
    EXPECT_EQ(plan.buffers[1].physical, (std::vector<int64_t>{3, 4}));
    int64_t end = 0;
    for (const Buffer& b : plan.buffers) {
        EXPECT_EQ(b.offset % 64, 0);
        EXPECT_GE(b.offset, end);
        EXPECT_GE(b.bytes, 4 * b.physical[0] * b.physical[1]);
        end = b.offset + b.bytes;
    }
    EXPECT_EQ(plan.scratch_bytes, end);
}

TEST(Buffers, outputs_without_a_store_have_none) {
    EXPECT_EQ(buffers(kSoftmax).size(), 4u);  // the copy of x, m, e and s; not y
}

TEST(Buffers, need_constant_sizes_and_affine_indices) {
    const std::string whole = changed(kSoftmax, "parallel row by 2", "for c by 2");
    EXPECT_THROW(plan_buffers(parse_tile_program(whole)), InternalError);
    EXPECT_THROW(plan_buffers(parse_tile_program(changed(kGemm, "b[i2, i1]", "b[i2, i1 // 2]"))), InternalError);
}

int64_t offset_of(const BufferPlan& plan, const TileProgram& t, const std::string& value) {
    for (const Buffer& b : plan.buffers)
        if (t.stages.values[b.value].name == value && !b.correction) return b.offset;
    return -1;
}

TEST(Buffers, that_are_never_needed_together_share_memory) {
    // x -> a -> b -> c -> d, each a sum of neighbouring rows: the lifetime of a ends before c is computed.
    const std::string chain = R"TW(tile chain {
stages {
program chain {
  input x: f32[8, 32]
  a: f32[8, 31] = [8, 31] add(@0, @1) where @0 = x[i0, i1], @1 = x[i0, i1 + 1]  ; a ""
  b: f32[8, 30] = [8, 30] add(@0, @1) where @0 = a[i0, i1], @1 = a[i0, i1 + 1]  ; b ""
  c: f32[8, 29] = [8, 29] add(@0, @1) where @0 = b[i0, i1], @1 = b[i0, i1 + 1]  ; c ""
  d: f32[8, 28] = [8, 28] add(@0, @1) where @0 = c[i0, i1], @1 = c[i0, i1 + 1]  ; d ""
  output d
}
}
axes m="8" n="31" o="30" p="29" q="28"
stage 0 over [m n]
stage 1 over [m o]
stage 2 over [m p]
stage 3 over [m q]
parallel m by 4 {
  compute 0 padding partition
  compute 1 padding partition
  compute 2 padding partition
  compute 3 padding partition
}
}
)TW";
    const TileProgram t = parse_tile_program(chain);
    const BufferPlan plan = plan_buffers(t);
    EXPECT_EQ(offset_of(plan, t, "a"), offset_of(plan, t, "c"));
    EXPECT_NE(offset_of(plan, t, "a"), offset_of(plan, t, "b"));
    EXPECT_NE(offset_of(plan, t, "b"), offset_of(plan, t, "c"));
    EXPECT_EQ(plan.scratch_bytes, plan.buffers[0].bytes + plan.buffers[1].bytes);
}

TEST(Buffers, of_an_elementwise_stage_lie_where_its_last_read_operand_did) {
    // y = e / s is the last reader of e, but y is written to memory. e itself overwrites nothing that it still reads.
    const TileProgram t = parse_tile_program(kAttention);
    const BufferPlan plan = plan_buffers(t);
    EXPECT_EQ(offset_of(plan, t, "p"), offset_of(plan, t, "c"));
    EXPECT_NE(offset_of(plan, t, "p"), offset_of(plan, t, "s"));
    const std::string both = changed(kAttention, "sum(i1 < 8) @0 where @0 = p[i0, i1]",
                                     "sum(i1 < 8) add(@0, mul(@1, 0.0)) where @0 = p[i0, i1], @1 = c[i0, i1]");
    const TileProgram still = parse_tile_program(both);
    EXPECT_NE(offset_of(plan_buffers(still), still, "p"), offset_of(plan_buffers(still), still, "c"));
}

}  // namespace
}  // namespace tilewright
