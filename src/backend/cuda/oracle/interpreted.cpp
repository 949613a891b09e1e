#include "backend/cuda/oracle/interpreted.h"

#include "backend/cuda/device_text.h"
#include "backend/cuda/oracle/asm_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda::oracle {

namespace {

constexpr int kMostShared = 228 << 10;

/// What the calls of a kernel's text arrive at (tw_asm::Host of the prelude).
struct Host {
    PtxMachine* machine;
    void (*statement)(PtxMachine*, int, const AsmOperand*, int);
    int (*thread)(PtxMachine*);
    int (*block)(PtxMachine*);
    void (*barrier)(PtxMachine*);
    void (*shuffle)(PtxMachine*, void*, int, int);
    void (*broadcast)(PtxMachine*, void*, int, int);
};

/// The names that CUDA's compiler has, as macros, in front of the device's text.
constexpr const char* kMacros = R"TW(
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __builtin_assume(condition)
#define __grid_constant__
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#define threadIdx tw_asm::thread_index()
#define blockIdx tw_asm::block_index()
)TW";

/// Its functions; stands in front of the preprocessed text.
constexpr const char* kPrelude = R"TW(
#include <math.h>
#include <stddef.h>
#include <string.h>
namespace tw { alignas(1024) unsigned char bytes[TW_MOST_SHARED]; }
namespace tw_asm {
struct Operand { const char* constraint; void* place; unsigned long long bits; long long size; };
struct Host {
    void* machine;
    void (*statement)(void*, int, const Operand*, int);
    int (*thread)(void*);
    int (*block)(void*);
    void (*barrier)(void*);
    void (*shuffle)(void*, void*, int, int);
    void (*broadcast)(void*, void*, int, int);
} host;
struct Index { unsigned x; };
inline Index thread_index() { return {static_cast<unsigned>(host.thread(host.machine))}; }
inline Index block_index() { return {static_cast<unsigned>(host.block(host.machine))}; }
template <class T> Operand in(const char* constraint, T value) {
    Operand o = {constraint, nullptr, 0, sizeof(T)};
    memcpy(&o.bits, &value, sizeof(T));
    return o;
}
template <class T> Operand out(const char* constraint, T& place) {
    Operand o = {constraint, &place, 0, sizeof(T)};
    if (constraint[0] == '+') memcpy(&o.bits, &place, sizeof(T));
    return o;
}
template <class... Operands> void run(int statement, const Operands&... operands) {
    const Operand all[sizeof...(operands) + 1] = {operands...};
    host.statement(host.machine, statement, all, static_cast<int>(sizeof...(operands)));
}
}
inline void __syncthreads() { tw_asm::host.barrier(tw_asm::host.machine); }
inline int __syncthreads_or(int value) {
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    if (value != 0) any = 1;
    __syncthreads();
    return any;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    tw_asm::host.shuffle(tw_asm::host.machine, &value, static_cast<int>(sizeof(T)), mask);
    return value;
}
inline int __any_sync(unsigned all, int condition) {
    for (int mask = 16; mask >= 1; mask /= 2) condition |= __shfl_xor_sync(all, condition, mask);
    return condition;
}
template <class T> T __shfl_sync(unsigned, T value, int lane) {
    tw_asm::host.broadcast(tw_asm::host.machine, &value, static_cast<int>(sizeof(T)), lane);
    return value;
}
inline size_t __cvta_generic_to_shared(const void* p) {
    return static_cast<size_t>(static_cast<const unsigned char*>(p) - tw::bytes) + TW_SHARED_BEGIN;
}
)TW";

using Entry = void (*)(void* const* tensors, const long long* names, const void* maps);

std::string entry_text(const KernelText& kernel, size_t k) {
    std::vector<std::string> arguments;
    const auto pointer = [](const std::string& type, size_t i) {
        return fmt::format("static_cast<{}*>(t[{}])", type, i);
    };
    for (size_t i = 0; i < kernel.tensors.size(); ++i)
        arguments.push_back(pointer(storage_type(kernel.tensors[i].dtype), i));
    if (kernel.scratch_bytes > 0) arguments.push_back(pointer("unsigned char", kernel.tensors.size()));
    if (kernel.counters) arguments.push_back(pointer("unsigned", kernel.pointers() - 1));
    for (size_t i = 0; i < kernel.names.size(); ++i) arguments.push_back(fmt::format("n[{}]", i));
    for (size_t i = 0; i < kernel.maps.size(); ++i)
        arguments.push_back(fmt::format("static_cast<const tw::TensorMap*>(m)[{}]", i));
    return fmt::format(
        "extern \"C\" void tw_entry_{}(void* const* t, const long long* n, const void* m) {{ {}({}); }}\n", k,
        kernel.name, fmt::join(arguments, ", "));
}

