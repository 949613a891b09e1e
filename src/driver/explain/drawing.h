#pragma once
// The layout of a directed acyclic graph's boxes: in layers, producers above their consumers.
//
// Sugiyama's method, plainly: layers by longest paths; an edge that passes layers has a point in each, shared by all
// edges from the same box; order within layers by barycentres, swept down and up; positions by what neighbours ask for,
// as far as there is room.

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
    std::vector<Point> boxes;               ///< upper left corners
    std::vector<std::vector<Point>> edges;  ///< of each edge: from a lower side through points to an upper side
    Box size;
};

/// `gap`: between layers. Edges go from what is read to the reader. They must not make a circle (InternalError).
Drawing draw_layers(const std::vector<Box>& boxes, const std::vector<std::pair<size_t, size_t>>& edges,
                    double gap = 26);

}  // namespace tilewright::explain
