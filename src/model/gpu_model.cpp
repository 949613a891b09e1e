#include "model/gpu_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cuda/machine_code.h"
#include "base/error.h"
#include "tile/walk.h"
#include "tune/operands.h"

namespace tilewright {

namespace {

constexpr int64_t kAligned = 256;
constexpr size_t kMostOfALibrary = 4;  ///< kernels that are measured, per form of a kernel

int64_t room_of(const Tensor& t) { return (static_cast<int64_t>(t.bytes()) + kAligned - 1) / kAligned * kAligned; }

/// The median of some repetitions, several times the work in each. As a graph, which is how sessions run it: what the
/// host does for each launch, such as a library's descriptions of its operands, is no part of the time.
double measured(const cuda::Gpu::Stream& stream, const std::function<void()>& work) {
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

/// Of the largest magnitude, what two ways to compute a kernel may differ by: far more than they do, far less than what
/// another kernel gives.
double allowed_difference(const LibraryKernel& kernel, Precision precision) {
    const auto* op = std::get_if<LibraryOperation>(&kernel);
    const DType t = op != nullptr ? op->data.type : std::get<LibraryAttention>(kernel).queries.type;
    const Precision p = t == DType::F32 ? precision : Precision::F32;
    if (t == DType::BF16 || p == Precision::BF16) return 5e-2;
    return t == DType::F16 || p != Precision::F32 ? 1e-2 : 1e-4;
}

/// A kernel's tensors on the device, to run it and what may stand for it.
struct Trial {
    Trial(const cuda::Gpu& device, const Program& program, int64_t scratch_bytes)
        : gpu(device), stages(program), stream(device.stream()) {
        inputs = kernel_inputs(stages, 1, Spread::Wide);
        for (const Tensor& t : inputs) put(t);
        for (const ValueId v : stages.outputs) {
            Tensor t(stages.values[v].dtype, evaluate(stages.values[v].shape, Bindings{}));
            std::memset(t.mutable_data(), 0xff, t.bytes());  // no numbers
            nothing.push_back(std::move(t));
            put(nothing.back());
        }
        scratch = allocate(scratch_bytes);
    }
    Trial(const Trial&) = delete;
    ~Trial() { finish(); }

    /// At least so much for a library's kernel. Throws RuntimeError where there is not enough.
    void reserve(int64_t bytes) {
        if (workspace && bytes <= workspace_bytes) return;
        workspace.reset();  // first: there may not be room for both
        workspace = gpu.allocate(static_cast<size_t>(bytes), "the workspace of a kernel that is measured");
        workspace_bytes = bytes;
    }
    /// Waits for what a failure has left under way: it must not outlive its memory.
    void finish() const noexcept {
        try {
            stream.synchronize();
        } catch (const RuntimeError&) {  // it failed: nothing runs any more
        }
    }

    /// How far the results of two ways are apart, as a multiple of what is allowed.
    double difference(const std::function<void()>& one, const std::function<void()>& other, const LibraryKernel& kernel,
                      Precision precision) const {
        const double allowed = allowed_difference(kernel, precision);
        double most = distance(results(one), results(other)) / allowed;
        // A row that its mask leaves nothing of has no numbers in it.
        const auto* a = std::get_if<LibraryAttention>(&kernel);
        if (a == nullptr || !a->mask) return most;
        const LibraryOperand& mask = *a->mask;
        Tensor masked = inputs.at(mask.tensor);
        for (int64_t column = 0; column < mask.dims[3]; ++column)
            masked.set(column * mask.strides[3], -std::numeric_limits<double>::infinity());
        gpu.to_device(tensors[mask.tensor], masked.data(), masked.bytes());
        most = std::max(most, distance(results(one), results(other)) / allowed);
        gpu.to_device(tensors[mask.tensor], inputs[mask.tensor].data(), masked.bytes());
        return most;
    }

    const cuda::Gpu& gpu;
    const Program& stages;
    cuda::Gpu::Stream stream;
    std::vector<void*> tensors;
    void* scratch = nullptr;  ///< of the generated kernel
    std::shared_ptr<void> workspace;

  private:
    void* allocate(int64_t bytes) {
        memory.push_back(gpu.allocate(static_cast<size_t>(bytes), "a kernel that is measured"));
        return memory.back().get();
    }
    void put(const Tensor& t) {
        tensors.push_back(allocate(static_cast<int64_t>(t.bytes())));
        gpu.to_device(tensors.back(), t.data(), t.bytes());
    }
    std::vector<Tensor> results(const std::function<void()>& way) const {
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
    /// Of the largest magnitude; infinite where one has a number and the other none.
    static double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
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

    std::vector<Tensor> inputs, nothing;
    std::vector<std::shared_ptr<void>> memory;
    int64_t workspace_bytes = 0;
};

}  // namespace

void check_fits(const CompiledModel& model, const GpuTarget& gpu) {
    const std::vector<cuda::KernelText>& texts = model.gpu_kernels();
    if (texts.size() != model.kernels().size())
        throw RuntimeError("the model was compiled for a CPU: it has no kernels for a GPU");
    for (size_t k = 0; k < texts.size(); ++k) {
        const Walk tree = walk(model.kernels()[k]);
        const bool groups = std::any_of(tree.computes.begin(), tree.computes.end(), [](const auto& c) {
            return c.second->micro.matrix && c.second->micro.matrix->group();
        });
        if (groups && gpu.capability() != 90)
            throw RuntimeError(
                fmt::format("the model was compiled for sm_90a: kernel {} has instructions of four warps, which '{}' "
                            "(compute capability {}.{}) has not; compile it with --target cuda:sm_80",
                            k, gpu.name, gpu.major, gpu.minor));
        if (texts[k].shared_bytes > gpu.block_shared_bytes)
            throw RuntimeError(fmt::format(
                "the model was compiled for a GPU with more shared memory: kernel {} needs {} bytes a block, '{}' has "
                "{}; --target cuda:sm_80 needs less",
                k, texts[k].shared_bytes, gpu.name, gpu.block_shared_bytes));
    }
}

GpuModel::GpuModel(std::shared_ptr<const CompiledModel> model, const cuda::Gpu& gpu,
                   const std::vector<std::string>& code, const GpuLibraries& libraries)
    : model_(std::move(model)), gpu_(gpu) {
    const std::vector<cuda::KernelText>& texts = model_->gpu_kernels();
    check_fits(*model_, gpu_.target());
    TW_CHECK(code.size() == texts.size(), "every kernel has its code");
    for (size_t k = 0; k < texts.size(); ++k) {
        kernels_.push_back(gpu_.load(code[k], cuda::alone(texts[k])));
        libraries_.push_back(libraries.libraries.empty() ? nullptr : fastest(k, libraries));
    }
    std::vector<const Tensor*> found;
    add_weights(model_->plan(), found);
    for (const Tensor* t : found)
        if (weights_.emplace(t->data(), weight_bytes_).second) weight_bytes_ += room_of(*t);
    block_ = gpu_.allocate(static_cast<size_t>(weight_bytes_), "the model's weights");
    for (const Tensor* t : found) gpu_.to_device(weight(t->data()), t->data(), t->bytes());
}

int GpuModel::library_kernels() const {
    return static_cast<int>(std::count_if(libraries_.begin(), libraries_.end(), [](const auto& l) { return l; }));
}

std::vector<GpuModel::LibraryCandidate> GpuModel::candidates(size_t k, const GpuLibraries& libraries) {
    auto forms = tilewright::library_kernels(model_->kernels()[k].stages);
    std::vector<LibraryCandidate> out;
    if (std::holds_alternative<Refusal>(forms)) return out;
    const LibraryConditions conditions{1, cuda::precision_of(model_->kernels()[k])};
    for (const auto& library : libraries.libraries) {
        std::optional<Refusal> refused;
        const size_t before = out.size();
        for (const LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms)) {
            auto found = library->candidates(form, conditions, kMostOfALibrary);
            if (auto* refusal = std::get_if<Refusal>(&found)) {
                if (!refused) refused = std::move(*refusal);
                continue;
            }
            for (const auto& c : std::get<std::vector<cuda::KernelLibrary::Candidate>>(found)) try {
                    out.push_back({fmt::format("{}, {}", library->name(), c.kernel), form, library->make(c)});
                } catch (const RuntimeError& e) {  // other candidates may run
                    if (!refused) refused = Refusal{e.what()};
                }
        }
        if (out.size() == before && refused) note(k, library->name(), refused->reason);
    }
    return out;
}

void GpuModel::note(size_t k, const std::string& library, const std::string& what) {
    notes_.push_back(fmt::format("kernel {}, {}: {}", k, library, what));
}

std::shared_ptr<const cuda::LibraryPlan> GpuModel::fastest(size_t k, const GpuLibraries& libraries) {
    const std::vector<LibraryCandidate> all = candidates(k, libraries);
    if (all.empty()) return nullptr;
    const TileProgram& program = model_->kernels()[k];
    const cuda::KernelText& text = model_->gpu_kernels()[k];
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, Bindings{});
    try {
        Trial trial(gpu_, program.stages, text.scratch_bytes * blocks);
        std::vector<void*> pointers = trial.tensors, arguments;
        if (text.scratch_bytes > 0) pointers.push_back(trial.scratch);
        for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
        const auto generated = [&] { trial.stream.launch(kernels_[k], blocks, arguments); };
        const auto time = libraries.time ? libraries.time : measured;
        std::shared_ptr<const cuda::LibraryPlan> best;
        double least = time(trial.stream, generated);
        for (const LibraryCandidate& c : all) try {
                trial.reserve(c.plan->workspace_bytes());
                const auto run = [&] { c.plan->run(trial.stream, trial.tensors, trial.workspace.get()); };
                const double difference = trial.difference(generated, run, c.kernel, cuda::precision_of(program));
                if (difference > 1) {
                    note(k, c.name,
                         fmt::format("its results are others ({:.3g} times what rounding explains)", difference));
                    continue;
                }
                const double seconds = time(trial.stream, run);
                note(k, c.name, fmt::format("{:.4g} ms, the best else {:.4g} ms", seconds * 1e3, least * 1e3));
                if (seconds >= least) continue;
                least = seconds;
                best = c.plan;
            } catch (const RuntimeError& e) {  // it fails, or there is no room for it: others may run
                trial.finish();
                note(k, c.name, e.what());
            }
        return best;
    } catch (const RuntimeError& e) {  // not enough memory to try them, or the generated kernel fails
        note(k, "libraries", e.what());
        return nullptr;
    }
}

void GpuModel::add_weights(const Plan& plan, std::vector<const Tensor*>& found) const {
    for (const Step& step : plan.steps) {
        for (const auto& body : step.bodies) add_weights(*body, found);
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        for (const ValueId v : call->tensors)
            if (const auto it = plan.program.constants.find(v); it != plan.program.constants.end())
                found.push_back(&it->second);
    }
}

void* GpuModel::weight(const void* host) const {
    const auto it = weights_.find(host);
    return it == weights_.end() ? nullptr : static_cast<std::byte*>(block_.get()) + it->second;
}

void GpuMemory::reserve(int64_t device_bytes, int64_t pinned_bytes) {
    if (device_bytes > device_bytes_) {
        ++generation_;
        device_.reset();  // first: there may not be room for both
        device_bytes_ = 0;
        device_ = gpu_.allocate(static_cast<size_t>(device_bytes), "what the model computes on the way");
        device_bytes_ = device_bytes;
    }
    if (pinned_bytes > pinned_bytes_) {
        ++generation_;
        pinned_.reset();
        context_.memory->resize(static_cast<uint64_t>(pinned_bytes_), static_cast<uint64_t>(pinned_bytes), false,
                                "what goes to the GPU and back");
        pinned_bytes_ = pinned_bytes;
        pinned_ = gpu_.allocate_pinned(static_cast<size_t>(pinned_bytes));
    }
}

void GpuMemory::keep(size_t place, int64_t bytes) {
    Kept& k = kept_[place];
    if (bytes <= k.bytes) return;
    ++generation_;
    kept_bytes_ -= std::max<int64_t>(0, k.bytes);
    k = {};  // first: there may not be room for both
    k.memory = gpu_.allocate(static_cast<size_t>(bytes), "a value that stays on the device");
    k.bytes = bytes;
    kept_bytes_ += bytes;
}

}  // namespace tilewright
