#pragma once
// DietCode's shape-generic search space (§4): micro-kernels, which are tiles of one stage whose extents depend on
// dynamic sizes, and what remains of their speed at given sizes.
//
//     stage         c[$rows, 768]       instances   $rows = 80, 384, 2048
//     micro-kernel  task 96 x 256, register tile 6 x 16, legal for all $rows
//     $rows = 80    a task of 96 rows has 16 too many; with two threads 3 tasks take the time of 4
//
// On a CPU a micro-kernel is one task of the thread pool, as it is a thread block on a GPU.

#include <memory>
#include <vector>

#include "program/sizes.h"
#include "schedule/dynamic/local_model.h"
#include "schedule/scheduler.h"

namespace tilewright::construct {
struct Problem;
struct Realised;
}  // namespace tilewright::construct

namespace tilewright::dynamic {

/// A workload instance: the stage at one sample of its sizes, which Program::assumed has.
struct Instance {
    Program stages;
    double weight = 1;  ///< of the sample
    TileProgram rule;   ///< the default heuristic's schedule
    std::shared_ptr<const construct::Problem> problem;
    StageModels models;
    double points() const;  ///< of the iteration space
};

/// Those of `sizes` that the extents of the only stage depend on.
Bindings sizes_of_extents(const Program& stages, const Bindings& sizes);

/// Instances of a kernel of one stage, one for each different combination of the sizes that its extents depend on.
/// `stages` has any sizes assumed. Their bounds (Program::at_most) are dropped, so that schedules are legal for all
/// sizes. Empty where a schedule is not constructed for some sample.
std::vector<Instance> instances_of(const Program& stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                   const std::vector<SizeSample>& samples, const Scheduling& how);

/// The instances whose problems construct the micro-kernels: of instances with equal vector axes, copies and sizes of
/// register tiles, the one with the most points, whose tiles include those of the others.
std::vector<size_t> constructing(const std::vector<Instance>& instances);

struct MicroKernel {
    MicroKernelFeatures features{};
    std::vector<int64_t> task, registers;  ///< tiles, per axis
    double vectors = 1;                    ///< of results in a register tile
    Padding padding = Padding::Partition;
    double points_per_second = 0;  ///< f_local by estimates: of one worker on whole tiles
};
/// `space`: of the problem that `tiles` is a state of.
MicroKernel micro_kernel(const Instance& space, const construct::Realised& tiles, const Target& target);
/// The schedule as one of other stages: the same stage, with other sizes assumed.
TileProgram with_stages(TileProgram schedule, const Program& stages);

/// f_spatial and f_pad of equation 3 as shares of f_local's throughput, which are 1 at whole waves of whole tiles.
///
/// The paper prints both ratios inverted, and fits f_spatial on a T4 with a slope of 0.5; its published code has the
/// ratios as they are here. f_pad is that of the padding policy: of tiles that are padded (global padding), of register
/// tiles that are padded (local padding), and of what smaller register tiles at the end lose by having fewer
/// multiply-adds under way than the units take (loop partitioning).
struct Adaption {
    double spatial = 1, pad = 1;
    double share() const { return spatial * pad; }
};
Adaption adaption(const MicroKernel& kernel, const Instance& at, const Target& target);
/// Equation 3: seconds of the instance, by the micro-kernel's points_per_second.
double seconds_at(const MicroKernel& kernel, const Instance& at, const Target& target);

}  // namespace tilewright::dynamic
