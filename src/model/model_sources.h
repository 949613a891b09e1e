#pragma once
// What compilation keeps of a model beside what running it needs: for dumps, reports, files and GPUs.

#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cuda/kernel.h"
#include "cost/target.h"
#include "model/compiled_model.h"
#include "orchestrate/plan.h"

namespace tilewright {

struct ModelSources {
    KernelSet kernels;
    Target target;                              ///< the machine it was compiled for
    std::vector<cuda::KernelText> gpu_kernels;  ///< for a GPU: of each kernel
    Precision precision = Precision::F32;       ///< to which products on a GPU may round f32 operands
};

}  // namespace tilewright
