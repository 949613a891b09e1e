#include "model/gpu_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "base/error.h"
#include "tune/operands.h"

namespace tilewright {

namespace {

/// Of the largest magnitude, what two ways to compute a kernel may differ by: far more than they do, far less than what
/// another kernel gives.
double allowed_difference(const Program& stages, Precision precision) {
    bool f16 = false, bf16 = precision == Precision::BF16;
    for (const Value& v : stages.values) {
        f16 = f16 || v.dtype == DType::F16;
        bf16 = bf16 || v.dtype == DType::BF16;
    }
    return bf16 ? 5e-2 : f16 || precision != Precision::F32 ? 1e-2 : 1e-4;
}

/// Of the largest magnitude; infinite where one has a number and the other none.
double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    double most = 0, largest = 0;
    for (size_t k = 0; k < a.size(); ++k)
        for (int64_t i = 0; i < a[k].count(); ++i) {
            const double x = a[k].get(i), y = b[k].get(i);
            if (std::isnan(x) || std::isnan(y) || std::isinf(x) || std::isinf(y)) {
                if (!(x == y || (std::isnan(x) && std::isnan(y)))) return std::numeric_limits<double>::infinity();
                continue;
            }
            most = std::max(most, std::fabs(x - y));
            largest = std::max(largest, std::fabs(x));
        }
    return largest == 0 ? (most == 0 ? 0 : std::numeric_limits<double>::infinity()) : most / largest;
}

}  // namespace

GpuLibraries gpu_libraries(const cuda::Gpu& gpu, const std::function<void(const std::string&)>& missing) {
    GpuLibraries out;
    const auto look_for = [&](const auto& make) {
        try {
            out.libraries.push_back(make());
        } catch (const RuntimeError& e) {  // without the library all kernels are generated
            if (missing) missing(e.what());
        }
    };
    look_for([&] { return std::make_shared<cuda::CublasLt>(gpu); });
    look_for([&] { return std::make_shared<cuda::Cudnn>(gpu); });
    return out;
}

std::vector<GpuLibraryCandidate> library_candidates(
    const Program& stages, Precision precision, const GpuLibraries& libraries,
    const std::function<void(const std::string& library, const std::string& why)>& refused, size_t most) {
    auto forms = library_kernels(stages);
    std::vector<GpuLibraryCandidate> out;
    if (std::holds_alternative<Refusal>(forms)) return out;
    const LibraryConditions conditions{1, precision};
    for (size_t number = 0; number < libraries.libraries.size(); ++number) {
        const auto& library = libraries.libraries[number];
        std::optional<Refusal> why;
        const size_t before = out.size();
        for (const LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms)) {
            auto found = library->candidates(form, conditions, most);
            if (auto* refusal = std::get_if<Refusal>(&found)) {
                if (!why) why = std::move(*refusal);
                continue;
            }
            for (const auto& c : std::get<std::vector<cuda::KernelLibrary::Candidate>>(found)) try {
                    out.push_back({fmt::format("{}, {}", library->name(), c.kernel), number, form, library->make(c)});
                } catch (const RuntimeError& e) {  // other candidates may run
                    if (!why) why = Refusal{e.what()};
                }
        }
        if (out.size() == before && why) refused(library->name(), why->reason);
    }
    return out;
}

double median_seconds(const cuda::Gpu::Stream& stream, const std::function<void()>& work) {
    constexpr int kTogether = 8, kRepetitions = 7;
    const cuda::Gpu::Graph graph = stream.capture([&] {
        for (int i = 0; i < kTogether; ++i) work();
    });
    std::vector<double> seconds;
    for (int k = 0; k <= kRepetitions; ++k) {
        const auto start = std::chrono::steady_clock::now();
        stream.launch(graph);
        stream.synchronize();
        if (k > 0)  // the first warms up
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    return seconds[kRepetitions / 2] / kTogether;
}

GpuTrial::GpuTrial(const cuda::Gpu& device, const Program& program)
    : gpu(device), stages(program), stream(device.stream()) {
    inputs = kernel_inputs(stages, 1, Spread::Wide);
    for (const Tensor& t : inputs) put(t);
    for (const ValueId v : stages.outputs) {
        Tensor t(stages.values[v].dtype, evaluate(stages.values[v].shape, Bindings{}));
        std::memset(t.mutable_data(), 0xff, t.bytes());  // no numbers
        nothing.push_back(std::move(t));
        put(nothing.back());
    }
}

GpuTrial::Work GpuTrial::launch(const cuda::Gpu::Kernel& kernel, const cuda::KernelText& text, const Bindings& sizes) {
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, sizes);
    std::vector<void*> pointers = tensors;
    if (text.scratch_bytes > 0) pointers.push_back(allocate(text.scratch_bytes * blocks));
    if (text.counters) {
        memory.push_back(gpu.allocate_zeros(static_cast<size_t>(text.counter_bytes(sizes))));
        pointers.push_back(memory.back().get());
    }
    std::vector<long long> names;
    for (const Var v : text.names) names.push_back(sizes.at(v));
    return [this, kernel, blocks, pointers, names]() mutable {
        std::vector<void*> arguments;
        arguments.reserve(pointers.size() + names.size());
        for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
        for (long long& n : names) arguments.push_back(&n);
        stream.launch(kernel, blocks, arguments);
    };
}

