// The cost model on numbers worked out by hand, and invariants that hold for every schedule.

#include "cost/estimate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/given_test.h"
#include "cost/host_probe.h"
#include "tile/random_schedule.h"
#include "tile/register_tile.h"

namespace tilewright {
namespace {

using testing::ElementsAre;

/// One cache of so many bytes and memory at 32 bytes a cycle, independent of the host.
CycleRates rates_with(double cache_bytes) {
    CycleRates m(generic_target(VectorIsa::avx2));
    m.caches = {{cache_bytes, 64, 4}};
    m.memory = {1e18, 32, 200};
    return m;
}

Program product(int64_t m, int64_t n, int64_t k) {
    return parse_program(fmt::format(R"(program product {{
  input a: f32[{0}, {2}]
  input b: f32[{2}, {1}]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}})",
                                     m, n, k));
}

/// 64 x 64 x 64, register tiles of 4 x 16, loops m, n, k around them.
struct Example {
    StageModel stage = stage_model(product(64, 64, 64), PrimitiveId(0));
    Micro micro;
    Nest nest;
    Example() {
        micro.vector_axis = 1;
        micro.lanes = 8;
        micro.registers = {4, 16, 1};
        micro.order = {0, 1, 2};
        nest.micro = &micro;
    }
};

TEST(NestCost, nothing_moves_where_everything_fits) {
    const Example x;  // 3 matrices of 16 KiB
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates_with(3 * 16384)).bytes, ElementsAre(0));
}

/// b in panels of 16 columns, one behind the other: [64 / 16, 64, 16].
Program product_of_panels(Residence panels) {
    Program p = parse_program(R"(program product {
  input a: f32[64, 64]
  input b: f32[4, 64, 16]
  c: f32[64, 64] = [64, 64] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 16, i2, i1 % 16]
  output c
})");
    p.far.emplace(p.inputs[1], panels);
    return p;
}

TEST(NestCost, constants_in_memory_move_although_everything_fits) {
    Example x;
    x.stage = stage_model(product_of_panels(Residence::Near), PrimitiveId(0));
    const CycleRates rates = rates_with(3 * 16384);
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates).bytes, ElementsAre(0));
    x.stage = stage_model(product_of_panels(Residence::Memory), PrimitiveId(0));
    x.micro.order = {1, 0, 2};
    const NestCost in_order = nest_cost(x.stage, x.nest, rates);
    EXPECT_THAT(in_order.bytes, ElementsAre(16384)) << "b, once";
    // All panels in the order in which they lie are a stream; a half of each at a time are eight.
    EXPECT_GE(in_order.memory_cycles, 16384 / 32.0 + stream_start_cycles(16384, rates));
    x.nest.loops = {{2, 32}};
    EXPECT_GE(nest_cost(x.stage, x.nest, rates).memory_cycles, 16384 / 32.0 + 8 * stream_start_cycles(2048, rates));
}

TEST(NestCost, constants_in_the_last_cache_move_although_a_nearer_one_holds_everything) {
    CycleRates rates = rates_with(3 * 16384);
    rates.caches = {{4096, 64, 4}, {8 * 16384, 64, 14}, {1 << 25, 32, 60}};
    Example x;
    x.stage = stage_model(product_of_panels(Residence::Near), PrimitiveId(0));
    EXPECT_EQ(nest_cost(x.stage, x.nest, rates).bytes.at(1), 0);
    x.stage = stage_model(product_of_panels(Residence::LastCache), PrimitiveId(0));
    EXPECT_EQ(nest_cost(x.stage, x.nest, rates).bytes.at(1), 16384) << "b, once";
    EXPECT_EQ(nest_cost(x.stage, x.nest, rates).bytes.at(2), 0);
}

