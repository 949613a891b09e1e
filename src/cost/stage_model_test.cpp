// The footprint of a tile compared with counting, and the cost of a stage's arithmetic.

#include "cost/stage_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include "cost/given_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;

/// Calls `f` with every point of a tile that begins at `start`.
void each_point(const std::vector<int64_t>& start, const std::vector<int64_t>& tile,
                const std::function<void(const std::vector<int64_t>&)>& f) {
    std::vector<int64_t> point = start;
    while (true) {
        f(point);
        size_t a = 0;
        for (; a < tile.size(); ++a) {
            if (++point[a] < start[a] + tile[a]) break;
            point[a] = start[a];
        }
        if (a == tile.size()) return;
    }
}

int64_t at(Expr index, const std::vector<int64_t>& point) {
    Env env;
    env.axes = point;
    return evaluate(index, env);
}

/// The range of the index over the tile, by enumeration.
int64_t counted_reach(Expr index, const std::vector<int64_t>& start, const std::vector<int64_t>& tile) {
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    each_point(start, tile, [&](const std::vector<int64_t>& p) {
        lo = std::min(lo, at(index, p));
        hi = std::max(hi, at(index, p));
    });
    return hi - lo;
}

TEST(IndexReach, of_a_window_adds_up) {
    const IndexReach row(parse_expr("i1 + i4 - 1"), 0);
    const std::vector<int64_t> tile = {1, 14, 1, 1, 3};
    EXPECT_EQ(row.over(tile), 13 + 2);
    const IndexReach strided(parse_expr("2 * i1 + 3 * i4 - 7"), 0);
    EXPECT_EQ(strided.over(tile), 2 * 13 + 3 * 2);
    EXPECT_EQ(IndexReach(parse_expr("5"), 0).over(tile), 0);
    EXPECT_EQ(IndexReach(parse_expr("-i1 + 20"), 0).over(tile), 13);
}

TEST(IndexReach, of_an_affine_index_is_what_counting_gives) {
    std::mt19937_64 rng(1);
    for (int k = 0; k < 300; ++k) {
        Expr index(static_cast<int64_t>(rng() % 10));
        for (size_t a = 0; a < 3; ++a) index += Expr(static_cast<int64_t>(rng() % 9) - 4) * axis(a);
        std::vector<int64_t> start, tile;
        for (size_t a = 0; a < 3; ++a) {
            start.push_back(static_cast<int64_t>(rng() % 20));
            tile.push_back(1 + static_cast<int64_t>(rng() % 6));
        }
        EXPECT_EQ(IndexReach(index, 0).over(tile), counted_reach(index, start, tile)) << index.text();
    }
}

TEST(IndexReach, follows_blocks_that_tiles_divide_or_fill) {
    const IndexReach block(parse_expr("i0 // 512"), 0), inside(parse_expr("i0 % 512"), 0);
    for (const int64_t tile : {1, 16, 128, 512, 1024, 1536}) {
        const std::vector<int64_t> one = {tile};
        EXPECT_EQ(block.over(one), counted_reach(parse_expr("i0 // 512"), {3 * tile}, one)) << tile;
        EXPECT_EQ(inside.over(one), counted_reach(parse_expr("i0 % 512"), {3 * tile}, one)) << tile;
    }
}

TEST(IndexReach, of_an_index_that_data_decides_is_what_it_is_told) {
    const std::vector<int64_t> tile = {5, 5};
    EXPECT_EQ(IndexReach(load(0), 99).over(tile), 99);
    EXPECT_EQ(IndexReach(load(0) + axis(1), 99).over(tile), 99 + 4);
}

TEST(IndexReach, of_a_minimum_is_that_of_the_side_that_moves_more) {
    const std::vector<int64_t> tile = {5, 9};
    EXPECT_EQ(IndexReach(parse_expr("min(i0, 2 * i1)"), 0).over(tile), 16);
}

