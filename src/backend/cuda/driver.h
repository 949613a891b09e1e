#pragma once
// The CUDA driver's functions, as cuda.h declares them, and a device that is open. For the files of this folder.

#include <string>

#include "base/shared_library.h"
#include "cost/gpu_target.h"

namespace tilewright::cuda {

using Address = unsigned long long;
inline void* pointer_of(Address a) { return reinterpret_cast<void*>(a); }
inline Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

// Numbers of cuda.h.
inline constexpr int kOutOfMemory = 2, kMostDynamicShared = 8, kNonBlocking = 1, kCaptureOfThread = 1;

/// Every result is 0 where all went well.
struct Driver {
    /// Opens a device. Throws RuntimeError: a function is missing, there is no such device, or it is too old.
    Driver(SharedLibrary library, int index);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    SharedLibrary library;
    int (*init)(unsigned flags) = nullptr;
    int (*driver_version)(int* version) = nullptr;
    int (*device_count)(int* count) = nullptr;
    int (*device_get)(int* device, int index) = nullptr;
    int (*device_name)(char* name, int size, int device) = nullptr;
    int (*device_memory)(size_t* bytes, int device) = nullptr;
    int (*attribute)(int* value, int attribute, int device) = nullptr;
    int (*retain_context)(void** context, int device) = nullptr;
    int (*release_context)(int device) = nullptr;
    int (*set_context)(void* context) = nullptr;
    int (*synchronize)() = nullptr;
    int (*load_module)(void** module, const void* image) = nullptr;
    int (*unload_module)(void* module) = nullptr;
    int (*function)(void** function, void* module, const char* name) = nullptr;
    int (*set_attribute)(void* function, int attribute, int value) = nullptr;
    int (*launch)(void* function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared_bytes, void* stream, void** arguments, void** extra) = nullptr;
    int (*allocate)(Address* memory, size_t bytes) = nullptr;
    int (*free)(Address memory) = nullptr;
    int (*to_device)(Address to, const void* from, size_t bytes) = nullptr;
    int (*to_host)(void* to, Address from, size_t bytes) = nullptr;
    int (*memory_info)(size_t* free, size_t* all) = nullptr;
    int (*allocate_pinned)(void** memory, size_t bytes) = nullptr;
    int (*free_pinned)(void* memory) = nullptr;
    int (*to_device_async)(Address to, const void* from, size_t bytes, void* stream) = nullptr;
    int (*to_host_async)(void* to, Address from, size_t bytes, void* stream) = nullptr;
    int (*create_stream)(void** stream, unsigned flags) = nullptr;
    int (*destroy_stream)(void* stream) = nullptr;
    int (*synchronize_stream)(void* stream) = nullptr;
    int (*begin_capture)(void* stream, int mode) = nullptr;
    int (*end_capture)(void* stream, void** graph) = nullptr;
    int (*instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
    int (*destroy_graph)(void* graph) = nullptr;
    int (*destroy_executable)(void* executable) = nullptr;
    int (*launch_graph)(void* executable, void* stream) = nullptr;
    int (*error_text)(int result, const char** text) = nullptr;
    /// Of CUDA 12 on; null where the driver is older.
    int (*encode_tiled)(void* map, int type, unsigned rank, void* address, const uint64_t* extents,
                        const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                        int swizzle, int promotion, int fill) = nullptr;

    int device = 0;
    void* context = nullptr;
    GpuTarget target;

    std::string text(int result) const;
    /// Throws RuntimeError "the CUDA driver cannot WHAT: REASON" where the result is an error.
    void check(int result, const std::string& what) const;
    /// The calling thread works with this device.
    void enter() const { check(set_context(context), "use the device"); }

  private:
    int ask(int attribute) const;
    void load_functions();
    void describe();
};

}  // namespace tilewright::cuda