/// The first tile of rows waits for a panel that the others read again from L2, unless shares of the next panel are
/// prefetched meanwhile.
TEST(NestCost, panels_arrive_while_the_first_tile_of_rows_is_computed) {
    CycleRates rates = rates_with(1);
    rates.caches = {{4096, 64, 4}, {1 << 22, 32, 14}, {1 << 25, 4, 60}};
    const auto extra = [&](int64_t terms, std::vector<size_t> order) {
        const auto cost = [&](Residence residence) {
            Program p = parse_program(fmt::format(R"(program product {{
  input a: f32[64, {0}]
  input b: f32[2, {0}, 32]
  c: f32[64, 64] = [64, 64] sum(i2 < {0}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 32, i2, i1 % 32]
  output c
}})",
                                                  terms));
            p.far.emplace(p.inputs[1], residence);
            Micro micro;
            micro.vector_axis = 1;
            micro.lanes = 16;
            micro.registers = {8, 32, 1};
            micro.order = order;
            Nest nest;
            nest.micro = &micro;
            return nest_cost(stage_model(p, PrimitiveId(0)), nest, rates).cycles;
        };
        return cost(Residence::LastCache) - cost(Residence::Near);
    };
    const double bytes = 2048 * 64 * 4, transfer = bytes / 4, products = 64.0 * 2048 * 4 / 2;
    EXPECT_GT(extra(2048, {1, 0, 2}), transfer - products / 8) << "eight tiles of rows, of which the first one waits";
    EXPECT_LT(extra(1024, {1, 0, 2}), 0.2 * transfer) << "panels of 128 KB";
    EXPECT_LT(extra(2048, {0, 1, 2}), transfer) << "panels arrive while the first rows are computed";
}

TEST(NestCost, tensors_that_fill_most_of_a_cache_are_not_there_yet) {
    CycleRates rates = rates_with(3 * 16384);
    rates.caches = {{4096, 64, 4}, {5 * 16384, 64, 14}, {1 << 25, 32, 60}};
    const Example x;  // 3 matrices of 16 KiB
    EXPECT_GE(nest_cost(x.stage, x.nest, rates).bytes.at(1), 3 * 16384);
}

TEST(NestCost, streams_that_begin_together_share_the_wait) {
    const CycleRates rates = rates_with(1 << 20);  // a latency of 200 cycles
    EXPECT_DOUBLE_EQ(stream_start_cycles(24 << 10, rates), 300);
    EXPECT_DOUBLE_EQ(stream_start_cycles(3 << 10, rates), 300.0 / 4);
    EXPECT_DOUBLE_EQ(stream_start_cycles(64, rates), 300.0 / 18);
}

/// Prefetchers lose windows that slide over more rows than they follow; panels do not slide.
TEST(NestCost, panels_are_no_windows) {
    const auto jumps = [](const Program& p) {
        Example x;
        x.stage = stage_model(p, PrimitiveId(0));
        x.micro.order = {1, 0, 2};
        return nest_cost(x.stage, x.nest, rates_with(4096)).jumps[0];
    };
    EXPECT_LE(jumps(product_of_panels(Residence::Near)), 4 * jumps(product(64, 64, 64)));
}

TEST(NestCost, vectors_of_what_the_data_picks_are_loads_where_their_lanes_lie_side_by_side) {
    const auto cycles = [](const char* from) {
        const Program p =
            parse_program(fmt::format(R"(program pick {{
  input at: i64[64]
  input x: f32[64, 64]
  y: f32[64, 64] = [64, 64] @1 where @0 = at[{}], @1 = x[{}]
  output y
}})",
                                      from[0] == 'r' ? "i0" : "i1", from[0] == 'r' ? "@0, i1" : "i0, @0"));
        const StageModel stage = stage_model(p, PrimitiveId(0));
        Micro micro;
        micro.vector_axis = 1;
        micro.lanes = 8;
        micro.registers = {1, 8};
        micro.order = {0, 1};
        Nest nest;
        nest.micro = &micro;
        return nest_cost(stage, nest, rates_with(1 << 20)).compute_cycles;
    };
    EXPECT_LT(2 * cycles("rows"), cycles("columns"));
}

