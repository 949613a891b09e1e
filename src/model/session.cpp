#include "model/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/error.h"
#include "cost/sampling.h"
#include "model/executor.h"
#include "model/gpu_model.h"
#include "runtime/float_mode.h"

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

int count_steps(const Plan& plan) {
    int n = static_cast<int>(plan.steps.size());
    for (const Step& s : plan.steps)
        for (const auto& body : s.bodies) n += count_steps(*body);
    return n;
}

/// Large tensors have huge pages of their own already (base/tensor.cpp), and bytes behind their end.
bool stays(const Tensor& t) {
    constexpr size_t kLarge = size_t{8} << 20, kHugePage = size_t{2} << 20;
    return t.bytes() >= kLarge && reinterpret_cast<uintptr_t>(t.data()) % kHugePage == 0;
}

int64_t room(const Tensor& t) { return stays(t) ? 0 : (static_cast<int64_t>(t.bytes()) + 63) / 64 * 64; }

/// Of a plan and the bodies of its loops and branches.
int64_t room_of_constants(const Plan& plan) {
    int64_t total = 0;
    for (const auto& [v, t] : plan.program.constants) total += room(t);
    for (const Step& s : plan.steps)
        for (const auto& body : s.bodies) total += room_of_constants(*body);
    return total;
}

/// Moves those constants into a block from byte `at` on; behind the last one.
int64_t move_constants(Plan& plan, const std::shared_ptr<Arena>& block, int64_t at) {
    for (auto& [v, t] : plan.program.constants) {
        if (stays(t)) continue;
        std::byte* here = block->data() + at;
        std::memcpy(here, t.data(), t.bytes());
        at += room(t);
        t = Tensor(t.dtype(), t.shape(), here, block);
    }
    for (Step& s : plan.steps)
        for (std::shared_ptr<const Plan>& body : s.bodies) {
            auto moved = std::make_shared<Plan>(*body);
            at = move_constants(*moved, block, at);
            body = std::move(moved);
        }
    return at;
}

/// Moves the smaller constants into one block, in huge pages where the system gives them: a product walks through
/// megabytes of weights, and each 4 KiB page of them would cost a miss of the address cache; and the weights of a
/// loop's body stay in a cache as large as they are only where they lie there in one piece.
void gather_constants(Plan& plan) {
    const auto block = std::make_shared<Arena>();
    // Vectors at the very end may be read whole.
    block->reserve(room_of_constants(plan) + 64);
    move_constants(plan, block, 0);
}

}  // namespace

struct CompiledModel::Impl {
    std::vector<ModelIo> inputs, outputs;
    CompileStats stats;
    Plan plan;
    KernelSet kernels;
    std::vector<cpu::CompiledKernel> code;
    cpu::CodegenOptions codegen;
    std::vector<cuda::KernelText> gpu_kernels;
    std::optional<GpuTarget> gpu_target;
    bool keep_subnormals = false;
    std::function<std::shared_ptr<const CompiledModel>()> make_fallback;
    mutable std::once_flag fallback_made;
    mutable std::shared_ptr<const CompiledModel> fallback;

    /// Compiled at the first call; null where there is none.
    std::shared_ptr<const CompiledModel> fallback_model() const {
        if (make_fallback) std::call_once(fallback_made, [&] { fallback = make_fallback(); });
        return fallback;
    }
};

CompiledModel::CompiledModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledModel::~CompiledModel() = default;
const std::vector<ModelIo>& CompiledModel::inputs() const { return impl_->inputs; }
const std::vector<ModelIo>& CompiledModel::outputs() const { return impl_->outputs; }
const CompileStats& CompiledModel::stats() const { return impl_->stats; }
const Plan& CompiledModel::plan() const { return impl_->plan; }
const std::vector<TileProgram>& CompiledModel::kernels() const { return impl_->kernels.kernels(); }
const std::vector<cuda::KernelText>& CompiledModel::gpu_kernels() const { return impl_->gpu_kernels; }
const cpu::CodegenOptions& CompiledModel::codegen() const { return impl_->codegen; }
const std::optional<GpuTarget>& CompiledModel::gpu_target() const { return impl_->gpu_target; }

