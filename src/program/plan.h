#pragma once
// Plan: which kernels run, in which order, on which tensors. orchestrate/ makes plans, model/ runs them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "program/dispatch.h"
#include "program/program.h"

namespace tilewright {

class Refusals;
struct OrchestrationReport;
struct Plan;

/// Runs kernel `kernel` on `tensors`: its inputs, then its outputs, values of the plan's program.
struct KernelCall {
    size_t kernel = 0;
    std::vector<ValueId> tensors;
    size_t results = 0;                       ///< how many tensors, the last ones, it writes
    std::vector<std::vector<Expr>> products;  ///< the extents of each product and convolution that it computes
    std::string name;                         ///< source nodes, for profiles
    std::vector<PrimitiveId> primitives;      ///< of the plan's program that it computes; a run does not read them
    double estimated_seconds = 0;             ///< 0: not estimated
    double at_least_seconds = 0;              ///< by the machine's limits, where it was estimated; no launch in either
    std::optional<double> measured_seconds;
    std::string provider;          ///< of the library that computes it; empty: generated code
    std::string provided;          ///< Schedules::Provided::kernel, where a library was measured to be faster
    std::optional<size_t> chosen;  ///< which of Plan::optimal's kernels it is, or is part of
    std::optional<WayOf> way;      ///< it runs where the region's dispatch chooses this way; else always
};

/// One step. Everything that is no kernel refers to its primitive; control flow carries the plans of its bodies.
struct Step {
    std::variant<KernelCall, PrimitiveId> what;
    std::vector<std::shared_ptr<const Plan>> bodies;
};

/// Kernels that stand together, each reading what the one before has written, and that may run slice by slice
/// (slices.h): all of them for the first slice, then all for the second. Of the `kept` values, which have no other
/// readers, a thread needs no more than one slice at a time.
struct Slices {
    size_t first = 0, count = 0;  ///< of Plan::steps
    int64_t slices = 1;           ///< divides the tasks of each, and the elements of the kept values
    std::vector<ValueId> kept;    ///< the results of all kernels but the last
};

/// Kernels that compute the same values in several ways: as one kernel or as several, with schedules for small sizes or
/// for large ones. The calls of all ways are steps of the plan (KernelCall::way), each behind what it reads whichever
/// ways other regions take. Values that only other ways use have no memory.
struct Region {
    std::string name;  ///< of its last kernel
    Dispatch dispatch;
};

/// Values have their physical shapes; the program's inputs and outputs are row-major as the model declares them.
struct Plan {
    Program program;
    /// What it was made of: Origin::parts of the program's primitives refer to this one's. Its constants are empty.
    Program unfused;
    std::vector<Step> steps;
    std::vector<Slices> slices = {};
    std::vector<Region> regions = {};
    double schedule_ms = 0;  ///< what constructing its kernels' schedules took, bodies included
    /// Why kernels were not fused, where GroupingOptions::keep_refusals is set; else null.
    std::shared_ptr<const Refusals> refusals = nullptr;
    /// Where it was optimal orchestration that grouped, bodies included.
    std::shared_ptr<const OrchestrationReport> optimal = nullptr;
    /// For dumps; defined in orchestrate/plan.cpp.
    std::string print() const;
};

/// Whether a call is in no region, or in the way that its region takes by these sizes.
inline bool runs(const Plan& plan, const KernelCall& call, const std::function<int64_t(Expr)>& size) {
    return !call.way || plan.regions[call.way->region].dispatch.choose(size) == call.way->way;
}

}  // namespace tilewright
