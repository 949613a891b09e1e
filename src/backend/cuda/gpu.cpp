#include "backend/cuda/gpu.h"

#include "backend/cuda/library.h"
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
constexpr int kOutOfMemory = 2, kMostDynamicShared = 8;

using Address = unsigned long long;
void* pointer_of(Address a) { return reinterpret_cast<void*>(a); }
Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

}  // namespace

/// As cuda.h declares them; every result is 0 where all went well.
struct Gpu::Driver {
    explicit Driver(Library found) : library(std::move(found)) {}
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    Library library;
    int (*init)(unsigned flags) = nullptr;
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
    int (*error_text)(int result, const char** text) = nullptr;

    int device = 0;
    void* context = nullptr;
    GpuTarget target;

    ~Driver() {
        if (context != nullptr) release_context(device);
    }

    std::string text(int result) const {
        const char* s = nullptr;
        return error_text(result, &s) == 0 && s != nullptr ? s : fmt::format("error {}", result);
    }
    void check(int result, const std::string& what) const {
        if (result != 0) throw RuntimeError(fmt::format("the CUDA driver cannot {}: {}", what, text(result)));
    }
    int ask(Attribute a) const {
        int value = 0;
        check(attribute(&value, a, device), fmt::format("say attribute {} of device {}", static_cast<int>(a), device));
        return value;
    }
    /// The calling thread works with this device.
    void enter() const { check(set_context(context), "use the device"); }

    void load_functions() {
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
        library.find(error_text, "cuGetErrorString");
    }

