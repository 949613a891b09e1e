#pragma once
// The floating-point control mode of a thread while compiled code runs on it.

#include <cstdint>

namespace tilewright {

/// Rounding mode, exception masks and the treatment of subnormals: the control bits of MXCSR on x86-64, of FPCR on
/// AArch64; empty elsewhere. Excludes the sticky exception flags.
class FloatMode {
  public:
    FloatMode() = default;  ///< the mode of new threads: round to nearest, no traps, subnormals kept
    /// The mode of the calling thread.
    static FloatMode current();
    /// The mode in which kernels run: round to nearest and no traps, whatever the caller's mode is. Without
    /// `keep_subnormals`, subnormal f32 and f64 operands and results of arithmetic are flushed to 0 (FTZ and DAZ; FZ on
    /// AArch64): Intel CPUs take a microcode assist of 100 cycles and more for each vector that contains one.
    /// Conversions between f16 and f32 keep f16's subnormals, which are normal f32 numbers.
    static FloatMode of_kernels(bool keep_subnormals);
    /// Sets it for the calling thread. Exception flags are unchanged.
    void set() const;
    friend bool operator==(const FloatMode&, const FloatMode&) = default;

  private:
    explicit FloatMode(uint64_t bits) : bits_(bits) {}
    static const uint64_t kDefault;
    uint64_t bits_ = kDefault;
};

/// Sets a mode during its lifetime, then restores the thread's mode and exception flags.
class ScopedFloatMode {
  public:
    explicit ScopedFloatMode(FloatMode mode);
    ~ScopedFloatMode();
    ScopedFloatMode(const ScopedFloatMode&) = delete;
    ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

  private:
    uint64_t before_;
};

}  // namespace tilewright
