#include "runtime/float_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tilewright {

namespace {

#if defined(__x86_64__)
constexpr uint64_t kMasked = 0x1F80;                                   // all six exceptions, round to nearest
constexpr uint64_t kFlushSubnormals = (1 << 15) | (1 << 6);            // FTZ, DAZ
constexpr uint64_t kControl = kMasked | kFlushSubnormals | (3 << 13);  // with the rounding mode
uint64_t read_register() { return _mm_getcsr(); }
void write_register(uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#elif defined(__aarch64__)
constexpr uint64_t kMasked = 0;                    // no trap enabled, round to nearest
constexpr uint64_t kFlushSubnormals = 1ull << 24;  // FZ; FZ16 stays off
constexpr uint64_t kControl = ~0ull;               // the flags are in FPSR
uint64_t read_register() {
    uint64_t bits = 0;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
void write_register(uint64_t bits) { asm volatile("msr fpcr, %0" ::"r"(bits)); }
#else
constexpr uint64_t kMasked = 0, kFlushSubnormals = 0, kControl = 0;
uint64_t read_register() { return 0; }
void write_register(uint64_t) {}
#endif

}  // namespace

const uint64_t FloatMode::kDefault = kMasked;

FloatMode FloatMode::current() { return FloatMode(read_register() & kControl); }

FloatMode FloatMode::of_kernels(bool keep_subnormals) {
    return FloatMode(kMasked | (keep_subnormals ? 0 : kFlushSubnormals));
}

void FloatMode::set() const { write_register((read_register() & ~kControl) | bits_); }

ScopedFloatMode::ScopedFloatMode(FloatMode mode) : before_(read_register()) { mode.set(); }
ScopedFloatMode::~ScopedFloatMode() { write_register(before_); }

}  // namespace tilewright
