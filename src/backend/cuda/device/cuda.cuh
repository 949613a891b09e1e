// The device's side of generated kernels, for CUDA: threads, memory, barriers, shuffles. emulated.cuh holds the same
// names in plain C++; common.cuh stands behind either. Needs no header of CUDA: NVRTC compiles it as it is.

#define TW_DEVICE __device__ __forceinline__
#define TW_UNROLL _Pragma("unroll")
#define TW_UNROLL_BY(n) TW_UNROLL_TEXT(unroll n)
#define TW_UNROLL_TEXT(text) _Pragma(#text)
/// A kernel whose blocks have this many threads. Behind that, the number of blocks that an SM shall have at a time.
#define TW_KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name

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
/// thread() % 32 and thread() % 128 / 32, as bits: the compiler does not know that a thread's number is not negative.
TW_DEVICE int lane() { return static_cast<int>(threadIdx.x & 31); }
TW_DEVICE int warp_of_group() { return static_cast<int>(threadIdx.x / 32 & 3); }
TW_DEVICE int block() { return static_cast<int>(blockIdx.x); }
/// The same, which the compiler then knows not to be negative: quotients by powers of two are shifts.
TW_DEVICE int counted_block() {
    const int number = block();
    __builtin_assume(number >= 0);
    return number;
}

/// The block's shared memory. A launch asks for it; with TW_SHARED_BYTES ptxas is told how much there will be.
TW_DEVICE unsigned char* shared_memory() {
#ifdef TW_SHARED_BYTES
    __shared__ __align__(1024) unsigned char bytes[TW_SHARED_BYTES];
#else
    extern __shared__ __align__(1024) unsigned char bytes[];
#endif
    return bytes;
}
/// Elements from byte `offset` on: how many, and what they are called, only the emulation asks.
template <class T>
TW_DEVICE T* shared(int offset, int, const char*) {
    return reinterpret_cast<T*>(shared_memory() + offset);
}

/// The same of a block's part of memory, which begins at byte `from`.
template <class T>
TW_DEVICE T* scratch(unsigned char* all, long long from, int, const char*) {
    return reinterpret_cast<T*>(all + from);
}

/// Every thread of the block arrives; what each has written, all of them see.
TW_DEVICE void barrier() { __syncthreads(); }

/// Of `parts` blocks, whether this is the last that comes here with this counter: then it sees what all of them have
/// written before, and the counter is 0 again, as it was for the first. Every thread of the block calls it.
TW_DEVICE bool last_to_arrive(unsigned* counter, long long parts) {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncthreads();
    unsigned before = 0;
    const auto last = static_cast<unsigned>(parts - 1);
    if (threadIdx.x == 0)
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
    const bool is_last = __syncthreads_or(threadIdx.x == 0 && before == last) != 0;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    return is_last;
}

/// The value of the thread of this warp whose number differs in the bits of `mask`. Every thread of the warp takes
/// part.
template <class T>
TW_DEVICE T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

/// Whether the condition holds in a thread of this warp. Every thread of the warp takes part.
TW_DEVICE bool any_of_warp(bool condition) { return __any_sync(0xffffffffu, condition) != 0; }

