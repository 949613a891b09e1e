#pragma once
// The provider's options, as users of ONNX Runtime give them.

#include <map>
#include <string>
#include <vector>

#include "compile/pipeline.h"

namespace tilewright::provider {

struct Settings {
    PipelineOptions pipeline;
    int threads = 0;                    ///< that a run uses at most; 0: the CPUs that this process may use
    std::vector<std::string> excluded;  ///< nodes, or operators, that are left to ONNX Runtime
};

/// The options, by name without prefix:
///     threads       "4": threads that the code is planned for, and at most used
///     numerics      "default", "strict" or "fast"
///     isa           "avx2", "avx512", ...: the instructions of EPContext models, which other CPUs can then load
///     precision     "f32", "f32-fast" or "bf16"
///     keep_f32      "/lm_head/*;logits": products that stay in f32, by names of nodes or tensors
///     keep_subnormals  "1": subnormal numbers are not rounded to 0
///     orchestrator  "greedy" or "optimal"
///     dims          "batch=1;seq=1..512:8,64": sizes and ranges of the model's dynamic dimensions
///     cache_folder  where compiled models are kept; "" (default): the command-line tool's folder; "none": nowhere
///     exclude       "NonMaxSuppression;/head/Conv": operators and names of nodes that are left to ONNX Runtime
/// Throws OptionError naming the option.
Settings settings_of(const std::map<std::string, std::string>& options);

}  // namespace tilewright::provider
