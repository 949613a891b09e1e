#include "model/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/error.h"
#include "base/private_folder.h"
#include "cost/target.h"
#include "model/executor.h"
#include "model/gpu_model.h"
#include "runtime/float_mode.h"
#include "tune/operands.h"
#include "tune/tuner.h"

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

namespace {

/// How kernels are run on this machine to be measured.
TuneSettings tune_settings(const ScheduleTarget& rule, const cpu::CodegenOptions& codegen) {
    TuneSettings settings;
    settings.threads = rule.threads;
    settings.codegen = codegen;
    settings.codegen.known = nullptr;  // most candidates are never seen again
    settings.measure.seconds = 0.02;
    settings.check_work = 1 << 21;  // a candidate a tenth of a second
    return settings;
}

/// Negative for what cannot be run.
double seconds_of(const Measurement& m) { return m.verdict == Verdict::measured ? m.seconds.value : -1; }

/// Choices between whole plans, known by a hash of what they were between: any of them computes the same.
RememberChoice memory_of_choices(const std::shared_ptr<TuningDatabase>& database, const Target& host,
                                 const TuneSettings& settings) {
    if (!database) return {};
    const std::string how = settings_text(settings.threads, settings.warmth, "");
    const auto key_of = [target = target_key(host), how](const std::string& of) {
        const Hash128 hash = structural_hash(of);
        return ChoiceKey{fmt::format("plans {:016x}{:016x}", hash.high, hash.low), target, "in model", how};
    };
    RememberChoice out;
    out.find = [=](const std::string& of) -> std::optional<std::string> {
        const auto known = database->find(key_of(of));
        return known ? std::optional(known->schedule) : std::nullopt;
    };
    out.keep = [=](const std::string& of, const std::string& chosen) {
        Choice choice;
        choice.key = key_of(of);
        choice.schedule = chosen;
        try {
            database->insert(choice);
        } catch (const CannotKeep& e) {
            if (settings.warn) settings.warn(fmt::format("measurements are not kept: {}", e.what()));
        }
    };
    return out;
}

/// Null where nothing can be kept, which is said. Throws RuntimeError where the file that the user named cannot be used
/// for another reason than that its disk is full.
std::shared_ptr<TuningDatabase> open_database(const CompileOptions& options) {
    std::string problem;
    try {
        if (!options.database.empty()) return std::make_shared<TuningDatabase>(options.database);
        const std::string path = TuningDatabase::default_path();
        const std::string folder = std::filesystem::path(path).parent_path().string();
        try {
            make_private_folders(folder);
            require_kept_entries(folder);
        } catch (const RuntimeError& e) {
            throw CannotKeep(e.what(), false);
        }
        return std::make_shared<TuningDatabase>(path);
    } catch (const CannotKeep& e) {
        if (!e.full() && !options.database.empty()) throw;
        problem = e.what();
    }
    if (options.warn) options.warn(fmt::format("measurements are not kept: {}", problem));
    return nullptr;
}

/// Who decides, and what they may ask of this machine.
void allow(OrchestrateOptions& o, const CompileOptions& options, const cpu::CodegenOptions& codegen,
           int64_t weight_bytes) {
    Scheduling& s = o.scheduling;
    s.kind = options.scheduler;
    s.trials = options.trials;
    s.gpu = options.gpu;
    if (s.gpu && options.orchestrator == Orchestrator::Optimal)
        throw RuntimeError("optimal orchestration knows costs of this CPU's kernels alone: compile greedily for a GPU");
    if (s.gpu) return;
    if (s.kind == SchedulerKind::Default && options.orchestrator == Orchestrator::Greedy) return;
    const Target host = current_target();
    Target machine = host;
    machine.vector_bits = codegen.isa.vector_bits;
    machine.vector_registers = o.target.vector_registers;
    s.machine.emplace(machine, o.target.threads);
    const bool for_schedules = options.measure || s.kind == SchedulerKind::Search;
    const bool for_kernels = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    if (!for_schedules && !for_kernels) return;
    const std::shared_ptr<TuningDatabase> database = open_database(options);
    TuneSettings settings = tune_settings(o.target, codegen);
    settings.warn = options.warn;
    if (for_schedules) {
        // Of many candidates most are far from the best: they are worth few readings.
        settings.measure.give_up = 1.2;
        settings.measure.few = 3;
        settings.measure.seconds = 0.01;
        const auto tuner = std::make_shared<Tuner>(host, settings, database.get());
        s.measure = [database, tuner](const std::vector<TileProgram>& candidates) {
            const auto sizes = assumed_sizes(candidates.at(0).stages);
            if (!sizes) return std::vector<double>(candidates.size(), -1);
            std::vector<double> seconds;
            for (const TunedKernel& k : tuner->tune(candidates, *sizes)) seconds.push_back(seconds_of(k.measurement));
            return seconds;
        };
    }
    if (!for_kernels) return;
    settings = tune_settings(o.target, codegen);
    settings.warn = options.warn;
    settings.warmth = warmth_in_model(host, weight_bytes);
    const auto settings_of = [settings](const TileProgram& kernel, const std::vector<bool>& weights) {
        const auto sizes = assumed_sizes(kernel.stages);
        if (!sizes) return std::optional<TuneSettings>();
        TuneSettings how = settings;
        how.weights = weights;
        how.sizes = *sizes;
        return std::optional(std::move(how));
    };
    const auto measured = [=](const TileProgram& kernel, const TuneSettings& how) -> std::optional<TunedKernel> {
        return tune_schedules({kernel}, host, how, database.get())[0];
    };
    const auto remembered = [=](const TileProgram& kernel, const TuneSettings& how) -> std::optional<TunedKernel> {
        if (!database) return std::nullopt;
        auto known = remembered_schedule(kernel, host, how, *database);
        return known ? std::optional(TunedKernel{std::move(*known), true}) : std::nullopt;
    };
    const auto provider = codegen.isa.cpu == cpu::Isa::host().cpu ? options.provider : nullptr;
    /// By generated code or, where that takes less time, by the provider.
    const auto best_of = [=](const auto& ask) {
        return [=](const TileProgram& kernel, const std::vector<bool>& weights) -> std::optional<MeasuredKernel> {
            auto how = settings_of(kernel, weights);
            if (!how) return std::nullopt;
            const auto ours = ask(kernel, *how);
            if (!ours) return std::nullopt;
            MeasuredKernel best{seconds_of(ours->measurement), ours->remembered};
            if (!provider) return best;
            best.asked = provider->name();
            if (auto reason = provider->refusal(kernel.stages, weights)) {
                best.refused = std::move(*reason);
                return best;
            }
            how->provider = provider;
            const auto theirs = ask(kernel, *how);
            if (!theirs) return std::nullopt;
            best.remembered = best.remembered && theirs->remembered;
            const double seconds = seconds_of(theirs->measurement);
            if (seconds < 0) {
                best.refused = theirs->measurement.verdict == Verdict::wrong ? "its result is not right"
                                                                             : theirs->measurement.reason;
                return best;
            }
            best.theirs = seconds;
            if (best.seconds >= 0 && best.seconds <= seconds) return best;
            best.seconds = seconds;
            best.provider = best.asked;
            return best;
        };
    };
    o.measure = best_of(measured);
    o.recall = best_of(remembered);
    o.remember = memory_of_choices(database, host, settings);
}

}  // namespace

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

