#pragma once
// Makes kernels of sets of primitives: fused, laid out and scheduled like any other kernel, with their costs.

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

/// A set of primitives as a program of its own.
struct Part {
    Program program;
    std::vector<ValueId> whole;   ///< per value of `program`: the value of the whole program
    std::vector<bool> constant;   ///< per value: its contents are known in the whole program (here it is an input)
    std::vector<bool> copy;       ///< per value: it is a copy from `copied`, and has the name of the original
    std::vector<ValueId> copied;  ///< inputs that are also written, in another layout
};
/// `names`: keep names of values and primitives; otherwise they are generic, so that equal parts have equal text.
/// Outputs that the part does not compute are `copied`.
Part part_of(const Program& whole, const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs,
             bool names);

/// The part's stages after its copies, which the stages read. `stages`: its fused program (fuse_greedily). Adds the
/// copies to the part's values.
Program with_copies(Part& part, Program stages);

/// Per value of a part, whether it has its alternative layout. `reads` and `writes` say so for inputs and outputs. An
/// inner value has it where one of those has it, or where none of them has two layouts.
std::vector<bool> placed(const Part& part, const ValueLayouts& layouts, const std::vector<PlacedValue>& reads,
                         const std::vector<PlacedValue>& writes);

/// A kernel as it would be run.
struct ScheduledKernel {
    TileProgram tiles;
    std::vector<bool> weights;  ///< per input of its stages: a constant of the model
};

class KernelMaker {
  public:
    KernelMaker(const Program& program, const ValueLayouts& layouts, const OrchestrateOptions& options,
                Schedules& schedules);

    /// The main work of a kernel. Estimates of one kind have similar errors.
    enum class Kind : uint8_t { Elementwise, Reduction, Product, Chain };

    struct Made {
        double seconds = std::numeric_limits<double>::infinity();  ///< includes a launch; infinite: there is no kernel
        double at_least = 0;
        std::string reason;
        /// The share that is added to its cost: the gain that a chain must have by estimates alone.
        double margin = 0;
        Kind kind = Kind::Elementwise;
        std::vector<ScheduledKernel> kernels;  ///< one; two if its reduction is split (split_kernel)
    };
    /// Makes a kernel, once for all parts of equal text, and returns its number. A set is a kernel if fuse_greedily
    /// turns it into stages that share rows in these layouts (fuse_rows), or that have a schedule as a chain.
    size_t make(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                const std::vector<PlacedValue>& writes);
    /// The number of the kernel if it was made before.
    std::optional<size_t> find(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                               const std::vector<PlacedValue>& writes) const;
    /// Makes the kernel that copies a value of two layouts into the other layout.
    size_t convert(ValueId value, bool to_second);

    const Made& operator[](size_t made) const { return made_[made]; }
    size_t size() const { return made_.size(); }  ///< requested kernels, including impossible ones

    /// Whether neither this set nor any larger one can be a kernel: it has a product and another reduction, and is no
    /// chain (chain_sets.h).
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
    std::unordered_map<std::string, Program> fused_;  ///< by the part's text, which does not depend on layouts
    Fusions fusions_;
    std::vector<Made> made_;
};

}  // namespace tilewright::optimal