std::string CompiledModel::dump(const std::string& stage) const {
    if (stage == "plan") return impl_->plan.print();
    std::string s;
    for (size_t i = 0; i < impl_->kernels.kernels().size(); ++i) {
        const TileProgram& k = impl_->kernels.kernels()[i];
        const bool for_gpu = !impl_->gpu_kernels.empty();
        if (for_gpu ? stage == "llvm" || stage == "asm" : stage == "cuda")
            model_error("stage '{}' is there of models for a {}: give --target {}", stage, for_gpu ? "CPU" : "GPU",
                        for_gpu ? "cpu" : "cuda");
        s += fmt::format("{} kernel {}\n", stage == "cuda" ? "//" : "#", i);
        if (stage == "cuda")
            s += impl_->gpu_kernels[i].text;
        else if (stage == "tiles")
            s += print(k);
        else if (stage == "llvm")
            s += cpu::print_llvm(k, impl_->codegen);
        else if (stage == "asm")
            s += cpu::print_assembly(k, impl_->codegen);
        else
            model_error("unknown stage '{}': expected graph, program, plan, tiles, llvm, asm or cuda", stage);
        s += "\n";
    }
    return s;
}

namespace {

/// Machine code, or who computes a kernel in its place.
std::vector<cpu::CompiledKernel> code_of(const KernelSet& kernels, const cpu::CodegenOptions& codegen,
                                         const CompileOptions& options) {
    std::vector<const TileProgram*> ours;
    for (size_t k = 0; k < kernels.kernels().size(); ++k)
        if (kernels.provided()[k].provider.empty()) ours.push_back(&kernels.kernels()[k]);
    std::vector<cpu::CompiledKernel> generated = cpu::compile(ours, codegen), out;
    size_t next = 0;
    for (size_t k = 0; k < kernels.kernels().size(); ++k) {
        const KernelSet::Provided& provided = kernels.provided()[k];
        if (provided.provider.empty()) {
            out.push_back(std::move(generated[next++]));
            continue;
        }
        const TileProgram& kernel = kernels.kernels()[k];
        TW_CHECK(options.provider && options.provider->name() == provided.provider, "a kernel of {}, which is not here",
                 provided.provider);
        out.emplace_back();
        out.back().name = kernel.name;
        out.back().library = options.provider->provide(kernel.stages, provided.weights,
                                                       options.threads > 0 ? options.threads : default_thread_count());
    }
    return out;
}

/// Gives libraries' kernels their constants as they want them, in place of those that nobody else reads then.
void prepare_constants(Plan& plan, const std::vector<cpu::CompiledKernel>& code) {
    Program& p = plan.program;
    std::set<ValueId> replaced, read(p.outputs.begin(), p.outputs.end());
    std::map<std::tuple<ValueId, size_t, size_t>, ValueId> made;  // of a constant, for a kernel's input
    for (Step& step : plan.steps) {
        for (std::shared_ptr<const Plan>& body : step.bodies) {
            auto prepared = std::make_shared<Plan>(*body);
            prepare_constants(*prepared, code);
            body = std::move(prepared);
        }
        auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) {
            for (const ValueId v : p.primitives[std::get<PrimitiveId>(step.what)].inputs()) read.insert(v);
            continue;
        }
        if (const cpu::LibraryCall* library = code[call->kernel].library.get()) {
            const std::vector<cpu::LibraryCall::Prepared> all = library->prepared();
            for (size_t k = 0; k < all.size(); ++k) {
                ValueId& v = call->tensors.at(all[k].input);
                const auto [it, fresh] = made.try_emplace({v, call->kernel, k});
                if (fresh) {
                    constexpr auto kElement = static_cast<int64_t>(sizeof(float));
                    const auto block = std::make_shared<Arena>();
                    block->reserve(std::max(all[k].bytes, kBufferAlignment));
                    library->prepare(k, p.constants.at(v).data(), block->data());
                    Value value = p.values[v];
                    value.name += fmt::format(" for {}", call->provider);
                    value.shape = {Expr((all[k].bytes + kElement - 1) / kElement)};
                    it->second = p.values.push_back(value);
                    p.constants.emplace(it->second,
                                        Tensor(DType::F32, {value.shape[0].constant()}, block->data(), block));
                }
                replaced.insert(v);
                v = it->second;
            }
        }
        read.insert(call->tensors.begin(), call->tensors.end());
    }
    for (const ValueId v : replaced)
        if (read.count(v) == 0) p.constants.erase(v);
}