/// Of Numerics::Strict: schedules, and with them the order of sums, are those for so many threads, however many run.
constexpr int kStrictThreads = 8;

const Target& host() {
    static const Target host = host_target();
    return host;
}

cpu::CodegenOptions codegen_options(const CompileOptions& options) {
    cpu::CodegenOptions codegen;
    codegen.isa = cpu::Isa::named(options.isa);
    codegen.cache_bytes = last_cache_bytes(host());
    if (!options.code_folder.empty())
        codegen.known = std::make_shared<CodeCache>(options.code_folder, CodeCache::kMostBytes, options.warn);
    return codegen;
}

}  // namespace

std::string_view to_string(Numerics numerics) {
    constexpr std::array<std::string_view, 3> kNames = {"strict", "default", "fast"};
    return kNames[static_cast<size_t>(numerics)];
}

std::optional<Numerics> numerics_from_string(std::string_view text) {
    for (const Numerics n : {Numerics::Strict, Numerics::Default, Numerics::Fast})
        if (to_string(n) == text) return n;
    return std::nullopt;
}

OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes) {
    const cpu::CodegenOptions codegen = codegen_options(options);
    OrchestrateOptions o;
    o.fuse = options.fuse;
    o.layouts = options.layouts && !options.gpu;  // blocks of channels are for a CPU's vectors
    o.orchestrator = options.orchestrator;
    o.optimal = options.optimal;
    o.watch = options.watch;
    o.schedules = options.schedules;
    o.kept = codegen.known;
    o.without = options.without;
    o.target.threads = options.threads > 0 ? options.threads : default_thread_count();
    if (options.numerics == Numerics::Strict) o.target.threads = kStrictThreads;
    o.target.lanes = codegen.isa.lanes_f32();
    o.target.vector_registers = codegen.isa.vector_bits == 512 ? 32 : 16;
    for (const CacheLevel& level : host().caches)
        if (level.level == 2) o.target.l2_bytes = level.bytes;
    o.target.cache_bytes = last_cache_bytes(host());
    allow(o, options, codegen, weight_bytes);
    return o;
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

/// For `kMost` readings, or as many as the seconds are enough for; in turns, each plan's times the medians.
std::vector<PlanTimes> run_plans(std::vector<Plan> plans, const KernelSet& kernels, const CompiledModel::Impl& model,
                                 const CompileOptions& options) {
    constexpr double kSeconds = 1.5;  // of each plan
    constexpr size_t kFewest = 3, kMost = 41;
    const std::vector<Tensor> inputs = options.inputs(model.inputs);
    if (inputs.size() != model.inputs.size()) return {};
    const std::vector<cpu::CompiledKernel> code = code_of(kernels, model.codegen, options);
    std::vector<std::unique_ptr<Session>> sessions;
    for (Plan& plan : plans) {
        auto impl = std::make_unique<CompiledModel::Impl>();
        impl->inputs = model.inputs;
        impl->outputs = model.outputs;
        impl->plan = std::move(plan);
        prepare_constants(impl->plan, code);
        gather_constants(impl->plan);
        impl->kernels = kernels;
        impl->code = code;
        sessions.push_back(
            std::make_unique<Session>(std::make_shared<CompiledModel>(std::move(impl)), options.threads));
        sessions.back()->run_in_place(inputs);
    }
    struct Readings {
        std::vector<double> whole;
        std::vector<std::vector<double>> steps;
    };
    std::vector<Readings> read(sessions.size());
    const double end = now_ms() + 1e3 * kSeconds * static_cast<double>(sessions.size());
    for (size_t round = 0; round < kFewest || (round < kMost && now_ms() < end); ++round)
        for (size_t k = 0; k < sessions.size(); ++k) {
            std::vector<StepTime> steps;
            sessions[k]->set_profile(&steps);
            const double begin = now_ms();
            sessions[k]->run_in_place(inputs);
            read[k].whole.push_back(1e-3 * (now_ms() - begin));
            read[k].steps.resize(steps.size());
            for (size_t i = 0; i < steps.size(); ++i) read[k].steps[i].push_back(1e-6 * steps[i].duration_us);
        }
    std::vector<PlanTimes> out;
    for (const Readings& r : read) {
        out.push_back({summarize(r.whole).value, {}});
        for (const std::vector<double>& s : r.steps) out.back().steps.push_back(summarize(s).value);
    }
    return out;
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
    impl->plan = orchestrate(std::move(program), impl->kernels, o);
    const double planned = now_ms();
    if (options.gpu) {
        cuda::CodegenOptions codegen;
        codegen.target = options.gpu->target;
        for (const TileProgram& t : impl->kernels.kernels())
            impl->gpu_kernels.push_back(cuda::generate(t, codegen, fmt::format("kernel_{}", impl->gpu_kernels.size())));
    } else {
        impl->code = code_of(impl->kernels, impl->codegen, options);
        prepare_constants(impl->plan, impl->code);
    }
    gather_constants(impl->plan);
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