TEST(TileCycles, lanes_a_few_elements_apart_cost_as_many_loads_and_others_one_each) {
    const auto cycles = [](int stride) {
        const Program p = parse_program(fmt::format(R"(program windows {{
  input x: f32[{1}]
  y: f32[64] = [64] max(i1 < 64) @0 where @0 = x[{0} * i0 + i1]
  output y
}})",
                                                    stride, 64 * stride + 64));
        Micro micro;
        micro.vector_axis = 0;
        micro.lanes = 8;
        micro.registers = {64, 1};
        micro.order = {0, 1};
        const std::vector<int64_t> tile = {8, 1};
        return tile_cycles(stage_model(p, PrimitiveId(0)), micro, tile, 1000, rates_with(1e6));
    };
    EXPECT_LT(cycles(1), cycles(2));
    EXPECT_LT(cycles(2), cycles(4));
    EXPECT_LT(1.5 * cycles(4), cycles(5));
}

TEST(NestCost, rows_pass_once_where_the_right_operand_stays) {
    const Example x;
    // Inside the loop over m: A 4 rows, 1 KiB; B 16 KiB; C 1 KiB: 18 KiB fit. A and C move once over 16 steps, B stays.
    // C counts twice, because its lines are read before they are written.
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates_with(20000)).bytes, ElementsAre(16384 + 16384 + 2 * 16384));
}

TEST(NestCost, an_operand_is_loaded_again_for_every_step_of_loops_that_move_it_or_lie_outside_of_those) {
    const Example x;
    // Inside the loops over m (16 steps) and n (4): A 1 KiB, B 64 x 16 floats 4 KiB, C 256 bytes. n does not move A, so
    // A moves once per step of m. All of B moves in every step of m, C once.
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates_with(6000)).bytes, ElementsAre(16384 + 16 * 16384 + 2 * 16384));
}

TEST(NestCost, a_sum_that_walks_along_a_row_meets_a_new_line_every_64_bytes) {
    const Example x;
    // Only a step of k fits. A: 4 rows of 256 bytes for each of the 64 register tiles; B: 64 bytes a step of k; C does
    // not move with k, but is resumed.
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates_with(1000)).bytes,
                ElementsAre(64 * 4 * 256 + 64 * 64 * 64 + 2 * 16384));
}

TEST(NestCost, a_loop_that_does_not_move_an_operand_does_not_reload_it) {
    Example x;
    x.micro.order = {1, 0, 2};
    // n outside: B's 4 KiB stay over the loop m; A, 16 KiB, moves in each of n's 4 steps.
    EXPECT_THAT(nest_cost(x.stage, x.nest, rates_with(6000)).bytes, ElementsAre(4 * 16384 + 16384 + 2 * 16384));
}

TEST(NestCost, lines_of_few_sets_are_evicted_from_a_cache_that_is_large_enough) {
    // 256 columns in panels of 64. Tiles of 64 columns are one panel, or in four strips a quarter of each of the four.
    const StageModel stage = stage_model(parse_program(R"(program product {
  input a: f32[64, 64]
  input b: f32[4, 64, 64]
  c: f32[64, 256] = [64, 256] sum(i2 < 64) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 64, i2, i1 % 64]
  output c
})"),
                                         PrimitiveId(0));
    CycleRates m = rates_with(32 << 10);
    m.caches[0].way_bytes = 4096;
    Micro micro;
    micro.vector_axis = 1;
    micro.lanes = 8;
    micro.registers = {4, 64, 1};
    micro.order = {1, 0, 2};
    Nest nest;
    nest.micro = &micro;
    const double whole = nest_cost(stage, nest, m).bytes[0];
    micro.virtual_threads = {1, 4, 1};
    const double in_strips = nest_cost(stage, nest, m).bytes[0];
    // 16 KiB a tile of columns: a panel stays over 16 tiles of rows. Of 16 lines in each of 16 sets, 8 ways keep less
    // than half, and the rest is read again for every tile of rows.
    EXPECT_LT(whole, 300e3);
    EXPECT_GT(in_strips, whole + 0.5 * 15 * 4 * 16384);
    m.caches[0].way_bytes = 0;
    EXPECT_EQ(nest_cost(stage, nest, m).bytes[0], whole) << "sets that are hashes";
    m.caches[0].way_bytes = 64;
    EXPECT_EQ(nest_cost(stage, nest, m).bytes[0], whole) << "a single set";
}

