#pragma once
// DietCode's joint learning (§5): one search of a kernel's micro-kernels, and of what they cost, for all samples of its
// dynamic sizes.
//
//     population    micro-kernels, evolved by their scores: at the instance where each is best
//     batch         the best by the scores, and a few random ones, are measured: pairs of micro-kernel and instance
//     learn         f_local of all micro-kernels, from the measured ones (local_model.h)
//     vote          every instance votes for its fastest micro-kernels, and a set cover keeps few (cover.h)
//
// The numbers of JointOptions are those of the published code, which is built on Ansor's evolutionary search.
//
// As published, a score is a throughput: that of f_local, learned from measurements by features of the tiles (our
// estimate is one of them), times f_spatial and f_pad. A micro-kernel is measured at the instance with the largest
// f_spatial * f_pad, and no other measurement is made of it. Beyond that, by default:
//  - f_local is learned as the ratio to our estimate, so that the first batch is better than a random one.
//  - A score is relative to the fastest known micro-kernel of the instance: otherwise the largest sizes alone decide.
//  - Pairs are measured only where they can change the cover: where the predicted seconds, less twice the spread of the
//    prediction, are below those of the fastest measured micro-kernel of the instance. The search ends when there are
//    none.
//  - The default heuristic's schedules for each instance are micro-kernels as well.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "schedule/dynamic/cover.h"
#include "schedule/dynamic/micro_kernels.h"

namespace tilewright::dynamic {

struct JointOptions {
    size_t trials = 1000;  ///< measured pairs
    size_t batch = 64;     ///< of them, before the model learns again
    size_t population = 2048;
    int generations = 4;
    double mutation = 0.85;      ///< share of a generation that is mutated
    double random = 0.05;        ///< share of a batch
    size_t initial = 50;         ///< random states of the first generation
    double from_measured = 0.2;  ///< share of a population that begins with the fastest measured states
    uint64_t seed = 1;
    bool published = false;
    CoverLimits limits;
};

struct JointResult {
    /// Per instance: the schedule of its stages, and seconds, which are negative if nothing could run.
    struct Chosen {
        TileProgram program;
        double seconds = -1;
    };
    std::vector<Chosen> chosen;
    Cover cover;
    size_t pairs = 0;    ///< measured
    size_t kernels = 0;  ///< of these, different micro-kernels
    size_t skipped = 0;  ///< pairs that were not measured, as they could not change the cover
    double error =
        0;  ///< geometric: of predictions of pairs before they were measured, the first batch aside; 1 without any
    std::string ended;  ///< why
};

/// Seconds of schedules of the same stages, at their assumed sizes; negative where one cannot run. Nothing once no more
/// are measured.
using MeasurePrograms = std::function<std::vector<double>(const std::vector<TileProgram>&)>;
/// Estimated seconds of a schedule at the instance's sizes.
using EstimateAt = std::function<double(const TileProgram&, const Instance&)>;

/// `instances`: not empty. Nothing is returned for an instance at which no schedule could run.
JointResult joint_search(const std::vector<Instance>& instances, const Target& target, const JointOptions& options,
                         LocalModel& model, const EstimateAt& estimate, const MeasurePrograms& measure);

}  // namespace tilewright::dynamic
