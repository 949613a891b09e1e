#pragma once
// The implementation of Executor, cut along its jobs: the sections name the files.

#include <exception>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "model/executor.h"

namespace tilewright {

/// More than any machine has, and far from overflowing: sums of such sizes fit 63 bits.
inline constexpr int64_t kMostBytes = int64_t{1} << 50;

/// How many combinations of sizes an executor keeps the preparations of.
inline constexpr size_t kPreparations = 16;

/// The first 64-byte boundary in the storage.
inline std::byte* aligned(std::vector<std::byte>& storage) {
    return storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
}

struct Executor::Impl {
    /// A value in this run.
    struct Slot {
        void* data = nullptr;
        Shape shape;
        std::vector<std::byte> own;  ///< memory of values of data-dependent size
        bool late = false;           ///< size not known when the plan starts
        bool constant = false, input = false;
        bool placed = false;  ///< an output that the caller has given memory for
        bool bound = false;   ///< in the memory that Executor::bind was given
        bool kept = false;    ///< in a preparation's memory: it depends on sizes alone
        bool fixed() const { return constant || input || placed || bound || kept; }  ///< not in the arena
    };
    struct KernelState {
        const cpu::CompiledKernel* kernel = nullptr;
        std::vector<void*> tensors;
        std::vector<int64_t> names;
        std::unique_ptr<cpu::LibraryCall::Runs> library;  ///< in place of generated code
        int64_t tasks = 0;
        bool alone = false;       ///< one thread does all tasks
        bool alternates = false;  ///< every other run does the tasks in the opposite order
        bool late = false;
    };
    struct StepState {
        KernelState kernel;
        std::vector<std::unique_ptr<Executor>> bodies;
        std::vector<TensorView> views;
        /// Loop: storage of carried values, of those that a step is making, of slices and collected outputs.
        std::vector<std::vector<std::byte>> carried, next, slices, collected;
        std::vector<Shape> carried_shapes, collected_shapes;
        /// Loop: what its body's executor sees, so that loops may run side by side.
        std::unique_ptr<ExecutionContext> context;
        std::vector<StepTime> times;
        std::exception_ptr error;
        std::vector<const Requirement*> requirements;  ///< that can be checked behind this step
    };
    /// Kernels that run slice by slice, where the last of them stands. Each thread has
    /// memory of its own for one slice of the values between them.
    struct SlicedSteps {
        const Slices* of = nullptr;
        std::vector<int64_t> kept_bytes;           ///< by kept value: of a thread's slice, a multiple of 64
        std::vector<std::vector<void*>> tensors;   ///< by kernel and thread
        std::vector<double> spent_us;              ///< likewise, in profiles
        std::vector<std::vector<int>> kept_place;  ///< by kernel and tensor: which kept value it is, -1: none
    };
    /// Output dimensions that a step binds: value, dimension, slot.
    struct Binding {
        ValueId value;
        size_t dim;
        size_t slot;
    };
    /// A step that appends rows to an input; the result is an output.
    struct AppendStep {
        PrimitiveId primitive;
        ValueId input, rows, output;
        bool rows_fit = false;  ///< a kernel may write the rows where the output has them
    };
    /// A set of early names, by position in early_slots; names from the 64th on share a bit.
    using NameSet = uint64_t;
    /// A result of steps that depend on sizes alone, and the names of these sizes.
    struct Sized {
        ValueId value;
        NameSet names;
    };
    /// Its memory, charged to the session's budget.
    struct SizedResult {
        std::vector<std::byte> storage;
        MemoryBudget& memory;
        SizedResult(MemoryBudget& charged, int64_t bytes);
        ~SizedResult();
        SizedResult(const SizedResult&) = delete;
        SizedResult& operator=(const SizedResult&) = delete;
    };
    /// What runs on inputs of one combination of sizes share: shapes, places in the arena, and arguments of kernels.
    struct Preparation {
        std::vector<int64_t> early_values;                 ///< by early_slots
        std::vector<bool> placed;                          ///< by output: Slot::fixed()
        std::vector<int64_t> numbers;                      ///< dimensions of shaped values, then names of kernels
        std::vector<std::pair<ValueId, int64_t>> offsets;  ///< in the arena
        int64_t arena_bytes = 0;
        struct Kernel {
            int64_t tasks = 0;
            bool alone = false, alternates = false;
            double flops = 0;
        };
        std::vector<Kernel> kernels;                   ///< by step; empty ones for other steps and late kernels
        std::vector<std::vector<int64_t>> kept_bytes;  ///< by sliced steps
        std::vector<uint32_t> ways;                    ///< by region of the plan
        double flops = 0;
        /// What depends on sizes alone: kept here, or computed in each run where it is too large.
        bool keeps_sized = false, sized_done = false;
        int64_t sized_bytes = 0;
        std::vector<std::shared_ptr<SizedResult>> sized;  ///< by Impl::sized; shared by preparations
        std::vector<bool> sized_known;                    ///< likewise: another preparation has computed it
    };
    /// The values that lie in the arena and their lifetimes, which depend on ways and places but not on sizes; and
    /// plans of the arena for several sizes.
    struct ArenaLayout {
        std::vector<uint32_t> ways;
        std::vector<bool> fixed;
        std::vector<std::pair<ValueId, BufferLife>> lives;
        struct Planned {
            std::vector<int64_t> needed, room;  ///< by value, in bytes
            std::vector<int64_t> offsets;
            int64_t bytes = 0;
        };
        std::vector<Planned> plans;  ///< the latest last
    };
    class LoopRun;   ///< one run of a loop
    struct Outputs;  ///< of an opaque operator: places them as it names their shapes