TEST(NestCost, every_level_has_its_own_share) {
    const Example x;
    CycleRates m = rates_with(6000);
    m.caches.push_back({20000, 32, 14});
    // C is written back to the second level, so it is not read from there first.
    EXPECT_THAT(nest_cost(x.stage, x.nest, m).bytes,
                ElementsAre(16384 + 16 * 16384 + 16384, 16384 + 16384 + 2 * 16384));
}

TEST(NestCost, a_buffer_that_stays_in_the_cache_is_not_moved) {
    Example x;
    x.nest.loops = {{0, 16}};  // tasks of 16 rows
    x.nest.parallel = 1;
    const double all = nest_cost(x.stage, x.nest, rates_with(20000)).bytes[0];
    x.nest.home = {1, 0, 0};  // A's rows are copied once per task
    EXPECT_EQ(nest_cost(x.stage, x.nest, rates_with(20000)).bytes[0], all - 16384);
}

TEST(NestCost, a_stream_jumps_where_the_next_tile_is_not_beside_the_last) {
    // Rows of 4 KiB, written in tiles of 4 x 16 floats: 64 bytes in each of 4 pages.
    const StageModel stage = stage_model(product(64, 1024, 4), PrimitiveId(0));
    Example x;
    const auto jumps = [&](std::vector<size_t> order) {
        x.micro.order = std::move(order);
        return nest_cost(stage, x.nest, rates_with(3000)).jumps[0];
    };
    const double below = jumps({1, 0, 2}), beside = jumps({0, 1, 2});
    // Tiles below each other: C, which moves twice, changes the page every 64 bytes. Side by side: once a page.
    EXPECT_GE(below, 2 * 64 * 4096 / 64);
    EXPECT_LT(beside, below / 2);  // the remainder is B's rows
}

TEST(NestCost, rows_of_a_page_that_are_met_in_turns_are_more_than_the_hardware_follows) {
    const StageModel stage = stage_model(parse_program(R"(program pool {
  input x: f32[64, 114, 114]
  y: f32[64, 56, 56] = [64, 56, 56] max(i3 < 3, i4 < 3) @0 where @0 = x[i0, 2*i1 + i3, 2*i2 + i4]
  output y
})"),
                                         PrimitiveId(0));
    const auto jumps = [&](int64_t rows, double cache) {
        Micro micro;
        micro.vector_axis = 2;
        micro.lanes = 16;
        micro.registers = {1, rows, 16, 3, 3};
        Nest nest;
        nest.micro = &micro;
        return nest_cost(stage, nest, rates_with(cache)).jumps[0];
    };
    // Nine input rows for four output rows: prefetchers miss five in nine of the operand's lines. They follow three
    // rows.
    const double lines = 64.0 * 114 * 114 * 4 / 64;
    EXPECT_NEAR(jumps(4, 1e6) - jumps(1, 1e6), lines * 5 / 9, lines / 10);
    EXPECT_EQ(jumps(4, 1e9), 0);
}

/// 14 x 14 pixels with 64 contiguous channels, 3 x 3 windows padded by one.
const std::string kDepthwise = R"(program depthwise {
  input x: f32[14, 14, 64]
  input w: f32[3, 3, 64]
  y: f32[14, 14, 64] = [14, 14, 64] sum(i3 < 3, i4 < 3) mul(@0, @1) where @0 = x[i0 + i3 - 1, i1 + i4 - 1, i2] when i0 + i3 - 1 >= 0 and -i0 - i3 + 14 >= 0 and i1 + i4 - 1 >= 0 and -i1 - i4 + 14 >= 0 else 0, @1 = w[i3, i4, i2]
  output y
})";