/// The words of tw::TensorMap that ptx_machine.h describes.
struct alignas(64) MapWords {
    uint64_t words[16] = {};
};
MapWords map_words(const KernelText::Map& m, const Tensor& tensor, const Bindings& bindings) {
    MapWords out;
    uint64_t* w = out.words;
    w[0] = kMapMagic;
    w[1] = reinterpret_cast<uint64_t>(tensor.data());
    w[2] = m.extents.size();
    w[3] = byte_size(tensor.dtype());
    w[4] = static_cast<uint64_t>(m.swizzle);
    for (size_t d = 0; d < m.extents.size(); ++d) {
        w[5 + d] = static_cast<uint64_t>(evaluate(m.extents[d], bindings));
        w[10 + d] = static_cast<uint64_t>(m.box[d]);
    }
    return out;
}

}  // namespace

Interpreted::Interpreted(std::vector<KernelText> kernels, const LockstepOptions& options, const std::string& device)
    : kernels_(std::move(kernels)) {
    std::string text = kMacros + (device.empty() ? std::string(kDeviceCuda) : device) + "\n" + kDeviceCommon;
    for (size_t k = 0; k < kernels_.size(); ++k) text += "\n" + kernels_[k].text + entry_text(kernels_[k], k);
    AsmText calls = with_calls(preprocessed(text, options));
    statements_ = std::move(calls.statements);
    machine_ = std::make_unique<PtxMachine>(statements_);
    const std::string sizes =
        fmt::format("#define TW_MOST_SHARED {}\n#define TW_SHARED_BEGIN {}\n", kMostShared, PtxMachine::kSharedBegin);
    library_.emplace(sizes + kPrelude + calls.text +
                         "\nextern \"C\" { void* tw_bytes = tw::bytes; void* tw_host = &tw_asm::host; }\n",
                     options);
    Host& host = **static_cast<Host**>(library_->find("tw_host"));
    host = {
        machine_.get(),
        [](PtxMachine* m, int k, const AsmOperand* operands, int count) {
            m->statement(static_cast<size_t>(k), {operands, static_cast<size_t>(count)});
        },
        [](PtxMachine* m) { return m->thread(); },
        [](PtxMachine* m) { return static_cast<int>(m->block()); },
        [](PtxMachine* m) { m->barrier(); },
        [](PtxMachine* m, void* value, int size, int mask) { m->shuffle(value, static_cast<size_t>(size), mask, 31); },
        [](PtxMachine* m, void* value, int size, int lane) { m->shuffle(value, static_cast<size_t>(size), lane, 0); }};
}

void Interpreted::run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const {
    const KernelText& kernel = kernels_.at(k);
    std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes * blocks));
    std::vector<void*> pointers;
    PtxMachine::Launch launch;
    for (Tensor& t : tensors) {
        pointers.push_back(t.mutable_data());
        launch.memory.emplace_back(reinterpret_cast<uint64_t>(t.mutable_data()), t.bytes());
    }
    if (kernel.scratch_bytes > 0) pointers.push_back(scratch.data());
    const std::vector<long long> values(names.begin(), names.end());
    Bindings bindings;
    for (size_t i = 0; i < names.size(); ++i) bindings[kernel.names[i]] = names[i];
    std::vector<uint32_t> counters(static_cast<size_t>(kernel.counter_bytes(bindings) / 4));
    pointers.push_back(counters.data());
    launch.memory.emplace_back(reinterpret_cast<uint64_t>(counters.data()), 4 * counters.size());
    std::vector<MapWords> maps;
    for (const KernelText::Map& m : kernel.maps) maps.push_back(map_words(m, tensors[m.tensor], bindings));
    const auto entry = reinterpret_cast<Entry>(library_->find(fmt::format("tw_entry_{}", k)));
    launch.kernel = [&] { entry(pointers.data(), values.data(), maps.data()); };
    launch.blocks = blocks;
    launch.threads = kernel.threads;
    launch.shared = *static_cast<unsigned char**>(library_->find("tw_bytes"));
    launch.shared_bytes = kernel.shared_bytes;
    TW_CHECK(kernel.shared_bytes <= kMostShared, "kernel '{}' fits a block", kernel.name);
    try {
        machine_->run(launch);
    } catch (const RuntimeError& e) {
        throw RuntimeError(fmt::format("kernel '{}', {}", kernel.name, e.what()));
    }
    for (const uint32_t count : counters)
        if (count != 0) throw RuntimeError(fmt::format("kernel '{}': a counter is {}, not 0", kernel.name, count));
}

std::vector<Tensor> Interpreted::run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                                     const Bindings& bindings) const {
    return run_stages(kernels_.at(k), stages, inputs, bindings,
                      [&](std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) {
                          run(k, tensors, names, blocks);
                      });
}

}  // namespace tilewright::cuda::oracle