    const Plan& plan;
    ExecutionContext& context;
    IndexVector<ValueId, Slot> slots;
    std::vector<StepState> steps;
    const int workers;  ///< at most
    std::vector<SlicedSteps> sliced;
    std::vector<int> sliced_as;              ///< by step: which of them it is part of, -1: none
    std::vector<std::vector<size_t>> order;  ///< in which steps run; those that stand together run side by side
    std::vector<AppendStep> appends;
    std::vector<bool> of_sizes;  ///< by step: its results depend on sizes alone
    std::vector<Sized> sized;    ///< these results
    std::map<PrimitiveId, std::vector<Binding>> bindings;
    std::vector<size_t> input_order;
    struct InputBinding {
        size_t dimension = 0, slot = 0;
        int64_t step = 1;  ///< the slot holds the dimension's size / step
    };
    std::vector<std::vector<InputBinding>> input_bindings;  ///< per input
    std::set<Var> early;
    std::vector<const Requirement*> early_requirements;  ///< over names that are known when the plan starts
    Arena arena;
    uint64_t arena_charged = 0;           ///< bytes of it that are charged to the budget
    std::list<ArenaLayout> layouts;       ///< the latest first
    std::list<Preparation> preparations;  ///< of the last kPreparations combinations of sizes, the latest first
    bool prepared = false;                ///< the first of them is in effect, and suits places and names
    bool applied = false;                 ///< the first of them is in effect
    std::vector<uint32_t> ways;           ///< by region: which way the current sizes take
    std::vector<ValueId>
        shaped;  ///< values whose shapes a preparation has: of steps; not late, no constants, no inputs
    /// By shaped value, by step that calls a kernel, and by early requirement: the names that decide its sizes.
    std::vector<NameSet> shaped_names, kernel_names, requirement_names;
    bool backward = false;  ///< this run does the tasks of some kernels (KernelState::alternates) in the opposite order
    std::vector<size_t> early_slots;
    double flops = 0;

    Impl(const Plan& p, ExecutionContext& c, const std::vector<Var>& known);
    void bind_inputs();
    void find_shaped();
    void hold_constants();
    /// The steps; `requirements`: those that some step's names decide.
    void make_steps(std::vector<const Requirement*> requirements);
    void find_appends();
    StepState kernel_step(const KernelCall& call) const;
    /// `known`: names that are bound by then; the step's are added.
    StepState other_step(const Step& step, std::set<Var>& known);
    void run();
    void run_step(size_t s);
    TensorView output(size_t i) const { return view(plan.program.outputs.at(i)); }
    int64_t arena_bytes() const;

    // --- executor_shapes.cpp: symbols and shapes

    /// Whether the number is known when the plan starts.
    bool is_early(Expr e) const { return are_known(e, early); }
    void find_late();
    bool same_names() const;
    void shape_value(ValueId v);
    /// Takes the numbers of a step's fresh output dimensions, checks the others, and gives the output its memory.
    void* place_output(PrimitiveId id, ValueId v, std::span<const int64_t> shape);
    static bool are_known(Expr e, const std::set<Var>& known);
    void check(const std::vector<const Requirement*>& requirements) const;
    /// Whether every run of this plan, as a loop's body, finds the sizes of the one before.
    bool sizes_stay() const;
    void set_input(size_t i, void* data, std::span<const int64_t> shape);
    /// The input lies elsewhere, and has the shape that it had.
    void move_input(size_t i, void* data) { slots[plan.program.inputs[i]].data = data; }

    // --- executor_memory.cpp: where values lie

