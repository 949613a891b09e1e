// The device's side of generated kernels, for CUDA: threads, memory, barriers, shuffles. emulated.cuh holds the same
// names in plain C++; common.cuh stands behind either. Needs no header of CUDA: NVRTC compiles it as it is.

#define TW_DEVICE __device__ __forceinline__
#define TW_UNROLL _Pragma("unroll")
#define TW_UNROLL_BY(n) TW_UNROLL_TEXT(unroll n)
#define TW_UNROLL_TEXT(text) _Pragma(#text)
/// A kernel whose blocks have this many threads.
#define TW_KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads) name

namespace tw {

/// Tensors in memory, aligned to 256 bytes. What is written is no kernel's input.
template <class T>
using In = const T* __restrict__;
template <class T>
using Out = T* __restrict__;
/// A part of the block's shared memory.
template <class T>
using Shared = T*;

TW_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
TW_DEVICE int block() { return static_cast<int>(blockIdx.x); }

/// Elements from byte `offset` on: how many, and what they are called, only the emulation asks.
template <class T>
TW_DEVICE T* shared(int offset, int, const char*) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    return reinterpret_cast<T*>(shared_memory + offset);
}

/// Every thread of the block arrives; what each has written, all of them see.
TW_DEVICE void barrier() { __syncthreads(); }

/// The value of the thread of this warp whose number differs in the bits of `mask`. Every thread of the warp takes
/// part.
template <class T>
TW_DEVICE T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// to[i] = value. (Reads are to[i]; the emulation tells them apart.)
template <class T, class Index>
TW_DEVICE void put(T* to, Index i, T value) {
    to[i] = value;
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T element[N];
};
/// N neighbours in one instruction: N * sizeof(T) is 2 to 16 bytes, and `from` (`to`) a multiple of that.
template <int N, class T>
TW_DEVICE void load(T* to, const T* from) {
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
    TW_UNROLL for (int i = 0; i < N; ++i) to[i] = pack.element[i];
}
template <int N, class T>
TW_DEVICE void store(T* to, const T* from) {
    Pack<T, N> pack;
    TW_UNROLL for (int i = 0; i < N; ++i) pack.element[i] = from[i];
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <int N, class T>
TW_DEVICE void fill(T* to, T value) {
    TW_UNROLL for (int i = 0; i < N; ++i) to[i] = value;
}

TW_DEVICE float f16_value(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
TW_DEVICE unsigned short to_f16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

template <class To, class From>
TW_DEVICE To bitcast(From value) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &value, sizeof(To));
    return to;
}

// --- copies that run beside the program (sm_80)

/// Begins to copy N neighbours, 4, 8 or 16 bytes together, to shared memory.
template <int N, class T>
TW_DEVICE void copy_async(T* to, const T* from) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if (sizeof(T) * N == 16)  // past the first-level cache
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from),
                     "n"(static_cast<int>(sizeof(T)) * N)
                     : "memory");
}
/// What this thread began since the last call is a group.
TW_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All of this thread's groups but the last `open` have arrived. Other threads see them behind the next barrier.
template <int open>
TW_DEVICE void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

// --- matrix instructions of a warp (sm_80): c += a b, fragments as common.cuh lays them out

TW_DEVICE unsigned tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
TW_DEVICE void multiply_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(tf32(a[0])), "r"(tf32(a[1])), "r"(tf32(a[2])), "r"(tf32(a[3])), "r"(tf32(b[0])), "r"(tf32(b[1])));
}
#define TW_MULTIPLY_16(name, type)                                                                                    \
    TW_DEVICE void name(float (&c)[4], const unsigned short (&a)[8], const unsigned short (&b)[4]) {                  \
        const auto pair = [](unsigned short lo, unsigned short hi) {                                                  \
            return static_cast<unsigned>(lo) | static_cast<unsigned>(hi) << 16;                                       \
        };                                                                                                            \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                          \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                 \
                     : "r"(pair(a[0], a[1])), "r"(pair(a[2], a[3])), "r"(pair(a[4], a[5])), "r"(pair(a[6], a[7])),    \
                       "r"(pair(b[0], b[1])), "r"(pair(b[2], b[3])));                                                 \
    }
TW_MULTIPLY_16(multiply_f16, "f16")
TW_MULTIPLY_16(multiply_bf16, "bf16")
#undef TW_MULTIPLY_16

}  // namespace tw
