#pragma once
// What the planning passes work on: a program on its way to a plan.
//
//     program          outline        fuse_rows, fuse_gemm_chains       schedule            merge_kernels
//     primitives  ->   a kernel  ->   kernels of several primitives ->  tile programs  ->   steps that call kernels
//                      each

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"
#include "orchestrate/schedules.h"

namespace tilewright {

/// A program, and likewise each body of its control flow.
struct Unit {
    Program unfused;                    ///< its primitives numbered (Origin::parts), constants without contents
    bool selects = false;               ///< kernels are selected: the next three are wanted
    Program source;                     ///< what they are selected from, with contents of constants
    std::optional<Program> fused;       ///< before layouts were applied, without contents
    std::map<ValueId, Layout> layouts;  ///< chosen for `fused`
    Grouped grouped;                    ///< the program as the passes have left it; no groups before `outline`
    FusionLimits limits;
    bool scheduled = false;  ///< from then on `plan` has the program
    Plan plan;
    std::vector<std::optional<TileProgram>> programs;  ///< per step of the plan
    std::vector<std::vector<bool>> weights;            ///< per step: which inputs of its kernel are constants
    std::vector<std::pair<const Program*, std::shared_ptr<Unit>>> bodies;  ///< of loops and branches, each once

    const Program& program() const { return scheduled ? plan.program : grouped.program; }
    Unit& body(const Program* program) const;
    /// `f` of this unit, then of its bodies.
    template <class F>
    void each(const F& f) {
        f(*this);
        for (const auto& [body, unit] : bodies) unit->each(f);
    }
    std::string print() const;
    std::vector<std::string> faults() const;  ///< of programs and tile programs, by their verifiers
};

/// `program` has its primitives numbered. `bodies`: those of control flow become units as well.
Unit make_unit(Program program, const GroupingOptions& options, bool bodies);

/// Primitives of one operator are fused as far as they go; the operator is a unit from then on (operators.h).
void fuse_operators(Unit& unit);
/// Layouts for the primitives; kernels are made of what that leaves.
void assign_layouts_first(Unit& unit, const Target& target);
void apply_layouts(Unit& unit, const Target& target);
/// Every tensor expression becomes a kernel of its own.
void outline(Unit& unit);
void fuse_gemm_chains(Unit& unit, Schedules& schedules);
/// Schedules the kernel of every group: steps, in an order that can run. `at_least` and estimates stand in the calls.
void schedule_kernels(Unit& unit, Schedules& schedules);
/// The finished plan: kernels with equal text become one of the set. Bodies come before the unit's own kernels.
Plan merge_kernels(Unit& unit, KernelSet& kernels);

}  // namespace tilewright
