#pragma once
// The entry to the schedulers of this folder: selects the scheduler of a kernel, and estimates tile programs.

#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cost/estimate.h"
#include "schedule/chain/ablation.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_schedule.h"
#include "schedule/kernel_costs.h"

namespace tilewright {

namespace dynamic {
class JointSchedules;
}

enum class SchedulerKind : uint8_t {
    Default,      ///< the default heuristic: tiles from the shapes
    Tree,         ///< construction along a tree, as in Roller (schedule/construct)
    Gensor,       ///< Gensor's walk (schedule/construct)
    GensorPlain,  ///< the same without virtual threads
    /// Gensor's walk alone, as the paper has it: no state of the default heuristic, no climb behind the walk.
    GensorPublished,
    GensorPublishedPlain,  ///< the same without virtual threads
    Mcfuser,               ///< GEMM chains as one kernel (schedule/chain), other kernels by the default heuristic
    Search,                ///< measures many states of Gensor's space, and of MCFuser's for chains
    DietCode,              ///< measures micro-kernels for all samples of dynamic sizes together; fixed sizes as Search
    Auto,  ///< the default or Gensor's schedule, whichever has the lower estimate; chains where they gain
};
/// Whether the scheduler measures schedules of itself.
constexpr bool searches(SchedulerKind kind) { return kind == SchedulerKind::Search || kind == SchedulerKind::DietCode; }
std::string_view to_string(SchedulerKind kind);
std::optional<SchedulerKind> scheduler_from_string(std::string_view name);

struct Scheduling {
    SchedulerKind kind = SchedulerKind::Default;
    /// The machine to compile for. GPU kernels are made by the GPU's default heuristic (schedule/gpu), and by the same
    /// schedulers as on a CPU with the GPU's model.
    Target target = generic_target(VectorIsa::avx512);
    Precision precision = Precision::F32;  ///< of multiplications on a GPU
    /// On a GPU: cuBLASLt and cuDNN have candidates for products and convolutions where the model is loaded.
    bool gpu_libraries = false;
    bool estimates = false;  ///< CPU kernels are estimated, which all schedulers but Default require
    std::shared_ptr<const ResidualModel> residual;  ///< corrects the estimates; null: none
    uint64_t seed = 1;
    /// Search requires costs that measure schedules. Chains measure their best eight if possible. Null: estimates.
    std::shared_ptr<const KernelCosts> costs;
    int trials = 1000;  ///< of Search and DietCode
    chain::Ablation chains_without = chain::Ablation::None;
    bool all_chains = false;  ///< every chain that has a schedule is one kernel, whether it gains or not
    /// Of DietCode: what it has found for the model's samples of dynamic sizes. Null: as Search.
    std::shared_ptr<dynamic::JointSchedules> joint;

    bool estimated() const { return estimates || target.gpu.has_value(); }
    bool constructs() const { return kind != SchedulerKind::Default && estimated(); }
    bool chains() const {
        return (kind == SchedulerKind::Mcfuser || searches(kind) || kind == SchedulerKind::Auto) && estimated();
    }
    /// Whether schedules are measured now.
    bool measures() const { return costs && costs->measures_schedules(); }
};
/// Estimates by the model of the CPU or GPU.
EstimatedCosts estimated_costs(const Scheduling& how);
/// Scheduling::costs, or the estimates if it is null.
std::shared_ptr<const KernelCosts> kernel_costs(const Scheduling& how);

/// The schedule of a kernel of one stage, or of several that share rows (see default_schedule).
TileProgram make_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                          const Scheduling& how);

/// The schedule of a GEMM chain. Nothing where the kernel is no chain (schedule/chain), or no candidate is legal, or
/// none is likely to be faster than kernels that take `replaces` seconds (chain::SearchOptions).
std::optional<TileProgram> make_chain_schedule(const Program& stages, const Scheduling& how,
                                               double replaces = std::numeric_limits<double>::infinity());

}  // namespace tilewright