/// The model of one access.
OperandModel operand(const std::vector<std::string>& index, std::vector<int64_t> extents) {
    OperandModel o;
    int64_t stride = 1;
    for (size_t d = index.size(); d-- > 0; stride *= extents[d])
        for (auto& [coefficient, reach] : IndexReach(parse_expr(index[d]), 0).summands())
            o.parts.push_back({stride * coefficient, std::move(reach)});
    std::stable_sort(o.parts.begin(), o.parts.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });
    o.extents = std::move(extents);
    return o;
}

TEST(OperandModel, elements_are_those_that_a_tile_touches) {
    // x[i0 + i3, i1] of a window, and rows of a flattened matrix, compared with counting.
    const std::vector<std::pair<std::vector<std::string>, std::vector<int64_t>>> cases = {
        {{"i0", "i1"}, {9, 16}}, {{"i0 + i2", "i1"}, {12, 7}}, {{"16 * i0 + i1"}, {144}}, {{"i1", "2 * i0"}, {7, 30}}};
    std::mt19937_64 rng(2);
    for (const auto& [index, extents] : cases)
        for (int k = 0; k < 30; ++k) {
            const std::vector<int64_t> tile = {1 + static_cast<int64_t>(rng() % 5), 1 + static_cast<int64_t>(rng() % 7),
                                               1 + static_cast<int64_t>(rng() % 3)};
            std::set<std::vector<int64_t>> touched;
            for (int64_t a = 0; a < tile[0]; ++a)
                for (int64_t b = 0; b < tile[1]; ++b)
                    for (int64_t c = 0; c < tile[2]; ++c) {
                        const std::vector<int64_t> at = {a, b, c};
                        std::vector<int64_t> element;
                        for (const std::string& i : index)
                            element.push_back(evaluate(parse_expr(i), Env{at, {}, nullptr}));
                        touched.insert(element);
                    }
            EXPECT_EQ(operand(index, extents).elements(tile), static_cast<double>(touched.size()))
                << index[0] << " " << tile[0] << " " << tile[1] << " " << tile[2];
        }
}

TEST(OperandModel, elements_of_a_channel_block_are_the_tile_s_own) {
    // x[c // 512, pixel, c % 512] with 2048 channels: 32 of them at 7 pixels.
    const OperandModel o = operand({"i0 // 512", "i1", "i0 % 512"}, {4, 49, 512});
    const std::vector<int64_t> part = {32, 7}, two_blocks = {1024, 7};
    EXPECT_EQ(o.elements(part), 32 * 7);
    EXPECT_EQ(o.elements(two_blocks), 1024 * 7);
}

TEST(OperandModel, bytes_are_whole_cache_lines) {
    const OperandModel o = operand({"i0", "i1"}, {100, 100});
    const auto bytes = [&](int64_t rows, int64_t columns) { return o.bytes(std::vector<int64_t>{rows, columns}); };
    EXPECT_EQ(bytes(1, 1), 64);
    EXPECT_EQ(bytes(3, 5), 3 * 64);
    EXPECT_EQ(bytes(3, 17), 3 * 128);
    EXPECT_EQ(bytes(3, 100), 1216);  // whole rows are contiguous: 1200 bytes
    EXPECT_EQ(bytes(100, 100), 40000);
}

TEST(OperandModel, minima_and_maxima_move_over_their_dimension_at_most) {
    // The terms of six pairs: 0 0 1 1 2 0. Ranges of its minima and maxima add up to 15.
    const StageModel m = stage_model(parse_program(R"(program t {
  input a: f32[3, 32]
  b: f32[6, 32] = [6, 32] neg(@0) where @0 = a[min(min(max(i0 - 1, 0), 1) + max(i0 - 3, 0), min(2, 10 - 2 * i0)), i1]
  output b
})"),
                                     PrimitiveId(0));
    EXPECT_EQ(m.operands[0].bytes(std::vector<int64_t>{6, 32}), 3 * 32 * 4);
    EXPECT_EQ(m.operands[0].bytes(std::vector<int64_t>{1, 32}), 32 * 4);
}

