#include "model/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "base/error.h"
#include "model/kv_cache.h"
#include "model/session_impl.h"
#include "runtime/float_mode.h"
#include "runtime/missing_features.h"

namespace tilewright {

namespace {

/// Sessions with as many threads share a pool: two sessions do not mean twice the threads.
std::shared_ptr<ThreadPool> shared_pool(int threads) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<ThreadPool>> pools;
    const std::lock_guard lock(mutex);
    std::shared_ptr<ThreadPool> pool = pools[threads].lock();
    if (pool == nullptr) {
        pool = std::make_shared<ThreadPool>(threads);
        pools[threads] = pool;
    }
    return pool;
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): a session keeps its model, as this signature says
Session::Impl::Impl(std::shared_ptr<const CompiledModel> m, std::shared_ptr<ThreadPool> threads, uint64_t most)
    : Impl(m, most, variables_of(m->impl().plan, m->impl().code)) {
    pool = std::move(threads);
    const CompiledModel::Impl& impl = model->impl();
    if (impl.for_gpu) throw RuntimeError("the model was compiled for a GPU: it has no code for this CPU");
    if (impl.code.size() < kernels_called(impl.plan))
        throw RuntimeError("the model was compiled without machine code, so it cannot run");
    int64_t scratch_bytes = 64;
    for (const cpu::CompiledKernel& k : impl.code) {
        context.scratch_stride = std::max(context.scratch_stride, (k.scratch_bytes + 4095) / 4096 * 4096);
        if (k.library) scratch_bytes = std::max(scratch_bytes, k.library->scratch_bytes(pool->size()));
    }
    scratch_bytes = std::max(scratch_bytes, context.scratch_stride * pool->size());
    memory.resize(0, static_cast<uint64_t>(scratch_bytes), false, "the kernels' scratch memory");
    scratch.reserve(scratch_bytes);
    context.pool = pool.get();
    context.scratch = scratch.data();
    executor = std::make_unique<Executor>(impl.plan, context, std::vector<Var>{});
}

Session::Impl::Impl(std::shared_ptr<const CompiledModel> m, uint64_t most, const std::vector<Var>& vars)
    : model(std::move(m)), names(vars), most_memory(most), memory(most > 0 ? most : usable_memory()) {
    memory.resize(0, static_cast<uint64_t>(model->impl().stats.weight_bytes), false, "the model's weights");
    context.names = &names;
    context.memory = &memory;
    context.counters = &counters;
    context.cancelled = &cancelled;
    context.kernels = &model->impl().code;
}

Session::Impl::~Impl() = default;

namespace {

/// A model for named instructions (CompileOptions::isa) may be for another CPU. One for this CPU is not checked.
std::shared_ptr<const CompiledModel> for_this_cpu(std::shared_ptr<const CompiledModel> model) {
    const Platform& wanted = model->impl().platform;
    if (!wanted.cpu.empty() || wanted.features.empty()) return model;
    static const std::vector<std::string> here = host_features();
    if (const std::vector<std::string> missing = missing_features(wanted, here); !missing.empty())
        throw ModelError(fmt::format("the model was compiled for {}, and this CPU does not have {}",
                                     to_string(wanted.isa), fmt::join(missing, ", ")),
                         "compile it with --isa of instructions that this CPU has, or without");
    return model;
}

}  // namespace

Session::Session(std::shared_ptr<const CompiledModel> model, int threads, uint64_t memory)
    : Session(std::move(model), shared_pool(threads > 0 ? threads : default_thread_count()), memory) {}
Session::Session(std::shared_ptr<const CompiledModel> model, std::shared_ptr<ThreadPool> pool, uint64_t memory)
    : impl_(std::make_unique<Impl>(for_this_cpu(std::move(model)), std::move(pool), memory)) {}
Session::~Session() = default;

void Session::Impl::set_inputs(const std::vector<Tensor>& inputs, KvCache* cache) {
    const std::vector<ModelIo>& declared = model->inputs();
    if (inputs.size() != declared.size())
        model_error("the model has {} inputs, {} were given", declared.size(), inputs.size());
    if (cache != nullptr && &cache->model() != model.get())
        model_error("the KV cache is another model's: a session takes those that were made for its own model");
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].dtype() != declared[i].dtype && (cache == nullptr || append_to(i) == nullptr))
            model_error("input '{}' has type {}, expected {}", declared[i].name, to_string(inputs[i].dtype()),
                        to_string(declared[i].dtype));
    for (const size_t i : executor->input_order()) {
        if (const Append* a = append_to(i))
            set_appended(*a, inputs[i], cache);
        else
            executor->set_input(i, const_cast<void*>(inputs[i].data()), inputs[i].shape());
    }
}

