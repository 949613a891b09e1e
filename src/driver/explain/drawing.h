#pragma once
// Layered drawing of a directed acyclic graph: producers are above their consumers.
//
// Sugiyama's method. Layers are longest paths. An edge that passes layers has a point in each, shared by all edges from
// the same box. The order within layers is by barycentres, swept down and up. Positions are the mean of neighbours'
// positions, as far as there is room.

#include <cstddef>
#include <utility>
#include <vector>

namespace tilewright::explain {

struct Point {
    double x = 0, y = 0;
};

struct Box {
    double width = 0, height = 0;
};

struct Drawing {
    std::vector<Point> boxes;  ///< upper left corners
    /// Per edge: from the lower side of a box through points to the upper side of another
    std::vector<std::vector<Point>> edges;
    Box size;
};

/// Places the boxes. `gap`: between layers. Edges go from producer to reader. Throws InternalError for a cycle.
Drawing draw_layers(const std::vector<Box>& boxes, const std::vector<std::pair<size_t, size_t>>& edges,
                    double gap = 26);

}  // namespace tilewright::explain