struct Windows {
    StageModel stage = stage_model(parse_program(kDepthwise), PrimitiveId(0));
    Micro micro;
    Windows() {
        micro.vector_axis = 2;
        micro.lanes = 8;
        micro.registers = {1, 4, 8, 3, 3};
        micro.order = {0, 2, 1, 3, 4};
    }
    double compute(std::vector<Nest::Loop> loops) const {
        Nest nest;
        nest.loops = std::move(loops);
        nest.micro = &micro;
        return nest_cost(stage, nest, rates_with(1e6)).compute_cycles;
    }
};

TEST(NestCost, knows_where_conditions_cut_loops) {
    const Windows w;
    ASSERT_EQ(w.stage.cuts.size(), 5u);
    EXPECT_THAT(w.stage.cuts[0], ElementsAre(1, 13));
    EXPECT_THAT(w.stage.cuts[1], ElementsAre(1, 13));
    EXPECT_THAT(w.stage.cuts[2], ElementsAre());
    // Whole rows have ranges of 1, 12 and 1 pixels: three tiles of four and two of one. In steps of four they are 1 +
    // 3, 4, 4, 1 + 1, and none of these is known at compile time.
    EXPECT_GT(w.compute({{1, 4}}), 1.1 * w.compute({}));
    EXPECT_LT(w.compute({{2, 8}}), 1.1 * w.compute({}));  // channels are not cut
}

TEST(TileCycles, windows_written_out_share_their_loads_unless_only_the_run_knows_the_rest) {
    const Windows w;
    CycleRates m = rates_with(1e6);
    m.loads_per_cycle = 1;  // makes loads the bottleneck
    Micro apart = w.micro;
    apart.registers = {1, 4, 8, 1, 1};
    const std::vector<int64_t> tile = {1, 4, 1, 1, 1};
    const double together = tile_cycles(w.stage, w.micro, tile, 9, m);
    // 3 x 6 pixels and 9 weights, instead of 4 + 1 loads for each of nine steps.
    EXPECT_LT(together, 0.8 * tile_cycles(w.stage, apart, tile, 9, m));
    EXPECT_GT(tile_cycles(w.stage, w.micro, tile, 9, m, true), together);
}

TEST(TileCycles, rows_of_results_that_share_a_set_push_each_other_out) {
    Example x;
    const CycleRates m = rates_with(1e6);
    const StageModel aligned = stage_model(product(64, 1024, 4), PrimitiveId(0));
    const StageModel shifted = stage_model(product(64, 1040, 4), PrimitiveId(0));
    const std::vector<int64_t> eight = {8, 2, 1}, twelve = {12, 2, 1};
    EXPECT_EQ(tile_cycles(aligned, x.micro, eight, 4, m), tile_cycles(shifted, x.micro, eight, 4, m));
    EXPECT_GT(tile_cycles(aligned, x.micro, twelve, 4, m), tile_cycles(shifted, x.micro, twelve, 4, m));
}

TEST(TileCycles, short_sums_are_under_way_together) {
    Example x;
    const CycleRates m = rates_with(1e6);
    const std::vector<int64_t> tile = {1, 1, 1};
    EXPECT_LT(tile_cycles(x.stage, x.micro, tile, 9, m), 9 * 4 + 20);
}

TEST(NestCost, tasks_are_shared_out_in_rounds) {
    Example x;
    x.nest.loops = {{0, 16}};
    x.nest.parallel = 1;
    CycleRates one = rates_with(1e6), three = one, four = one;
    three.workers = 3;
    four.workers = 4;
    const auto seconds = [&](const CycleRates& m) { return nest_cost(x.stage, x.nest, m).seconds(m); };
    EXPECT_EQ(nest_cost(x.stage, x.nest, one).tasks, 4);
    EXPECT_DOUBLE_EQ(seconds(four), seconds(one) / 4);
    EXPECT_DOUBLE_EQ(seconds(three), seconds(one) / 2);  // one of the three threads has two tasks
}