/// A session that runs a plan of the model.
std::unique_ptr<Session> session_of_plan(Plan plan, const KernelSet& kernels,
                                         const std::vector<cpu::CompiledKernel>& code, const CompiledModel::Impl& model,
                                         const CompileOptions& options) {
    auto impl = std::make_unique<CompiledModel::Impl>();
    impl->inputs = model.inputs;
    impl->outputs = model.outputs;
    impl->keep_subnormals = model.keep_subnormals;
    impl->plan = std::move(plan);
    prepare_constants(impl->plan, code);
    gather_constants(impl->plan);
    impl->kernels = kernels;
    impl->code = code;
    return std::make_unique<Session>(std::make_shared<CompiledModel>(std::move(impl)), options.threads);
}

/// How plans are compared by whole runs.
struct Comparison {
    size_t fewest, most;  ///< readings of each session
    int runs = 1;         ///< of a reading
    bool steps = false;   ///< whether the times of the steps are read as well; then `runs` is 1
};

/// Medians of the times of a run. The sessions take turns, and each round begins with another one, so that changes of
/// the machine's speed affect them alike. Between the bounds of `how` they run for 1.5 s each.
std::vector<PlanTimes> times_in_turns(const std::vector<std::unique_ptr<Session>>& sessions,
                                      const std::vector<Tensor>& inputs, const Comparison& how) {
    constexpr double kSeconds = 1.5;
    struct Readings {
        std::vector<double> whole;
        std::vector<std::vector<double>> steps;
    };
    std::vector<Readings> read(sessions.size());
    const double end = now_ms() + 1e3 * kSeconds * static_cast<double>(sessions.size());
    for (size_t round = 0; round < how.fewest || (round < how.most && now_ms() < end); ++round)
        for (size_t k = 0; k < sessions.size(); ++k) {
            const size_t turn = (round + k) % sessions.size();
            std::vector<StepTime> steps;
            sessions[turn]->set_profile(how.steps ? &steps : nullptr);
            const double begin = now_ms();
            for (int run = 0; run < how.runs; ++run) sessions[turn]->run_in_place(inputs);
            read[turn].whole.push_back(1e-3 * (now_ms() - begin) / how.runs);
            sessions[turn]->set_profile(nullptr);
            read[turn].steps.resize(steps.size());
            for (size_t i = 0; i < steps.size(); ++i) read[turn].steps[i].push_back(1e-6 * steps[i].duration_us);
        }
    std::vector<PlanTimes> out;
    for (const Readings& r : read) {
        out.push_back({summarize(r.whole).value, {}});
        for (const std::vector<double>& s : r.steps) out.back().steps.push_back(summarize(s).value);
    }
    return out;
}

/// Times of the plans and of their steps; empty where there are no inputs.
std::vector<PlanTimes> run_plans(std::vector<Plan> plans, const KernelSet& kernels, const CompiledModel::Impl& model,
                                 const CompileOptions& options) {
    const std::vector<Tensor> inputs = options.inputs(model.inputs);
    if (inputs.size() != model.inputs.size()) return {};
    const std::vector<cpu::CompiledKernel> code = code_of(kernels, model.codegen, options);
    std::vector<std::unique_ptr<Session>> sessions;
    for (Plan& plan : plans) {
        sessions.push_back(session_of_plan(std::move(plan), kernels, code, model, options));
        sessions.back()->run_in_place(inputs);
    }
    return times_in_turns(sessions, inputs, {.fewest = 3, .most = 41, .steps = true});
}

/// A plan and its kernels.
struct Planned {
    Plan plan;
    KernelSet kernels;