void Session::Impl::run_fallback(const std::vector<Tensor>& inputs, const RunControl& options) {
    if (!fallback) {
        fallback = std::make_unique<Session>(model->impl().fallback_model(), pool, most_memory);
        ++counters.compilations;
    }
    fallback->set_profile(profile);
    RunControl same = options;
    if (options.output_memory)
        same.output_memory = [&](size_t i, const TensorView& output) {
            return given[i].requested ? given[i].data : options.output_memory(i, output);
        };
    outputs = fallback->run_in_place(inputs, same);
    context.flops = fallback->last_flops();
}

void Session::Impl::take_outputs(const RunControl& options) {
    const OutputMemory& requested = options.output_memory;
    outputs.resize(model->outputs().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (const Append* a = append_from(i)) {
            take_appended(*a, options.cache, requested);
            continue;
        }
        TensorView v = executor->output(i);
        if (requested && !given[i].requested) given[i] = {true, requested(i, {v.dtype, v.shape, nullptr})};
        if (given[i].data != nullptr && given[i].data != v.data) {
            const size_t bytes = static_cast<size_t>(v.count()) * byte_size(v.dtype);
            if (bytes > 0) std::memmove(given[i].data, v.data, bytes);
            counters.bytes_copied += bytes;
            v.data = given[i].data;
        }
        take_output(i, v);
    }
}

void Session::Impl::take_output(size_t i, const TensorView& v) {
    const Tensor& old = outputs[i];
    if (old.dtype() == v.dtype && old.data() == v.data &&
        std::equal(v.shape.begin(), v.shape.end(), old.shape().begin(), old.shape().end()))
        return;
    outputs[i] = Tensor(v.dtype, Shape(v.shape.begin(), v.shape.end()), v.data, nullptr);
}

const std::vector<Tensor>& Session::run_in_place(const std::vector<Tensor>& inputs, const RunControl& options) {
    const auto run = [&] { run_with_workers(inputs, options); };
    if (impl_->pool != nullptr)
        impl_->pool->with_workers(std::ref(run));  // a copy would be allocated
    else
        run();  // on a GPU
    return impl_->outputs;
}

void Session::run_with_workers(const std::vector<Tensor>& inputs, const RunControl& options) {
    Impl& s = *impl_;
    ++s.counters.runs;
    s.context.flops = 0;
    s.context.profile = s.profile;
    s.cancelled = options.cancelled;
    s.set_inputs(inputs, options.cache);
    s.given.assign(s.model->outputs().size(), {});
    if (!s.on_gpu()) s.executor->place_outputs(options.output_memory, s.given);  // a GPU's outputs are copied
    s.bind_cache(options.cache);
    try {
        const ScopedFloatMode mode(FloatMode::of_kernels(s.model->impl().keep_subnormals));
        s.executor->run();
    } catch (const NeedsFallback&) {
        if (!s.fallback && !s.model->impl().fallback_model()) throw;
        if (options.cache != nullptr)
            s.run_fallback_with(*options.cache, inputs, options);
        else
            s.run_fallback(inputs, options);
        return;
    }
    s.take_outputs(options);
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> out;
    for (const Tensor& view : run_in_place(inputs)) {
        Tensor copy(view.dtype(), view.shape(), false);
        if (view.bytes() > 0) std::memcpy(copy.mutable_data(), view.data(), view.bytes());
        impl_->counters.bytes_copied += view.bytes();
        out.push_back(std::move(copy));
    }
    return out;
}

double Session::last_flops() const { return impl_->context.flops; }
void Session::note_copied(uint64_t bytes) { impl_->counters.bytes_copied += bytes; }
RunCounts Session::counts() const {
    RunCounts all = impl_->counters.counts();
    if (!impl_->fallback) return all;
    const RunCounts strict = impl_->fallback->counts();  // each of its runs is counted already
    all.compilations += strict.compilations;
    all.preparations += strict.preparations;
    all.recalled += strict.recalled;
    all.memory_plans += strict.memory_plans;
    all.dispatches += strict.dispatches;
    all.bytes_copied += strict.bytes_copied;
    return all;
}
int64_t Session::arena_bytes() const {
    return impl_->executor->arena_bytes() + impl_->scratch.capacity() + impl_->device_bytes();
}
void Session::set_profile(std::vector<StepTime>* profile) { impl_->profile = profile; }

}  // namespace tilewright
