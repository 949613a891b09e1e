#pragma once
// A plan as a program whose kernels run elsewhere: how models are executed where there is no machine code for this
// processor, by the lockstep executor or on a GPU. Everything that is no kernel (sorting, control flow) is interpreted.

#include <functional>
#include <vector>

#include "orchestrate/plan.h"

namespace tilewright {

/// Runs the plan's kernel number `kernel` on inputs of the shapes of its stages; `names` binds their symbols and
/// scalars. From any thread, but one at a time.
using KernelRunner =
    std::function<std::vector<Tensor>(size_t kernel, const std::vector<Tensor>& inputs, const Bindings& names)>;

/// Inputs and outputs are those of the plan's program. `kernels`: those that its calls number.
Program program_of(const Plan& plan, const std::vector<TileProgram>& kernels, const KernelRunner& run);

}  // namespace tilewright
