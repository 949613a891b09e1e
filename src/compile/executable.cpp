#include "compile/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "backend/cuda/library_offer.h"
#include "base/error.h"
#include "base/free_memory.h"
#include "model/model_sources.h"
#include "runtime/arena.h"
#include "runtime/cpu_features.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

/// The target of the code: without matrix instructions that this CPU does not have, for which the code then has loops
/// (backend/cpu/tile_unit.h, dot_unit.h). Plans are not affected.
Target code_target(Target target) {
    if (!target.native || !(target.bf16_products() || target.f16_products())) return target;
    const std::vector<std::string> here = host_features();
    std::erase_if(target.features, [&](const std::string& f) {
        const bool multiplies = f.starts_with("amx-") || f == "avx512bf16" || f == "avx512fp16";
        return multiplies && std::find(here.begin(), here.end(), f) == here.end();
    });
    return target;
}

}  // namespace

void describe_interface(CompiledModel::Impl& model, const Program& program, const CompileOptions& options) {
    const auto io = [&](ValueId v) {
        return ModelIo{program.values[v].name, program.values[v].dtype, program.values[v].shape};
    };
    for (const ValueId v : program.inputs) model.inputs.push_back(io(v));
    for (const ValueId v : program.outputs) model.outputs.push_back(io(v));
    for (const Append& a : model.appends)
        for (ModelIo* side : {&model.inputs[a.input], &model.outputs[a.output]})
            side->shape = rows_back(std::span<const Expr>(side->shape), a.axis);
    for (size_t k = 0; k < std::min(options.output_names.size(), model.outputs.size()); ++k)
        model.outputs[k].name = options.output_names[k];
    model.sources->target = options.code ? code_target(target_of(options)) : target_of(options);
    const Target& t = model.sources->target;
    model.for_gpu = t.gpu.has_value();
    model.platform = {t.arch, t.native ? t.cpu : "", t.isa, t.code_features()};
    model.keep_subnormals = options.keep_subnormals;
}

std::vector<cpu::CompiledKernel> code_of(const KernelSet& kernels, const Target& target,
                                         const CompileOptions& options) {
    std::vector<const TileProgram*> ours;
    for (size_t k = 0; k < kernels.kernels().size(); ++k)
        if (kernels.provided()[k].provider.empty()) ours.push_back(&kernels.kernels()[k]);
    std::vector<cpu::CompiledKernel> out;
    std::vector<cpu::CompiledKernel> generated = cpu::compile(ours, target, code_cache(options), options.keep_objects);
    size_t next = 0;
    for (size_t k = 0; k < kernels.kernels().size(); ++k) {
        const KernelSet::Provided& provided = kernels.provided()[k];
        if (provided.provider.empty()) {
            out.push_back(std::move(generated[next++]));
            continue;
        }
        const TileProgram& kernel = kernels.kernels()[k];
        TW_CHECK(options.provider, "a kernel of {}, but the library is not loaded", provided.provider);
        out.emplace_back();
        out.back().name = kernel.name;
        out.back().library = options.provider->provide(kernel.stages, provided.weights,
                                                       options.threads > 0 ? options.threads : default_thread_count(),
                                                       provided.provider);
    }
    return out;
}

void prepare_constants(Plan& plan, const std::vector<cpu::CompiledKernel>& code) {
    Program& p = plan.program;
    std::set<ValueId> replaced, read(p.outputs.begin(), p.outputs.end());
    std::map<std::tuple<ValueId, size_t, size_t>, ValueId> made;  // per constant and kernel input
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

namespace {

/// Per kernel and input: whether it is a constant of the model in every call.
void find_constants(const Plan& plan, std::map<size_t, std::vector<bool>>& out) {
    for (const Step& step : plan.steps) {
        for (const auto& body : step.bodies) find_constants(*body, out);
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        const size_t inputs = call->tensors.size() - call->results;
        std::vector<bool>& constant = out.try_emplace(call->kernel, inputs, true).first->second;
        for (size_t k = 0; k < inputs; ++k)
            constant[k] = constant[k] && plan.program.constants.count(call->tensors[k]) != 0;
    }
}

void add_library_parts(ModelSources& sources, const Plan& plan) {
    const size_t called = sources.kernels.kernels().size();
    std::map<size_t, std::vector<bool>> constant;
    find_constants(plan, constant);
    for (size_t k = 0; k < called; ++k) {
        const Program stages = sources.kernels.kernels()[k].stages;  // the set grows
        if (auto parts = library_parts(stages, sources.target, sources.precision, cuda::library_refusal,
                                       sources.kernels, constant[k]))
            sources.parts.emplace(k, *std::move(parts));
    }
}

}  // namespace

void generate_code(CompiledModel::Impl& model, const CompileOptions& options) {
    ModelSources& sources = *model.sources;
    sources.precision = options.precision;
    if (model.for_gpu) {
        constexpr size_t kMostSamples = 4;  // each takes time where the model is loaded
        sources.samples = size_samples(model.plan.program, options.ranges, kMostSamples);
        if (options.gpu_libraries) add_library_parts(sources, model.plan);
        for (const TileProgram& t : sources.kernels.kernels())
            sources.gpu_kernels.push_back(
                cuda::generate(t, *sources.target.gpu, fmt::format("kernel_{}", sources.gpu_kernels.size())));
        return;
    }
    if (!options.code) return;
    model.code = code_of(sources.kernels, sources.target, options);
    prepare_constants(model.plan, model.code);
}

namespace {

int64_t room(const Tensor& t) { return has_huge_pages(t) ? 0 : (static_cast<int64_t>(t.bytes()) + 63) / 64 * 64; }

/// Bytes of the constants of a plan and of the bodies of its loops and branches.
int64_t room_of_constants(const Plan& plan) {
    int64_t total = 0;
    for (const auto& [v, t] : plan.program.constants) total += room(t);
    for (const Step& s : plan.steps)
        for (const auto& body : s.bodies) total += room_of_constants(*body);
    return total;
}

/// Moves the constants into a block from byte `at` on. Returns the offset after the last one.
int64_t move_constants(Plan& plan, const std::shared_ptr<Arena>& block, int64_t at) {
    for (auto& [v, t] : plan.program.constants) {
        if (has_huge_pages(t)) continue;
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

}  // namespace

void gather_constants(Plan& plan) {
    const auto block = std::make_shared<Arena>();
    // Vector loads may read beyond the last constant.
    block->reserve(room_of_constants(plan) + 64);
    move_constants(plan, block, 0);
}

std::shared_ptr<const CompiledModel> finished(std::unique_ptr<CompiledModel::Impl> model,
                                              const std::vector<PassTime>& passes) {
    CompileStats& stats = model->stats;
    bool planned = false, coded = false;
    for (const PassTime& p : passes) {
        planned = planned || p.name == "compare_layouts" || p.name == "isolate_bodies";
        coded = coded || p.name == "generate_code";
        if (planned) (coded ? stats.codegen_ms : stats.plan_ms) += p.ms;
    }
    stats.schedule_ms = model->plan.schedule_ms;
    stats.compile_ms = stats.plan_ms + stats.codegen_ms;
    count_plan(model->plan, kernels_called(model->plan), stats);
    return_free_memory();
    return std::make_shared<CompiledModel>(std::move(model));
}

}  // namespace tilewright
