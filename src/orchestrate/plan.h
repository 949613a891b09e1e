#pragma once
// Plan: which kernels run, in which order, on which tensors.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "layout/layout.h"
#include "orchestrate/ablations.h"
#include "orchestrate/optimal/options.h"
#include "program/program.h"
#include "schedule/scheduler.h"
#include "tile/tile.h"

namespace tilewright {

/// The different kernels of a model: those with equal text are one.
class KernelSet {
  public:
    /// Position of `kernel`, adding it when no equal one is there. The kernel's name is no part of its text.
    /// `provider`: KernelCall::provider, for whom an equal kernel is another one; and so it is for other `weights`,
    /// whether the inputs are constants, which only a provider asks about.
    size_t add(TileProgram kernel, const std::string& provider = "", const std::vector<bool>& weights = {});
    const std::vector<TileProgram>& kernels() const { return kernels_; }
    /// Who computes each of them, where it is not generated code.
    struct Provided {
        std::string provider;
        std::vector<bool> weights;
    };
    const std::vector<Provided>& provided() const { return provided_; }

  private:
    std::vector<TileProgram> kernels_;
    std::vector<Provided> provided_;
    std::unordered_map<std::string, size_t> by_text_;
};

struct Plan;

/// Runs kernel `kernel` on `tensors`: its inputs, then its outputs, values of the plan's program.
struct KernelCall {
    size_t kernel = 0;
    std::vector<ValueId> tensors;
    std::string name;                     ///< source nodes, for profiles
    std::vector<PrimitiveId> primitives;  ///< of the plan's program that it computes
    double estimated_seconds = 0;         ///< 0: nobody asked the model
    double at_least_seconds = 0;          ///< by the machine's limits, where the model was asked; no launch in either
    std::optional<double> measured_seconds;
    std::string provider;          ///< of the library that computes it; empty: generated code
    std::string provided;          ///< Schedules::Provided::kernel, where a library was measured to be faster
    std::optional<size_t> chosen;  ///< which of Plan::optimal's kernels it is, or is part of
};

/// One step. Everything that is no kernel refers to its primitive; control flow carries the plans of its bodies.
struct Step {
    std::variant<KernelCall, PrimitiveId> what;
    std::vector<std::shared_ptr<const Plan>> bodies;
};

/// Kernels that stand together, each reading what the one before has written, and that may run slice by slice
/// (slices.h): all of them for the first slice, then all for the second. Of the `kept` values, which nobody else reads,
/// a thread needs no more than one slice at a time.
struct Slices {
    size_t first = 0, count = 0;  ///< of Plan::steps
    int64_t slices = 1;           ///< divides the tasks of each, and the elements of the kept values
    std::vector<ValueId> kept;    ///< the results of all kernels but the last
};

/// Values have their physical shapes; the program's inputs and outputs are row-major as the model declares them.
struct Plan {
    Program program;
    /// What it was made of: Origin::parts of the program's primitives refer to this one's. Its constants are empty.
    Program unfused;
    std::vector<Step> steps;
    std::vector<Slices> slices = {};
    double schedule_ms = 0;  ///< what constructing its kernels' schedules took, bodies included
    /// Where it was optimal orchestration that grouped, bodies included.
    std::optional<OrchestrationReport> optimal;
    std::string print() const;
};

/// What a kernel takes on this machine.
struct MeasuredKernel {
    double seconds = -1;                        ///< negative: it cannot be run
    bool remembered = false;                    ///< it was known, and nothing was run
    std::string asked = {};                     ///< the library that was asked as well; empty: there is none
    std::string provider = {};                  ///< `asked`, where it took this time, being faster than generated code
    std::optional<double> ours = std::nullopt;  ///< then: what generated code takes; negative: it cannot be run
    std::optional<double> theirs = std::nullopt;  ///< what it takes, where it computes the kernel rightly
    std::string refused = {};                     ///< why it does not
};
/// Nothing where it cannot be known, as sizes are the data's. `weights`: per input of its stages, whether it is a
/// constant of the model.
using MeasureKernel =
    std::function<std::optional<MeasuredKernel>(const TileProgram&, const std::vector<bool>& weights)>;

/// What a plan takes on this machine, run as a model.
struct PlanTimes {
    double seconds = 0;         ///< of a run
    std::vector<double> steps;  ///< of each step
};
/// Runs plans of one program, whose kernels are those of the set, in turns, and takes medians. Nothing where they
/// cannot be run.
using RunPlans = std::function<std::vector<PlanTimes>(std::vector<Plan>, const KernelSet&)>;

/// Memory for choices: by a text that says what there was to choose from, and for what.
struct RememberChoice {
    std::function<std::optional<std::string>(const std::string& of)> find;
    std::function<void(const std::string& of, const std::string& chosen)> keep;
};

class Fusions;
class CodeCache;
class Schedules;

/// Which primitives share kernels, and in which layouts.
struct GroupingOptions {
    bool fuse = true;     ///< false: one kernel a primitive
    bool layouts = true;  ///< false: everything row-major
    Orchestrator orchestrator = Orchestrator::Greedy;
    OptimalOptions optimal;    ///< where the orchestrator is Optimal; its `profile` says what is measured for it
    WatchOrchestration watch;  ///< likewise; called before each piece, and before each kernel that is measured
    Ablations without;
    std::vector<std::string> skip;  ///< passes to leave out, by name (compile/pass.h)
};

struct OrchestrateOptions : GroupingOptions {
    ScheduleTarget target;
    /// How kernels are scheduled; its `rule` is `target`.
    Scheduling scheduling;
    MeasureKernel measure;    ///< needed where OptimalOptions::profile is not None
    MeasureKernel recall;     ///< what `measure` would remember: never runs anything; may be empty
    RunPlans run;             ///< likewise: compares whole plans; may be empty
    RememberChoice remember;  ///< what came of that; may be empty
    /// Kernels that were scheduled before, by the same Scheduling; those that are not there yet are added. None: those
    /// of one plan alone are kept.
    std::shared_ptr<Schedules> schedules;
    /// Where schedules that took long to find are kept for the next time (schedules.h); null: nowhere.
    std::shared_ptr<const CodeCache> kept;
};

/// OrchestrateOptions::scheduling with its rule.
Scheduling scheduling(const OrchestrateOptions& options);

/// OrchestrateOptions::schedules, or new ones.
std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options);

