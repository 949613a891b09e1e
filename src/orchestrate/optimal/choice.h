#pragma once
// The choice of kernels: pieces of a program, the candidates of each piece, and their cheapest set.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/dag.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/optimal/kernel_maker.h"
#include "orchestrate/optimal/options.h"
#include "orchestrate/optimal/piece.h"
#include "orchestrate/optimal/pricing.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// A piece, or a primitive that is no tensor expression.
struct PieceStep {
    PrimitiveId alone;
    Piece piece;
    size_t search = 0;
};

/// The search of a piece. Pieces that differ only in names and weights share one.
struct SearchedPiece {
    PieceSearch search;
    PiecePlan plan = {};
    bool greedy = false;  ///< greedy kernels replace those of the plan

    const std::vector<PieceKernel>& kernels() const { return greedy ? plan.start : plan.kernels; }
    /// Whether plan and greedy orchestration have different kernels.
    bool differs() const;
};

/// Primitives and tensors of a piece as those of the program.
std::vector<PrimitiveId> in_program(const Piece& piece, const std::vector<NodeId>& nodes);
std::vector<PlacedValue> in_program(const Piece& piece, const std::vector<TensorId>& tensors);

class PieceChoice {
  public:
    PieceChoice(const Program& program, const GreedyGroups& greedy, const OrchestrateOptions& options,
                Schedules& schedules, const FusionLimits& limits, OrchestrationReport& report);

    /// Cuts the program into pieces and lists their candidates. Measures costs if OptimalOptions::profile requires
    /// that.
    void list();
    /// Solves the binary program of each piece.
    void solve();
    /// Removes the costs of library kernels after Schedules::refuse. False if no cost changes.
    bool withdraw_refused();
    /// Selects the kernels of each piece. `greedy`: whether a piece, by its number, takes the greedy kernels.
    void take(const std::function<bool(size_t)>& greedy);

    const std::vector<PieceStep>& steps() const { return steps_; }
    const std::vector<SearchedPiece>& searched() const { return searched_; }
    const ValueLayouts& layouts() const { return greedy_.layouts; }
    const Program& program() const { return p_; }
    /// The kernel of a set of nodes, or the reason why there is none. Nothing if that requires a measurement.
    std::optional<KernelAnswer> answer_if_known(const Piece& piece, const NodeSet& set,
                                                const std::vector<TensorId>& reads,
                                                const std::vector<TensorId>& writes);
    /// All pieces and the kernels of their solutions, as a key of the tuning database.
    std::string key() const;

  private:
    void add(const std::vector<NodeId>& members);
    KernelAnswer answer(const Piece& piece, const NodeSet& set, const std::vector<TensorId>& reads,
                        const std::vector<TensorId>& writes);
    PieceOptions piece_options(const Piece& piece) const;
    std::string key_of(const Piece& piece, const std::vector<Candidate>& start) const;
    bool may_share(const std::vector<PrimitiveId>& members) const;
    void measure();

    const Program& p_;
    const OrchestrateOptions& options_;
    const FusionLimits& limits_;
    Schedules& schedules_;
    OrchestrationReport& report_;
    Dag dag_;
    GreedyPlan greedy_;
    KernelMaker maker_;
    std::vector<PieceStep> steps_;
    std::vector<SearchedPiece> searched_;
    std::optional<Pricing> pricing_;          ///< of these, if costs are measured
    std::map<std::string, size_t> searches_;  ///< keyed by all that a search depends on
};

}  // namespace tilewright::optimal
