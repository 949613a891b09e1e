#pragma once
// The report on chosen pieces and their kernels.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "orchestrate/optimal/choice.h"

namespace tilewright::optimal {

/// Adds to an OrchestrationReport what is emitted, in order.
class PlanReport {
  public:
    PlanReport(const PieceChoice& choice, const OrchestrateOptions& options, OrchestrationReport& report)
        : choice_(choice), options_(options), report_(report) {}

    void add(const PieceStep& step);
    /// A kernel of the last piece that was added.
    void add(const PieceKernel& k, const std::vector<PrimitiveId>& covers, const std::vector<PlacedValue>& reads,
             const std::vector<PlacedValue>& writes);
    /// A kernel that could only be emitted as several.
    void add_taken_apart() { ++report_.taken_apart; }
    /// Number of the last kernel.
    size_t last_kernel() const { return report_.kernels.size() - 1; }

  private:
    PieceReport report_of(const SearchedPiece& searched, const Piece& piece) const;
    std::string named(const PlacedValue& v) const;

    const PieceChoice& choice_;
    const OrchestrateOptions& options_;
    OrchestrationReport& report_;
    std::map<size_t, size_t> first_;  ///< by search: the report's first piece of it
    std::set<PrimitiveId> computed_;  ///< by some kernel
};

}  // namespace tilewright::optimal
