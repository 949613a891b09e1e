#include "backend/cuda/lockstep.h"

#include <cstring>

#include "backend/cuda/device_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda {

namespace {

/// tw::machine::Argument of device/run.cuh.
struct LockstepTensor {
    const char* name;
    void* bytes;
    long long size, element, written;
};
/// tw::machine::Map of it.
struct LockstepMap {
    long long of, rank, element, swizzle, extents[5], box[5];
};
using Entry = const char* (*)(const LockstepTensor* tensors, const long long* names, const LockstepMap* maps,
                              long long blocks);

/// What calls kernel k by the signature of Entry.
std::string entry_text(const KernelText& kernel, size_t k) {
    std::string arguments;
    for (size_t i = 0; i < kernel.tensors.size(); ++i)
        arguments += fmt::format("{}tw::machine::tensor<{}>(t[{}])", arguments.empty() ? "" : ", ",
                                 storage_type(kernel.tensors[i].dtype), i);
    if (kernel.scratch_bytes > 0) arguments += fmt::format(", tw::machine::tensor<u8>(t[{}])", kernel.tensors.size());
    if (kernel.counters) arguments += fmt::format(", tw::machine::tensor<u32>(t[{}])", kernel.pointers() - 1);
    for (size_t i = 0; i < kernel.names.size(); ++i)
        arguments += fmt::format("{}n[{}]", arguments.empty() ? "" : ", ", i);
    for (size_t i = 0; i < kernel.maps.size(); ++i) arguments += fmt::format(", tw::machine::tensor_map(t, m[{}])", i);
    return fmt::format(
        "extern \"C\" const char* tw_entry_{}(const tw::machine::Argument* tensors, const i64* names,\n"
        "                                    const tw::machine::Map* maps, i64 blocks) {{\n"
        "    struct Call {{ const i64* n; const tw::machine::Map* m; }} call = {{names, maps}};\n"
        "    return tw::machine::run_kernel(tensors, {}, blocks, {}, {},\n"
        "        [](const tw::machine::Memory* t, void* c) {{\n"
        "            const i64* n = static_cast<Call*>(c)->n;\n"
        "            const tw::machine::Map* m = static_cast<Call*>(c)->m;\n"
        "            (void)n, (void)m;\n"
        "            {}({});\n"
        "        }}, &call);\n"
        "}}\n",
        k, kernel.pointers(), kernel.threads, kernel.shared_bytes, kernel.name, arguments);
}

}  // namespace

Lockstep::Lockstep(std::vector<KernelText> kernels, const LockstepOptions& options) : kernels_(std::move(kernels)) {
    std::string text = fmt::format("{}\n{}\n{}\n{}", kDeviceEmulated, kDeviceEmulatedMatrix, kDeviceCommon, kDeviceRun);
    for (size_t k = 0; k < kernels_.size(); ++k) text += "\n" + kernels_[k].text + entry_text(kernels_[k], k);
    const HostLibrary library(text, options);
    for (size_t k = 0; k < kernels_.size(); ++k) entries_.push_back(library.find(fmt::format("tw_entry_{}", k)));
    library_.emplace(library);
}

void Lockstep::run(size_t k, std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) const {
    const KernelText& kernel = kernels_.at(k);
    TW_CHECK(tensors.size() == kernel.tensors.size() && names.size() == kernel.names.size(),
             "kernel '{}' takes {} tensors and {} names", kernel.name, kernel.tensors.size(), kernel.names.size());
    std::vector<LockstepTensor> arguments;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const KernelText::Argument& a = kernel.tensors[i];
        TW_CHECK(tensors[i].dtype() == a.dtype, "tensor {} of kernel '{}' is {}", a.name, kernel.name,
                 to_string(a.dtype));
        if (a.written && tensors[i].bytes() > 0) std::memset(tensors[i].mutable_data(), 0xff, tensors[i].bytes());
        arguments.push_back({a.name.c_str(), tensors[i].mutable_data(), static_cast<long long>(tensors[i].bytes()),
                             static_cast<long long>(byte_size(a.dtype)), a.written ? 1 : 0});
    }
    std::vector<std::byte> scratch(static_cast<size_t>(kernel.scratch_bytes * blocks));
    if (kernel.scratch_bytes > 0)
        arguments.push_back({"scratch", scratch.data(), static_cast<long long>(scratch.size()), 1, 2});
    const std::vector<long long> values(names.begin(), names.end());
    Bindings bindings;
    for (size_t i = 0; i < names.size(); ++i) bindings[kernel.names[i]] = names[i];
    std::vector<std::byte> counters(static_cast<size_t>(kernel.counter_bytes(bindings)));
    if (kernel.counters)
        arguments.push_back({"the counters", counters.data(), static_cast<long long>(counters.size()), 4, 3});
    std::vector<LockstepMap> maps;
    for (const KernelText::Map& m : kernel.maps) {
        LockstepMap out = {static_cast<long long>(m.tensor),
                           static_cast<long long>(m.extents.size()),
                           static_cast<long long>(byte_size(kernel.tensors[m.tensor].dtype)),
                           m.swizzle,
                           {},
                           {}};
        for (size_t d = 0; d < m.extents.size(); ++d) {
            out.extents[d] = evaluate(m.extents[d], bindings);
            out.box[d] = m.box[d];
        }
        maps.push_back(out);
    }
    const char* wrong = reinterpret_cast<Entry>(entries_[k])(arguments.data(), values.data(), maps.data(), blocks);
    if (wrong != nullptr) throw RuntimeError(fmt::format("kernel '{}', {}", kernel.name, wrong));
}

std::vector<Tensor> run_stages(const KernelText& kernel, const Program& stages, const std::vector<Tensor>& inputs,
                               Bindings bindings, const KernelRun& run) {
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Value& declared = stages.values[stages.inputs[i]];
        bind_shape(bindings, declared.shape, inputs[i].shape(), declared.name);
    }
    std::vector<Tensor> tensors = inputs;
    for (const ValueId v : stages.outputs)
        tensors.emplace_back(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
    std::vector<int64_t> names;
    for (const Var v : kernel.names) names.push_back(bindings.at(v));
    int64_t blocks = 1;
    for (const Expr& g : kernel.grid) blocks *= evaluate(g, bindings);
    run(tensors, names, blocks);
    return {tensors.begin() + static_cast<std::ptrdiff_t>(inputs.size()), tensors.end()};
}

std::vector<Tensor> Lockstep::run(size_t k, const Program& stages, const std::vector<Tensor>& inputs,
                                  const Bindings& bindings) const {
    return run_stages(kernels_.at(k), stages, inputs, bindings,
                      [&](std::vector<Tensor>& tensors, const std::vector<int64_t>& names, int64_t blocks) {
                          run(k, tensors, names, blocks);
                      });
}

}  // namespace tilewright::cuda
