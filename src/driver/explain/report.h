#pragma once
// The report on a compiled model: the primitives of each kernel, its time and its limit, and the gain of the plan over
// simpler ones. Text, JSON and a page are written from this value.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "compile/precision_choice.h"
#include "cost/target.h"
#include "driver/opspec/limit.h"

namespace tilewright::explain {

/// An operand or result of a kernel.
struct TensorNote {
    std::string name;
    std::string type;    ///< "f32[1, 64, 56, 56]": the logical shape
    std::string layout;  ///< "[1, 56, 56, 64]": the shape in memory; empty: row-major
    bool constant = false;
};

/// A kernel, or another step.
struct BoxId {
    size_t index = 0;
    bool step = false;
    friend auto operator<=>(const BoxId&, const BoxId&) = default;
};

/// A primitive before fusion.
struct PrimitiveNote {
    std::string name, category;          ///< "conv1/products", "linear"
    std::string text;                    ///< the expression
    std::string type;                    ///< of its (first) result
    std::vector<std::string> nodes;      ///< of the model: "conv1 (Conv)"
    std::vector<size_t> reads;           ///< primitives whose results it reads
    std::vector<size_t> kernels;         ///< all that compute it; redundantly if there are several
    std::vector<std::string> operators;  ///< types of `nodes`, one for each: "Conv"
    std::vector<double> parts;           ///< share of its arithmetic for each of `nodes`; the sum is 1
    double operations = 0;               ///< arithmetic that any code needs
};

/// A step that is no kernel: a primitive that is no tensor expression.
struct StepNote {
    size_t primitive = 0;
    std::vector<BoxId> from;  ///< producers of its inputs
};

/// The reason why a kernel was not fused with producers of its operands.
struct NotFused {
    std::vector<size_t> kernels;  ///< positions in Report::kernels
    std::string reason;           ///< "its rows differ"
};

struct KernelNote {
    std::string name;                ///< names of its stages
    size_t code = 0;                 ///< number of its code; equal kernels share one
    std::vector<size_t> primitives;  ///< in order
    std::vector<std::string> nodes;  ///< source operators
    std::vector<TensorNote> reads, writes;
    std::vector<BoxId> from;                      ///< producers of its inputs
    std::vector<NotFused> not_fused;              ///< one for each reason
    std::string provider;                         ///< of the library that computes it; empty: generated code
    std::string tiling;                           ///< one line (tile.h, tiling_expression)
    std::string offer;                            ///< what NVIDIA's libraries are offered of it; empty: no sums
    double estimate_us = 0;                       ///< by the cost model, without a launch
    Limit limit;                                  ///< lower bound of every schedule; unknown sizes are assumed
    std::optional<double> alone_us, in_model_us;  ///< measured: by itself (--measure), in runs of the model (--time)
    size_t repeated = 0;                          ///< primitives that an earlier kernel computes as well
    double operations = 0;                        ///< arithmetic that any code needs
    double bytes = 0;                             ///< operands and results, each counted once
    /// Operator types and their shares of the kernel's time, in proportion to the operations of its primitives;
    /// kLayoutConversion for a kernel without primitives. In descending order; the sum is 1.
    std::vector<std::pair<std::string, double>> shares;

    /// The best known time: measured in the model, else measured alone, else estimated.
    double us() const { return in_model_us.value_or(alone_us.value_or(estimate_us)); }
};

inline constexpr const char* kLayoutConversion = "(layout conversion)";

/// The total time of all operators of one type.
struct OperatorTotal {
    std::string type;    ///< "Conv"
    size_t kernels = 0;  ///< kernels with such an operator
    double us = 0, limit_us = 0;
};

/// A region that has several ways (Plan::regions), with equal ones counted.
struct RegionNote {
    std::string name;  ///< of its last kernel
    size_t count = 1;
    std::string dispatch;  ///< the sizes of each way
    uint32_t taken = 0;    ///< for the report's sizes
    struct Way {
        size_t kernels = 0;
        double estimate_us = 0;  ///< at these sizes, launches included
    };
    std::vector<Way> ways;
};

/// A whole plan.
struct PlanNote {
    std::string name;
    size_t kernels = 0;
    double estimate_ms = 0;             ///< of its kernels in sequence, including launches
    std::optional<double> measured_ms;  ///< median of several runs
};

struct Report {
    std::string model;
    int threads = 1;
    std::string machine;      ///< the CPU or GPU whose rates determine limits and estimates
    bool gpu = false;         ///< it is a GPU
    bool calibrated = false;  ///< those rates are measured
    Orchestrator orchestrator = Orchestrator::Greedy;
    double compile_ms = 0;
    /// The sizes of dynamic dimensions that were given. Others have those of Program::assumed, or 128.
    std::map<std::string, int64_t> sizes;
    std::optional<RewriteReport> rewrites;               ///< if requested
    std::shared_ptr<const PrecisionChoice> precision;    ///< where products were to be in bf16
    std::shared_ptr<const OrchestrationReport> optimal;  ///< if orchestration was optimal
    std::vector<PrimitiveNote> primitives;               ///< those of the program, then those of control flow's bodies
    std::vector<KernelNote> kernels;                     ///< likewise, in execution order
    size_t codes = 0;                                    ///< distinct kernels
    std::vector<StepNote> steps;
    std::vector<RegionNote> regions;  ///< kernels are those of the ways that are taken
    std::vector<PlanNote> plans;      ///< this plan, the greedy one, one kernel per operator
    double launch_us = 0;             ///< of a kernel; included in plans, not in the estimates of kernels
    double peak_gflops = 0;           ///< multiply-adds, all threads
    std::vector<Bandwidth> bandwidths;

    const PlanNote& plan() const { return plans[0]; }
    const PlanNote& greedy() const { return plans[1]; }
    const PlanNote& operators() const { return plans[2]; }
    size_t repeated() const;  ///< repeated computations of primitives, over all kernels
    /// In descending order of time. The sum is the time of all kernels.
    std::vector<OperatorTotal> operator_totals() const;
};

struct ExplainOptions {
    double seconds = 0;  ///< duration for which each plan is run, in turns; 0: none
    std::function<std::vector<Tensor>(const Compilation&)> inputs;  ///< required if `sized` or `seconds` is set
    bool sized = false;  ///< estimates and limits assume the sizes of the inputs
    std::function<void(const std::string&)> progress;
};

/// Makes the report. `c` must be compiled with these options, PipelineOptions::keep_rewritten and
/// GroupingOptions::keep_refusals.
Report explain(const Compilation& c, const PipelineOptions& pipeline, const ExplainOptions& options);

}  // namespace tilewright::explain