TEST(SlowestShare, is_of_the_thread_that_ends_last_when_each_takes_the_next_task) {
    const auto share = [](const std::vector<TaskAxis>& grid, int threads) { return slowest_share(grid, threads); };
    EXPECT_EQ(share({{197, 22}}, 1), 1);
    EXPECT_EQ(share({{197, 197}}, 2), 1);
    EXPECT_DOUBLE_EQ(share({{36, 4}}, 2), 20.0 / 36);          // nine tasks: five and four
    EXPECT_DOUBLE_EQ(share({{36, 3}}, 2), 0.5);                // twelve
    EXPECT_DOUBLE_EQ(share({{197, 56}}, 2), 112.0 / 197);      // 56 + 56, and 56 + 29
    EXPECT_DOUBLE_EQ(share({{197, 98}}, 2), 99.0 / 197);       // 98 + 1, and 98
    EXPECT_DOUBLE_EQ(share({{3, 1}, {10, 6}}, 2), 16.0 / 30);  // 6 + 6 + 4, and 4 + 6 + 4
    // With many tasks, the size of the last one hardly matters.
    EXPECT_DOUBLE_EQ(share({{1000, 1}, {3, 2}}, 2), 0.5);
    // Without work no thread waits.
    EXPECT_EQ(share({{0, 4}}, 2), 1);
}

TEST(TileCycles, of_a_full_register_tile_are_its_multiply_adds) {
    Example x;
    const CycleRates m = rates_with(1e6);
    ASSERT_EQ(generic_target(VectorIsa::avx2).micro_lanes(), 8);
    // 4 x 2 vectors: 8 multiply-adds a step, two a cycle; 6 loads, at the first level's rate per cycle.
    const double steps = 1000;
    const std::vector<int64_t> tile = {4, 2, 1};
    const double cycles = tile_cycles(x.stage, x.micro, tile, steps, m);
    EXPECT_GE(cycles, steps * 8 / m.fmas_per_cycle);
    EXPECT_LE(cycles, 1.05 * steps * std::max(8 / m.fmas_per_cycle, 6 / m.loads_per_cycle));
}

TEST(TileCycles, of_dot_products_of_bytes_without_an_instruction_are_at_least_half_of_the_multiply_adds) {
    Example x;
    Target t = generic_target(VectorIsa::avx2);
    const CycleRates m(t);
    EXPECT_EQ(m.byte_dots_per_cycle, m.fmas_per_cycle / 2);
    const std::vector<int64_t> tile = {4, 2, 1};
    const double by_multiply_adds = tile_cycles(x.stage, x.micro, tile, 1000, m);
    x.micro.matrix = MatrixUnit{MatrixType::I8, 0, 1, 2, MatrixForm::Dot};
    const double words = tile_cycles(x.stage, x.micro, tile, 1000, m) / by_multiply_adds;
    EXPECT_GE(words, 0.5);
    EXPECT_LE(words, 1);
    t.native = true;
    t.features = {"avxvnni"};
    EXPECT_LE(tile_cycles(x.stage, x.micro, tile, 1000, CycleRates(t)) / by_multiply_adds, 0.3);
}

TEST(TileCycles, of_dot_products_are_half_of_the_multiply_adds) {
    Example x;
    Target t = generic_target(VectorIsa::avx2);
    t.native = true;
    t.features = {"avx512bf16"};
    assume_unit_rates(t);
    const CycleRates m(t);
    EXPECT_EQ(m.dots_per_cycle, m.fmas_per_cycle);
    EXPECT_EQ(rates_with(1e6).dots_per_cycle, 0);
    const std::vector<int64_t> tile = {6, 4, 1};
    const double by_multiply_adds = tile_cycles(x.stage, x.micro, tile, 1000, m);
    x.micro.matrix = MatrixUnit{MatrixType::BF16, 0, 1, 2, MatrixForm::Dot};
    EXPECT_NEAR(tile_cycles(x.stage, x.micro, tile, 1000, m) / by_multiply_adds, 0.5, 0.03);
}