/// An address in memory that is computed here, and kept: the compiler does not move that to where it is used.
template <class T>
TW_DEVICE T* kept(T* address) {
    asm volatile("" : "+l"(address));
    __builtin_assume(__isGlobal(address));
    return address;
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

/// To nearest even; a NaN becomes the one NaN that the instruction has.
TW_DEVICE unsigned short to_bf16(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
/// The greater or lesser one; a NaN if one of them is.
TW_DEVICE float maximum(float a, float b) {
    float value;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
}
TW_DEVICE float minimum(float a, float b) {
    float value;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
    return value;
}
/// exp(x) with a relative error of 2^-22 + |x| 2^-24, in two instructions in place of eight. What is below 2^-126 is 0.
TW_DEVICE float exp_near(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x * 1.4426950408889634f));
    return value;
}
/// log2(e), but 1 for a y whose product with it would be infinite (the lowest float as a mask): other numbers of that
/// size are 2^100 or more apart, and so 2^(x - y) is exp(x - y).
TW_DEVICE float exponent_of(float y) { return ::fabsf(y) > 2.3e38f ? 1.0f : 1.4426950408889634f; }
/// exp(scale x - y) likewise, with an error of (|scale x| + |y|) 2^-24 besides; y is the same in all of a row, so its part
/// is computed once. Where `scale` is at most ln 2, y is the scaled maximum of x, whose product is finite.
TW_DEVICE float exp_near(float x, float scale, float y) {
    const float unit = scale <= 0.69f ? 1.4426950408889634f : exponent_of(y);
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(::fmaf(x, scale * unit, -(y * unit))));
    return value;
}
TW_DEVICE float exp_near(float x, float y) { return exp_near(x, 1.0f, y); }
/// 1 / x with a relative error of 2^-23.
TW_DEVICE float reciprocal(float x) {
    float value;
    asm("rcp.approx.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

/// The same of an x between 1 and 2^126, 0 or NaN: neither it nor the result is denormal.
TW_DEVICE float reciprocal_from_one(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
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
/// The same where the condition holds; elsewhere the N become zeros, and `from` is not looked at.
template <int N, class T>
TW_DEVICE void copy_async_if(T* to, const T* from, bool condition) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = condition ? static_cast<int>(sizeof(T)) * N : 0;
    if (sizeof(T) * N == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from),
                     "n"(static_cast<int>(sizeof(T)) * N), "r"(bytes)
                     : "memory");
}
/// What this thread began since the last call is a group.
TW_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All of this thread's groups but the last `open` have arrived. Other threads see them behind the next barrier.
template <int open>
TW_DEVICE void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

// --- copies by the engine that reads boxes of tensors (sm_90): one thread asks for a box, all wait for its bytes

/// Element of a copy whose rows of `row` bytes are swizzled (Load::swizzle), which begins where eight of them do.
template <int row, int size>
TW_DEVICE int swizzled(int element) {
    const int byte = element * size;
    return (byte ^ ((byte >> 3) & (row - 16))) / size;
}

/// What the driver makes of a tensor (CUtensorMap).
struct alignas(64) TensorMap {
    unsigned long long words[16];
};
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TW_GRID_CONSTANT __grid_constant__
TW_DEVICE unsigned at_shared(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
/// One thread, before a barrier: each of these counts the bytes that one arrival announces.
TW_DEVICE void begin_arrivals(unsigned long long* first, int count) {
    for (int i = 0; i < count; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at_shared(first + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// One thread of the block, the same at every call, which all threads make. (The compiler knows that it is one, which it
/// does not of thread() == 0: TMA's instructions then need no loop over threads.)
TW_DEVICE bool elected() {
    unsigned one;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(one));
    return __shfl_sync(0xffffffffu, thread() / 32, 0) == 0 && one != 0;
}
/// What every thread's number is below: divisions by powers of two are shifts, and loops over copies have constant ends.
template <int threads>
TW_DEVICE void assume_threads() {
    __builtin_assume(threadIdx.x < threads);
}
/// thread() / 128, which the compiler then knows to be equal in a warp.
TW_DEVICE int warpgroup() { return __shfl_sync(0xffffffffu, thread() / 128, 0); }
/// One thread: so many bytes will come.
TW_DEVICE void expect_bytes(unsigned long long* arrival, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at_shared(arrival)), "r"(bytes)
                 : "memory");
}
/// The bytes have come for the time that `parity` says: 0 the first, 1 the second, 0 the third.
TW_DEVICE void wait_arrival(unsigned long long* arrival, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\nbra again;\nover:\n}" ::"r"(at_shared(arrival)),  // threads of a warp need not agree
        "r"(parity)
        : "memory");
}
/// One thread: the box of the tensor that begins at these coordinates, innermost first. What lies outside of the tensor
/// becomes zeros.
#define TW_ALL(...) __VA_ARGS__
#define TW_COPY_BOX(dimensions, operands, parameters, ...)                                                        \
    template <class T>                                                                                            \
    TW_DEVICE void copy_box(T* to, const TensorMap& map, unsigned long long* arrival, TW_ALL parameters) {        \
        asm volatile("cp.async.bulk.tensor." dimensions ".shared::cluster.global.tile"                            \
                     ".mbarrier::complete_tx::bytes [%0], [%1, {" operands "}], [%2];" ::"r"(at_shared(to)),      \
                     "l"(&map), "r"(at_shared(arrival)), __VA_ARGS__                                              \
                     : "memory");                                                                                 \
    }
