#pragma once
// Groups of primitives, one kernel each.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The primitives of a kernel in topological order, with the shared outer axes of each (see default_schedule).
struct KernelGroup {
    std::vector<PrimitiveId> primitives;
    std::vector<std::vector<size_t>> row_axes;
    bool chain = false;                           ///< a GEMM chain, scheduled as a whole; row_axes is unused
    std::optional<size_t> chosen = std::nullopt;  ///< KernelCall::chosen
};
/// A fused program with layouts, and its kernels.
struct Grouped {
    Program program;
    std::vector<KernelGroup> groups;  ///< in topological order
    bool generated_only = false;      ///< only generated kernels, even where a library kernel measured faster
};

/// Measured times of a grouping in a run of the model: of the run, and of the kernels of each KernelGroup::chosen, in
/// seconds.
struct GroupedTimes {
    double seconds = 0;
    std::map<size_t, double> chosen;
    std::map<std::string, double> provided;  ///< of kernels for which a library measured faster, by Schedules::Provided
};
/// Runs groupings of one program in turns. Nothing where they cannot run.
using RunGrouped = std::function<std::vector<GroupedTimes>(const std::vector<Grouped>&)>;

/// The program with every primitive as its own origin (Origin::parts).
Program numbered(Program program);
/// The program with constants that have shapes but no contents.
Program without_contents(Program program);
/// Splits each kernel with several outputs into one kernel for each of its stages.
std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups);

/// A group as a program of its own. `tensors`: the values of its inputs, then of its outputs, in the outer program.
struct KernelBody {
    Program stages;
    std::vector<ValueId> tensors;
    std::vector<bool> weights;  ///< per input of the stages: whether it is a constant of the outer program
    IndexVector<PrimitiveId, std::vector<size_t>> row_axes;
};

/// Extracts the bodies of groups of one program, which must outlive the extractor and stay unchanged. The consumers of
/// all values are computed once, since a program may have thousands of groups.
class KernelExtractor {
  public:
    explicit KernelExtractor(const Program& program);
    KernelBody operator()(const KernelGroup& group) const;

  private:
    const Program& program_;
    IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    std::set<ValueId> results_;
    std::map<ValueId, Residence> far_;  ///< Program::far
};
/// Extracts a single group.
KernelBody extract(const Program& program, const KernelGroup& group);

}  // namespace tilewright
