#include "model/gpu_model.h"

#include "backend/cuda/machine_code.h"
#include "base/error.h"

namespace tilewright {

namespace {

constexpr int64_t kAligned = 256;

int64_t room_of(const Tensor& t) { return (static_cast<int64_t>(t.bytes()) + kAligned - 1) / kAligned * kAligned; }

}  // namespace

GpuModel::GpuModel(std::shared_ptr<const CompiledModel> model, const cuda::Gpu& gpu,
                   const std::vector<std::string>& code)
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
    }
    std::vector<const Tensor*> found;
    add_weights(model_->plan(), found);
    for (const Tensor* t : found)
        if (weights_.emplace(t->data(), weight_bytes_).second) weight_bytes_ += room_of(*t);
    block_ = gpu_.allocate(static_cast<size_t>(weight_bytes_), "the model's weights");
    for (const Tensor* t : found) gpu_.to_device(weight(t->data()), t->data(), t->bytes());
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

}  // namespace tilewright
