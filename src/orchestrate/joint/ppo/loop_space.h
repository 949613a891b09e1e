#pragma once
// The loops of a kernel as a space in which agents walk: one parameter for the tile of each axis on each level of the
// caches, with the sizes of Gensor's states (schedule/construct/etir.h). The order of the loops follows from the tiles
// (construct::realise). Layouts have different axes, so the space is made again for each (ALT §5.2, "loop
// reconstruction"); agents are told what an axis does, not which it is.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "orchestrate/joint/single_kernel.h"
#include "schedule/construct/etir.h"
#include "schedule/scheduler.h"

namespace tilewright::joint::ppo {

/// log part / log all, as agents see sizes: 0 of one point, 1 of all.
double log_share(int64_t part, int64_t all);

/// What an axis does.
enum class AxisRole : uint8_t { Vector, Result, Sum };
inline constexpr size_t kAxisRoles = 3, kMostLevels = 3;

struct LoopParameter {
    size_t level = 0, axis = 0;
    AxisRole role = AxisRole::Result;
};

class LoopSpace {
  public:
    /// Nothing where schedules of the kernel are not constructed.
    static std::optional<LoopSpace> of(KernelInLayouts kernel, const Scheduling& how);

    /// Those with more than one size.
    const std::vector<LoopParameter>& parameters() const { return parameters_; }
    construct::Etir random(std::mt19937_64& rng) const { return construct::random_state(problem_, rng); }
    /// The next larger or smaller tile. False, and the state unchanged, where there is none that fits.
    bool move(construct::Etir& e, const LoopParameter& parameter, int direction) const;

    static constexpr size_t kViewSize = 5;
    /// What an actor sees of its parameter: its tile, those beside it and the axis, by their logarithms.
    std::vector<double> view(const construct::Etir& e, const LoopParameter& parameter) const;
    static constexpr size_t kTotalSize = kMostLevels * kAxisRoles;
    /// What the critic sees: per level and role, the tiles' share of all points, by logarithms.
    std::vector<double> totals(const construct::Etir& e) const;

    construct::Realised realised(const construct::Etir& e) const { return construct::realise(problem_, e); }
    TileProgram program(const construct::Realised& r) const {
        return construct::to_tile_program(initial_.stages, problem_, r);
    }
    const construct::Problem& problem() const { return problem_; }
    /// The default heuristic's schedule.
    const TileProgram& initial() const { return initial_; }
    const KernelInLayouts& kernel() const { return kernel_; }

  private:
    LoopSpace(KernelInLayouts kernel, TileProgram initial, construct::Problem problem);
    AxisRole role(size_t axis) const;

    KernelInLayouts kernel_;
    TileProgram initial_;
    construct::Problem problem_;
    std::vector<LoopParameter> parameters_;
};

}  // namespace tilewright::joint::ppo