TEST(OperandModel, pages_are_those_that_runs_lie_in) {
    const StageModel m = stage_model(parse_program(R"(program t {
  input a: f32[64, 1024]
  b: f32[64, 1024] = [64, 1024] neg(@0) where @0 = a[i0, i1]
  output b
})"),
                                     PrimitiveId(0));
    const OperandModel& a = m.operands[0];
    EXPECT_EQ(a.pages(std::vector<int64_t>{1, 16}, 4096), 1);
    EXPECT_EQ(a.pages(std::vector<int64_t>{8, 16}, 4096), 7 + 16 / 1024.0);    // from the first to the last element
    EXPECT_EQ(a.pages(std::vector<int64_t>{8, 16}, 8192), 3.5 + 16 / 2048.0);  // two rows a page
    EXPECT_EQ(a.pages(std::vector<int64_t>{2, 1024}, 4096), 2);                // one run of two pages
}

TEST(OperandModel, bytes_are_the_lines_that_counting_finds) {
    std::mt19937_64 rng(3);
    for (int k = 0; k < 200; ++k) {
        // Rows of whole lines, so that a line belongs to one row.
        const OperandModel o =
            operand({"i0", "i1", "i2"}, {1 + static_cast<int64_t>(rng() % 4), 1 + static_cast<int64_t>(rng() % 4),
                                         16 * (1 + static_cast<int64_t>(rng() % 3))});
        std::vector<int64_t> tile;
        tile.reserve(o.extents.size());
        for (const int64_t e : o.extents) tile.push_back(1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(e)));
        std::set<int64_t> lines;
        each_point({0, 0, 0}, tile, [&](const std::vector<int64_t>& p) {
            lines.insert(((p[0] * o.extents[1] + p[1]) * o.extents[2] + p[2]) * 4 / 64);
        });
        EXPECT_EQ(o.bytes(tile), 64.0 * static_cast<double>(lines.size()));
    }
}

/// The lines of a tile in each set that has any, by enumeration. Tensors of f32.
double counted_lines_in_a_set(const OperandModel& o, const std::vector<std::string>& index,
                              const std::vector<std::vector<int64_t>>& points, int64_t way_bytes) {
    std::set<int64_t> lines, sets;
    for (const std::vector<int64_t>& p : points) {
        int64_t offset = 0;
        for (size_t d = 0; d < index.size(); ++d) offset = offset * o.extents[d] + at(parse_expr(index[d]), p);
        lines.insert(offset * 4 / 64);
        sets.insert(offset * 4 % way_bytes / 64);
    }
    return static_cast<double>(lines.size()) / static_cast<double>(sets.size());
}

TEST(OperandModel, lines_that_are_powers_of_two_apart_share_sets) {
    const std::vector<std::string> index = {"i0", "i1", "i2"};
    const auto check = [&](std::vector<int64_t> extents, const std::vector<int64_t>& tile, double lines) {
        const OperandModel o = operand(index, std::move(extents));
        std::vector<std::vector<int64_t>> points;
        each_point({0, 0, 0}, tile, [&](const std::vector<int64_t>& p) { points.push_back(p); });
        EXPECT_EQ(o.lines_in_a_set(tile, 4096), lines) << testing::PrintToString(tile);
        EXPECT_EQ(o.lines_in_a_set(tile, 4096), counted_lines_in_a_set(o, index, points, 4096));
    };
    check({1, 14, 1024}, {1, 14, 16}, 14);  // rows of 4 KiB: one set
    check({1, 14, 512}, {1, 14, 16}, 7);    // rows of 2 KiB: two
    check({1, 14, 1040}, {1, 14, 16}, 1);   // rows of 4 KiB and a line
    check({4, 64, 64}, {4, 64, 16}, 16);    // a line of every four: 256 lines in 16 sets
    check({4, 64, 64}, {4, 64, 64}, 16);    // all lines, of four ways each
    check({1, 1, 64}, {1, 1, 64}, 1);
}

