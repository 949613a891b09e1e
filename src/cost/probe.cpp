#include "cost/probe.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace tilewright {
namespace {

// What is timed is timed as it stands, in builds with sanitizers too.
#define TW_AS_IT_STANDS __attribute__((no_sanitize("address", "thread", "undefined")))

// Twelve accumulators cover latency times throughput of every core known (4 cycles x 2 units) and fit 16 registers.
// They start at zero and operand 12 is one, so no operation meets an infinity or a subnormal number.
#define TW_TWELVE_TIMES(head, tail)                                                                        \
    head "0" tail head "1" tail head "2" tail head "3" tail head "4" tail head "5" tail head "6" tail head \
         "7" tail head "8" tail head "9" tail head "10" tail head "11" tail
#define TW_SIX_PAIRS(first, second)                                                                           \
    first "0\n" second "1\n" first "2\n" second "3\n" first "4\n" second "5\n" first "6\n" second "7\n" first \
          "8\n" second "9\n" first "10\n" second "11\n"

// NOLINTBEGIN(bugprone-macro-parentheses): an asm takes its text without parentheses.

// The instructions are spelled out so that every compiler and optimisation level times the same ones. `load` leaves the
// choice to the compiler: an empty asm with a register operand needs one plain vector load.
#define TW_PROBE_KERNELS(name, attribute, vector_bytes, register_class, instructions)               \
    TW_AS_IT_STANDS attribute void multiply_add_##name(int64_t rounds) {                            \
        using Vector = float __attribute__((vector_size(vector_bytes)));                            \
        Vector a0{}, a1{}, a2{}, a3{}, a4{}, a5{}, a6{}, a7{}, a8{}, a9{}, a10{}, a11{};            \
        const Vector one = Vector{} + 1.0f;                                                         \
        for (int64_t i = 0; i < rounds; ++i) {                                                      \
            asm volatile(instructions                                                               \
                         : "+" register_class(a0), "+" register_class(a1), "+" register_class(a2),  \
                           "+" register_class(a3), "+" register_class(a4), "+" register_class(a5),  \
                           "+" register_class(a6), "+" register_class(a7), "+" register_class(a8),  \
                           "+" register_class(a9), "+" register_class(a10), "+" register_class(a11) \
                         : register_class(one));                                                    \
        }                                                                                           \
    }                                                                                               \
    TW_AS_IT_STANDS attribute void load_##name(const void* data, int64_t bytes, int64_t passes) {   \
        using Vector = float __attribute__((vector_size(vector_bytes), may_alias));                 \
        for (int64_t pass = 0; pass < passes; ++pass) {                                             \
            const Vector* p = static_cast<const Vector*>(data);                                     \
            const Vector* end = p + bytes / (vector_bytes);                                         \
            for (; p < end; p += 8) {                                                               \
                asm volatile("" : : register_class(p[0]));                                          \
                asm volatile("" : : register_class(p[1]));                                          \
                asm volatile("" : : register_class(p[2]));                                          \
                asm volatile("" : : register_class(p[3]));                                          \
                asm volatile("" : : register_class(p[4]));                                          \
                asm volatile("" : : register_class(p[5]));                                          \
                asm volatile("" : : register_class(p[6]));                                          \
                asm volatile("" : : register_class(p[7]));                                          \
            }                                                                                       \
        }                                                                                           \
    }

// NOLINTEND(bugprone-macro-parentheses)

#if defined(__x86_64__)
TW_PROBE_KERNELS(baseline, , 16, "x", TW_SIX_PAIRS("mulps %12, %", "addps %12, %"))
TW_PROBE_KERNELS(avx2, __attribute__((target("avx2,fma"))), 32, "x", TW_TWELVE_TIMES("vfmadd231ps %12, %12, %", "\n"))
TW_PROBE_KERNELS(avx512, __attribute__((target("avx512f"))), 64, "v", TW_TWELVE_TIMES("vfmadd231ps %12, %12, %", "\n"))
#elif defined(__aarch64__)
TW_PROBE_KERNELS(neon, , 16, "w", TW_TWELVE_TIMES("fmla %", ".4s, %12.4s, %12.4s\n"))
#else
#error "calibration has loops for x86-64 and AArch64"
#endif

}  // namespace

ProbeKernels probe_kernels(VectorIsa isa) {
    // Twelve instructions of that many lanes; a fused multiply-add counts two operations.
    switch (isa) {
#if defined(__x86_64__)
        case VectorIsa::baseline:
            return {multiply_add_baseline, 12 * 4, load_baseline};
        case VectorIsa::avx2:
            return {multiply_add_avx2, 12 * 8 * 2, load_avx2};
        case VectorIsa::avx512:
            return {multiply_add_avx512, 12 * 16 * 2, load_avx512};
        default:
            break;
#elif defined(__aarch64__)
        default:
            return {multiply_add_neon, 12 * 4 * 2, load_neon};
#endif
    }
    internal_error(__FILE__, __LINE__, "isa", "no calibration loops for these vector instructions on this machine");
}

