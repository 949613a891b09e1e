#pragma once
// The CUDA C++ of one kernel.

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "backend/cuda/barriers.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/stage_text.h"
#include "cost/annotate_options.h"
#include "tile/gpu_block.h"
#include "tile/gpu_boxes.h"
#include "tile/live_steps.h"

namespace tilewright::cuda {

/// `program` has all annotations, and outlives it.
class KernelGenerator : gpu::Block {
  public:
    KernelGenerator(const TileProgram& program, const GpuTarget& target)
        : Block(program, *annotate_options(target).gpu),
          target_(target),
          groups_(has_groups()),
          barriers_(barriers(program, plan_, in_memory_)) {}

    KernelText run(const std::string& function);

  private:
    const gpu::IndexVariables& variables() const override { return v_; }

    // --- what the annotations say

    /// Whether the products of a step go on while the next begins.
    static bool overlaps(const TileLoop& loop);
    /// Steps from the one that is computed to the one that is copied.
    static int steps_ahead(const TileLoop& loop) { return loop.stages - (overlaps(loop) ? 2 : 1); }

    /// What is left to do to the sums that stayed in registers through the loop that stood there.
    void finish_sums(const TreePath& loop);

    // --- split-K: every block gives its part of the sums, and the last one of a tile goes on with all of them
    //
    //     r_c[...] += ...; put(parts of this block, r_c[...]); if (!last_to_arrive(...)) return;
    //     r_c[...] = 0; for (part ...) r_c[...] += parts of block first + part; r_c[...] = max(r_c[...] + bias, 0);
    //     store

    /// Emits the statement, whose sums have parts, and what the blocks of a tile do behind theirs.
    void emit_parts(const Compute& compute, const TreePath& path, StageJob::Phase phase);

    // --- what the kernel is called with

    std::string declare_arguments();

    /// Whether a statement uses warpgroup instructions (WGMMA).
    bool has_groups() const;

    // --- shared memory and registers

    void declare_buffers();

    /// From one copy of a buffer to the next.
    static int64_t elements_of_copy(const Buffer& b);

    // --- ranges and loops

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
    //
    // On warpgroups steps go in rounds, a step for each copy of the buffers, and a round is unrolled. The number of the
    // copy is a constant then, and so are addresses in shared memory, of mbarriers, and in matrix descriptors:
    //
    //     for (round ...) { unrolled: for (slot = 0; slot < 3; ++slot) { step = 3 * round + slot; ... } }

    /// The steps of a loop that run: all, or without those whose points are masked out (tile/live_steps.h), at least
    /// one in any case.
    struct Steps {
        Expr length;                ///< points of the loop's axis
        Expr first = 0;             ///< number of the first step
        std::optional<Expr> count;  ///< one more than the number of the last; nothing: the steps of `length`
    };
    /// Whether the steps of a pipelined loop go in rounds. (Elsewhere a step has many more instructions, of which few
    /// are about addresses.)
    bool in_rounds(const TileLoop& loop) const { return groups_ && loop.stages > 1; }
    /// Opens the loop over steps, or those over rounds and their steps. `last`: of the counter.
    void open_steps(const TileLoop& loop, const TreePath& path, Expr counter, Expr last, const Steps& steps);
    /// C++ for the number of the copy that a step uses, in rounds the one that is computed.
    std::string slot_of(const TileLoop& loop, const TreePath& path, Expr step) const;

    /// The Loads of the step that `ahead` counts, into the buffers `copy` behind the first.
    void copies_of_step(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr ahead,
                        const std::string& copy);
    /// Declares a name for one copy of a buffer.
    std::string copy_name(size_t buffer, const std::string& copy);

    Steps live_steps(const TileLoop& loop, const TreePath& path, const AxisRange& outer);
    /// C++ for whether the step with this number runs.
    std::string exists(Expr step, const TileLoop& loop, const Steps& steps) const;

    void run_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer, const Steps& steps);
    /// Whether some of its Loads are no boxes. They have been emitted once.
    bool copies_by_threads(const TileLoop& loop) const;