// --- passes, each Program -> Program

/// What may be fused.
struct FusionLimits {
    bool recompute = true;  ///< what several read may be computed in each of them
    /// Whether two primitives may be parts of one kernel; empty: any may.
    std::function<bool(const Primitive&, const Primitive&)> may_share = {};  // NOLINT: g++ wants it
};

/// Moves elementwise consumers into the reductions that feed them, and cheap elementwise, broadcast and layout
/// primitives into their readers (src/program/transform/inline.h). `known` is for who fuses many programs that are made
/// of the same primitives; null: a new one.
Program fuse_greedily(const Program& program, const FusionLimits& limits = {}, Fusions* known = nullptr);
/// A program, and the layouts of those values that are not to be row-major. It may differ from the one given: where
/// inputs and outputs are row-major, those that somebody would read or write far better otherwise have a copy.
struct ChosenLayouts {
    Program program;
    std::map<ValueId, Layout> values;
};
enum class Boundary : uint8_t {
    RowMajor,  ///< inputs and outputs are as the program declares them
    Free       ///< they may lie as suits the program, as those of a part of one whose costs are asked for
};
/// Which values lie how, by the default rule.
ChosenLayouts choose_layouts(const Program& program, const ScheduleTarget& target,
                             Boundary boundary = Boundary::RowMajor);
enum class Contents : uint8_t {
    Moved,    ///< those of packed constants are moved to where they belong
    Anything  ///< they are not looked at, as where costs are asked for
};
/// The program with its values in these layouts: every index map is rewritten accordingly, and the weights of products
/// are packed as the kernel of each will read them. Layouts must not expand. Numbers of values stay as they are. A
/// constant that nothing else holds is freed as soon as the last of its packed copies is made.
Program lay_out(Program program, const std::map<ValueId, Layout>& layouts, const ScheduleTarget& target,
                Contents contents = Contents::Moved);
/// Both, for a program that is to run.
Program assign_layouts(const Program& program, const ScheduleTarget& target);
/// A primitive that copies a value to another one of its shape, which may lie differently.
Primitive layout_copy(const Program& program, ValueId from, ValueId to);

/// Primitives that become one kernel, in topological order, with the shared outer axes of each (see default_schedule).
struct KernelGroup {
    std::vector<PrimitiveId> primitives;
    std::vector<std::vector<size_t>> row_axes;
    bool chain = false;                           ///< several products, scheduled together; row_axes say nothing
    std::optional<size_t> chosen = std::nullopt;  ///< KernelCall::chosen
};
/// Every expression primitive in exactly one group, groups in an order that can run.
std::vector<KernelGroup> group_rows(const Program& program, bool fuse, const FusionLimits& limits = {});

/// A program, fused and laid out, and its kernels.
struct Grouped {
    Program program;
    std::vector<KernelGroup> groups;  ///< in an order that can run
    bool ours = false;                ///< all kernels are generated code, also where a library's measured faster
};

/// What a grouping takes, run as a model: seconds of a run, and of the kernels of each KernelGroup::chosen.
struct GroupedTimes {
    double seconds = 0;
    std::map<size_t, double> chosen;
    std::map<std::string, double> provided;  ///< of those that a library has measured faster, by Schedules::Provided
};
/// Runs groupings of one program in turns. Nothing where they cannot be run.
using RunGrouped = std::function<std::vector<GroupedTimes>(const std::vector<Grouped>&)>;

/// The program's primitives, each with itself as what it is made of (Origin::parts).
Program numbered(Program program);
/// The program with constants that have no contents.
Program without_contents(Program program);
/// Each kernel that gives several values as one kernel for each of its stages.
std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups);

/// The small program a group of primitives is, inputs and outputs in the order of `tensors`.
struct KernelBody {
    Program stages;
    std::vector<ValueId> tensors;
    IndexVector<PrimitiveId, std::vector<size_t>> row_axes;
};
KernelBody extract(const Program& program, const KernelGroup& group);

}  // namespace tilewright
