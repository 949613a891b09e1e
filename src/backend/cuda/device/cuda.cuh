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

}  // namespace tw
