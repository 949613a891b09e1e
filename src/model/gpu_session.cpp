// Sessions on a GPU: the plan's kernels are steps that the GPU runs.

#include "model/gpu_model.h"
#include "model/session_impl.h"

namespace tilewright {

namespace {

std::vector<Var> all_names(const GpuModel& gpu) {
    const CompiledModel& m = *gpu.model();
    std::vector<Var> out = variables_of(m.impl().plan, m.impl().code);
    for (size_t k = 0; k < m.gpu_kernels().size(); ++k)
        for (const auto* names : {&m.gpu_kernels()[k].names, &gpu.offers().names(k)})
            out.insert(out.end(), names->begin(), names->end());
    return out;
}

class GpuSession : public Session::Impl {
  public:
    GpuSession(std::shared_ptr<const GpuModel> m, uint64_t most)
        : Impl(m->model(), most, all_names(*m)),
          gpu_(std::move(m)),
          memory_(gpu_->gpu(), context),
          plan_(tilewright::on_gpu(model->impl().plan, *gpu_, memory_)) {
        executor = std::make_unique<Executor>(plan_, context, std::vector<Var>{});
    }
    ~GpuSession() override { executor.reset(); }  // before its plan
    bool on_gpu() const override { return true; }
    int64_t device_bytes() const override { return memory_.device_bytes(); }

  private:
    std::shared_ptr<const GpuModel> gpu_;
    GpuMemory memory_;
    Plan plan_;
};

}  // namespace

Session::Session(std::shared_ptr<const GpuModel> model, uint64_t memory)
    : impl_(std::make_unique<GpuSession>(std::move(model), memory)) {}

}  // namespace tilewright
