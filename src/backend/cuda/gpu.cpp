#include "backend/cuda/gpu.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/driver.h"
#include "base/error.h"

namespace tilewright::cuda {

struct Gpu::Kernel::State {
    std::shared_ptr<const Driver> driver;
    std::shared_ptr<void> module;
    void* function = nullptr;
    std::string name;
    int threads = 0;
    int64_t shared_bytes = 0;
    std::vector<KernelText::Map> maps;
    std::vector<DType> dtypes;  ///< of the tensors
    std::vector<Var> symbols;   ///< the last arguments
    size_t arguments = 0;       ///< that a launch gives; the maps are made from them

    /// CUtensorMap of each map.
    struct alignas(64) Encoded {
        uint64_t words[16];
    };
    std::vector<Encoded> encoded(const std::vector<void*>& given) const;
    void launch(int64_t blocks, const std::vector<void*>& given, void* stream) const;
};

Gpu::Gpu(int index, SharedLibrary driver) : driver_(std::make_shared<const Driver>(std::move(driver), index)) {}

Gpu::Gpu(int index, const std::string& library)
    : Gpu(index, SharedLibrary("CUDA driver", {library.empty() ? "libcuda.so.1" : library},
                               "a GPU needs NVIDIA's driver on this machine (nvidia-smi shows whether there is one)")) {
}

const GpuTarget& Gpu::target() const { return driver_->target; }

void Gpu::enter() const { driver_->enter(); }

uint64_t Gpu::free_bytes() const {
    driver_->enter();
    size_t left = 0, all = 0;
    driver_->check(driver_->memory_info(&left, &all), "say how much memory is free");
    return left;
}

std::shared_ptr<void> Gpu::allocate(size_t bytes, const std::string& what) const {
    driver_->enter();
    Address memory = 0;
    const int result = driver_->allocate(&memory, bytes == 0 ? 1 : bytes);
    if (result == kOutOfMemory)
        throw RuntimeError(
            fmt::format("out of memory on '{}': {} needs {} bytes, and {} of its {} are free; a smaller batch may fit",
                        driver_->target.name, what, bytes, free_bytes(), driver_->target.memory_bytes));
    driver_->check(result, fmt::format("allocate {} bytes", bytes));
    return {pointer_of(memory), [driver = driver_](void* p) {
                driver->set_context(driver->context);
                driver->free(address_of(p));
            }};
}

std::shared_ptr<void> Gpu::allocate_pinned(size_t bytes) const {
    driver_->enter();
    void* memory = nullptr;
    driver_->check(driver_->allocate_pinned(&memory, bytes == 0 ? 1 : bytes),
                   fmt::format("allocate {} bytes of pinned host memory", bytes));
    return {memory, [driver = driver_](void* p) {
                driver->set_context(driver->context);
                driver->free_pinned(p);
            }};
}

void Gpu::to_device(void* device, const void* host, size_t bytes) const {
    if (bytes == 0) return;
    driver_->enter();
    driver_->check(driver_->to_device(address_of(device), host, bytes), "copy to the device");
    // The driver may return when it has read what is not pinned, before it lies on the device; our streams, which do
    // not wait for the default one, would read what was there before.
    driver_->check(driver_->synchronize_stream(nullptr), "copy to the device");
}

std::shared_ptr<void> Gpu::allocate_zeros(size_t bytes, const std::string& what) const {
    auto memory = allocate(bytes, what);
    const std::vector<std::byte> zeros(bytes);
    to_device(memory.get(), zeros.data(), bytes);
    return memory;
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
    s->maps = kernel.maps;
    s->symbols = kernel.names;
    for (const KernelText::Argument& a : kernel.tensors) s->dtypes.push_back(a.dtype);
    s->arguments = kernel.pointers() + kernel.names.size();
    if (!s->maps.empty() && driver_->encode_tiled == nullptr)
        throw RuntimeError(fmt::format(
            "kernel '{}' copies boxes of tensors, which this driver does not support (cuTensorMapEncodeTiled): "
            "it is older than CUDA 12",
            s->name));
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

std::vector<Gpu::Kernel::State::Encoded> Gpu::Kernel::State::encoded(const std::vector<void*>& given) const {
    // As cuda.h has them.
    constexpr int kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9, kNoInterleave = 0, kZeros = 0, kLines = 2;  // of 128 bytes
    std::vector<Encoded> out;
    if (maps.empty()) return out;
    TW_CHECK(given.size() == arguments, "kernel '{}' has {} arguments", name, arguments);
    Bindings bindings;
    for (size_t i = 0; i < symbols.size(); ++i)
        bindings[symbols[i]] = *static_cast<const long long*>(given[arguments - symbols.size() + i]);
    for (const KernelText::Map& map : maps) {
        const DType dtype = dtypes.at(map.tensor);
        const int type = dtype == DType::F16 ? kFloat16 : dtype == DType::BF16 ? kBfloat16 : kFloat32;
        const int swizzle = map.swizzle == 128 ? 3 : map.swizzle == 64 ? 2 : map.swizzle == 32 ? 1 : 0;
        std::vector<uint64_t> extents, strides;
        std::vector<unsigned> box;
        uint64_t distance = byte_size(dtype);
        strides.reserve(map.extents.size());  // the driver takes no null, which there would be for one dimension
        for (size_t d = 0; d < map.extents.size(); ++d) {
            if (d > 0) strides.push_back(distance);
            extents.push_back(static_cast<uint64_t>(evaluate(map.extents[d], bindings)));
            distance *= extents.back();
            box.push_back(static_cast<unsigned>(map.box[d]));
        }
        const std::vector<unsigned> steps(box.size(), 1);
        void* address = *static_cast<void* const*>(given[map.tensor]);
        out.emplace_back();
        // The driver describes no tensor without elements, and no box of one is copied.
        if (std::find(extents.begin(), extents.end(), uint64_t{0}) != extents.end()) continue;
        driver->check(
            driver->encode_tiled(&out.back(), type, static_cast<unsigned>(box.size()), address, extents.data(),
                                 strides.data(), box.data(), steps.data(), kNoInterleave, swizzle, kLines, kZeros),
            fmt::format("make the tensor map of {} of kernel '{}'", map.tensor, name));
    }
    return out;
}

void Gpu::Kernel::State::launch(int64_t blocks, const std::vector<void*>& given, void* stream) const {
    constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
    if (blocks == 0) return;
    if (blocks > kMostBlocks)
        throw RuntimeError(fmt::format("kernel '{}' has {} blocks, more than a launch can have", name, blocks));
    driver->enter();
    std::vector<void*> addresses = given;
    std::vector<Encoded> all = encoded(given);  // the launch copies them
    for (Encoded& map : all) addresses.push_back(&map);
    driver->check(driver->launch(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1,
                                 static_cast<unsigned>(shared_bytes), stream, addresses.data(), nullptr),
                  fmt::format("launch kernel '{}'", name));
}

void Gpu::Kernel::launch(int64_t blocks, const std::vector<void*>& arguments) const {
    state_->launch(blocks, arguments, nullptr);
}

Gpu::Stream Gpu::stream() const {
    driver_->enter();
    void* stream = nullptr;
    driver_->check(driver_->create_stream(&stream, kNonBlocking), "make a stream");
    Stream out;
    out.driver_ = driver_;
    out.stream_ = std::shared_ptr<void>(stream, [driver = driver_](void* s) {
        driver->set_context(driver->context);
        driver->destroy_stream(s);
    });
    return out;
}

void Gpu::Stream::to_device(void* device, const void* pinned, size_t bytes) const {
    driver_->enter();
    if (bytes > 0)
        driver_->check(driver_->to_device_async(address_of(device), pinned, bytes, stream_.get()),
                       "copy to the device");
}

void Gpu::Stream::to_host(void* pinned, const void* device, size_t bytes) const {
    driver_->enter();
    if (bytes > 0)
        driver_->check(driver_->to_host_async(pinned, address_of(device), bytes, stream_.get()),
                       "copy from the device");
}

void Gpu::Stream::launch(const Kernel& kernel, int64_t blocks, const std::vector<void*>& arguments) const {
    kernel.state_->launch(blocks, arguments, stream_.get());
}

void Gpu::Stream::launch(const Graph& graph) const {
    driver_->enter();
    driver_->check(driver_->launch_graph(graph.executable_.get(), stream_.get()), "launch a graph");
}

Gpu::Graph Gpu::Stream::capture(const std::function<void()>& work) const {
    driver_->enter();
    driver_->check(driver_->begin_capture(stream_.get(), kCaptureOfThread), "capture a stream");
    void* graph = nullptr;
    try {
        work();
    } catch (...) {
        // The stream must not stay in capture; what was captured goes.
        if (driver_->end_capture(stream_.get(), &graph) == 0 && graph != nullptr) driver_->destroy_graph(graph);
        throw;
    }
    driver_->check(driver_->end_capture(stream_.get(), &graph), "end the capture of a stream");
    const std::shared_ptr<void> owner(graph, [driver = driver_](void* g) { driver->destroy_graph(g); });
    void* executable = nullptr;
    driver_->check(driver_->instantiate(&executable, graph, 0), "make a graph of what was captured");
    Graph out;
    out.executable_ = std::shared_ptr<void>(executable, [driver = driver_](void* e) {
        driver->set_context(driver->context);
        driver->destroy_executable(e);
    });
    return out;
}

void Gpu::Stream::synchronize() const {
    driver_->enter();
    driver_->check(driver_->synchronize_stream(stream_.get()), "finish what was launched");
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
        Tensor& t = outputs.back();
        memory.push_back(allocate(t.bytes()));
        if (t.bytes() > 0) std::memset(t.mutable_data(), 0xff, t.bytes());  // NaN: unwritten elements are seen
        to_device(memory.back().get(), t.data(), t.bytes());
    }
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, bindings);
    if (text.scratch_bytes > 0) memory.push_back(allocate(static_cast<size_t>(text.scratch_bytes * blocks)));
    if (text.counters) memory.push_back(allocate_zeros(static_cast<size_t>(text.counter_bytes(bindings))));
    std::vector<void*> pointers, arguments;
    pointers.reserve(memory.size());
    for (const auto& m : memory) pointers.push_back(m.get());
    std::vector<long long> names;
    names.reserve(text.names.size());
    for (const Var v : text.names) names.push_back(bindings.at(v));
    arguments.reserve(pointers.size() + names.size());
    for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
    for (long long& n : names) arguments.push_back(&n);
    kernel.launch(blocks, arguments);
    synchronize();
    for (size_t i = 0; i < outputs.size(); ++i)
        to_host(outputs[i].mutable_data(), pointers[inputs.size() + i], outputs[i].bytes());
    return outputs;
}

}  // namespace tilewright::cuda
