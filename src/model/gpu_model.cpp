#include "model/gpu_model.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/machine_code.h"
#include "base/error.h"
#include "base/numbers.h"
#include "model/model_sources.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

int64_t room_of(const Tensor& t) {
    return ceil_of(static_cast<int64_t>(t.bytes()), cuda::kTensorAlignment) * cuda::kTensorAlignment;
}

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
        if (groups && !gpu.has_wgmma())
            throw RuntimeError(
                fmt::format("the model was compiled for sm_90a: kernel {} has instructions of four warps, which '{}' "
                            "(compute capability {}.{}) has not; compile it for that GPU, with --target cuda there",
                            k, gpu.name, gpu.major, gpu.minor));
        if (texts[k].shared_bytes > gpu.block_shared_bytes)
            throw RuntimeError(fmt::format(
                "the model was compiled for a GPU with more shared memory: kernel {} needs {} bytes a block, '{}' has "
                "{}; compile it for that GPU, with --target cuda there",
                k, texts[k].shared_bytes, gpu.name, gpu.block_shared_bytes));
    }
}

GpuModel::GpuModel(std::shared_ptr<const CompiledModel> model, const cuda::Gpu& gpu,
                   const std::vector<std::string>& code, const GpuLibraries& libraries)
    : model_(std::move(model)), gpu_(gpu) {
    const std::vector<cuda::KernelText>& texts = model_->gpu_kernels();
    check_fits(*model_, gpu_.target());
    TW_CHECK(code.size() == texts.size(), "every kernel has its code");
    for (size_t k = 0; k < texts.size(); ++k) kernels_.push_back(gpu_.load(code[k], cuda::alone(texts[k])));
    if (!libraries.libraries.empty())
        offers_ = GpuOffers(*model_->impl().sources, kernels_, kernels_called(model_->plan()), gpu_, libraries);
    std::vector<const Tensor*> found;
    add_weights(model_->plan(), found);
    for (const Tensor* t : found)
        if (weights_.emplace(t->data(), weight_bytes_).second) weight_bytes_ += room_of(*t);
    block_ = gpu_.allocate(static_cast<size_t>(weight_bytes_), "the model's weights");
    for (const Tensor* t : found) gpu_.to_device(weight(t->data()), t->data(), t->bytes());
    prepare(model_->plan());
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

GpuModel::Prepared GpuModel::key_of(const Plan& plan, const KernelCall& call) {
    Prepared out{call.kernel, {}};
    for (const ValueId v : call.tensors) {
        const auto it = plan.program.constants.find(v);
        out.second.push_back(it == plan.program.constants.end() ? nullptr : it->second.data());
    }
    return out;
}

void* GpuModel::prepared(const Plan& plan, const KernelCall& call) const {
    const auto it = prepared_.find(key_of(plan, call));
    return it == prepared_.end() ? nullptr : it->second.get();
}

void GpuModel::prepare(const Plan& plan) {
    for (const Step& step : plan.steps) {
        for (const auto& body : step.bodies) prepare(*body);
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr || prepared_.count(key_of(plan, *call)) != 0) continue;
        if (const cuda::LibraryPlan* library = offers_.preparing(call->kernel)) prepare(plan, *call, *library);
    }
}

void GpuModel::prepare(const Plan& plan, const KernelCall& call, const cuda::LibraryPlan& library) {
    const Prepared key = key_of(plan, call);
    std::vector<void*> tensors;
    for (const void* host : key.second) tensors.push_back(host == nullptr ? nullptr : weight(host));
    try {
        const auto memory = gpu_.allocate(static_cast<size_t>(library.prepared_bytes()), "prepared weights");
        const auto workspace = gpu_.allocate(static_cast<size_t>(std::max<int64_t>(1, library.workspace_bytes())),
                                             "what prepares weights");
        tensors.push_back(memory.get());
        const cuda::Gpu::Stream stream = gpu_.stream();
        library.prepare(stream, tensors, workspace.get());
        stream.synchronize();
        prepared_.emplace(key, memory);
        weight_bytes_ += library.prepared_bytes();
    } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): the generated kernel runs
    }
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
