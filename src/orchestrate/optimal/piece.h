#pragma once
// The optimal kernels of one piece of a graph: convex sets, output sets, layouts, costs, the binary program.
//
// A tensor may have a second layout. Then the choice has two tensors for it: t as it lies by default, and t + the
// number of the piece's tensors in its other layout. What comes from outside, and what others need, lies in one of the
// two. A kernel is a candidate in at most these variants: everything in the second layouts, everything in the first;
// and, where it has at most PieceOptions::most_mixed nodes, what it reads in the one and what it writes in the other,
// with all of its outputs. Conversions either way are candidates as well. So there are at most four times as many
// columns as without layouts, and two for every tensor that has two; far fewer, as most kernels see no such tensor.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/optimal/lazy.h"
#include "orchestrate/optimal/states.h"

namespace tilewright::optimal {

/// What a kernel of these nodes that reads and writes these tensors would take.
struct KernelAnswer {
    double seconds = 0;   ///< by the model; infinity: there is no such kernel
    double at_least = 0;  ///< no kernel of them takes less
    std::string reason;   ///< why there is none
    size_t kernel = 0;    ///< the caller's number
    bool chain = false;   ///< of products
    /// What its seconds count more than they say, as a share, unless a plan to begin with has it: no plan that is
    /// chosen then takes more than that one by the model's word.
    double margin = 0;
};
/// `reads` and `writes` name layouts, as in the choice. A set without nodes is a conversion.
using AskKernel = std::function<KernelAnswer(const NodeSet& nodes, const std::vector<TensorId>& reads,
                                             const std::vector<TensorId>& writes)>;

struct PieceOptions {
    ConvexOptions convex;
    size_t most_output_sets = 4;    ///< of one set of nodes
    bool single_output = false;     ///< only sets of nodes that write one tensor
    bool once = false;              ///< no node is in two kernels
    std::vector<bool> second;       ///< per tensor: it has another layout; empty: none has
    std::vector<bool> at_boundary;  ///< likewise: at the piece's ends it is in that one
    size_t most_mixed = 6;
    std::vector<NodeSet> also;  ///< sets of nodes to ask for beside those that are listed, whatever bounds these
    /// False: candidates whose costs are estimates. Then none is left out for what the model says.
    bool exact = true;
    double seconds = 20;          ///< of processor time, for the program
    bool published_form = false;  ///< BlpForm::Published in place of Strong
    bool compare_forms = false;   ///< PiecePlan::strong and published as well
};

/// A candidate and what is known of it.
struct PieceKernel {
    Candidate candidate;  ///< its cost is what counts: see PieceSearch::price
    KernelAnswer answer;
    bool known = false;  ///< `candidate.cost` was told
};

struct PiecePlan {
    std::vector<PieceKernel> kernels;  ///< in an order that runs
    LazyResult solution;
    size_t sets = 0;                              ///< convex sets listed
    size_t candidates = 0;                        ///< with their output sets and layouts: kernels that can be made
    size_t conversions = 0, chains = 0;           ///< conversions apart from those; chains of those
    size_t dropped = 0;                           ///< of those, because smaller kernels cost no more together
    bool capped = false;                          ///< there were more sets than asked for
    std::map<std::string, size_t> refused;        ///< how many had which reason
    bool started = false;                         ///< `start` ran
    double start_seconds = 0;                     ///< what it costs
    std::vector<PieceKernel> start;               ///< its kernels, in an order that runs; empty where it did not
    std::optional<Relaxation> strong, published;  ///< of either program, with the costs at first
};

/// The choice of one piece. Costs are the model's seconds, or are told (price, tell) as lazy.h says.
class PieceSearch {
  public:
    /// `start`: kernels to begin with, candidates too whatever `options` bound. They need not be makeable, nor make all
    /// that is needed; then the search begins without them. Every node alone must be a kernel (InternalError).
    PieceSearch(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask, PieceOptions options);
    ~PieceSearch();
    PieceSearch(PieceSearch&&) noexcept;

    const std::vector<PieceKernel>& kernels() const;
    /// Positions of the kernels to begin with; empty where they do not run.
    const std::vector<size_t>& start() const;

    /// Costs before the first solution, and whether they are true ones. Not asked: the model's, true ones.
    struct Price {
        double cost = 0;
        bool known = true;
    };
    /// Priced again, the search begins anew.
    void price(const std::function<Price(const PieceKernel&)>& of);

    std::vector<size_t> next();                                                     ///< LazySearch::next
    void tell(const std::vector<size_t>& which, const std::vector<double>& costs);  ///< LazySearch::tell
    void stop();                                                                    ///< LazySearch::stop
    /// When next() gave nothing, or after stop().
    PiecePlan plan() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::optimal
