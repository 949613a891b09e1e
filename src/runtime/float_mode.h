#pragma once
// The floating-point control mode of a thread while compiled code runs on it.

#include <cstdint>

namespace tilewright {

/// Rounding mode, exception masks and the treatment of subnormals: the control bits of MXCSR on x86-64, of FPCR on
/// AArch64; empty elsewhere. The sticky exception flags are no part of it.
class FloatMode {
  public:
    FloatMode() = default;  ///< the mode of new threads: round to nearest, no traps, subnormals kept
    /// Of the calling thread.
    static FloatMode current();
    /// The mode of kernels. Round to nearest and no traps, whatever the caller has set. Without `keep_subnormals`
    /// subnormal f32 and f64 operands and results of arithmetic count as 0 (FTZ and DAZ; FZ on AArch64): Intel's CPUs
    /// take a microcode assist of 100 cycles and more for each vector that holds one. Conversions between f16 and f32
    /// keep f16's subnormals, which are normal floats.
    static FloatMode of_kernels(bool keep_subnormals);
    /// Makes it the calling thread's. Exception flags stay as they are.
    void set() const;
    friend bool operator==(const FloatMode&, const FloatMode&) = default;

  private:
    explicit FloatMode(uint64_t bits) : bits_(bits) {}
    static const uint64_t kDefault;
    uint64_t bits_ = kDefault;
};

/// Sets a mode for as long as it lives; the thread's mode and exception flags are then as they were before.
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
