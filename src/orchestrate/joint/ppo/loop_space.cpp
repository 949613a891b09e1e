#include "orchestrate/joint/ppo/loop_space.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schedule/spaces.h"

namespace tilewright::joint::ppo {

double log_share(int64_t part, int64_t all) {
    return all <= 1 ? 0 : std::log2(static_cast<double>(std::min(part, all))) / std::log2(static_cast<double>(all));
}

std::optional<LoopSpace> LoopSpace::of(KernelInLayouts kernel, const Scheduling& how) {
    Scheduling constructed = how;
    constructed.kind = SchedulerKind::Gensor;
    constructed.costs = nullptr;
    constructed.estimates = true;
    Spaces spaces = spaces_of(kernel.body.stages, kernel.body.row_axes, constructed);
    if (spaces.all.empty() || spaces.all[0].levels() > kMostLevels) return std::nullopt;
    LoopSpace out(std::move(kernel), std::move(spaces.initial), std::move(spaces.all[0]));
    if (out.parameters_.empty()) return std::nullopt;
    return out;
}

LoopSpace::LoopSpace(KernelInLayouts kernel, TileProgram initial, construct::Problem problem)
    : kernel_(std::move(kernel)), initial_(std::move(initial)), problem_(std::move(problem)) {
    for (size_t l = 0; l < problem_.levels(); ++l)
        for (size_t a = 0; a < problem_.tile_sizes[l].size(); ++a)
            if (problem_.tile_sizes[l][a].size() > 1) parameters_.push_back({l, a, role(a)});
}

AxisRole LoopSpace::role(size_t axis) const {
    if (axis == problem_.micro.vector_axis) return AxisRole::Vector;
    return axis < problem_.stage.spatial ? AxisRole::Result : AxisRole::Sum;
}

bool LoopSpace::move(construct::Etir& e, const LoopParameter& parameter, int direction) const {
    if (direction == 0) return false;
    using Kind = construct::Action::Kind;
    construct::Etir next = e;
    next.level = parameter.level;
    const construct::Action action{direction > 0 ? Kind::Tile : Kind::InverseTile, parameter.axis};
    if (!construct::advance(problem_, next, action, false) || !construct::fits(problem_, next, parameter.level))
        return false;
    next.level = 0;
    e = std::move(next);
    return true;
}

std::vector<double> LoopSpace::view(const construct::Etir& e, const LoopParameter& parameter) const {
    const size_t l = parameter.level, a = parameter.axis;
    const auto& sizes = problem_.tile_sizes[l][a];
    const int64_t extent = problem_.tile_sizes.back()[a].back();
    return {log_share(e.tiles[l][a], sizes.back()), l == 0 ? 0 : log_share(e.tiles[l - 1][a], extent),
            l + 1 == e.tiles.size() ? 1 : log_share(e.tiles[l + 1][a], extent),
            0.1 * std::log2(static_cast<double>(extent)), construct::fits(problem_, e, l) ? 1.0 : 0.0};
}

std::vector<double> LoopSpace::totals(const construct::Etir& e) const {
    std::vector<double> out(kTotalSize, 0);
    std::array<double, kAxisRoles> all{};
    for (size_t a = 0; a < e.tiles[0].size(); ++a)
        all[static_cast<size_t>(role(a))] += std::log2(static_cast<double>(problem_.tile_sizes.back()[a].back()));
    for (size_t l = 0; l < e.tiles.size(); ++l)
        for (size_t a = 0; a < e.tiles[l].size(); ++a) {
            const auto r = static_cast<size_t>(role(a));
            if (all[r] > 0) out[l * kAxisRoles + r] += std::log2(static_cast<double>(e.tiles[l][a])) / all[r];
        }
    return out;
}

}  // namespace tilewright::joint::ppo