    void describe() {
        char name[200] = {0};
        check(device_name(name, sizeof name, device), "name the device");
        target.name = name;
        target.major = ask(kMajor);
        target.minor = ask(kMinor);
        if (target.major < 8)
            throw RuntimeError(fmt::format(
                "'{}' has compute capability {}.{}: kernels are made for 8.0 (Ampere) and newer; use the CPU "
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
        // Two transfers a clock; multiply-adds a clock of an SM: 64 on sm_80, 128 on all others.
        target.memory_gbps = 2e-6 * ask(kMemoryClockKhz) * ask(kMemoryBits) / 8;
        const double cores = target.capability() == 80 ? 64 : 128;
        target.f32_gflops = 2 * cores * target.multiprocessors * target.ghz;
    }
};

struct Gpu::Kernel::State {
    std::shared_ptr<const Driver> driver;
    std::shared_ptr<void> module;
    void* function = nullptr;
    std::string name;
    int threads = 0;
    int64_t shared_bytes = 0;
};

Gpu::Gpu(int index, const std::string& library) {
    auto d = std::make_shared<Driver>(
        Library("CUDA driver", {library.empty() ? "libcuda.so.1" : library},
                "a GPU needs NVIDIA's driver on this machine (nvidia-smi shows whether there is one)"));
    d->load_functions();
    d->check(d->init(0), "start");
    int count = 0;
    d->check(d->device_count(&count), "count devices");
    if (index < 0 || index >= count)
        throw RuntimeError(
            fmt::format("there is no GPU {}: the driver sees {} (CUDA_VISIBLE_DEVICES may hide some)", index, count));
    d->check(d->device_get(&d->device, index), "open the device");
    d->describe();
    d->check(d->retain_context(&d->context, d->device), "make a context");
    driver_ = std::move(d);
}

const GpuTarget& Gpu::target() const { return driver_->target; }

std::shared_ptr<void> Gpu::allocate(size_t bytes) const {
    driver_->enter();
    Address memory = 0;
    const int result = driver_->allocate(&memory, bytes == 0 ? 1 : bytes);
    if (result == kOutOfMemory)
        throw RuntimeError(
            fmt::format("out of memory on '{}': {} bytes were asked for, it has {} in all; a smaller batch "
                        "may fit",
                        driver_->target.name, bytes, driver_->target.memory_bytes));
    driver_->check(result, fmt::format("allocate {} bytes", bytes));
    return {pointer_of(memory), [driver = driver_](void* p) {
                driver->set_context(driver->context);
                driver->free(address_of(p));
            }};
}

void Gpu::to_device(void* device, const void* host, size_t bytes) const {
    driver_->enter();
    if (bytes > 0) driver_->check(driver_->to_device(address_of(device), host, bytes), "copy to the device");
}

void Gpu::to_host(void* host, const void* device, size_t bytes) const {
    driver_->enter();
    if (bytes > 0) driver_->check(driver_->to_host(host, address_of(device), bytes), "copy from the device");
}

Gpu::Kernel Gpu::load(const std::string& cubin, const KernelText& kernel) const {
    driver_->enter();
    auto s = std::make_shared<Kernel::State>();
    s->driver = driver_;
    s->name = kernel.name;
    s->threads = kernel.threads;
    s->shared_bytes = kernel.shared_bytes;
    void* module = nullptr;
    driver_->check(driver_->load_module(&module, cubin.data()), fmt::format("load the code of kernel '{}'", s->name));
    s->module = std::shared_ptr<void>(module, [driver = driver_](void* m) {
        driver->set_context(driver->context);
        driver->unload_module(m);
    });
    driver_->check(driver_->function(&s->function, module, s->name.c_str()), fmt::format("find kernel '{}'", s->name));
    driver_->check(driver_->set_attribute(s->function, kMostDynamicShared, static_cast<int>(s->shared_bytes)),
                   fmt::format("give kernel '{}' {} bytes of shared memory a block", s->name, s->shared_bytes));
    Kernel out;
    out.state_ = std::move(s);
    return out;
}

void Gpu::Kernel::launch(int64_t blocks, const std::vector<void*>& arguments) const {
    constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
    if (blocks == 0) return;
    if (blocks > kMostBlocks)
        throw RuntimeError(fmt::format("kernel '{}' has {} blocks, more than a launch can have", state_->name, blocks));
    const Driver& d = *state_->driver;
    d.enter();
    std::vector<void*> addresses = arguments;
    d.check(d.launch(state_->function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(state_->threads), 1,
                     1, static_cast<unsigned>(state_->shared_bytes), nullptr, addresses.data(), nullptr),
            fmt::format("launch kernel '{}'", state_->name));
}

void Gpu::synchronize() const {
    driver_->enter();
    driver_->check(driver_->synchronize(), "finish what was launched");
}

std::vector<Tensor> Gpu::run(const Kernel& kernel, const KernelText& text, const Program& stages,
                             const std::vector<Tensor>& inputs, Bindings bindings) const {
    std::vector<std::shared_ptr<void>> memory;
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Value& declared = stages.values[stages.inputs[i]];
        bind_shape(bindings, declared.shape, inputs[i].shape(), declared.name);
        memory.push_back(allocate(inputs[i].bytes()));
        to_device(memory.back().get(), inputs[i].data(), inputs[i].bytes());
    }
    std::vector<Tensor> outputs;
    for (const ValueId v : stages.outputs) {
        outputs.emplace_back(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
        memory.push_back(allocate(outputs.back().bytes()));
    }
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, bindings);
    if (text.scratch_bytes > 0) memory.push_back(allocate(static_cast<size_t>(text.scratch_bytes * blocks)));
    std::vector<void*> pointers;
    for (const auto& m : memory) pointers.push_back(m.get());
    std::vector<long long> names;
    for (const Var v : text.names) names.push_back(bindings.at(v));
    std::vector<void*> arguments;
    for (void*& p : pointers) arguments.push_back(&p);
    for (long long& n : names) arguments.push_back(&n);
    kernel.launch(blocks, arguments);
    synchronize();
    for (size_t i = 0; i < outputs.size(); ++i)
        to_host(outputs[i].mutable_data(), pointers[inputs.size() + i], outputs[i].bytes());
    return outputs;
}

}  // namespace tilewright::cuda