    std::string print() const {
        std::string text = plan.print();
        for (const TileProgram& k : kernels.kernels()) text += tilewright::print(k);
        return text;
    }
};

Planned plan_with(const Program& program, const OrchestrateOptions& options) {
    Planned out;
    out.plan = orchestrate(program, out.kernels, options);
    return out;
}

/// Seconds of a whole run of both.
std::array<double, 2> whole_runs(const std::array<const Planned*, 2>& plans, const std::vector<Tensor>& inputs,
                                 const CompiledModel::Impl& model, const CompileOptions& options) {
    constexpr double kShortestMs = 0.5;  // of a reading
    std::vector<std::unique_ptr<Session>> sessions;
    for (const Planned* p : plans)
        sessions.push_back(
            session_of_plan(p->plan, p->kernels, code_of(p->kernels, model.codegen, options), model, options));
    double shortest = std::numeric_limits<double>::infinity();
    for (int warm = 0; warm < 2; ++warm)
        for (const auto& session : sessions) {
            const double begin = now_ms();
            session->run_in_place(inputs);
            shortest = std::min(shortest, now_ms() - begin);
        }
    const int runs = static_cast<int>(std::clamp(std::ceil(kShortestMs / std::max(shortest, 1e-4)), 1.0, 1e3));
    const std::vector<PlanTimes> times = times_in_turns(sessions, inputs, {.fewest = 5, .most = 101, .runs = runs});
    return {times[0].seconds, times[1].seconds};
}

/// The plan made from measured kernels if whole runs of it are faster, by more than they vary, than those of the plan
/// without measurements, else the latter. Kernels are measured alone and on operands of assumed sizes, so that the sum
/// of their times says less than whole runs do.
Planned faster_plan(Planned measured, const Program& program, const CompileOptions& options,
                    const CompiledModel::Impl& model, const RememberChoice& remember) {
    constexpr double kGain = 0.02;
    const std::string kMeasured = "measured", kDefault = "default";
    CompileOptions without = options;
    without.measure = false;
    without.optimal.profile = Profile::None;
    if (without.scheduler == SchedulerKind::Search) without.scheduler = SchedulerKind::Auto;
    Planned plain = plan_with(program, orchestrate_options(without));
    std::string what = "plan with or without measurements\n" + plain.print();
    const std::string text = measured.print();
    if (what.ends_with(text)) return plain;
    what += text;
    try {
        const std::vector<Tensor> inputs = options.inputs ? options.inputs(model.inputs) : std::vector<Tensor>();
        if (inputs.size() != model.inputs.size()) throw RuntimeError("there are no inputs to run it on");
        for (const Tensor& t : inputs) what += to_string(t.shape());
        const std::optional<std::string> known = remember.find ? remember.find(what) : std::nullopt;
        if (known) return *known == kMeasured ? std::move(measured) : std::move(plain);
        const std::array<double, 2> seconds = whole_runs({&plain, &measured}, inputs, model, options);
        const bool faster = seconds[1] < (1 - kGain) * seconds[0];
        if (remember.keep) remember.keep(what, faster ? kMeasured : kDefault);
        return faster ? std::move(measured) : std::move(plain);
    } catch (const std::exception& e) {
        if (options.warn)
            options.warn(
                fmt::format("measured kernels are not used, as whole runs could not be compared: {}", e.what()));
        return plain;
    }
}

}  // namespace

