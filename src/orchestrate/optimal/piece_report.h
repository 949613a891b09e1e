#pragma once
// The report on pieces and their kernels.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "orchestrate/optimal/choice.h"

namespace tilewright::optimal {

/// Adds emitted pieces and kernels to an OrchestrationReport, in order.
class PlanReport {
  public:
    PlanReport(const PieceChoice& choice, const OrchestrateOptions& options, OrchestrationReport& report)
        : choice_(choice), options_(options), report_(report) {}

    void add(const PieceStep& step);
    /// A kernel of the last piece that was added.
    void add(const PieceKernel& k, const std::vector<PrimitiveId>& covers, const std::vector<PlacedValue>& reads,
             const std::vector<PlacedValue>& writes);
    /// Counts a kernel that had to be emitted as several.
    void add_taken_apart() { ++report_.taken_apart; }
    /// The number of the last kernel.
    size_t last_kernel() const { return report_.kernels.size() - 1; }

  private:
    PieceReport report_of(const SearchedPiece& searched, const Piece& piece) const;
    std::string named(const PlacedValue& v) const;

    const PieceChoice& choice_;
    const OrchestrateOptions& options_;
    OrchestrationReport& report_;
    std::map<size_t, size_t> first_;  ///< search -> its first piece in the report
    std::set<PrimitiveId> computed_;  ///< by an earlier kernel
};

}  // namespace tilewright::optimal
