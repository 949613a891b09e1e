#pragma once
// What compilation keeps of a model beside what running it needs: for dumps, reports, files and GPUs.

#include <map>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cuda/kernel.h"
#include "cost/target.h"
#include "model/compiled_model.h"
#include "orchestrate/library_parts.h"
#include "orchestrate/plan.h"
#include "program/sizes.h"

namespace tilewright {

struct ModelSources {
    KernelSet kernels;
    Target target;                              ///< the machine it was compiled for
    std::vector<cuda::KernelText> gpu_kernels;  ///< for a GPU: of each kernel
    /// For a GPU with libraries, by kernel: its parts, some of which libraries may compute. `kernels` has the others,
    /// behind those that the plan calls.
    std::map<size_t, LibraryParts> parts;
    std::vector<SizeSample> samples;       ///< for a GPU: of dynamic sizes, at which libraries are compared
    Precision precision = Precision::F32;  ///< to which products on a GPU may round f32 operands
};

}  // namespace tilewright