TW_COPY_BOX("1d", "%3", (int x), "r"(x))
TW_COPY_BOX("2d", "%3, %4", (int x, int y), "r"(x), "r"(y))
TW_COPY_BOX("3d", "%3, %4, %5", (int x, int y, int z), "r"(x), "r"(y), "r"(z))
TW_COPY_BOX("4d", "%3, %4, %5, %6", (int x, int y, int z, int u), "r"(x), "r"(y), "r"(z), "r"(u))
TW_COPY_BOX("5d", "%3, %4, %5, %6, %7", (int x, int y, int z, int u, int v), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#undef TW_COPY_BOX
#undef TW_ALL
#endif

// --- matrix instructions of a warp (sm_80): c += a b, fragments as PTX lays them out

TW_DEVICE unsigned tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
TW_DEVICE unsigned f16_pair(float first, float second) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
TW_DEVICE unsigned bf16_pair(float first, float second) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
    return bits;
}
/// Results c0 and c1 lie side by side, c2 and c3 eight rows below. Words a0 and a1 are eight rows apart, a2 and a3 as well
/// and behind them along the sum; so is b1 behind b0. tf32 sums up 8 products, the others 16.
#define TW_MULTIPLY(name, instruction)                                                                              \
    TW_DEVICE void name(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1, unsigned a2,          \
                        unsigned a3, unsigned b0, unsigned b1) {                                                    \
        asm("mma.sync.aligned." instruction ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                                \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                                \
    }
TW_MULTIPLY(multiply_tf32, "m16n8k8.row.col.f32.tf32.tf32")
TW_MULTIPLY(multiply_f16, "m16n8k16.row.col.f32.f16.f16")
TW_MULTIPLY(multiply_bf16, "m16n8k16.row.col.f32.bf16.bf16")
#undef TW_MULTIPLY

/// Matrices of 8 x 8 halves from shared memory. Thread l points at row l % 8, eight halves side by side, of matrix l / 8;
/// each gets of every matrix the pair 2 (l % 4) of row l / 4, or, turned, that of column l / 4.
#define TW_LOAD_MATRICES(name, how)                                                                                  \
    TW_DEVICE void name(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const unsigned short* row) {            \
        const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));                                       \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                      \
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                                           \
                     : "r"(at)                                                                                      \
                     : "memory");                                                                                   \
    }                                                                                                               \
    TW_DEVICE void name(unsigned& a, unsigned& b, const unsigned short* row) {                                      \
        const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));                                       \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" how ".shared.b16 {%0, %1}, [%2];"                              \
                     : "=r"(a), "=r"(b)                                                                             \
                     : "r"(at)                                                                                      \
                     : "memory");                                                                                   \
    }                                                                                                               \
    TW_DEVICE void name(unsigned& a, const unsigned short* row) {                                                   \
        const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));                                       \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" how ".shared.b16 {%0}, [%1];"                                  \
                     : "=r"(a)                                                                                      \
                     : "r"(at)                                                                                      \
                     : "memory");                                                                                   \
    }
TW_LOAD_MATRICES(load_matrices, "")
TW_LOAD_MATRICES(load_matrices_turned, ".trans")
#undef TW_LOAD_MATRICES

// --- matrix instructions of four warps (sm_90a): operands are read from shared memory while the threads go on

/// What this thread has written to shared memory is seen by matrix instructions behind the next barrier.
TW_DEVICE void fence_async() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// A descriptor of the matrix from element `element` on: blocks of eight rows of 16 bytes, `along` bytes from one to the
/// next along the sum, `across` across it. Swizzled, a row has 32, 64 or 128 bytes; where rows lie along the sum `along` is
/// not used, where they lie across it `across` is from one row's end to the next columns. (PTX ISA, "Canonical layouts":
/// the stride and leading offsets change places there.) The word that varies is one sum: address, element and `leading`
/// are multiples of 16.
template <int along, int across, int row = 0, class T>
TW_DEVICE unsigned long long cores(const T* first, int element, bool turned = false) {
    const bool exchanged = row != 0 && turned;
    const unsigned leading = exchanged ? across : along, stride = exchanged ? along : across;
    const unsigned swizzle = row == 128 ? 1 : row == 64 ? 2 : row == 32 ? 3 : 0;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(first)) / 16 +
                        static_cast<unsigned>(element) * static_cast<unsigned>(sizeof(T)) / 16;
    unsigned long long descriptor;
    asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(at + (leading / 16 << 16)), "r"(stride / 16 | swizzle << 30));
    return descriptor;
}
/// The compiler moves nothing that is done with x across this.
TW_DEVICE void settle(float& x) { asm volatile("" : "+f"(x)::"memory"); }
/// What was done with the registers of sums, and words, is done.
TW_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// The products since the last call are a group.
TW_DEVICE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// All groups but the last `open` have arrived.
template <int open>
TW_DEVICE void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}
#define TW_SUMS_8 "%0, %1, %2, %3"
#define TW_SUMS_16 \
    TW_SUMS_8 \
    ", %4, %5, %6, %7"
