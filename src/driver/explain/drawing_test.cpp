#include "driver/explain/drawing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "base/error.h"

namespace tilewright::explain {
namespace {

using Edges = std::vector<std::pair<size_t, size_t>>;

bool overlap(Point a, const Box& as, Point b, const Box& bs) {
    return a.x < b.x + bs.width && b.x < a.x + as.width && a.y < b.y + bs.height && b.y < a.y + as.height;
}

TEST(Drawing, AChainStandsInAColumn) {
    const std::vector<Box> boxes(3, {40, 10});
    const Drawing d = draw_layers(boxes, {{0, 1}, {1, 2}});
    EXPECT_DOUBLE_EQ(d.boxes[0].x, d.boxes[1].x);
    EXPECT_DOUBLE_EQ(d.boxes[1].x, d.boxes[2].x);
    EXPECT_LT(d.boxes[0].y + 10, d.boxes[1].y);
    EXPECT_LT(d.boxes[1].y + 10, d.boxes[2].y);
    EXPECT_DOUBLE_EQ(d.size.width, 40);
}

TEST(Drawing, AnEdgeThatPassesALayerGoesAroundItsBoxes) {
    //   0 -> 1 -> 2, 0 -> 2
    const std::vector<Box> boxes(3, {40, 10});
    const Drawing d = draw_layers(boxes, {{0, 1}, {1, 2}, {0, 2}});
    ASSERT_EQ(d.edges[2].size(), 4u);
    const double x = d.edges[2][1].x;
    EXPECT_TRUE(x < d.boxes[1].x || x > d.boxes[1].x + 40) << x;
}

TEST(Drawing, ASourceStandsNextToItsFirstReader) {
    // 0 -> 1 -> 2 -> 3, 4 -> 3: 4 is in the layer of 2
    const std::vector<Box> boxes(5, {40, 10});
    const Drawing d = draw_layers(boxes, {{0, 1}, {1, 2}, {2, 3}, {4, 3}});
    EXPECT_DOUBLE_EQ(d.boxes[4].y, d.boxes[2].y);
}

TEST(Drawing, CirclesAreRefused) {
    EXPECT_THROW(draw_layers(std::vector<Box>(2, {1, 1}), {{0, 1}, {1, 0}}), InternalError);
}

TEST(Drawing, NothingIsNothing) { EXPECT_EQ(draw_layers({}, {}).boxes.size(), 0u); }

RC_GTEST_PROP(Drawing, BoxesDoNotOverlapAndEdgesGoDown, ()) {
    const auto n = *rc::gen::inRange<size_t>(1, 40);
    std::vector<Box> boxes;
    for (size_t b = 0; b < n; ++b)
        boxes.push_back(
            {static_cast<double>(*rc::gen::inRange(5, 100)), static_cast<double>(*rc::gen::inRange(5, 60))});
    std::set<std::pair<size_t, size_t>> some;
    for (int e = *rc::gen::inRange(0, 80); n > 1 && e > 0; --e) {
        const auto from = *rc::gen::inRange<size_t>(0, n - 1);
        some.emplace(from, *rc::gen::inRange<size_t>(from + 1, n));
    }
    const Edges edges(some.begin(), some.end());
    const Drawing d = draw_layers(boxes, edges);
    for (size_t a = 0; a < n; ++a) {
        RC_ASSERT(d.boxes[a].x >= -1e-9 && d.boxes[a].x + boxes[a].width <= d.size.width + 1e-9);
        RC_ASSERT(d.boxes[a].y >= 0 && d.boxes[a].y + boxes[a].height <= d.size.height + 1e-9);
        for (size_t b = 0; b < a; ++b) RC_ASSERT(!overlap(d.boxes[a], boxes[a], d.boxes[b], boxes[b]));
    }
    for (size_t e = 0; e < edges.size(); ++e) {
        const auto& [from, to] = edges[e];
        RC_ASSERT(d.boxes[from].y + boxes[from].height < d.boxes[to].y);
        for (size_t i = 1; i < d.edges[e].size(); ++i) RC_ASSERT(d.edges[e][i - 1].y <= d.edges[e][i].y);
    }
}

}  // namespace
}  // namespace tilewright::explain
