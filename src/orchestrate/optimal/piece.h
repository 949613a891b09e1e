#pragma once
// Optimal kernels of a piece of a graph: convex sets, output sets, layouts, costs, the binary program.
//
// A tensor may have an alternative layout. The choice then has two tensors for it: t in its default layout, and t + the
// piece's number of tensors in the other one. Inputs and outputs of the piece have one of the two (the boundary
// layout). A kernel has at most these variants: everything in alternative layouts, everything in default layouts, and,
// with at most PieceOptions::most_mixed nodes, reads in one and writes in the other, with all outputs. Conversions in
// both directions are candidates as well. There are at most four times as many columns as without layouts, and two for
// every tensor with two layouts; in practice far fewer, as most kernels have no such tensor.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/optimal/lazy.h"
#include "orchestrate/optimal/states.h"

namespace tilewright::optimal {

/// The cost of a kernel of these nodes that reads and writes these tensors.
struct KernelAnswer {
    double seconds = 0;   ///< estimate; infinity: there is no such kernel
    double at_least = 0;  ///< lower bound of its seconds
    std::string reason;   ///< why there is no kernel
    size_t kernel = 0;    ///< number given by the caller
    bool chain = false;   ///< of products
    /// The share that is added to its cost unless the initial plan has the kernel. By estimates, a selected plan then
    /// never costs more than the initial one.
    double margin = 0;
};
/// `reads` and `writes` name layouts, as in the choice. An empty set of nodes is a conversion.
using AskKernel = std::function<KernelAnswer(const NodeSet& nodes, const std::vector<TensorId>& reads,
                                             const std::vector<TensorId>& writes)>;

struct PieceOptions {
    ConvexOptions convex;
    size_t most_output_sets = 4;    ///< for each set of nodes
    bool single_output = false;     ///< only sets of nodes that write one tensor
    bool once = false;              ///< no node is in two kernels
    std::vector<bool> second;       ///< per tensor: it has an alternative layout; empty: none has
    std::vector<bool> at_boundary;  ///< per tensor: it has the alternative layout at the piece's boundary
    size_t most_mixed = 6;
    std::vector<NodeSet> also;  ///< further sets of nodes, not subject to the limits
    /// False: costs are estimates, and no candidate is pruned because of them.
    bool exact = true;
    double seconds = 20;          ///< processor time for the program
    bool published_form = false;  ///< BlpForm::Published in place of Strong
    bool compare_forms = false;   ///< also compute PiecePlan::strong and published
};

/// A candidate and its costs.
struct PieceKernel {
    Candidate candidate;  ///< with the cost that counts: see PieceSearch::price
    KernelAnswer answer;
    bool known = false;  ///< `candidate.cost` was set by tell()
};

struct PiecePlan {
    std::vector<PieceKernel> kernels;  ///< in an order that can run
    LazyResult solution;
    size_t sets = 0;                              ///< convex sets listed
    size_t candidates = 0;                        ///< possible kernels, one for each set, outputs and layouts
    size_t conversions = 0, chains = 0;           ///< conversions are not among `candidates`; chains are
    size_t dropped = 0;                           ///< pruned, because smaller kernels cost no more in total
    bool capped = false;                          ///< there were more sets than the limit
    std::map<std::string, size_t> refused;        ///< reason -> number of sets
    bool started = false;                         ///< the initial plan can run
    double start_seconds = 0;                     ///< its cost
    std::vector<PieceKernel> start;               ///< its kernels in an order that can run; empty if it cannot
    std::optional<Relaxation> strong, published;  ///< of either form, with the initial costs
};

/// The choice of one piece. Costs are estimates in seconds, or set by price() and tell() as in lazy.h.
class PieceSearch {
  public:
    /// `start`: the initial plan. Its kernels are candidates regardless of the limits of `options`. If they cannot be
    /// made, or do not compute all needed tensors, the search starts without them. Throws InternalError if a single
    /// node is no kernel.
    PieceSearch(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask, PieceOptions options);
    ~PieceSearch();
    PieceSearch(PieceSearch&&) noexcept;

    const std::vector<PieceKernel>& kernels() const;
    /// Positions of the initial plan's kernels; empty if it cannot run.
    const std::vector<size_t>& start() const;

    /// The initial cost of a kernel, and whether it is a true one. Without price(), costs are estimates and count as
    /// true.
    struct Price {
        double cost = 0;
        bool known = true;
    };
    /// Sets the costs and restarts the search.
    void price(const std::function<Price(const PieceKernel&)>& of);

    std::vector<size_t> next();                                                     ///< LazySearch::next
    void tell(const std::vector<size_t>& which, const std::vector<double>& costs);  ///< LazySearch::tell
    void stop();                                                                    ///< LazySearch::stop
    /// The plan. Call it after next() has returned no kernels, or after stop().
    PiecePlan plan() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::optimal
