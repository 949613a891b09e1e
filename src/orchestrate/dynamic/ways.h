#pragma once
// Dynamic shapes (DietCode): a program is planned once for each sample of sizes, and the plans are merged into one.
//
//     planned for seq = 1         rows | product | product          way 0 of region 0
//     planned for seq = 128       chain of all three                way 1
//     merged                      region 0: seq < 20 -> way 0, else way 1
//
// DietCode's micro-kernels are tile programs over dynamic extents here, and its shape-to-micro-kernel dispatcher
// chooses among regions: whether expressions are fused is one choice over several kernels.

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "program/plan.h"
#include "program/sizes.h"
#include "schedule/dynamic/cover.h"
#include "tile/tile.h"

namespace tilewright::dynamic {

/// A plan with its tile programs, all of it legal for the sizes of Program::at_most.
struct PlannedWay {
    Plan plan;
    std::vector<std::optional<TileProgram>> programs;  ///< by step
    std::vector<std::vector<bool>> weights;            ///< likewise: whether each input of its kernel is a constant
};

struct MergeOptions {
    std::vector<SizeSample> samples;
    CoverLimits limits;
    /// Seconds of the kernel at these sizes, its launch included. Called by several threads.
    std::function<double(const TileProgram&, const Bindings&)> seconds;
};

/// How a region was decided.
struct RegionReport {
    std::string name;
    size_t candidates = 0;  ///< different ways
    Cover cover;            ///< of the kept ones; numbers are those before the others were dropped
};

/// Merges plans of one program. `outlined`: the program with its values as they are before kernels are grouped; the
/// first values of each plan are its values. `ways[0]` is legal for all sizes, and the result has its program. A region
/// is a smallest set of values that every plan computes by kernels of its own. Regions that depend on names other than
/// the samples' are computed as in ways[0].
PlannedWay merge_ways(const Program& outlined, std::vector<PlannedWay> ways, const MergeOptions& options,
                      std::vector<RegionReport>* report = nullptr);

/// Removes bounds without which the tile program is as legal: kernels that need none are equal for all samples.
void drop_unneeded_bounds(TileProgram& program);

}  // namespace tilewright::dynamic
