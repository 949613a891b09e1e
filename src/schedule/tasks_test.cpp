// Tasks are balanced, and the operand with less traffic is streamed.

#include "schedule/tasks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cost/estimate.h"
#include "cost/target_with_test.h"
#include "program/text.h"
#include "schedule/boxes.h"

namespace tilewright {
namespace {

struct Cut {
    Program stages;
    Tasks tasks;

    double slowest(int threads) const {
        std::vector<TaskAxis> axes;
        axes.reserve(tasks.grid.size());
        for (const size_t a : tasks.grid)
            axes.push_back({stages.primitives[PrimitiveId(0)].expr()->extents[a].constant(), tasks.inside[a]});
        return slowest_share(axes, threads);
    }
};

Cut cut(const std::string& text, int threads) {
    Cut out{parse_program(text), {}};
    const Target target = test::target_with({.workers = threads});
    const TensorExpr& e = *out.stages.primitives[PrimitiveId(0)].expr();
    out.tasks = cut_tasks(out.stages, choose_micro(out.stages, e, DType::F32, target), target);
    return out;
}

/// x [rows, k] times packed w with panels of 32 columns: y [rows, n].
std::string product(const std::string& rows, int n, int k) {
    return fmt::format(R"(program product {{
  input x: f32[{0}, {2}]
  input w: f32[{3}, {2}, 32]
  y: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1 // 32, i2, i1 % 32]  ; y ""
  output y
}}
)",
                       rows, n, k, n / 32);
}

/// The products of a transform's points, one matrix per point.
std::string points(int n) {
    return fmt::format(R"(program points {{
  input x: f32[{0}, 196, 128]
  input w: f32[{0}, 128, 128]
  y: f32[{0}, 196, 128] = [{0}, 196, 128] sum(i3 < 128) mul(@0, @1) where @0 = x[i0, i1, i3], @1 = w[i0, i3, i2]  ; y ""
  output y
}}
)",
                       n);
}

TEST(CutTasks, leaves_a_single_thread_one_task_where_memory_asks_for_no_more) {
    EXPECT_TRUE(cut(product("128", 768, 256), 1).tasks.grid.empty());
}

TEST(CutTasks, of_padded_convolutions_copy_one_item_of_an_open_batch) {
    const Cut c = cut(R"(program conv {
  input x: f32[$n, 4, $h, $w]
  input k: f32[4, 3, 3, 32]
  y: f32[$n, $h, $w, 32] = [$n, 32, $h, $w] -> [i0, i2, i3, i1] sum(i4 < 4, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and $h - i2 - i5 >= 0 and i3 + i6 - 1 >= 0 and $w - i3 - i6 >= 0 else 0, @1 = k[i4, i5, i6, i1]  ; y ""
  output y
}
)",
                      1);
    ASSERT_EQ(c.tasks.loads, std::vector<size_t>{0});
    EXPECT_EQ(c.tasks.inside[0], 1);
    EXPECT_GT(c.tasks.inside[2], 1) << "rows of windows share what is copied";
    EXPECT_GE(c.tasks.inside[3], 256) << "a copy reads long runs";
}

TEST(CutTasks, are_shared_evenly_where_halves_are_not) {
    for (const int n : {36, 81}) {
        EXPECT_LT(cut(points(n), 2).slowest(2), 0.515) << n;
        EXPECT_LT(cut(points(n), 3).slowest(3), 0.35) << n;
    }
    EXPECT_LT(cut(product("197", 768, 768), 2).slowest(2), 0.51);
}

TEST(CutTasks, of_products_with_open_rows_are_panels_that_rows_go_by) {
    for (const int threads : {1, 2, 4}) {
        const Cut c = cut(product("$rows", 3072, 768), threads);
        ASSERT_EQ(c.tasks.grid, (std::vector<size_t>{1, 0}));
        // As many panels as stay in a quarter of L2. All tasks have the same number of rows.
        EXPECT_EQ(c.tasks.inside[1], 64);
    }
}

TEST(CutTasks, of_products_read_again_what_costs_less) {
    // 9 MiB of weights, 1.5 MiB of rows.
    EXPECT_EQ(cut(product("128", 768, 3072), 2).tasks.grid.front(), 1u);
    // Weights that stay in L2.
    EXPECT_EQ(cut(product("3136", 64, 640), 2).tasks.grid, std::vector<size_t>{0});
}

/// What rows read and write exceeds L2, all weights together do not: memory is read and written in whole rows.
TEST(CutTasks, of_products_with_few_weights_are_blocks_of_rows) {
    const Cut c = cut(product("3136", 256, 64), 1);
    EXPECT_EQ(c.tasks.grid, std::vector<size_t>{0});
    EXPECT_LE(c.tasks.inside[0], 3136 / 8);
    EXPECT_EQ(c.tasks.inside[1], 256) << "all columns";
    EXPECT_TRUE(cut(product("128", 256, 64), 1).tasks.grid.empty()) << "L2 holds everything";
    EXPECT_TRUE(cut(product("128", 4096, 1024), 1).tasks.grid.empty()) << "16 MiB of weights";
}

TEST(CutTasks, of_products_of_a_batch_take_its_items_one_by_one) {
    const Cut c = cut(R"(program scores {
  input q: f32[$batch, $seq, 12, 64]
  input k: f32[$batch, 12, 64, $keys]
  y: f32[$batch, 12, $seq, $keys] = [$batch, 12, $seq, $keys] sum(i4 < 64) mul(@0, @1) where @0 = q[i0, i2, i1, i4], @1 = k[i0, i1, i4, i3]  ; y ""
  output y
}
)",
                      2);
    ASSERT_FALSE(c.tasks.grid.empty());
    EXPECT_EQ(c.tasks.grid.front(), 0u);
    EXPECT_EQ(c.tasks.inside[0], 1);
}

TEST(BoxBytes, of_weights_in_panels_counts_each_once) {
    const Program p = parse_program(product("64", 256, 100));
    const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
    EXPECT_EQ(box_bytes(p, e.accesses[1], {64, 256, 100}), 256 * 100 * 4);
    EXPECT_EQ(box_bytes(p, e.accesses[1], {64, 64, 100}), 64 * 100 * 4);
    EXPECT_EQ(box_bytes(p, e.accesses[0], {14, 64, 100}), 14 * 100 * 4);
    // The same with merged axes.
    const Program flat = parse_program(R"(program flat {
  input x: f32[64, 100]
  input w: f32[25600]
  y: f32[64, 256] = [64, 256] sum(i2 < 100) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1 % 32 + 3200*(i1 // 32) + 32*i2]  ; y ""
  output y
}
)");
    EXPECT_EQ(box_bytes(flat, flat.primitives[PrimitiveId(0)].expr()->accesses[1], {64, 256, 100}), 256 * 100 * 4);
}

}  // namespace
}  // namespace tilewright