void probe_cycles(int64_t rounds) {
    uint64_t x = 1;
    for (int64_t i = 0; i < rounds; ++i) {
        // Negation: neither folded away at rename nor slower than a cycle on any core known.
#if defined(__x86_64__)
        asm volatile(
            "not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n"
            "not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n not %0\n"
            : "+r"(x));
#elif defined(__aarch64__)
        asm volatile(
            "mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n"
            "mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n mvn %0, %0\n"
            : "+r"(x));
#endif
    }
}

void probe_tiles(int64_t rounds) {
#if defined(__x86_64__)
    // The configuration of ldtilecfg: palette 1; from byte 16 on the bytes of a row, from byte 48 on the rows.
    struct alignas(64) Configuration {
        uint8_t palette = 1, start = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    const Configuration whole;
    asm volatile("ldtilecfg %0" : : "m"(whole) : "memory");
    for (int64_t i = 0; i < rounds; ++i)
        asm volatile(
            "tdpbf16ps %tmm6, %tmm4, %tmm0\n tdpbf16ps %tmm7, %tmm4, %tmm1\n"
            "tdpbf16ps %tmm6, %tmm5, %tmm2\n tdpbf16ps %tmm7, %tmm5, %tmm3\n");
    asm volatile("tilerelease");
#else
    (void)rounds;
#endif
}

#if defined(__x86_64__)
// Sixteen accumulators from zmm0 on, zeros in zmm28 as operands: more than latency times throughput (6 cycles x 2
// units).
#define TW_SIXTEEN_TIMES(head)                                                                             \
    head "%%zmm0\n" head "%%zmm1\n" head "%%zmm2\n" head "%%zmm3\n" head "%%zmm4\n" head "%%zmm5\n" head   \
         "%%zmm6\n" head "%%zmm7\n" head "%%zmm8\n" head "%%zmm9\n" head "%%zmm10\n" head "%%zmm11\n" head \
         "%%zmm12\n" head "%%zmm13\n" head "%%zmm14\n" head "%%zmm15\n"
#define TW_SIXTEEN_CLOBBERED                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14", "xmm15", "xmm28"
#define TW_PROBE_SIXTEEN(name, instruction)                                                               \
    TW_AS_IT_STANDS __attribute__((target("avx512f"))) void name(int64_t rounds) {                        \
        asm volatile("vpxord %%zmm28, %%zmm28, %%zmm28\n" TW_SIXTEEN_TIMES("vmovdqa64 %%zmm28, ")         \
                     :                                                                                    \
                     :                                                                                    \
                     : TW_SIXTEEN_CLOBBERED);                                                             \
        for (int64_t i = 0; i < rounds; ++i)                                                              \
            asm volatile(TW_SIXTEEN_TIMES(instruction " %%zmm28, %%zmm28, ") : : : TW_SIXTEEN_CLOBBERED); \
    }
TW_PROBE_SIXTEEN(probe_dots, "vdpbf16ps")
TW_PROBE_SIXTEEN(probe_f16, "vfmadd231ph")
#undef TW_PROBE_SIXTEEN
#undef TW_SIXTEEN_CLOBBERED
#undef TW_SIXTEEN_TIMES
#else
void probe_dots(int64_t rounds) { (void)rounds; }
void probe_f16(int64_t rounds) { (void)rounds; }
#endif

TW_AS_IT_STANDS const void* probe_chase(const void* node, int64_t steps) {
    const auto next = [](const void* p) TW_AS_IT_STANDS { return *static_cast<const void* const*>(p); };
    for (int64_t i = 0; i < steps; i += 8) {
        node = next(next(next(next(next(next(next(next(node))))))));
    }
    asm volatile("" : "+r"(node));
    return node;
}

const void* make_ring(void* data, int64_t bytes, int line_bytes, uint64_t seed) {
    const auto lines = static_cast<size_t>(bytes / line_bytes);
    std::vector<uint32_t> order(lines);
    std::iota(order.begin(), order.end(), 0u);
    for (size_t i = lines; i > 1; --i) {
        seed += 0x9E3779B97F4A7C15ull;
        std::swap(order[i - 1], order[hash_mix(seed) % i]);
    }
    char* base = static_cast<char*>(data);
    const auto line = [&](size_t i) { return base + static_cast<size_t>(order[i]) * static_cast<size_t>(line_bytes); };
    for (size_t i = 0; i < lines; ++i) *reinterpret_cast<void**>(line(i)) = line(i + 1 == lines ? 0 : i + 1);
    return line(0);
}

}  // namespace tilewright
