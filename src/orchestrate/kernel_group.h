#pragma once
// Groups of primitives that become one kernel each.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Primitives that become one kernel, in topological order, with the shared outer axes of each (see default_schedule).
struct KernelGroup {
    std::vector<PrimitiveId> primitives;
    std::vector<std::vector<size_t>> row_axes;
    bool chain = false;                           ///< several products, scheduled together; row_axes say nothing
    std::optional<size_t> chosen = std::nullopt;  ///< KernelCall::chosen
};
/// A program, fused and laid out, and its kernels.
struct Grouped {
    Program program;
    std::vector<KernelGroup> groups;  ///< in an order that can run
    bool generated_only = false;      ///< all kernels are generated code, also where a library was measured faster
};

/// What a grouping takes, run as a model: seconds of a run, and of the kernels of each KernelGroup::chosen.
struct GroupedTimes {
    double seconds = 0;
    std::map<size_t, double> chosen;
    std::map<std::string, double> provided;  ///< of those that a library has measured faster, by Schedules::Provided
};
/// Runs groupings of one program in turns. Nothing where they cannot be run.
using RunGrouped = std::function<std::vector<GroupedTimes>(const std::vector<Grouped>&)>;

/// The program's primitives, each with itself as what it is made of (Origin::parts).
Program numbered(Program program);
/// The program with constants that have no contents.
Program without_contents(Program program);
/// Each kernel that gives several values as one kernel for each of its stages.
std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups);

/// The small program a group of primitives is, inputs and outputs in the order of `tensors`.
struct KernelBody {
    Program stages;
    std::vector<ValueId> tensors;
    IndexVector<PrimitiveId, std::vector<size_t>> row_axes;
};

/// The bodies of several groups of one program, which must outlive it and stay unchanged. The consumers of all values
/// are found once, since a program may have thousands of groups.
class KernelExtractor {
  public:
    explicit KernelExtractor(const Program& program);
    KernelBody operator()(const KernelGroup& group) const;

  private:
    const Program& program_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    std::set<ValueId> results_;
};
/// Of one group.
KernelBody extract(const Program& program, const KernelGroup& group);

}  // namespace tilewright
