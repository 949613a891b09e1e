#pragma once
// What became of a model: which primitives share a kernel, what each kernel takes beside what it must take, and what
// the plan saves against simpler ones. A value, from which text, JSON and a page are written.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "cost/target.h"
#include "driver/opspec/limit.h"

namespace tilewright::explain {

/// What a kernel reads or writes.
struct TensorNote {
    std::string name;
    std::string type;    ///< "f32[1, 64, 56, 56]", as the mathematics has it
    std::string layout;  ///< "[1, 56, 56, 64]": how it lies in memory; empty: row-major
    bool constant = false;
};

/// A kernel, or a step that is none.
struct BoxId {
    size_t index = 0;
    bool step = false;
    friend auto operator<=>(const BoxId&, const BoxId&) = default;
};

/// A primitive as it was before fusion.
struct PrimitiveNote {
    std::string name, category;          ///< "conv1/products", "linear"
    std::string text;                    ///< what it computes
    std::string type;                    ///< of its (first) result
    std::vector<std::string> nodes;      ///< of the model: "conv1 (Conv)"
    std::vector<size_t> reads;           ///< primitives whose results it reads
    std::vector<size_t> kernels;         ///< that compute it; where there are several, each computes it again
    std::vector<std::string> operators;  ///< types of `nodes`, one for each: "Conv"
    std::vector<double> parts;           ///< of its arithmetic, for each of `nodes`; they add up to 1
    double operations = 0;               ///< arithmetic that no code can do without
};

/// A primitive that runs by itself: no tensor expression.
struct StepNote {
    size_t primitive = 0;
    std::vector<BoxId> from;  ///< producers of its inputs
};

/// Why a kernel was not fused with the kernels that compute what it reads.
struct NotFused {
    std::vector<size_t> kernels;  ///< positions in Report::kernels
    std::string reason;           ///< "its rows differ"
};

struct KernelNote {
    std::string name;                ///< of its stages
    size_t code = 0;                 ///< which of the different kernels
    std::vector<size_t> primitives;  ///< in order
    std::vector<std::string> nodes;  ///< source operators
    std::vector<TensorNote> reads, writes;
    std::vector<BoxId> from;                      ///< producers of its inputs
    std::vector<NotFused> not_fused;              ///< one for each reason
    std::string provider;                         ///< of the library that computes it; empty: generated code
    std::string tiling;                           ///< one line (tile.h, tiling_expression)
    double estimate_us = 0;                       ///< by the cost model, without a launch
    Limit limit;                                  ///< what no schedule undercuts; unknown sizes are assumed
    std::optional<double> alone_us, in_model_us;  ///< measured: by itself (--measure), in runs of the model (--time)
    size_t repeated = 0;                          ///< primitives that an earlier kernel computes as well
    double operations = 0;                        ///< arithmetic that no code can do without
    double bytes = 0;                             ///< operands and results, each once
    /// Operator types, and the share of the kernel's time that each is taken to have: that of its primitives'
    /// operations, kLayoutConversion for a kernel without primitives. In order of the shares, which add up to 1.
    std::vector<std::pair<std::string, double>> shares;

    /// The best that is known: measured in the model, measured alone, estimated.
    double us() const { return in_model_us.value_or(alone_us.value_or(estimate_us)); }
};

inline constexpr const char* kLayoutConversion = "(layout conversion)";

/// All that operators of one type take, in all kernels.
struct OperatorTotal {
    std::string type;    ///< "Conv"
    size_t kernels = 0;  ///< in which there is one
    double us = 0, limit_us = 0;
};

/// A plan as a whole.
struct PlanNote {
    std::string name;
    size_t kernels = 0;
    double estimate_ms = 0;             ///< its kernels one after the other, with their launches
    std::optional<double> measured_ms;  ///< of a run, the median of several
};

struct Report {
    std::string model;
    int threads = 1;
    std::string machine;      ///< the CPU whose rates limits and estimates are computed from
    bool calibrated = false;  ///< those rates are measured
    Orchestrator orchestrator = Orchestrator::Greedy;
    double compile_ms = 0;
    /// Assumed by estimates and limits for dynamic dimensions; 128 for those that are absent.
    std::map<std::string, int64_t> sizes;
    std::optional<RewriteReport> rewrites;       ///< if requested
    std::optional<OrchestrationReport> optimal;  ///< where it was optimal orchestration that grouped
    std::vector<PrimitiveNote> primitives;       ///< those of control flow's bodies behind the program's own
    std::vector<KernelNote> kernels;             ///< likewise, in the order in which they run
    size_t codes = 0;                            ///< different kernels
    std::vector<StepNote> steps;
    std::vector<PlanNote> plans;  ///< this one, greedy's, one kernel an operator
    double launch_us = 0;         ///< of a kernel: plans count it, the kernels' estimates do not
    double peak_gflops = 0;       ///< multiply-adds, all threads
    std::vector<Bandwidth> bandwidths;

    const PlanNote& plan() const { return plans[0]; }
    const PlanNote& greedy() const { return plans[1]; }
    const PlanNote& operators() const { return plans[2]; }
    size_t repeated() const;  ///< primitives that several kernels compute, once for each more
    /// By time, longest first. Their times add up to those of the kernels.
    std::vector<OperatorTotal> operator_totals() const;
};

struct ExplainOptions {
    double seconds = 0;  ///< for how long each of the plans is run, in turns; 0: none is
    std::function<std::vector<Tensor>(const Compilation&)> inputs;  ///< for that, and for `sized`
    bool sized = false;  ///< estimates and limits are for the sizes of the inputs
    std::function<void(const std::string&)> progress;
};

/// `c` was compiled with these options and PipelineOptions::keep_rewritten and GroupingOptions::keep_refusals.
Report explain(const Compilation& c, const PipelineOptions& pipeline, const ExplainOptions& options);

}  // namespace tilewright::explain
