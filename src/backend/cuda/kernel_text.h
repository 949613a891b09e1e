#pragma once
// The CUDA C++ of one kernel.

#include <map>
#include <set>

#include "backend/cuda/barriers.h"
#include "backend/cuda/box_copy.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/stage_text.h"
#include "tile/gpu_memory.h"
#include "tile/online.h"
#include "tile/walk.h"

namespace tilewright::cuda {

class KernelGenerator {
  public:
    KernelGenerator(const TileProgram& program, const GpuTarget& target)
        : p_(program),
          target_(target),
          tree_(walk(program)),
          groups_(has_groups()),
          block_(gpu::block_memory(program, kGpuBlockThreads, target.block_shared_bytes)),
          threads_(block_.threads),
          registers_(block_.registers),
          in_memory_(block_.in_memory),
          plan_(block_.plan),
          barriers_(barriers(program, plan_, in_memory_)),
          scales_(online_scales(program.stages, online_maxima(program))) {}

    KernelText run(const std::string& function);

  private:
    // --- sums that stay in registers through loops: they are zeros in front of them, and the epilogue stands behind
    //
    //     r_c[...] = 0; for (step ...) { ...; r_c[...] += ... } r_c[...] = max(r_c[...] + bias, 0)

    /// The outermost of the loops through which the statement's sums stay in registers, with nothing else to do to
    /// them on the way. Nothing where the statement begins and ends its sums itself.
    std::optional<TreePath> summed_through(const TreePath& path, const Compute& compute) const;

    /// Whether the products of a step may go on while the next begins: it then writes over the copies of the step
    /// before the last, which takes three of them.
    bool in_flight(const TileLoop& loop) const;
    bool stays_in_flight(const Compute& compute) const;
    /// Steps from the one that is computed to the one that is copied.
    int steps_ahead(const TileLoop& loop) const { return loop.stages - (in_flight(loop) ? 2 : 1); }

    /// What is left to do to the sums behind the loop that stood there.
    void finish_sums(const TreePath& loop);

    // --- what the kernel is called with

    std::string declare_arguments();

    // --- threads

    /// Whether a statement uses warpgroup instructions (WGMMA).
    bool has_groups() const;

    // --- shared memory and registers

    bool in_registers(const Buffer& b) const { return b.elsewhere && in_memory_.count(b.value) == 0; }

    void declare_buffers();

    /// From one copy of a buffer to the next.
    static int64_t elements_of_copy(const Buffer& b);

    Place place_of(size_t buffer);
    std::optional<size_t> buffer_where(const std::function<bool(const Buffer&)>& is) const;
    size_t existing(std::optional<size_t> buffer) const;
    std::optional<size_t> copy_of(PrimitiveId stage, size_t access) const;
    std::optional<size_t> buffer_of(ValueId v) const;
    /// The same for a statement of stage `reader`: in registers it is indexed by that one's coordinates.
    Place place_of(ValueId v, PrimitiveId reader);
    void index_registers(Place& place, ValueId v, const std::vector<size_t>& axes) const;
    Place place_of(ValueId v);
    Place correction_of(ValueId maximum, PrimitiveId reader);

    // --- ranges and loops

    /// The range of one step of a loop.
    AxisRange narrowed(const AxisRange& outer, Expr counter, int64_t step) const;
    static bool covers(const AxisRange& r, int64_t step) { return r.most.is_constant() && r.most.constant() <= step; }

    /// Goes into the parallel loops; the block's number says where it stands in each.
    void grid(const std::vector<Stmt>*& body, TreePath& path);

    /// What threads have written to shared memory is seen by all of them, and by what runs beside them.
    void barrier();
    static constexpr std::string_view kFence = "tw::fence_async();";
    /// Where TMA alone writes to shared memory no fences are needed.
    static std::string without_fences(const std::string& code);

    void statements(const std::vector<Stmt>& body, const TreePath& path);

    void tile_loop(const TileLoop& loop, const TreePath& path);

    // --- pipelined loops: step i waits for its copies, begins those of step i + stages - 1, and computes
    //
    //     for (ahead = 0; ahead < 2; ++ahead) { if (it exists) { copy to buffer ahead } commit }
    //     for (step ...) { wait_async<1>; barrier; { if (step + 2 exists) { copy to buffer (step + 2) % 3 } commit }
    //     ... }
    //
    // One barrier a step does for both: what this step reads has arrived for every thread, and what is written over has
    // been read by every thread, in the step before. Where products go on behind their step, what the step before reads
    // is still being read: copies are begun one step less ahead, over those of the step before that, for which every
    // thread has waited.

