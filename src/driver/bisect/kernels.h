#pragma once
// The kernels of a plan, each run by itself on what the interpreter computes for its inputs.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/compare.h"
#include "model/compiled_model.h"
#include "model/plan_program.h"
#include "runtime/thread_pool.h"

namespace tilewright::bisect {

/// A model to change: interface, plan and code of `from`, without its statistics and its strict model.
std::unique_ptr<CompiledModel::Impl> copy_of(const CompiledModel::Impl& from);

/// Runs kernels of `model` by themselves, on its target. A kernel that writes outside of its outputs is a RuntimeError,
/// and so is what the lockstep executor reports. `model` and `pool` must outlive it.
KernelRunner machine_code(const CompiledModel& model, ThreadPool& pool);

/// A kernel whose results are not those of the primitives that it was made of.
struct KernelFault {
    size_t kernel = 0;                    ///< its number in dumps
    CallSite at;                          ///< in the plan
    ValueId value;                        ///< the first of its results that is wrong, of the plan's program
    std::string reason;                   ///< element, number, expected number, allowed difference
    std::string where;                    ///< "the tile program (schedule)", "the machine code", ...
    double error = 0;                     ///< largest, relative to the largest expected magnitude
    double allowed = 0;                   ///< largest bound of an element, likewise; 0: by the tolerance of outputs
    Bindings names;                       ///< sizes of this call
    std::vector<Tensor> inputs;           ///< as the kernel's stages declare them
    std::vector<Tensor> expected, found;  ///< found: empty where the kernel failed
    std::vector<Tensor> bounds;           ///< per output and element; empty: by the tolerance
};

struct KernelSearchOptions {
    Tolerance tolerance;  ///< where no bound is known
    bool bounds = true;   ///< false: products are rounded to less than f32, which bounds do not model
    std::function<void(const std::string&)> progress;
};

/// What the kernels of one run were found to be.
struct KernelSearch {
    std::optional<KernelFault> fault;  ///< the first in the order of the plan
    int checked = 0;                   ///< calls
    std::vector<std::string> skipped;  ///< kernels that could not be checked, and why
    double worst = 0;                  ///< largest error of a kernel, relative to the largest magnitude of its result
    std::string worst_kernel;
};

/// Evaluates the plan by the interpreter and runs every kernel on the values that it reads there, until one is wrong.
/// Each call of a body of control flow is checked in its first two iterations. `plan` is one of `model`, and has its
/// constants as programs read them.
///
/// A kernel is wrong where an element is farther from the exact result of its primitives, on these inputs, than
/// with_error_bounds (tune/error_bound.h) allows; an element without a bound, farther than the tolerance.
KernelSearch find_wrong_kernel(const Plan& plan, const CompiledModel& model, const std::vector<Tensor>& inputs,
                               const KernelRunner& run, const KernelSearchOptions& options);

}  // namespace tilewright::bisect
