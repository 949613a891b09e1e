#pragma once
// What a set of primitives would be as one kernel: fused, laid out and scheduled like any other, and what that costs.

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/chain_sets.h"
#include "orchestrate/optimal/greedy.h"
#include "orchestrate/options.h"
#include "orchestrate/schedules.h"
#include "program/transform/fusions.h"

namespace tilewright::optimal {

/// Some primitives of a program as a program of their own.
struct Part {
    Program program;
    std::vector<ValueId> whole;   ///< per value of `program`: which one of the whole program it is
    std::vector<bool> constant;   ///< likewise: its contents are known there (here it is an input)
    std::vector<bool> copy;       ///< likewise: it is one of `copied`, of the name of what it is a copy of
    std::vector<ValueId> copied;  ///< inputs that are to be written as well, in another layout
};
/// `names`: keep those of values and primitives; else they say nothing, so that equal parts have equal text. Outputs
/// that the part does not make are `copied`.
Part part_of(const Program& whole, const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs,
             bool names);

/// The part's stages, which are its program fused (fuse_greedily), and in front of them the copies, which they read.
/// Adds those to the part's values.
Program with_copies(Part& part, Program stages);

/// Per value of a part: whether it has its second layout. What is read or written says so for itself; what stays inside
/// has it where one of those does, or where none of them has two.
std::vector<bool> placed(const Part& part, const ValueLayouts& layouts, const std::vector<PlacedValue>& reads,
                         const std::vector<PlacedValue>& writes);

/// A kernel as it would run.
struct ScheduledKernel {
    TileProgram tiles;
    std::vector<bool> weights;  ///< per input of its stages: a constant of the model
};

class KernelMaker {
  public:
    KernelMaker(const Program& program, const ValueLayouts& layouts, const OrchestrateOptions& options,
                Schedules& schedules);

    /// What a kernel mainly does: estimates of one kind err alike.
    enum class Kind : uint8_t { Elementwise, Reduction, Product, Chain };

    struct Made {
        double seconds = std::numeric_limits<double>::infinity();  ///< with a launch; infinite: no kernel
        double at_least = 0;
        std::string reason;
        /// What its seconds count more than they say, as a share: what a chain must gain by the model's word alone.
        double margin = 0;
        Kind kind = Kind::Elementwise;
        std::vector<ScheduledKernel> kernels;  ///< one; two where its sums are taken in parts (split_kernel)
    };
    /// Made once for all parts of equal text; its number among all that were made. A set is a kernel where
    /// fuse_greedily makes it stages that, laid out like this, share rows (fuse_rows), or where they have a schedule
    /// as a chain.
    size_t make(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                const std::vector<PlacedValue>& writes);
    /// The kernel if it was made before.
    std::optional<size_t> find(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                               const std::vector<PlacedValue>& writes) const;
    /// A copy of a value that has two layouts in the other one.
    size_t convert(ValueId value, bool to_second);

    const Made& operator[](size_t made) const { return made_[made]; }
    size_t size() const { return made_.size(); }  ///< kernels that were asked for, also those that cannot be made

    /// No set around one with a product and another reduction is a kernel, unless it is a chain (chain_sets.h).
    bool pruned(const std::vector<PrimitiveId>& members) const;
    NodeWork work(PrimitiveId id) const { return work_[id]; }

  private:
    struct Request {
        Part part;
        std::string text;          ///< of the part: what fusion depends on
        std::string key;           ///< with copies and layouts
        std::vector<bool> second;  ///< placed()
    };
    Request request(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                    const std::vector<PlacedValue>& writes) const;
    Made made(const Part& part, const Program& stages, const std::map<ValueId, Layout>& layouts);
    void schedule(const KernelBody& body, const Schedules::Scheduled& whole, const std::vector<bool>& weights,
                  Made& result);

    const Program& program_;
    const ValueLayouts& layouts_;
    const OrchestrateOptions& options_;
    Schedules& schedules_;
    IndexVector<PrimitiveId, NodeWork> work_;
    std::unordered_map<std::string, size_t> known_;
    std::unordered_map<std::string, Program> fused_;  ///< by the part's text: layouts play no part in it
    Fusions fusions_;
    std::vector<Made> made_;
};

}  // namespace tilewright::optimal
