#pragma once
// Is a compiled kernel right? Asked of every candidate before it may be chosen.

#include <cstdint>
#include <memory>
#include <string>

#include "backend/cpu/kernel.h"
#include "runtime/thread_pool.h"
#include "tile/tile.h"

namespace tilewright {

struct CheckOptions {
    /// Numbers of the kernel's symbols and scalars.
    Bindings bindings = {};  // NOLINT(readability-redundant-member-init): so that g++ lets initialisers leave it out
    uint64_t seed = 1;       ///< of the inputs
    /// What the reference may cost, in operators times points (2^26: some tenths of a second). A kernel of more is
    /// compared at windows of its outputs instead of everywhere: at both ends of every axis and at random places in
    /// between, so that first, last and middle tiles are among them, each element of a window with its whole sum.
    int64_t work = int64_t{1} << 26;
};

struct CheckResult {
    bool ok = true;
    std::string reason;     ///< why not: "output c, element [3, 4] is 1.5, expected 2 within 1e-06 (...)"
    int64_t compared = 0;   ///< elements with a finite error bound that were compared
    int64_t undecided = 0;  ///< elements of which nothing could be said (src/tune/error_bound.h)
    double worst = 0;       ///< largest difference as a share of its bound
};

/// Checks kernels of the same stages, whose inputs and reference it makes once.
///
/// Each kernel runs twice on random inputs (kernel_inputs), on the pool and on one thread, in memory that held other
/// things each time. Wrong is: an element that lies farther from the exact result of the stages than with_error_bounds
/// allows; an element that is not the same in both runs (nobody wrote it, or it depends on what memory held or on how
/// tasks were shared out); a byte written outside the outputs, but near them. All outputs are looked at in whole for
/// the last two. Where no element can be compared, that is not ok either.
///
/// The kernel runs in this process: one that writes far away, or never ends, takes it along. Tuner runs candidates in a
/// child process first (tune/child_run.h).
class KernelChecker {
  public:
    explicit KernelChecker(const Program& stages, CheckOptions options = {});
    ~KernelChecker();
    /// Throws InternalError where the reference itself cannot be computed on the inputs.
    CheckResult check(const cpu::CompiledKernel& kernel, ThreadPool& pool);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// One kernel.
CheckResult check_kernel(const cpu::CompiledKernel& kernel, const Program& stages, ThreadPool& pool,
                         const CheckOptions& options = {});

}  // namespace tilewright