std::shared_ptr<const CompiledModel> compile_program(Program program, const CompileOptions& options) {
    auto impl = std::make_unique<CompiledModel::Impl>();
    for (const ValueId v : program.inputs)
        impl->inputs.push_back({program.values[v].name, program.values[v].dtype, program.values[v].shape});
    for (const ValueId v : program.outputs)
        impl->outputs.push_back({program.values[v].name, program.values[v].dtype, program.values[v].shape});
    for (size_t k = 0; k < std::min(options.output_names.size(), impl->outputs.size()); ++k)
        impl->outputs[k].name = options.output_names[k];
    impl->codegen = codegen_options(options);
    impl->keep_subnormals = options.keep_subnormals;
    impl->make_fallback = options.fallback;
    int64_t weights = 0;
    for (const auto& [v, t] : program.constants) weights += static_cast<int64_t>(t.bytes());
    OrchestrateOptions o = orchestrate_options(options, weights);
    if (options.inputs && o.measure)
        o.run = [&](std::vector<Plan> plans, const KernelSet& kernels) {
            return run_plans(std::move(plans), kernels, *impl, options);
        };
    const double start = now_ms();
    Planned chosen;
    if (options.measure && !options.gpu)
        chosen = faster_plan(plan_with(program, o), program, options, *impl, o.remember);
    else
        chosen.plan = orchestrate(std::move(program), chosen.kernels, o);
    impl->plan = std::move(chosen.plan);
    impl->kernels = std::move(chosen.kernels);
    const double planned = now_ms();
    if (options.gpu) {
        cuda::CodegenOptions codegen;
        codegen.target = options.gpu->target;
        impl->gpu_target = options.gpu->target;
        for (const TileProgram& t : impl->kernels.kernels())
            impl->gpu_kernels.push_back(cuda::generate(t, codegen, fmt::format("kernel_{}", impl->gpu_kernels.size())));
    } else if (options.code) {
        impl->code = code_of(impl->kernels, impl->codegen, options);
        prepare_constants(impl->plan, impl->code);
    }
    if (options.code) gather_constants(impl->plan);
    const double done = now_ms();
    impl->stats.plan_ms = planned - start;
    impl->stats.schedule_ms = impl->plan.schedule_ms;
    impl->stats.codegen_ms = done - planned;
    impl->stats.compile_ms = done - start;
    impl->stats.kernels = static_cast<int>(impl->kernels.kernels().size());
    impl->stats.steps = count_steps(impl->plan);
    for (const auto& [v, t] : impl->plan.program.constants) impl->stats.weight_bytes += static_cast<int64_t>(t.bytes());
    return std::make_shared<CompiledModel>(std::move(impl));
}

struct Session::Impl {
    std::shared_ptr<const CompiledModel> model;
    std::shared_ptr<ThreadPool> pool;
    Names names;
    uint64_t most_memory;
    MemoryBudget memory;
    ExecutionContext context;
    Arena scratch;
    std::unique_ptr<Executor> executor;
    std::vector<Tensor> outputs;
    std::unique_ptr<Session> fallback;  ///< once a run needed it
    std::vector<StepTime>* profile = nullptr;

    std::shared_ptr<const GpuModel> gpu;
    std::optional<GpuMemory> gpu_memory;
    std::optional<Plan> gpu_plan;

    Impl(std::shared_ptr<const CompiledModel> m, int threads, uint64_t most)
        : model(std::move(m)),
          pool(shared_pool(threads > 0 ? threads : default_thread_count())),
          names(variables_of(model->impl().plan, model->impl().code)),
          most_memory(most),
          memory(most > 0 ? most : usable_memory()) {
        const CompiledModel::Impl& impl = model->impl();
        if (!impl.gpu_kernels.empty())
            throw RuntimeError("the model was compiled for a GPU: it has no code for this CPU");
        if (impl.code.size() != impl.kernels.kernels().size())
            throw RuntimeError("the model was compiled without machine code, so it cannot run");
        int64_t scratch_bytes = 64;
        for (const cpu::CompiledKernel& k : impl.code) {
            context.scratch_stride = std::max(context.scratch_stride, (k.scratch_bytes + 4095) / 4096 * 4096);
            if (k.library) scratch_bytes = std::max(scratch_bytes, k.library->scratch_bytes(pool->size()));
        }
        begin();
        scratch_bytes = std::max(scratch_bytes, context.scratch_stride * pool->size());
        memory.resize(0, static_cast<uint64_t>(scratch_bytes), false, "the kernels' scratch memory");
        scratch.reserve(scratch_bytes);
        context.kernels = &impl.code;
        context.pool = pool.get();
        context.scratch = scratch.data();
        executor = std::make_unique<Executor>(impl.plan, context, std::vector<Var>{});
    }

