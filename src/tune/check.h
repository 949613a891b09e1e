#pragma once
// Correctness checks of compiled kernels. Every candidate is checked before it may be chosen.

#include <cstdint>
#include <memory>
#include <string>

#include "backend/cpu/kernel.h"
#include "runtime/thread_pool.h"
#include "tile/tile.h"

namespace tilewright {

struct CheckOptions {
    /// Values of the kernel's symbols and scalars.
    Bindings bindings = {};  // NOLINT(readability-redundant-member-init): so that g++ lets initialisers leave it out
    uint64_t seed = 1;       ///< of the inputs
    /// The budget of the reference, in operators times points (2^26: some tenths of a second). The outputs of a larger
    /// kernel are compared in windows instead of completely: at both ends of every axis and at random places in
    /// between, which covers first, last and middle tiles. Each element of a window is compared with its full sum.
    int64_t work = int64_t{1} << 26;
    bool f16_sums = false;  ///< products of f16 may be added up in f16 (with_error_bounds, sums_in_f16)
};

struct CheckResult {
    bool ok = true;
    std::string reason;     ///< of a failure: "output c, element [3, 4] is 1.5, expected 2 within 1e-06 (...)"
    int64_t compared = 0;   ///< elements with a finite error bound that were compared
    int64_t undecided = 0;  ///< elements without a finite error bound (src/tune/error_bound.h)
    double worst = 0;       ///< largest difference relative to its bound
};

/// Checks kernels of the same stages. Inputs and reference are computed once.
///
/// Each kernel runs twice on random inputs (kernel_inputs), on the pool and on one thread, with different previous
/// contents of the memory. A failure is: an element that differs from the exact result of the stages by more than
/// with_error_bounds allows; an element that differs between the runs (it was not written, or depends on uninitialised
/// memory or on the distribution of tasks); a byte that was written outside the outputs, but near them. The last two
/// are checked for all elements. A kernel without any comparable element fails too.
///
/// The kernel runs in this process: one that writes far outside, or does not terminate, ends the process.
/// Tuner runs candidates in a child process first (tune/child_run.h).
class KernelChecker {
  public:
    explicit KernelChecker(const Program& stages, CheckOptions options = {});
    ~KernelChecker();
    /// Throws InternalError if the reference itself cannot be computed on the inputs.
    CheckResult check(const cpu::CompiledKernel& kernel, ThreadPool& pool);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// Checks one kernel.
CheckResult check_kernel(const cpu::CompiledKernel& kernel, const Program& stages, ThreadPool& pool,
                         const CheckOptions& options = {});

}  // namespace tilewright
