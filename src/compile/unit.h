#pragma once
// The state of the planning passes: a program on its way to a plan.
//
//     program          outline        fuse_rows, fuse_gemm_chains       schedule            merge_kernels
//     primitives  ->   a kernel  ->   kernels of several primitives ->  tile programs  ->   steps that call kernels
//                      each

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/dynamic/ways.h"
#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// A program or a body of its control flow.
struct Unit {
    Program unfused;                    ///< primitives numbered (Origin::parts), constants without contents
    bool selects = false;               ///< kernels are selected: the next three are set
    Program source;                     ///< input of the selection, with contents of constants
    std::optional<Program> fused;       ///< before layouts were applied, without contents
    std::map<ValueId, Layout> layouts;  ///< chosen for `fused`
    Grouped grouped;                    ///< the program after the last pass; no groups before `outline`
    FusionLimits limits;
    bool scheduled = false;  ///< if so, `plan` holds the program
    Plan plan;
    std::vector<std::optional<TileProgram>> programs;  ///< per step of the plan
    std::vector<std::vector<bool>> weights;            ///< per step: whether each input of its kernel is a constant
    std::vector<std::pair<const Program*, std::shared_ptr<Unit>>> bodies;  ///< of loops and branches, each once
    Program outlined;                         ///< if there are ways: the program when they were made, without contents
    std::vector<std::shared_ptr<Unit>> ways;  ///< the same program for other sizes, until `merge_ways`; without bodies

    const Program& program() const { return scheduled ? plan.program : grouped.program; }
    Unit& body(const Program* program) const;
    /// program(), with the bodies of its control flow as their units have left them.
    Program whole_program() const;
    /// Calls `f` for this unit, for its ways, then for its bodies.
    template <class F>
    void each(const F& f) {
        f(*this);
        for (const auto& way : ways) f(*way);
        for (const auto& [body, unit] : bodies) unit->each(f);
    }
    /// The same without the ways.
    template <class F>
    void each_with_ways(const F& f) {
        f(*this);
        for (const auto& [body, unit] : bodies) unit->each_with_ways(f);
    }
    std::string print() const;
    std::vector<std::string> faults() const;  ///< violations that the verifiers of programs and tile programs find
};

/// The primitives of `program` must be numbered. `bodies`: bodies of control flow become units as well.
Unit make_unit(Program program, const GroupingOptions& options, bool bodies);

/// Fuses the primitives of each operator as far as possible; later passes do not split operators (operators.h).
void fuse_operators(Unit& unit);
/// Scales and offsets between sums and quantisations become one each, functions of a byte tables.
void merge_scales(Unit& unit);
/// Ablation: chooses layouts for the primitives before kernels are formed.
void assign_layouts_first(Unit& unit, const Target& target);
void apply_layouts(Unit& unit, const OrchestrateOptions& planning);
/// Every tensor expression becomes a kernel of its own.
void outline(Unit& unit);
/// Copies of a unit whose sizes depend on the samples' symbols become its ways: one for each sample, and one for the
/// largest without bounds of sizes. Sizes that nothing bounds are bounded in the others by some times the sample.
void sample_sizes(Unit& unit, const std::vector<SizeSample>& samples);
/// Merges the ways into the unit's plan.
void merge_ways(Unit& unit, const dynamic::MergeOptions& options);

// The next three for a unit, its ways and its bodies, on several threads: units share no more than the schedules.

void fuse_gemm_chains(Unit& unit, Schedules& schedules);
void split_k(Unit& unit, Schedules& schedules);
/// Schedules the kernel of every group and orders the steps topologically. The calls contain `at_least` and estimates.
void schedule_kernels(Unit& unit, Schedules& schedules);

/// Returns the finished plan. Kernels with equal text are merged. Bodies come before the unit's own kernels.
Plan merge_kernels(Unit& unit, KernelSet& kernels);

}  // namespace tilewright
