#pragma once
// The entry to the schedulers of this folder: which of them makes a kernel's tile program, and its estimated cost.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cost/estimate.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_schedule.h"
#include "schedule/kernel_costs.h"

namespace tilewright {

enum class SchedulerKind : uint8_t {
    Default,      ///< the default heuristic: tiles from the shapes alone
    Tree,         ///< construction along a tree, in Roller's manner (schedule/construct)
    Gensor,       ///< Gensor's walk (schedule/construct)
    GensorPlain,  ///< the same without virtual threads
    Mcfuser,      ///< chains as one kernel (schedule/chain), everything else by the default heuristic
    Search,       ///< many measured states of Gensor's space, and of MCFuser's for chains
    Auto,         ///< the default or Gensor's schedule, whichever the model prefers; chains where they gain by it
};
std::string_view to_string(SchedulerKind kind);
std::optional<SchedulerKind> scheduler_from_string(std::string_view name);

struct Scheduling {
    SchedulerKind kind = SchedulerKind::Default;
    /// The machine that kernels are for. On a GPU they are made by its default heuristic (schedule/gpu), and by the
    /// same schedulers as on a CPU with the GPU's model.
    Target target = generic_target(VectorIsa::avx512);
    Precision precision = Precision::F32;  ///< of multiplications on a GPU
    bool estimates = false;                ///< a CPU's kernels are estimated: needed by all schedulers but Default
    uint64_t seed = 1;
    /// Search needs costs that measure schedules; chains measure their best eight where possible. Null: estimates.
    std::shared_ptr<const KernelCosts> costs;
    int trials = 1000;  ///< of Search

    bool estimated() const { return estimates || target.gpu.has_value(); }
    bool constructs() const { return kind != SchedulerKind::Default && estimated(); }
    bool chains() const {
        return (kind == SchedulerKind::Mcfuser || kind == SchedulerKind::Search || kind == SchedulerKind::Auto) &&
               estimated();
    }
    /// Whether schedules are measured now.
    bool measures() const { return costs && costs->measures_schedules(); }
};
/// By the model of the machine or the GPU.
EstimatedCosts estimated_costs(const Scheduling& how);
/// Scheduling::costs, or the estimates. Never null.
std::shared_ptr<const KernelCosts> kernel_costs(const Scheduling& how);

/// A schedule for a kernel of one stage, or of several that share rows (see default_schedule).
TileProgram make_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                          const Scheduling& how);

/// A schedule for a kernel of several products. Nothing where it is no chain (schedule/chain), or none is legal.
std::optional<TileProgram> make_chain_schedule(const Program& stages, const Scheduling& how);

}  // namespace tilewright
