#include "model/gpu_model.h"

#include <algorithm>
#include <chrono>

#include "backend/cuda/machine_code.h"
#include "base/error.h"

namespace tilewright {

namespace {

constexpr int64_t kAligned = 256;

int64_t room_of(const Tensor& t) { return (static_cast<int64_t>(t.bytes()) + kAligned - 1) / kAligned * kAligned; }

/// The median of some repetitions, several times the work in each.
double measured(const cuda::Gpu::Stream& stream, const std::function<void()>& work) {
    constexpr int kTogether = 8, kRepetitions = 7;
    std::vector<double> seconds;
    for (int k = 0; k <= kRepetitions; ++k) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kTogether; ++i) work();
        stream.synchronize();
        if (k > 0)  // the first warms up
            seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    return seconds[kRepetitions / 2] / kTogether;
}

}  // namespace

GpuModel::GpuModel(std::shared_ptr<const CompiledModel> model, const cuda::Gpu& gpu,
                   const std::vector<std::string>& code, const GpuLibraries& libraries)
    : model_(std::move(model)), gpu_(gpu) {
    const std::vector<cuda::KernelText>& texts = model_->gpu_kernels();
    if (texts.size() != model_->kernels().size())
        throw RuntimeError("the model was compiled for a CPU: it has no kernels for a GPU");
    TW_CHECK(code.size() == texts.size(), "every kernel has its code");
    for (size_t k = 0; k < texts.size(); ++k) {
        const int64_t most = gpu_.target().block_shared_bytes;
        if (texts[k].shared_bytes > most)
            throw RuntimeError(fmt::format(
                "the model was compiled for a GPU with more shared memory: kernel {} needs {} bytes a block, '{}' has "
                "{}; --target cuda:sm_80 needs less",
                k, texts[k].shared_bytes, gpu_.target().name, most));
        kernels_.push_back(gpu_.load(code[k], cuda::alone(texts[k])));
        libraries_.push_back(libraries.products ? faster(k, libraries) : std::nullopt);
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

std::optional<cuda::CublasLt::Plan> GpuModel::faster(size_t k, const GpuLibraries& libraries) const {
    const TileProgram& kernel = model_->kernels()[k];
    const auto product = cuda::library_product(kernel);
    if (!product) return std::nullopt;
    auto plan = libraries.products->plan(*product);
    if (!plan) return std::nullopt;
    const cuda::KernelText& text = model_->gpu_kernels()[k];
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, Bindings{});
    const Program& stages = kernel.stages;
    std::vector<std::shared_ptr<void>> memory;
    std::vector<void*> tensors;
    const auto allocate = [&](int64_t bytes) {
        memory.push_back(gpu_.allocate(static_cast<size_t>(bytes), "a kernel that is measured"));
        return memory.back().get();
    };
    const cuda::Gpu::Stream stream = gpu_.stream();
    for (const auto* list : {&stages.inputs, &stages.outputs})
        for (const ValueId v : *list) {
            const Tensor zeros(stages.values[v].dtype, evaluate(stages.values[v].shape, Bindings{}));
            tensors.push_back(allocate(static_cast<int64_t>(zeros.bytes())));
            gpu_.to_device(tensors.back(), zeros.data(), zeros.bytes());
        }
    void* workspace = allocate(std::max(plan->workspace_bytes(), text.scratch_bytes * blocks));
    std::vector<void*> pointers = tensors, arguments;
    if (text.scratch_bytes > 0) pointers.push_back(workspace);
    for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
    const auto time = libraries.time ? libraries.time : measured;
    const double ours = time(stream, [&] { stream.launch(kernels_[k], blocks, arguments); });
    const double theirs = time(stream, [&] { plan->run(stream, tensors, workspace); });
    stream.synchronize();
    return theirs < ours ? plan : std::nullopt;
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
