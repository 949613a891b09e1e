#pragma once
// Kernels cut at their sums of products: libraries compute the sums, generated kernels what is in front and behind.
//
//     y[h, m, n] = sum(k) x[m, k] * w[64*h + n, k] then gelu(add(acc, b[64*h + n]))       x is f32, w is f16
//
//     a[m, k] = x[m, k]                                                                    f16, generated
//     s[m, h, n] = sum(k) a[m, k] * w[64*h + n, k] then add(acc, b[64*h + n])              f32, of a library
//     y[h, m, n] = gelu(s[m, h, n])                                                        generated
//
// A sum keeps as much of its epilogue as a library takes.

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "libraries/operation.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// The stages of a kernel after its sums were cut off.
struct KernelCut {
    Program stages;                 ///< with the inputs and outputs of the kernel, and the same results
    std::vector<PrimitiveId> sums;  ///< those that libraries take, each by itself; ascending
    std::vector<Refusal> refused;   ///< why they do not take the others, one for each
};

/// Why no library computes the stages, one or several, as one of its kernels; nothing where one does. Stages may have
/// dynamic sizes.
using LibraryRefusal = std::function<std::optional<Refusal>(const Program& stages)>;

/// Cuts a kernel. `precision`: the type to which f32 operands may be rounded; without it an operand of 16 bits beside
/// one of f32 becomes f32. Refused where a library has the kernel as a whole, or none of its sums even alone.
std::variant<KernelCut, Refusal> cut_at_sums(const Program& stages, Precision precision, const LibraryRefusal& refusal);

/// One primitive as a kernel of its own. Inputs are in the order of their first use.
Program alone(const Program& stages, PrimitiveId primitive);

}  // namespace tilewright