TEST(OperandModel, strips_are_in_the_panels_that_they_reach) {
    // b[n // 64, k, n % 64]. Of a tile of 64 columns in 4 strips, each is in a panel of its own: a line of every row.
    const std::vector<std::string> index = {"i0 // 64", "i1", "i0 % 64"};
    const OperandModel o = operand(index, {4, 64, 64});
    const std::vector<Strip> strips = {{0, 4, 64}}, inside = {{0, 2, 32}};
    const std::vector<int64_t> strip = {16, 64};
    const OperandModel apart = o.in_strips(strips);
    EXPECT_EQ(apart.bytes(strip), 4 * 64 * 64);
    EXPECT_EQ(apart.lines_in_a_set(strip, 4096), 16);
    EXPECT_EQ(o.lines_in_a_set(std::vector<int64_t>{64, 64}, 4096), 4) << "one panel, 16 KiB";
    // Two strips of one panel: every second line of a row.
    EXPECT_EQ(o.in_strips(inside).bytes(strip), 2 * 64 * 64);
    EXPECT_EQ(o.in_strips(inside).lines_in_a_set(strip, 4096), 4);
    std::vector<std::vector<int64_t>> points;
    for (const int64_t begin : {0, 32})
        each_point({begin, 0}, strip, [&](const std::vector<int64_t>& p) { points.push_back(p); });
    EXPECT_EQ(counted_lines_in_a_set(o, index, points, 4096), 4);
}

StageModel model_of(const std::string& text, size_t stage = 0, const Bindings& bindings = {}) {
    return stage_model(parse_program(text), PrimitiveId(static_cast<uint32_t>(stage)), bindings);
}

TEST(StageModel, of_a_product) {
    const StageModel s = model_of(R"(program product {
  input a: f32[10, 30]
  input b: f32[30, 20]
  input bias: f32[20]
  c: f32[10, 20] = [10, 20] sum(i2 < 30) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = a[i0, i2], @1 = b[i2, i1], @2 = bias[i1]
  output c
})");
    EXPECT_THAT(s.extents, ElementsAre(10, 20, 30));
    EXPECT_EQ(s.spatial, 2u);
    EXPECT_TRUE(s.product);
    EXPECT_TRUE(s.reduces);
    ASSERT_EQ(s.operands.size(), 4u);
    EXPECT_THAT(s.operands[0].strides, ElementsAre(30, 0, 1));
    EXPECT_THAT(s.operands[1].strides, ElementsAre(0, 1, 20));
    EXPECT_THAT(s.operands[2].strides, ElementsAre(0, 1, 0));
    EXPECT_THAT(s.result().strides, ElementsAre(20, 1, 0));
    EXPECT_THAT(s.operands[0].depends, ElementsAre(true, false, true));
    EXPECT_TRUE(s.operands[1].in_body);
    EXPECT_FALSE(s.operands[2].in_body);  // read by the epilogue
    EXPECT_TRUE(s.result().result);
    EXPECT_EQ(s.points(), 6000);
    EXPECT_EQ(s.results(), 200);
    EXPECT_EQ(s.flops(), 2 * 6000 + 2 * 200);  // a multiply-add per point; the epilogue's addition and maximum
}