    Impl(std::shared_ptr<const GpuModel> m, uint64_t most)
        : model(m->model()),
          names(all_names(*model)),
          most_memory(most),
          memory(most > 0 ? most : usable_memory()),
          gpu(std::move(m)) {
        begin();
        context.kernels = &model->impl().code;
        gpu_memory.emplace(gpu->gpu(), context);
        gpu_plan = on_gpu(model->impl().plan, *gpu, *gpu_memory);
        executor = std::make_unique<Executor>(*gpu_plan, context, std::vector<Var>{});
    }

    static std::vector<Var> all_names(const CompiledModel& m) {
        std::vector<Var> out = variables_of(m.impl().plan, m.impl().code);
        for (const cuda::KernelText& k : m.gpu_kernels()) out.insert(out.end(), k.names.begin(), k.names.end());
        return out;
    }

    void begin() {
        memory.resize(0, static_cast<uint64_t>(model->impl().stats.weight_bytes), false, "the model's weights");
        context.names = &names;
        context.memory = &memory;
    }
};

Session::Session(std::shared_ptr<const CompiledModel> model, int threads, uint64_t memory)
    : impl_(std::make_unique<Impl>(std::move(model), threads, memory)) {}
Session::Session(std::shared_ptr<const GpuModel> model, uint64_t memory)
    : impl_(std::make_unique<Impl>(std::move(model), memory)) {}
Session::~Session() = default;

const std::vector<Tensor>& Session::run_in_place(const std::vector<Tensor>& inputs) {
    Impl& s = *impl_;
    const std::vector<ModelIo>& declared = s.model->inputs();
    if (inputs.size() != declared.size())
        model_error("the model has {} inputs, {} were given", declared.size(), inputs.size());
    s.context.flops = 0;
    s.context.profile = s.profile;
    if (s.profile != nullptr) s.context.profile_start_us = now_ms() * 1e3;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].dtype() != declared[i].dtype)
            model_error("input '{}' has type {}, expected {}", declared[i].name, to_string(inputs[i].dtype()),
                        to_string(declared[i].dtype));
        s.executor->set_input(i, const_cast<void*>(inputs[i].data()), inputs[i].shape());
    }
    try {
        const ScopedFloatMode mode(FloatMode::of_kernels(s.model->impl().keep_subnormals));
        s.executor->run();
    } catch (const NeedsFallback&) {
        if (!s.fallback) {
            const auto model = s.model->impl().fallback_model();
            if (!model) throw;
            s.fallback = std::make_unique<Session>(model, s.pool->size(), s.most_memory);
        }
        s.fallback->set_profile(s.profile);
        s.outputs = s.fallback->run_in_place(inputs);
        s.context.flops = s.fallback->last_flops();
        return s.outputs;
    }
    s.outputs.resize(s.model->outputs().size());
    for (size_t i = 0; i < s.outputs.size(); ++i) {
        const TensorView v = s.executor->output(i);
        const Tensor& old = s.outputs[i];
        if (old.dtype() == v.dtype && old.data() == v.data &&
            std::equal(v.shape.begin(), v.shape.end(), old.shape().begin(), old.shape().end()))
            continue;
        s.outputs[i] = Tensor(v.dtype, Shape(v.shape.begin(), v.shape.end()), v.data, nullptr);
    }
    return s.outputs;
}

std::vector<Tensor> Session::run(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> out;
    for (const Tensor& view : run_in_place(inputs)) {
        Tensor copy(view.dtype(), view.shape(), false);
        if (view.bytes() > 0) std::memcpy(copy.mutable_data(), view.data(), view.bytes());
        out.push_back(std::move(copy));
    }
    return out;
}

double Session::last_flops() const { return impl_->context.flops; }
int64_t Session::arena_bytes() const {
    const int64_t device = impl_->gpu_memory ? impl_->gpu_memory->device_bytes() : 0;
    return impl_->executor->arena_bytes() + impl_->scratch.capacity() + device;
}
void Session::set_profile(std::vector<StepTime>* profile) { impl_->profile = profile; }

}  // namespace tilewright
