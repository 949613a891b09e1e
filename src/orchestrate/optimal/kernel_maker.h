#pragma once
// What a set of primitives would be as one kernel: fused, laid out and scheduled like any other, and what that costs.

#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// Some primitives of a program as a program of their own.
struct Part {
    Program program;
    std::vector<ValueId> whole;  ///< per value of `program`: which one of the whole program it is
    std::vector<bool> constant;  ///< likewise: its contents are known there (here it is an input)
};
/// `names`: keep those of values and primitives; else they say nothing, so that equal parts have equal text.
Part part_of(const Program& whole, const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs,
             bool names);

class KernelMaker {
  public:
    KernelMaker(const Program& program, const OrchestrateOptions& options, Schedules& schedules);

    struct Made {
        double seconds = std::numeric_limits<double>::infinity();  ///< with a launch; infinite: no kernel
        double at_least = 0;
        std::string reason;
        TileProgram tiles;
    };
    /// Made once for all parts of equal text. A set is a kernel where fuse_greedily makes it stages that share rows
    /// (group_rows), or where a chain of products has a schedule. Its layouts are those that it would choose by itself:
    /// what stands around it is free.
    const Made& make(const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs);

    /// No set around one with a product and another reduction is a kernel: a product's kernel has one stage, and a
    /// stage one reduction. Chains of products are not found by enumeration: they are candidates where the greedy rule
    /// makes them.
    bool hopeless(const std::vector<PrimitiveId>& members) const;

  private:
    Made made(Part part);

    const Program& program_;
    const OrchestrateOptions& options_;
    Schedules& schedules_;
    IndexVector<PrimitiveId, int> reduces_;  ///< 2: a product, 1: another reduction
    std::unordered_map<std::string, Made> known_;
};

}  // namespace tilewright::optimal
