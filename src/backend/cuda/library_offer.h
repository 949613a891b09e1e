#pragma once
// What cuBLASLt and cuDNN are offered.

#include <optional>

#include "libraries/kernel_library.h"

namespace tilewright::cuda {

/// Nothing where the stages have a form that cuBLASLt or cuDNN takes as one kernel, else why they have none. Whether
/// the library has an algorithm or engine for the form is known where it is loaded.
std::optional<Refusal> library_refusal(const Program& stages);
inline bool library_takes(const Program& stages) { return !library_refusal(stages); }

}  // namespace tilewright::cuda