    TensorView view(ValueId v) const { return {plan.program.values[v].dtype, slots[v].shape, slots[v].data}; }
    int64_t bytes_of(ValueId v) const;
    void reserve_arena(int64_t bytes);
    void allocate_late(ValueId v);
    /// Whether the caller may say where output `i` is to be: a kernel writes it, and its size stays.
    bool can_place(size_t i) const;
    /// Of an output that can be placed.
    size_t output_bytes(size_t i) const;
    /// The next run writes output `i` there, 64-byte aligned. Every run needs a place from then on, until null takes
    /// the output back.
    void place(size_t i, void* data);
    /// Executor::place_outputs.
    void place_outputs(const OutputMemory& memory, std::vector<GivenMemory>& given);
    /// Whether output `i` can be written to `data`: aligned, and apart from all inputs and placed outputs.
    bool is_apart(size_t i, const void* data, int64_t bytes) const;
    /// Of the step that computes output `output`; null where no append does.
    const AppendStep* append_of(ValueId output) const;
    void set_rows(size_t i, int64_t rows);
    Shape appended_shape(size_t output) const;
    void bind(size_t input, size_t output, void* data);
    /// Whether the step's output is bound: then it copies its rows where no kernel has written them there.
    bool appended_in_place(PrimitiveId id);

    // --- executor_prepare.cpp: what runs of equal sizes share

    /// Finds the preparation for the current sizes, or makes it, and lets it take effect.
    void prepare();
    /// `before`: the one in effect, which has what does not depend on the names that have changed since; null: none.
    Preparation new_preparation(const Preparation* before);
    void find_names();
    NameSet names_in(Expr e) const;
    NameSet changed_since(const Preparation& p) const;
    std::vector<uint32_t> chosen_ways() const;
    /// Whether the step is in a way that the current sizes take.
    bool runs(size_t step) const {
        const auto* call = std::get_if<KernelCall>(&plan.steps[step].what);
        return call == nullptr || !call->way || ways[call->way->region] == call->way->way;
    }
    /// The layout for the current ways and places.
    ArenaLayout& layout();
    /// Sets a preparation's places in the arena.
    void plan_arena(Preparation& p);
    /// The lifetimes of the values that lie in the arena, without their sizes.
    std::map<ValueId, BufferLife> lives() const;
    /// By step: when it runs, by position in `order`.
    std::vector<int64_t> times() const;
    void apply(const Preparation& p);
    bool fits(const Preparation& p) const;
    /// Bytes that a value takes in the arena.
    int64_t room_for(ValueId v) const;

    // --- executor_sized.cpp: results that depend on sizes alone

    std::vector<ValueId> results_of(size_t step) const;
    std::vector<ValueId> operands_of(size_t step) const;
    /// Whether nothing forbids to run the step once for a combination of sizes, if its operands depend on sizes alone.
    bool may_run_once(size_t step) const;
    void find_sized();
    /// Decides whether the preparation keeps these results, and gives them memory. What does not depend on the
    /// `changed` names is that of `before`.
    void place_sized(Preparation& p, const Preparation* before, NameSet changed);
    /// Runs these steps, once the preparation is in effect.
    void compute_sized(Preparation& p);
    /// Forgets the oldest preparations while all keep more than kMostSizedBytes.
    void forget_sized();
    /// Whether the step has run when the preparation was made.
    bool is_done(size_t step) const { return of_sizes[step] && preparations.front().keeps_sized; }

    // --- executor_kernels.cpp: kernel calls, alone and slice by slice

    void find_slices();
    bool runs_later(size_t s) const;
    void run_slices(SlicedSteps& group);
    /// Where the whole value would lie if this slice of it lay in the thread's memory.
    void* slice_base(const SlicedSteps& group, size_t kept, int64_t slice, int worker) const;
    /// Adds the kernels to the profile, one after the other, each with the mean of the threads' times.
    void add_profile(const SlicedSteps& group, double start);
    /// Everything but the addresses, for the current sizes.
    void size_kernel(const KernelCall& call, KernelState& state) const;
    void place_kernel(const KernelCall& call, KernelState& state) const;
    /// Whether handing out the work would take longer than doing it: some microseconds' worth, whatever sizes the
    /// schedule was made for.
    bool done_sooner_alone(const KernelCall& call, double bytes) const;
    /// Of the tensors it reads and writes.
    double bytes_of(const KernelCall& call) const;
    void run_kernel(const KernelCall& call, KernelState& state);
    /// Takes the addresses of inputs, which may differ in each run.
    void fetch_places(const KernelCall& call, KernelState& state) const;
    static bool is_result(const KernelCall& call, ValueId v);

    // --- executor_control.cpp: steps that are no kernels, and loops in parallel

    /// A loop whose body is kernels alone, all sizes known when the plan starts: nothing can see when it runs, but for
    /// those that read its outputs.
    bool of_kernels_alone(size_t s) const;
    void find_order();
    /// One thread per loop. An exception is thrown again when all are done.
    void run_side_by_side(const std::vector<size_t>& loops);
    void run_other(PrimitiveId id, StepState& state);
    void run_if(PrimitiveId id, const If& branch, StepState& state);

    // --- executor_loop.cpp

    void run_loop(PrimitiveId id, const Loop& loop, StepState& state);
};

}  // namespace tilewright