TEST(StageModel, of_a_convolution_with_stride_two) {
    const StageModel s = model_of(R"(program convolution {
  input x: f32[3, 15, 15]
  input w: f32[8, 3, 3, 3]
  y: f32[8, 7, 7] = [8, 7, 7] sum(i3 < 3, i4 < 3, i5 < 3) mul(@0, @1) where @0 = x[i3, 2*i1 + i4, 2*i2 + i5], @1 = w[i0, i3, i4, i5]
  output y
})");
    EXPECT_THAT(s.operands[0].strides, ElementsAre(0, 30, 2, 225, 15, 1));
    EXPECT_THAT(s.operands[1].strides, ElementsAre(27, 0, 0, 9, 3, 1));
    EXPECT_THAT(s.result().strides, ElementsAre(49, 7, 1, 0, 0, 0));
    EXPECT_EQ(s.flops(), 2.0 * 8 * 49 * 27);
    // 4 x 7 pixels of all filters read rows 0 to 8, all columns, all channels.
    EXPECT_EQ(s.operands[0].elements(std::vector<int64_t>{8, 4, 7, 3, 3, 3}), 3 * 9 * 15);
}

TEST(StageModel, of_a_softmax_s_stages) {
    const std::string text = R"(program softmax {
  input x: f32[6, 40]
  m: f32[6] = [6] max(i1 < 40) @0 where @0 = x[i0, i1]
  e: f32[6, 40] = [6, 40] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = m[i0]
  output e
})";
    const StageModel most = model_of(text, 0), terms = model_of(text, 1);
    EXPECT_TRUE(most.reduces);
    EXPECT_FALSE(most.product);
    EXPECT_EQ(most.flops(), 240);  // one maximum per point
    EXPECT_FALSE(terms.reduces);
    EXPECT_EQ(terms.flops(), 240 * (1 + 12));  // the difference and exp's polynomial
    EXPECT_THAT(terms.operands[1].strides, ElementsAre(1, 0));
}

TEST(StageModel, of_a_gather_reaches_an_element_for_each_point) {
    const StageModel s = model_of(R"(program gather {
  input ids: i64[5]
  input table: f32[100, 16]
  y: f32[5, 16] = [5, 16] @1 where @0 = ids[i0], @1 = table[@0, i1]
  output y
})");
    EXPECT_FALSE(s.operands[0].irregular);
    EXPECT_EQ(s.operands[0].element_bytes, 8);
    EXPECT_TRUE(s.operands[1].irregular);
    EXPECT_EQ(s.operands[1].elements(std::vector<int64_t>{5, 16}), 80);
}

/// Pixels selected by a table, with contiguous channels. The data determines where a run of channels lies, not its
/// extent.
TEST(StageModel, of_a_gather_of_pixels_reaches_runs_of_channels) {
    const StageModel s = model_of(R"(program resize {
  input from: i64[128]
  input x: f32[64, 64, 256]
  y: f32[64, 128, 256] = [64, 128, 256] @1 where @0 = from[i1], @1 = x[i0, @0, i2]
  output y
})");
    const OperandModel& x = s.operands[1];
    EXPECT_THAT(x.depends, ElementsAre(true, true, true));
    EXPECT_TRUE(x.picked_along(1));
    EXPECT_FALSE(x.picked_along(2));
    EXPECT_EQ(x.bytes(std::vector<int64_t>{1, 1, 16}), 64);
    EXPECT_EQ(x.bytes(std::vector<int64_t>{1, 4, 16}), 4 * 64);
    EXPECT_EQ(x.bytes(std::vector<int64_t>{1, 4, 256}), 4 * 1024);
    EXPECT_EQ(x.elements(std::vector<int64_t>{1, 128, 256}), 64 * 256) << "a row has 64 pixels to pick";
}

TEST(StageModel, an_axis_of_one_point_moves_nothing) {
    const StageModel s = model_of(R"(program one {
  input a: f32[1, 8]
  b: f32[1, 8] = [1, 8] neg(@0) where @0 = a[i0, i1]
  output b
})");
    EXPECT_THAT(s.operands[0].depends, ElementsAre(false, true));
    EXPECT_THAT(s.operands[0].strides, ElementsAre(0, 1));
}