GpuTrial::OfLibrary GpuTrial::launch(const cuda::LibraryPlan& plan) {
    reserve(workspace, plan.workspace_bytes());
    if (plan.prepared_bytes() > 0) reserve(prepared, plan.prepared_bytes());
    const auto run = [this, &plan](bool prepares) {
        std::vector<void*> all = tensors;
        if (plan.prepared_bytes() > 0) all.push_back(prepared.memory.get());
        if (prepares) plan.prepare(stream, all, workspace.memory.get());
        plan.run(stream, all, workspace.memory.get());
    };
    return {[run] { run(true); }, [run] { run(false); }};
}

void GpuTrial::reserve(Room& room, int64_t bytes) const {
    if (room.memory && bytes <= room.bytes) return;
    room.memory.reset();  // first: there may not be room for both
    room.memory = gpu.allocate(static_cast<size_t>(bytes), "the workspace of a kernel that is measured");
    room.bytes = bytes;
}

void GpuTrial::finish() const noexcept {
    try {
        stream.synchronize();
    } catch (const RuntimeError&) {  // it failed: nothing runs any more
    }
}

double GpuTrial::difference(const Work& one, const Work& other, Precision precision) const {
    return distance(results(one), results(other)) / allowed_difference(stages, precision);
}

double GpuTrial::difference(const Work& one, const Work& other, const LibraryKernel* kernel,
                            Precision precision) const {
    double most = difference(one, other, precision);
    if (stages.primitives.size() == 1) {
        const auto* sum = kernel == nullptr ? nullptr : std::get_if<LibraryOperation>(kernel);
        const size_t data = sum != nullptr ? sum->data.tensor : 0;  // the first one read
        Tensor odd = inputs.at(data);
        if (!is_float(odd.dtype()) || odd.count() < 3) return most;
        odd.set(odd.count() / 2, std::numeric_limits<double>::quiet_NaN());
        odd.set(odd.count() / 3, std::numeric_limits<double>::infinity());
        return std::max(most, difference_with(odd, data, one, other, precision));
    }
    // A row that its mask leaves nothing of has no numbers in it.
    const auto* a = kernel == nullptr ? nullptr : std::get_if<LibraryAttention>(kernel);
    if (a == nullptr || (!a->mask && !a->selected)) return most;
    const LibraryOperand& mask = a->mask ? *a->mask : *a->selected;
    Tensor masked = inputs.at(mask.tensor);
    const double nothing_left = a->mask ? -std::numeric_limits<double>::infinity() : 0;
    for (int64_t column = 0; column < mask.dims[3]; ++column)
        masked.set(mask.offset + column * mask.strides[3], nothing_left);
    return std::max(most, difference_with(masked, mask.tensor, one, other, precision));
}

double GpuTrial::difference_with(const Tensor& t, size_t i, const Work& one, const Work& other,
                                 Precision precision) const {
    const auto restore = [&] { gpu.to_device(tensors[i], inputs[i].data(), t.bytes()); };
    gpu.to_device(tensors[i], t.data(), t.bytes());
    try {
        const double apart = difference(one, other, precision);
        restore();
        return apart;
    } catch (const RuntimeError&) {  // other candidates may run
        finish();
        restore();
        throw;
    }
}

void* GpuTrial::allocate(int64_t bytes) {
    memory.push_back(gpu.allocate(static_cast<size_t>(bytes), "a kernel that is measured"));
    return memory.back().get();
}

void GpuTrial::put(const Tensor& t) {
    tensors.push_back(allocate(static_cast<int64_t>(t.bytes())));
    gpu.to_device(tensors.back(), t.data(), t.bytes());
}

std::vector<Tensor> GpuTrial::results(const Work& way) const {
    for (size_t k = 0; k < nothing.size(); ++k)
        gpu.to_device(tensors[inputs.size() + k], nothing[k].data(), nothing[k].bytes());
    way();
    stream.synchronize();
    std::vector<Tensor> out;
    for (size_t k = 0; k < nothing.size(); ++k) {
        out.emplace_back(nothing[k].dtype(), nothing[k].shape());
        gpu.to_host(out.back().mutable_data(), tensors[inputs.size() + k], out.back().bytes());
    }
    return out;
}

}  // namespace tilewright
