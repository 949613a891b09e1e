#include "backend/cuda/driver.h"

#include "base/error.h"

namespace tilewright::cuda {

namespace {

// Numbers of cuda.h.
enum Attribute : int {
    kThreadsOfBlock = 1,
    kWarp = 10,
    kClockKhz = 13,
    kMultiprocessors = 16,
    kMemoryClockKhz = 36,
    kMemoryBits = 37,
    kL2Bytes = 38,
    kThreadsOfSm = 39,
    kMajor = 75,
    kMinor = 76,
    kSharedOfSm = 81,
    kRegistersOfSm = 82,
    kSharedOfBlock = 97,
    kBlocksOfSm = 106,
};

}  // namespace

Driver::Driver(SharedLibrary found, int index) : library(std::move(found)) {
    load_functions();
    check(init(0), "start");
    int count = 0;
    check(device_count(&count), "count devices");
    if (index < 0 || index >= count)
        throw RuntimeError(
            fmt::format("there is no GPU {}: the driver sees {} (CUDA_VISIBLE_DEVICES may hide some)", index, count));
    check(device_get(&device, index), "open the device");
    describe();
    check(retain_context(&context, device), "make a context");
}

Driver::~Driver() {
    if (context != nullptr) release_context(device);
}

std::string Driver::text(int result) const {
    const char* s = nullptr;
    return error_text(result, &s) == 0 && s != nullptr ? s : fmt::format("error {}", result);
}

void Driver::check(int result, const std::string& what) const {
    if (result != 0) throw RuntimeError(fmt::format("the CUDA driver cannot {}: {}", what, text(result)));
}

int Driver::ask(int a) const {
    int value = 0;
    check(attribute(&value, a, device), fmt::format("say attribute {} of device {}", a, device));
    return value;
}

void Driver::load_functions() {
    library.find(init, "cuInit");
    library.find(device_count, "cuDeviceGetCount");
    library.find(device_get, "cuDeviceGet");
    library.find(device_name, "cuDeviceGetName");
    library.find(device_memory, "cuDeviceTotalMem_v2");
    library.find(attribute, "cuDeviceGetAttribute");
    library.find(retain_context, "cuDevicePrimaryCtxRetain");
    library.find(release_context, "cuDevicePrimaryCtxRelease_v2");
    library.find(set_context, "cuCtxSetCurrent");
    library.find(synchronize, "cuCtxSynchronize");
    library.find(load_module, "cuModuleLoadData");
    library.find(unload_module, "cuModuleUnload");
    library.find(function, "cuModuleGetFunction");
    library.find(set_attribute, "cuFuncSetAttribute");
    library.find(launch, "cuLaunchKernel");
    library.find(allocate, "cuMemAlloc_v2");
    library.find(free, "cuMemFree_v2");
    library.find(to_device, "cuMemcpyHtoD_v2");
    library.find(to_host, "cuMemcpyDtoH_v2");
    library.find(memory_info, "cuMemGetInfo_v2");
    library.find(allocate_pinned, "cuMemAllocHost_v2");
    library.find(free_pinned, "cuMemFreeHost");
    library.find(to_device_async, "cuMemcpyHtoDAsync_v2");
    library.find(to_host_async, "cuMemcpyDtoHAsync_v2");
    library.find(create_stream, "cuStreamCreate");
    library.find(destroy_stream, "cuStreamDestroy_v2");
    library.find(synchronize_stream, "cuStreamSynchronize");
    library.find(begin_capture, "cuStreamBeginCapture_v2");
    library.find(end_capture, "cuStreamEndCapture");
    library.find(instantiate, "cuGraphInstantiateWithFlags");
    library.find(destroy_graph, "cuGraphDestroy");
    library.find(destroy_executable, "cuGraphExecDestroy");
    library.find(launch_graph, "cuGraphLaunch");
    library.find(error_text, "cuGetErrorString");
    library.find_if_there(driver_version, "cuDriverGetVersion");
    library.find_if_there(encode_tiled, "cuTensorMapEncodeTiled");
}

void Driver::describe() {
    char name[200] = {0};
    check(device_name(name, sizeof name, device), "name the device");
    target.name = name;
    target.major = ask(kMajor);
    target.minor = ask(kMinor);
    if (target.major < 8)
        throw RuntimeError(
            fmt::format("'{}' has compute capability {}.{}: kernels are made for 8.0 (Ampere) and newer; use the CPU "
                        "target on this machine",
                        target.name, target.major, target.minor));
    target.multiprocessors = ask(kMultiprocessors);
    target.warp = ask(kWarp);
    target.block_threads = ask(kThreadsOfBlock);
    target.sm_threads = ask(kThreadsOfSm);
    target.sm_blocks = ask(kBlocksOfSm);
    target.sm_registers = ask(kRegistersOfSm);
    target.block_shared_bytes = ask(kSharedOfBlock);
    target.sm_shared_bytes = ask(kSharedOfSm);
    target.l2_bytes = ask(kL2Bytes);
    size_t bytes = 0;
    check(device_memory(&bytes, device), "say how much memory the device has");
    target.memory_bytes = static_cast<int64_t>(bytes);
    target.ghz = ask(kClockKhz) * 1e-6;
    target.memory_gbps = 2e-6 * ask(kMemoryClockKhz) * ask(kMemoryBits) / 8;  // two transfers a clock
    assume_peaks(target);
    assume_rates(target);
    if (driver_version != nullptr) check(driver_version(&target.driver), "say its version");
}

}  // namespace tilewright::cuda