TEST(TileCycles, of_sums_in_f16_are_half_of_the_multiply_adds_and_what_joins_f32) {
    Example x;
    Target t = generic_target(VectorIsa::avx512);
    t.native = true;
    t.features = {"avx512fp16"};
    assume_unit_rates(t);
    EXPECT_EQ(CycleRates(t).f16_per_cycle, 0) << "not allowed";
    t.sums_in_f16 = true;
    const CycleRates m(t);
    EXPECT_EQ(m.f16_per_cycle, m.fmas_per_cycle);
    EXPECT_EQ(matrix_advantage(t, 2), 2);
    const std::vector<int64_t> tile = {6, 4, 1};
    const double by_multiply_adds = tile_cycles(x.stage, x.micro, tile, 1024, m);
    x.micro.matrix = MatrixUnit{MatrixType::F16, 0, 1, 2, MatrixForm::Dot};
    const auto in_steps_of = [&](int64_t elements) {
        x.micro.registers = {6, 64, elements};
        return tile_cycles(x.stage, x.micro, tile, 1024, m) / by_multiply_adds;
    };
    EXPECT_NEAR(in_steps_of(64), 0.6, 0.03);
    EXPECT_GT(in_steps_of(32), in_steps_of(64));
    EXPECT_GT(in_steps_of(8), 1);
}

TEST(TileCycles, one_accumulator_waits_for_itself_unless_its_sum_is_taken_in_chains) {
    Example x;
    const std::vector<int64_t> tile = {1, 1, 1};
    const double product = tile_cycles(x.stage, x.micro, tile, 1000, rates_with(1e6));
    EXPECT_GE(product, 1000);
    EXPECT_LE(product, 2000);
    x.stage.product = false;
    EXPECT_GE(tile_cycles(x.stage, x.micro, tile, 1000, rates_with(1e6)), 4000);  // four cycles of latency
}

TEST(TileCycles, follow_the_annotated_number_of_accumulators) {
    Example x;
    const std::vector<int64_t> tile = {1, 1, 1};
    const double derived = tile_cycles(x.stage, x.micro, tile, 1000, rates_with(1e6));
    x.micro.annotations.accumulators = Accumulators{1, 0};
    EXPECT_GE(tile_cycles(x.stage, x.micro, tile, 1000, rates_with(1e6)), 4000);
    x.micro.annotations.accumulators = accumulators_for(1000);
    EXPECT_EQ(tile_cycles(x.stage, x.micro, tile, 1000, rates_with(1e6)), derived);
}

TEST(NestCost, follows_the_annotated_sizes_of_tails) {
    Windows w;  // with tails of one to three or four columns
    const double derived = w.compute({{1, 4}});
    w.micro.annotations.tails = {{1, {4}, false}};  // every tail is computed as a whole tile
    const double clamped = w.compute({{1, 4}});
    EXPECT_GT(clamped, derived);
    w.micro.annotations.tails = {{1, tail_sizes(4), false}};
    EXPECT_EQ(w.compute({{1, 4}}), derived);
    w.micro.annotations.tails = {{1, half_tail_sizes(4), false}};  // three columns: two and one
    const double halves = w.compute({{1, 4}});
    EXPECT_GT(halves, derived);
    EXPECT_LT(halves, clamped);
}

