#pragma once
// A tile program as a block of a GPU runs it: the current range of every axis, where values lie, and each statement as
// a StageJob (gpu_points.h). A user walks the tree, narrows the ranges in its loops, and takes the jobs of what stands
// in them: `annotate` to see what can be proved there, the generator (backend/cuda) to write it.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tile/annotations.h"
#include "tile/gpu_memory.h"
#include "tile/gpu_points.h"
#include "tile/late_factor.h"
#include "tile/online.h"
#include "tile/walk.h"

namespace tilewright::gpu {

/// A Load or a Store: its elements, axis by axis, and where each comes from.
struct CopyJob {
    TensorExpr copy;
    StageJob job;
    Micro micro;
    size_t buffer = 0;
    ValueId tensor;
    bool shared_out = false;  ///< as the threads have the elements in their registers
};

class Block {
  public:
    Block(const TileProgram& program, const BlockLimits& limits);
    virtual ~Block() = default;

  protected:
    virtual const IndexVariables& variables() const = 0;

    // --- sums that stay in registers through loops: they are zeros in front of them, and the epilogue stands behind
    //
    //     r_c[...] = 0; for (step ...) { ...; r_c[...] += ... } r_c[...] = max(r_c[...] + bias, 0)

    /// The outermost of the loops through which the statement's sums stay in registers, with nothing else to do to
    /// them on the way. Nothing where the statement begins and ends its sums itself.
    std::optional<TreePath> summed_through(const TreePath& path, const Compute& compute) const;
    StageJob::Phase phase_of(PrimitiveId stage) const {
        return through_.count(stage) != 0 ? StageJob::Phase::Steps : StageJob::Phase::Whole;
    }
    /// Of the statements whose sums stayed in registers through this loop, those with something left to do behind it.
    std::vector<std::pair<TreePath, const Compute*>> finished_behind(const TreePath& loop) const;

    /// Why the parts of a sum cannot be added (Walk::split); empty: they can, or there are none.
    std::string split_fault() const;
    /// The share of the threads in the statement whose sums have parts.
    Partition split_share() const;

    /// Whether the products of a step may go on while the next begins (Annotations::overlap): it then writes over the
    /// copies of the step before the last, which takes three of them.
    bool may_overlap(const TileLoop& loop) const;
    /// Whether the statement's products could go on behind it.
    bool stays_in_flight(const Compute& compute) const;

    // --- where values lie

    bool in_registers(const Buffer& b) const { return b.elsewhere && in_memory_.count(b.value) == 0; }
    std::optional<size_t> buffer_where(const std::function<bool(const Buffer&)>& is) const;
    size_t existing(std::optional<size_t> buffer) const;
    std::optional<size_t> copy_of(PrimitiveId stage, size_t access) const;
    std::optional<size_t> buffer_of(ValueId v) const;
    Place place_of(size_t buffer) const;
    Place place_of(ValueId v) const;
    /// The same for a statement of stage `reader`: in registers it is indexed by that one's coordinates.
    Place place_of(ValueId v, PrimitiveId reader) const;
    void index_registers(Place& place, ValueId v, const std::vector<size_t>& axes) const;
    Place correction_of(ValueId maximum, PrimitiveId reader) const;
    /// Along which axes of the stage the copy that a Load makes for it ends in zeros: there the index leaves the
    /// tensor, and what lies outside of it is 0.
    std::vector<bool> zero_behind(PrimitiveId stage, size_t access) const;

    // --- ranges

    /// The parallel loops at the root of the tree, from outside to inside, and the trip count of each.
    struct Grid {
        std::vector<const TileLoop*> loops;
        std::vector<Expr> trips;
    };
    /// `body` and `path`: of the root; afterwards of the innermost parallel loop. Where sums have parts there is one at
    /// least, which may be empty.
    Grid grid_loops(const std::vector<Stmt>*& body, TreePath& path) const;
    /// The range of a block's step of a parallel loop.
    AxisRange grid_range(const TileLoop& loop, const AxisRange& outer, Expr counter) const;
    bool splits(const TileLoop& loop) const { return tree_.split && tree_.loops.at(*tree_.split) == &loop; }
    /// Buffers that live under this loop are addressed relative to where the ranges start here.
    void enter_scope(const TreePath& path);
    /// Whether the current ranges may not reach the end of what the stage reduces.
    bool may_be_unfinished(PrimitiveId stage) const;

    // --- statements

    /// `own`: holds the expression where it is not the stage's: of a sum that is rescaled by an online maximum, or
    /// whose factor its readers apply.
    void compute_job(const Compute& compute, const TreePath& path, StageJob::Phase phase, StageJob& job,
                     TensorExpr& own) const;
    /// Without the threads' share.
    void load_job(const Load& load, CopyJob& out) const;
    void store_job(const Store& store, CopyJob& out) const;
    /// A copy as its annotation has it.
    void set_copy(CopyJob& c, const BlockCopy& how) const;

    const TileProgram& p_;
    const Walk tree_;
    const BlockMemory block_;
    const int threads_;
    const RegisterValues& registers_;
    const std::set<ValueId>& in_memory_;  ///< buffers of these are in memory
    const BufferPlan& plan_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    const std::map<ValueId, OnlineMaximum> online_;
    const bool rounds_;                        ///< StageJob::rounds
    std::map<ValueId, LateFactor> late_;       ///< of values in registers whose readers take their factor
    std::map<PrimitiveId, TreePath> through_;  ///< summed_through
    std::map<ValueId, Place> memory_;          ///< inputs and outputs
    std::vector<std::string> objects_;         ///< of buffers, in generated code
    std::vector<AxisRange> ranges_;            ///< current, per kernel axis
    std::map<std::pair<TreePath, size_t>, Expr> starts_;

  private:
    std::optional<LateFactor> late_factor_of(PrimitiveId stage) const;
    void add_online(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& own) const;
    void share_out(StageJob& job, const Partition* share) const;
};

/// Parts of that which need no ranges, for estimates: whether a loop's only statement behind its Loads is a product of
/// a warpgroup, and it is deep enough for products that go on behind their step.
bool may_overlap(const TileLoop& loop);

}  // namespace tilewright::gpu
