#pragma once
// The optimal kernels of one piece of a graph: convex sets, output sets, costs, the binary program.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/optimal/lazy.h"
#include "orchestrate/optimal/states.h"

namespace tilewright::optimal {

/// What a kernel of these nodes that writes these outputs would take.
struct KernelAnswer {
    double seconds = 0;   ///< by the model; infinity: there is no such kernel
    double at_least = 0;  ///< no kernel of them takes less
    std::string reason;   ///< why there is none
};
using AskKernel = std::function<KernelAnswer(const NodeSet& nodes, const std::vector<TensorId>& outputs)>;
using MeasureKernels = std::function<std::vector<double>(const std::vector<Candidate>&)>;

struct PieceOptions {
    ConvexOptions convex;
    size_t most_output_sets = 4;  ///< of one set of nodes
    bool once = false;            ///< no node is computed by two kernels
    bool single_output = false;   ///< no candidate has several outputs
    /// None: the model's seconds decide. Else lower bounds stand for what is not measured, so that lazy profiling is
    /// exact as far as those are bounds.
    Profile profile = Profile::None;
    MeasureKernels measure;
    double seconds = 20;         ///< of processor time, for the program
    bool compare_forms = false;  ///< PiecePlan::published as well
};

struct PlannedKernel {
    Candidate candidate;
    double seconds = 0, at_least = 0;  ///< as KernelAnswer has them
    std::optional<double> measured;
};

struct PiecePlan {
    std::vector<PlannedKernel> kernels;  ///< in an order that runs
    LazyResult solution;
    size_t sets = 0;                        ///< convex sets listed
    size_t candidates = 0;                  ///< with their output sets: kernels that can be made
    size_t dropped = 0;                     ///< of those, because smaller kernels cost no more together
    bool capped = false;                    ///< there were more sets than asked for
    std::map<std::string, size_t> refused;  ///< how many had which reason
    bool started = false;                   ///< `start` ran
    double start_seconds = 0;               ///< what it takes, measured where it is, else by the model
    std::optional<Relaxation> published;    ///< of the paper's program, with the costs at first
};

/// `start`: kernels to begin with, candidates too whatever `options.convex` bounds. They need not be makeable, nor make
/// all that is needed; then the search begins without them. Every node alone must be a kernel (InternalError).
PiecePlan plan_piece(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask,
                     const PieceOptions& options);

}  // namespace tilewright::optimal