    /// The Loads of the step that `ahead` counts, into the buffers `copy` behind the first.
    void copies_of_step(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr ahead,
                        const std::string& copy);
    /// Declares a name for one copy of a buffer.
    std::string copy_name(size_t buffer, const std::string& copy);

    void run_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr length);
    /// Whether some of its Loads are no boxes. They have been emitted once.
    bool copies_by_threads(const TileLoop& loop) const;

    void pipelined_body(const TileLoop& loop, const TreePath& path, const AxisRange& outer);

    /// Buffers that live under this loop are addressed relative to where the ranges start here.
    void enter_scope(const TreePath& path);
    void declare_registers(size_t buffer);
    std::vector<int64_t> registers_of(ValueId v) const;

    // --- statements

    /// C++ for whether the current ranges reach the end of what the stage reduces; empty: they certainly do.
    std::string is_final(PrimitiveId stage) const;

    /// What the stage does about maxima that are not final yet. `expr` becomes its expression where it rescales what it
    /// has summed so far.
    void add_online(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& expr);

    void emit_compute(const Compute& compute, const TreePath& path);
    void compute_job(const Compute& compute, const TreePath& path, StageJob::Phase phase);

    /// Along which axes of the stage the copy that a Load makes for it ends in zeros: there the index leaves the
    /// tensor, and what lies outside of it is 0.
    std::vector<bool> zero_behind(PrimitiveId stage, size_t access) const;

    bool emit(StageJob& job, const Partition* share);

    static AxisRange range_of(int64_t extent) { return {0, extent, extent, extent, true}; }

    /// Element j of the buffer's memory is element origin + logical(j) of the tensor.
    /// `slot`: C++ for which copy of its buffer it is.
    void emit_load(const Load& load, bool async, const std::string& slot = "0");

    // --- boxes by TMA (box_copy.h)

    /// The map of a tensor, by its name.
    std::string map_of(const BoxCopy& boxes, ValueId tensor);
    std::string arrival(size_t buffer, const std::string& slot) const;
    void emit_boxes(const BoxCopy& boxes, const TensorExpr& copy, const Place& to, size_t buffer, ValueId tensor,
                    const std::string& slot);
    /// Every copy of a buffer comes again and again: `arrived_...` has the parity of its next time as a bit.
    void wait_for_box(size_t buffer, const std::string& slot);
    void wait_for_boxes();
    /// What stands in front of everything where there are boxes.
    std::string begin_arrivals() const;

    void emit_store(const Store& store, const TreePath&);

    static bool leaves_room(const layout::Primitive& p);
    /// Whether Loads in front of this scope's statements have run ahead.
    bool runs_ahead(const TreePath& scope) const { return counters_.count(scope) != 0; }

    /// Copies element by element; by vectors of 16 bytes where both sides have them.
    void emit_copy(const TensorExpr& copy, StageJob& job, Place from, const std::string& name, const Partition* share);

    /// The copy's axes as its operand lies in memory, the one with the shortest way from point to point last:
    /// neighbours in a warp go along it, whatever the order in which the copy lies in shared memory.
    std::vector<size_t> by_memory(const TensorExpr& copy, const Place& from) const;

    /// The axis along which the copy's operand lies side by side in memory: neighbours in a warp go along it, for
    /// memory is read by lines. Of shared memory any axis will do.
    std::optional<size_t> contiguous_axis(const TensorExpr& copy, const Place& from) const;

    const TileProgram& p_;
    const GpuTarget& target_;
    const Walk tree_;
    const bool groups_;
    const gpu::BlockMemory block_;
    const int threads_;
    const gpu::RegisterValues& registers_;
    const std::set<ValueId>& in_memory_;  ///< buffers of these are in memory
    const BufferPlan& plan_;
    const std::set<TreePath> barriers_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    KernelText out_;
    Writer w_ = Writer().inner(1);
    Variables v_;
    std::map<ValueId, Place> memory_;
    std::vector<std::string> objects_;  ///< of buffers
    std::vector<AxisRange> ranges_;     ///< current, per kernel axis
    std::map<std::pair<TreePath, size_t>, Expr> starts_;
    std::map<TreePath, Expr> counters_;  ///< of pipelined loops
    std::map<ValueId, OnlineMaximum> online_;
    std::map<PrimitiveId, TreePath> through_;  ///< summed_through
    std::string scratch_;
    bool threads_write_ = false;   ///< to shared memory
    std::set<size_t> boxes_;       ///< buffers that TMA fills
    std::vector<size_t> waiting_;  ///< those without a wait so far
    std::vector<std::string> map_names_;
    std::string map_arguments_;
};

}  // namespace tilewright::cuda
