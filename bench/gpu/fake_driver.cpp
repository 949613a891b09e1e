// A fake CUDA driver: libcuda.so.1 for bench/gpu/run.sh's dry run and the tests of the command line, without a GPU.
// Memory is host memory, kernels are loaded but not run, streams are synchronous. Calls that a driver would refuse are
// reported.
//
//     LD_LIBRARY_PATH=build/fake build/bin/bench_gpu gemm:256x256x256
//
// It reports an H200, or, with TILEWRIGHT_FAKE_CAPABILITY=86, that compute capability with its limits;
// TILEWRIGHT_FAKE_BYTES=1000 sets its memory.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

using Address = unsigned long long;
enum : int { kFine = 0, kInvalid = 1, kOutOfMemory = 2, kNotFound = 500 };

/// The value of an environment variable, or the default.
size_t setting(const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
int capability() { return static_cast<int>(setting("TILEWRIGHT_FAKE_CAPABILITY", 90)); }
size_t memory() { return setting("TILEWRIGHT_FAKE_BYTES", size_t{8} << 30); }

/// What GPUs of a compute capability have, by the programming guide's table; the rest is an H200's.
struct Limits {
    int capability, sm_threads, sm_blocks, sm_shared_kib, block_shared_kib;
};
const Limits& limits() {
    static constexpr Limits kKnown[] = {
        {80, 2048, 32, 164, 163}, {86, 1536, 16, 100, 99},   {87, 1536, 16, 164, 163}, {89, 1536, 24, 100, 99},
        {90, 2048, 32, 228, 227}, {100, 2048, 32, 228, 227}, {120, 1536, 24, 100, 99},
    };
    for (const Limits& l : kKnown)
        if (l.capability == capability()) return l;
    return kKnown[0];
}

/// Numbers of cuda.h's CUdevice_attribute.
int attribute_of(int attribute) {
    switch (attribute) {
        case 1:
            return 1024;  // threads per block
        case 10:
            return 32;
        case 13:
            return 1980000;  // kHz
        case 16:
            return 132;
        case 36:
            return 3201000;  // kHz of the memory
        case 37:
            return 6144;  // bits
        case 38:
            return 50 << 20;
        case 39:
            return limits().sm_threads;
        case 75:
            return capability() / 10;
        case 76:
            return capability() % 10;
        case 81:
            return limits().sm_shared_kib << 10;
        case 82:
            return 65536;
        case 97:
            return limits().block_shared_kib << 10;
        case 106:
            return limits().sm_blocks;
        default:
            return -1;
    }
}

int refuse(const char* what) {
    std::fprintf(stderr, "fake driver: %s\n", what);
    return kInvalid;
}
int some_handle(void** out) {
    static char handle;
    *out = &handle;
    return kFine;
}

/// The allocations of device memory.
struct Allocations {
    std::mutex mutex;
    std::map<Address, size_t> bytes;
    size_t used = 0;
};
Allocations& allocations() {
    static auto* all = new Allocations;  // never destroyed: other static destructors may still free memory
    return *all;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the driver's names
extern "C" {
int cuInit(unsigned) { return kFine; }
int cuDriverGetVersion(int* version) { return *version = 13000, kFine; }
int cuGetExportTable(const void** table, const void*) {  // NVRTC calls it, and works without
    *table = nullptr;
    return kNotFound;
}
int cuDeviceGetCount(int* n) { return *n = 1, kFine; }
int cuDeviceGet(int* device, int) { return *device = 0, kFine; }
int cuDeviceGetName(char* name, int size, int) { return std::snprintf(name, size, "no GPU (dry run)"), kFine; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = memory(), kFine; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute_of(attribute);
    return *value < 0 ? refuse("an unsupported attribute") : kFine;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return some_handle(context); }
int cuDevicePrimaryCtxRelease_v2(int) { return kFine; }
int cuCtxSetCurrent(void*) { return kFine; }
int cuCtxSynchronize() { return kFine; }
int cuModuleLoadData(void** module, const void* image) {
    if (std::memcmp(image,
                    "\x7f"
                    "ELF",
                    4) != 0)
        return refuse("a module that is not a cubin");
    return some_handle(module);
}
int cuModuleUnload(void*) { return kFine; }
int cuModuleGetFunction(void** function, void*, const char* name) {
    return name == nullptr || *name == 0 ? kNotFound : some_handle(function);
}
int cuFuncSetAttribute(void*, int, int value) {
    return value > limits().block_shared_kib << 10 ? refuse("more shared memory than a block has") : kFine;
}
int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void*, void**, void**) {
    if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || x > 0x7fffffffu) return refuse("a grid of that size");
    if (bx * by * bz == 0 || bx * by * bz > 1024 || shared > static_cast<unsigned>(limits().block_shared_kib) << 10)
        return refuse("a block of that size");
    return kFine;
}
int cuMemAlloc_v2(Address* address, size_t bytes) {
    if (bytes == 0) return refuse("an allocation of nothing");
    Allocations& all = allocations();
    const std::lock_guard lock(all.mutex);
    if (bytes > memory() - all.used) return kOutOfMemory;
    void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (p == nullptr) return kOutOfMemory;
    *address = reinterpret_cast<Address>(p);
    all.bytes[*address] = bytes;
    all.used += bytes;
    return kFine;
}
int cuMemFree_v2(Address address) {
    Allocations& all = allocations();
    const std::lock_guard lock(all.mutex);
    const auto it = all.bytes.find(address);
    if (it == all.bytes.end()) return refuse("freeing an unknown address");
    all.used -= it->second;
    all.bytes.erase(it);
    return std::free(reinterpret_cast<void*>(address)), kFine;
}
int cuMemcpyHtoD_v2(Address to, const void* from, size_t n) {
    return std::memcpy(reinterpret_cast<void*>(to), from, n), kFine;
}
int cuMemcpyDtoH_v2(void* to, Address from, size_t n) {
    return std::memcpy(to, reinterpret_cast<const void*>(from), n), kFine;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t n, void*) { return cuMemcpyHtoD_v2(to, from, n); }
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t n, void*) { return cuMemcpyDtoH_v2(to, from, n); }
int cuMemGetInfo_v2(size_t* free, size_t* all) {
    const std::lock_guard lock(allocations().mutex);
    return *all = memory(), *free = *all - allocations().used, kFine;
}
int cuMemAllocHost_v2(void** memory, size_t bytes) {
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *memory == nullptr ? kOutOfMemory : kFine;
}
int cuMemFreeHost(void* memory) { return std::free(memory), kFine; }
int cuStreamCreate(void** stream, unsigned) { return some_handle(stream); }
int cuStreamDestroy_v2(void*) { return kFine; }
int cuStreamSynchronize(void*) { return kFine; }
int cuStreamBeginCapture_v2(void*, int) { return kFine; }
int cuStreamEndCapture(void*, void** graph) { return some_handle(graph); }
int cuGraphInstantiateWithFlags(void** executable, void*, unsigned long long) { return some_handle(executable); }
int cuGraphDestroy(void*) { return kFine; }
int cuGraphExecDestroy(void*) { return kFine; }
int cuGraphLaunch(void*, void*) { return kFine; }
int cuGetErrorString(int error, const char** text) {
    *text = error == kOutOfMemory ? "out of memory" : error == kNotFound ? "named symbol not found" : "invalid value";
    return kFine;
}
int cuTensorMapEncodeTiled(void*, int, unsigned rank, void* address, const uint64_t* extents, const uint64_t* strides,
                           const unsigned* box, const unsigned*, int, int, int, int) {
    // The requirements of the driver's manual.
    if (rank < 1 || rank > 5 || reinterpret_cast<Address>(address) % 16 != 0) return refuse("a map of that tensor");
    for (unsigned d = 0; d < rank; ++d)
        if (extents[d] == 0 || extents[d] > (uint64_t{1} << 32) || box[d] == 0 || box[d] > 256 ||
            (d + 1 < rank && (strides[d] % 16 != 0 || strides[d] >= (uint64_t{1} << 40))))
            return refuse("a map of those boxes");
    return kFine;
}
}
// NOLINTEND(readability-identifier-naming)