    void pipelined_body(const TileLoop& loop, const TreePath& path, const AxisRange& outer, const Steps& steps);

    /// Enters the scope, and declares the registers that live in it.
    void begin_scope(const TreePath& path);
    void declare_registers(size_t buffer);
    std::vector<int64_t> registers_of(ValueId v) const;
    /// Whether these registers have the identity of their sum in front of the first of the loops over parts of it.
    bool begun(size_t buffer) const;

    // --- statements

    /// C++ for whether the current ranges reach the end of what the stage reduces; empty: they certainly do.
    std::string is_final(PrimitiveId stage) const;

    void emit_compute(const Compute& compute, const TreePath& path);
    void emit_job(const Compute& compute, const TreePath& path, StageJob::Phase phase,
                  StageJob::Parts parts = StageJob::Parts::None);
    void emit(const StageJob& job, bool begun = false);

    /// Element j of the buffer's memory is element origin + logical(j) of the tensor.
    /// `slot`: C++ for which copy of its buffer it is.
    void emit_load(const Load& load, bool ahead, const std::string& slot = "0");

    // --- boxes by TMA (tile/gpu_boxes.h)

    /// The map of a tensor, by its name.
    std::string map_of(const gpu::BoxCopy& boxes, ValueId tensor, int swizzle);
    std::string arrival(size_t buffer, const std::string& slot) const;
    void emit_boxes(const gpu::BoxCopy& boxes, const gpu::CopyJob& c, const std::string& slot);
    /// Where TMA copies all Loads of a pipelined loop: the buffer whose mbarriers count the bytes of all of them.
    std::optional<size_t> counting(const TileLoop& loop) const;
    /// Emits those Loads of a step, with one thread and one announcement of bytes for all.
    void boxes_of_step(const std::string& slot, const std::function<void()>& loads);
    /// Every copy of a buffer comes again and again: `arrived_...` has the parity of its next time as a bit.
    void wait_for_box(size_t buffer, const std::string& slot);
    void wait_for_boxes();
    /// What stands in front of everything where there are boxes.
    std::string begin_arrivals() const;

    void emit_store(const Store& store, const TreePath&);

    /// Whether Loads in front of this scope's statements have run ahead.
    bool runs_ahead(const TreePath& scope) const { return counters_.count(scope) != 0; }

    /// A copy by threads, as its annotation has it.
    void emit_copy(gpu::CopyJob& c, const BlockCopy& how);

    const GpuTarget& target_;
    const bool groups_;
    const std::set<TreePath> barriers_;
    KernelText out_;
    Writer w_ = Writer().inner(1);
    Variables v_;
    std::map<TreePath, Expr> counters_;      ///< of pipelined loops
    std::map<TreePath, std::string> slots_;  ///< of those in rounds: the variable that counts the steps of one
    std::map<TreePath, Steps> live_;         ///< of the loops that have been opened
    int open_loops_ = 0;                     ///< around the current statement, but those of the grid
    /// In chains on warpgroups, addresses of results are computed while the first copies are under way: behind the
    /// loops a block has nothing else to do meanwhile. (The loops of lone products get an instruction more for each
    /// HGMMA, and a thread has many results.) Where that text goes, in front of the first loop.
    std::optional<size_t> early_at_;
    Writer early_ = Writer().inner(1);
    std::string scratch_, part_counters_;
    gpu::SumParts parts_;            ///< of sums, where blocks have parts
    bool threads_write_ = false;     ///< to shared memory
    std::set<size_t> boxes_;         ///< buffers that TMA fills
    std::set<size_t> waited_;        ///< those with a wait
    std::vector<size_t> waiting_;    ///< those without a wait so far
    std::optional<size_t> counted_;  ///< of the Loads that are emitted: counting()
    int64_t box_bytes_ = 0;          ///< of boxes since that began
    std::vector<std::string> map_names_;
    std::string map_arguments_;
};

}  // namespace tilewright::cuda