TEST(StageModel, assumes_extents_that_only_the_run_knows_unless_told) {
    const std::string text = R"(program rows {
  input a: f32[$n, 8]
  b: f32[$n, 8] = [$n, 8] neg(@0) where @0 = a[i0, i1]
  output b
})";
    EXPECT_THAT(model_of(text).extents, ElementsAre(128, 8));
    const Bindings told = {{given(symbol("n").as_var()), 5}};
    EXPECT_THAT(model_of(text, 0, told).extents, ElementsAre(5, 8));
    EXPECT_THAT(model_of(text, 0, told).operands[0].extents, ElementsAre(5, 8));
}

/// n operands of `rows` x 32 side by side, then a ReLU, as after the fusion of concatenations.
std::string concatenation(size_t n, int64_t rows) {
    std::string inputs, body = fmt::format("@{}", n - 1), reads;
    for (size_t k = 0; k < n; ++k) {
        inputs += fmt::format("  input x{}: f32[{}, 32]\n", k, rows);
        reads += fmt::format("{}@{} = x{}[i0, i1 - {}] when i1 - {} >= 0 and {} - i1 >= 0 else 0", k > 0 ? ", " : "", k,
                             k, 32 * k, 32 * k, 32 * k + 31);
    }
    for (size_t k = n - 1; k-- > 0;) body = fmt::format("select(lt(index(i1 - {}), 0), @{}, {})", 32 * k + 32, k, body);
    return fmt::format("program concatenation {{\n{}  y: f32[{}, {}] = [{}, {}] max({}, 0.0) where {}\n  output y\n}}",
                       inputs, rows, 32 * n, rows, 32 * n, body, reads);
}

/// Each point of a concatenation reads one operand, so neither the work nor the footprint of a tile grows with their
/// number.
TEST(StageModel, of_a_concatenation_computes_and_reads_one_operand_at_a_point) {
    for (const size_t n : {2, 6, 24, 40}) {
        const StageModel m = model_of(concatenation(n, 10));
        EXPECT_NEAR(m.body_operations, 1, 1e-9) << n;
        EXPECT_NEAR(m.least_operations, 1, 1e-9) << n;
        double whole = 0, row = 0, once = 0, lines = 0;
        for (const OperandModel& o : m.operands) {
            if (o.result) continue;
            EXPECT_NEAR(o.share(), 1.0 / static_cast<double>(n), 1e-9);
            whole += o.elements(m.extents);
            row += o.elements(std::vector<int64_t>{1, 32 * static_cast<int64_t>(n)});
            once += o.elements(std::vector<int64_t>{1, 1});
            lines += o.bytes(std::vector<int64_t>{10, 16});
        }
        EXPECT_NEAR(whole, 10.0 * 32 * static_cast<double>(n), 1e-6);
        EXPECT_NEAR(row, 32.0 * static_cast<double>(n), 1e-6);
        EXPECT_NEAR(once, 1, 1e-6);
        EXPECT_NEAR(lines, 10.0 * 64, 1e-6);
    }
}

/// Without a cut both sides are computed. Other code need not do that, so the lower bound has one side only.
TEST(StageModel, choices_that_no_cut_decides_are_work_but_not_in_the_least) {
    // 80 operands exceed the maximum number of cuts.
    const StageModel many = model_of(concatenation(80, 4));
    EXPECT_NEAR(many.least_operations, 1, 1e-9);
    EXPECT_GT(many.body_operations, 100);
    EXPECT_NEAR(many.flops(), many.points(), 1e-6);
    // A select by data computes both sides.
    const StageModel data = model_of(R"(program data {
  input x: f32[8]
  input z: f32[8]
  y: f32[8] = [8] select(lt(@0, @1), @0, mul(@1, @1)) where @0 = x[i0], @1 = z[i0]
  output y
})");
    EXPECT_EQ(data.body_operations, 3);
    EXPECT_EQ(data.least_operations, 3);
}

}  // namespace
}  // namespace tilewright