TEST(Estimate, of_twice_the_work_is_about_twice_the_time) {
    const Target target = generic_target(VectorIsa::avx512);
    const auto seconds = [&](int64_t rows, int64_t columns, int64_t depth) {
        TileProgram t;
        t.stages = product(rows, columns, depth);
        t.axes = {{"m", rows}, {"n", columns}, {"k", depth}};
        t.stage_axes.push_back({0, 1, 2});
        Micro micro;
        micro.vector_axis = 1;
        micro.lanes = 16;
        micro.registers = {12, 32, 1};
        micro.order = {0, 1, 2};
        t.body = {Stmt{Compute{PrimitiveId(0), micro}}};
        EXPECT_EQ(verify(t), std::vector<std::string>());
        return estimate(t, target).seconds;
    };
    double before = 0;
    for (const int64_t n : {96, 192, 384, 768, 1536}) {
        const double once = seconds(n, 192, 192);
        EXPECT_GT(once, before);
        before = once;
        EXPECT_NEAR(seconds(2 * n, 192, 192) / once, 2, 0.2) << n;
    }
    EXPECT_NEAR(seconds(192, 192, 384) / seconds(192, 192, 192), 2, 0.2);
    EXPECT_NEAR(seconds(192, 384, 192) / seconds(192, 192, 192), 2, 0.3);
}

TEST(Estimate, of_a_product_never_undercuts_its_lower_bound) {
    int near = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const auto pick = [&](uint64_t salt) { return static_cast<int64_t>(1 + (seed * 7919 + salt * 104729) % 90); };
        const Program stages = product(pick(1), pick(2), pick(3));
        const TileProgram t = random_schedule(stages, seed);
        Target target = generic_target(seed % 2 == 0 ? VectorIsa::avx2 : VectorIsa::avx512);
        target.workers = 1 + static_cast<int>(seed % 4);
        const double bound = lower_bound(stages, target, {}, true), seconds = estimate(t, target).seconds;
        EXPECT_LE(bound, seconds) << "seed " << seed << "\n" << print(t);
        near += seconds < 20 * bound ? 1 : 0;
    }
    EXPECT_GT(near, 20);  // guards against estimates that are all large
}

TEST(LowerBound, is_the_arithmetic_or_the_bytes) {
    Target t = generic_target(VectorIsa::avx2);
    t.ghz.value = 1;
    t.memory_gbps_1.value = 32;
    t.caches.resize(1);
    t.caches[0].bytes = 1250000;  // the model assumes only a part of it
    // 2 x 512^3 operations at 2 x 8 multiply-adds a cycle.
    EXPECT_DOUBLE_EQ(lower_bound(product(512, 512, 512), t, {}),
                     512.0 * 512 * 512 / (CycleRates(t).fmas_per_cycle * 8) * 1e-9);
    const Program copy = parse_program(R"(program copy {
  input x: f32[$n, 1000]
  y: f32[$n, 1000] = [$n, 1000] @0 where @0 = x[i0, i1]
  output y
})");
    // 1000 rows: 8 MB in and out at 32 bytes a cycle, or 0 from a cache that holds them.
    const Bindings rows = {{given(symbol("n").as_var()), 1000}};
    EXPECT_DOUBLE_EQ(lower_bound(copy, t, rows), 8e6 / 32 * 1e-9);
    EXPECT_DOUBLE_EQ(lower_bound(copy, t, rows, true), 8e6 / 32 * 1e-9);
    t.caches[0].bytes = 12500000;
    EXPECT_DOUBLE_EQ(lower_bound(copy, t, rows, true), 0);
}

TEST(CycleRates, plan_with_a_part_of_the_caches_and_a_thread_s_share_of_what_is_shared) {
    Target t = generic_target(VectorIsa::avx2);
    t.caches[2].shared_by = 8;
    const CycleRates one(t);
    t.workers = 4;
    const CycleRates four(t);
    EXPECT_LT(one.caches[0].bytes, static_cast<double>(t.caches[0].bytes));
    EXPECT_EQ(one.caches[0].bytes, four.caches[0].bytes);
    EXPECT_EQ(one.caches[2].bytes / 4, four.caches[2].bytes);
    EXPECT_EQ(one.dispatch_cycles, 0);
    EXPECT_GT(four.dispatch_cycles, 0);
}

}  // namespace
}  // namespace tilewright