#define TW_SUMS_32 \
    TW_SUMS_16 \
    ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TW_SUMS_64 \
    TW_SUMS_32 \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_SUMS_128 \
    TW_SUMS_64 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51" \
    ", %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_SUMS_256 \
    TW_SUMS_128 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83" \
    ", %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103" \
    ", %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123" \
    ", %124, %125, %126, %127"
#define TW_PLACES_8(i) "+f"(low[i]), "+f"(low[i + 1]), "+f"(high[i]), "+f"(high[i + 1])
#define TW_PLACES_16(i) TW_PLACES_8(i), TW_PLACES_8(i + 2)
#define TW_PLACES_32(i) TW_PLACES_16(i), TW_PLACES_16(i + 4)
#define TW_PLACES_64(i) TW_PLACES_32(i), TW_PLACES_32(i + 8)
#define TW_PLACES_128(i) TW_PLACES_64(i), TW_PLACES_64(i + 16)
#define TW_PLACES_256(i) TW_PLACES_128(i), TW_PLACES_128(i + 32)
/// Sums of 64 x n: `low` are the thread's of the first eight of its warp's 16 rows, `high` of the others, as
/// multiply_f16 has them. Where a matrix is turned, rows of its blocks lie across the sum. The left one is in shared
/// memory, or its words are as multiply_f16 has them. p0 to p5: the numbers of operands behind the sums.
#define TW_MULTIPLY_GROUP(n, instruction, ...)                                                  \
    asm volatile(                                                                               \
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" #n     \
        instruction "\n}"                                                                       \
        : TW_PLACES_##n(0)                                                                      \
        : __VA_ARGS__)
#define TW_GROUP_HALVES(name, type, n, p0, p1, p2, p3, p4, p5)                                                         \
    template <int a_turned, int b_turned>                                                                              \
    TW_DEVICE void name##_##n(float* low, float* high, unsigned long long a, unsigned long long b) {                   \
        TW_MULTIPLY_GROUP(n, "k16.f32." type " {" TW_SUMS_##n "}, %" #p0 ", %" #p1 ", add, 1, 1, %" #p2 ", %" #p3 ";", \
                          "l"(a), "l"(b), "n"(a_turned), "n"(b_turned));                                               \
    }                                                                                                                  \
    template <int b_turned>                                                                                            \
    TW_DEVICE void name##_##n(float* low, float* high, unsigned a0, unsigned a1, unsigned a2, unsigned a3,             \
                              unsigned long long b) {                                                                  \
        TW_MULTIPLY_GROUP(n,                                                                                           \
                          "k16.f32." type " {" TW_SUMS_##n "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4        \
                          ", add, 1, 1, %" #p5 ";",                                                                    \
                          "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(b_turned));                                  \
    }
#define TW_GROUP(n, p0, p1, p2, p3, p4, p5)                                                                \
    TW_GROUP_HALVES(multiply_group_f16, "f16.f16", n, p0, p1, p2, p3, p4, p5)                              \
    TW_GROUP_HALVES(multiply_group_bf16, "bf16.bf16", n, p0, p1, p2, p3, p4, p5)                           \
    template <int a_turned, int b_turned> /* both 0 */                                                     \
    TW_DEVICE void multiply_group_tf32_##n(float* low, float* high, unsigned long long a,                  \
                                           unsigned long long b) {                                         \
        TW_MULTIPLY_GROUP(n, "k8.f32.tf32.tf32 {" TW_SUMS_##n "}, %" #p0 ", %" #p1 ", add, 1, 1;", "l"(a), \
                          "l"(b));                                                                         \
    }                                                                                                      \
    template <int b_turned> /* 0 */                                                                        \
    TW_DEVICE void multiply_group_tf32_##n(float* low, float* high, unsigned a0, unsigned a1, unsigned a2, \
                                           unsigned a3, unsigned long long b) {                            \
        TW_MULTIPLY_GROUP(n,                                                                               \
                          "k8.f32.tf32.tf32 {" TW_SUMS_##n "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3       \
                          "}, %" #p4 ", add, 1, 1;",                                                       \
                          "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                                     \
    }
TW_GROUP(8, 4, 5, 6, 7, 8, 9)
TW_GROUP(16, 8, 9, 10, 11, 12, 13)
TW_GROUP(32, 16, 17, 18, 19, 20, 21)
TW_GROUP(64, 32, 33, 34, 35, 36, 37)
TW_GROUP(128, 64, 65, 66, 67, 68, 69)
TW_GROUP(256, 128, 129, 130, 131, 132, 133)
#endif

}  // namespace tw
