#pragma once
// A plan as a program whose kernels run elsewhere: how models are executed where there is no machine code for this
// processor, by the lockstep executor or on a GPU. Everything that is no kernel (sorting, control flow) is interpreted.

#include <functional>
#include <vector>

#include "orchestrate/plan.h"

namespace tilewright {

/// A call of a kernel, and the plan that has it: a given one, or that of a body of its control flow.
struct CallSite {
    const Plan* plan = nullptr;
    const KernelCall* call = nullptr;
};

/// Runs the call's kernel on inputs of the shapes of its stages, which view memory of the interpreter that is valid
/// during the call; `names` binds their symbols and scalars. From any thread, but one at a time.
using KernelRunner =
    std::function<std::vector<Tensor>(const CallSite& at, const std::vector<Tensor>& inputs, const Bindings& names)>;

/// Inputs, outputs and ids of values are those of the plan's program. `kernels`: those that its calls number. The plan
/// must outlive the program. `sizes`: of the inputs' symbols, for which regions take the ways that a session would;
/// where one is missing they take Dispatch::otherwise, which is legal for all sizes.
Program program_of(const Plan& plan, const std::vector<TileProgram>& kernels, const KernelRunner& run,
                   const Bindings& sizes = {});

}  // namespace tilewright
