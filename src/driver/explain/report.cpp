#include "driver/explain/report.h"
#include "compile/pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "backend/cuda/library_offer.h"
#include "base/clock.h"
#include "compile/limits.h"
#include "compile/planned_cost.h"
#include "cost/estimate.h"
#include "cost/gpu_estimate.h"
#include "driver/run_times.h"
#include "graph/graph.h"
#include "libraries/cut.h"
#include "orchestrate/schedules.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/transform/substitute.h"
#include "runtime/thread_count.h"

namespace tilewright::explain {

namespace {

/// A name from the file in printable form, without quotes.
std::string readable(const std::string& name) {
    const std::string quoted = quoted_name(name);
    return quoted.size() >= 2 && quoted.ends_with('\'') ? quoted.substr(1, quoted.size() - 2) : quoted;
}

std::string type_of(const Value& v) {
    return fmt::format("{}{}", to_string(v.dtype), to_string(std::span<const Expr>(v.shape)));
}

/// The work for the limit: multiply-adds of products, and the bytes of operands and results once. `operations`: adds
/// all arithmetic.
Work work_of(const TileProgram& kernel, const Bindings& sizes, double& operations) {
    const Program& p = kernel.stages;
    Work work;
    std::map<ValueId, double> bytes;
    for (const PrimitiveId s : p.primitives.ids()) {
        const StageModel model = stage_model(p, s, sizes);
        operations += model.flops();
        if (model.product) work.flops += model.flops();
        if (model.product && factor_bytes(model) == 2) work.bf16_flops += model.flops();
        if (model.product && factor_bytes(model) == 1) work.byte_flops += model.flops();
        const std::vector<Access>& accesses = p.primitives[s].expr()->accesses;
        const auto read = [&](ValueId v, const OperandModel& o) {
            double whole = static_cast<double>(o.element_bytes), part = o.elements(model.extents);
            for (const int64_t d : o.extents) whole *= static_cast<double>(d);
            part *= static_cast<double>(o.element_bytes);
            bytes[v] = std::min(whole, bytes[v] + part);
        };
        for (size_t k = 0; k < accesses.size(); ++k) read(accesses[k].value, model.operands[k]);
        read(p.primitives[s].outputs[0], model.result());
    }
    for (const ValueId v : p.inputs) work.bytes += bytes[v];
    for (const ValueId v : p.outputs) work.bytes += bytes[v];
    return work;
}

/// The way of a region at these sizes.
uint32_t way_at(const Region& region, const Bindings& sizes) {
    return region.dispatch.choose([&](Expr e) { return assumed_value(e, sizes); });
}
bool runs_at(const Plan& plan, const KernelCall& call, const Bindings& sizes) {
    return runs(plan, call, [&](Expr e) { return assumed_value(e, sizes); });
}

/// Seconds of a kernel's launch.
double launch_seconds(const Target& target) { return target.gpu ? target.gpu->rates.launch_us * 1e-6 : kKernelSeconds; }

/// Estimated seconds of a kernel without its launch.
double kernel_seconds(const TileProgram& kernel, const Target& target, const Bindings& sizes) {
    return target.gpu ? gpu_estimate(kernel, *target.gpu, sizes).seconds - launch_seconds(target)
                      : estimate(kernel, target, sizes).seconds;
}

/// Adds the time of kernels in sequence, including launches; bodies of control flow count once. Other steps count zero.
void add_cost(const Plan& plan, const std::vector<TileProgram>& kernels, const Target& target, const Bindings& sizes,
              PlanNote& note) {
    for (const Step& step : plan.steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call != nullptr && runs_at(plan, *call, sizes)) {
            ++note.kernels;
            note.estimate_ms += (kernel_seconds(kernels[call->kernel], target, sizes) + launch_seconds(target)) * 1e3;
        }
        for (const auto& body : step.bodies) add_cost(*body, kernels, target, sizes, note);
    }
}

class Explanation {
  public:
    /// `reference`: the program before rewriting.
    Explanation(const CompiledModel& model, const Program& reference, const Target& target, Precision precision,
                const Bindings& sizes, Report& report)
        : kernels_(model.kernels()), target_(target), precision_(precision), sizes_(sizes), r_(report) {
        for (const PrimitiveId id : reference.primitives.ids()) {
            const Primitive& p = reference.primitives[id];
            if (!p.expr()) continue;
            const double operations = stage_model(reference, id, sizes).flops();
            for (const uint32_t n : p.origin.nodes) operations_of_node_[node_name(reference, n)] += operations;
        }
    }

    void add(const Plan& plan) {
        const size_t first = r_.primitives.size();
        add_primitives(plan.unfused);
        std::map<ValueId, BoxId> makers;
        for (const Step& step : plan.steps) {
            if (const auto* call = std::get_if<KernelCall>(&step.what)) {
                if (runs_at(plan, *call, sizes_)) add_kernel(plan, *call, first, makers);
            } else {
                const Primitive& p = plan.program.primitives[std::get<PrimitiveId>(step.what)];
                StepNote note{first + p.origin.parts.at(0), makers_of(p.inputs(), makers)};
                for (const ValueId v : p.outputs) makers[v] = {r_.steps.size(), true};
                r_.steps.push_back(std::move(note));
            }
            for (const auto& body : step.bodies) add(*body);
        }
        add_regions(plan);
    }

  private:
    static std::string node_name(const Program& p, uint32_t node) {
        const SourceNode& n = p.nodes.at(node);
        return n.name.empty() ? n.op : fmt::format("{} ({})", readable(n.name), readable(n.op));
    }

    void add_regions(const Plan& plan) {
        std::vector<RegionNote> notes;
        for (const Region& region : plan.regions) {
            RegionNote& n = notes.emplace_back();
            n.name = readable(region.name);
            n.dispatch = region.dispatch.print();
            n.taken = way_at(region, sizes_);
            n.ways.resize(region.dispatch.ways());
        }
        for (const Step& step : plan.steps) {
            const auto* call = std::get_if<KernelCall>(&step.what);
            if (call == nullptr || !call->way) continue;
            RegionNote::Way& way = notes[call->way->region].ways[call->way->way];
            ++way.kernels;
            way.estimate_us +=
                (kernel_seconds(kernels_[call->kernel], target_, sizes_) + launch_seconds(target_)) * 1e6;
        }
        for (RegionNote& n : notes) {
            const auto same = std::find_if(r_.regions.begin(), r_.regions.end(), [&](const RegionNote& o) {
                return o.dispatch == n.dispatch && o.ways.size() == n.ways.size() &&
                       std::equal(o.ways.begin(), o.ways.end(), n.ways.begin(), [](const auto& a, const auto& b) {
                           return a.kernels == b.kernels && a.estimate_us == b.estimate_us;
                       });
            });
            if (same != r_.regions.end())
                ++same->count;
            else
                r_.regions.push_back(std::move(n));
        }
    }

    void add_primitives(const Program& p) {
        const size_t first = r_.primitives.size();
        const IndexVector<ValueId, PrimitiveId> producers = p.producers();
        for (const PrimitiveId id : p.primitives.ids()) {
            const Primitive& q = p.primitives[id];
            PrimitiveNote note;
            note.name = readable(q.name);
            note.category = to_string(category(p, q));
            if (const TensorExpr* e = q.expr()) note.text = print(p, *e);
            if (!q.outputs.empty()) note.type = type_of(p.values[q.outputs[0]]);
            for (const uint32_t n : q.origin.nodes) {
                note.nodes.push_back(node_name(p, n));
                note.operators.push_back(readable(p.nodes.at(n).op));
            }
            note.parts = parts_of(note.nodes);
            if (q.expr()) note.operations = stage_model(p, id, sizes_).flops();
            for (const ValueId v : q.inputs())
                if (producers[v]) note.reads.push_back(first + producers[v].index());
            std::sort(note.reads.begin(), note.reads.end());
            note.reads.erase(std::unique(note.reads.begin(), note.reads.end()), note.reads.end());
            r_.primitives.push_back(std::move(note));
        }
    }

    /// The share of a primitive's work that belongs to each of its nodes. A rewritten primitive may have several, such
    /// as a Conv over a Concat. It is divided in proportion to their arithmetic before rewriting, or evenly if none had
    /// any.
    std::vector<double> parts_of(const std::vector<std::string>& nodes) const {
        std::vector<double> parts;
        double all = 0;
        for (const std::string& n : nodes) {
            const auto it = operations_of_node_.find(n);
            all += parts.emplace_back(it == operations_of_node_.end() ? 0 : it->second);
        }
        for (double& p : parts) p = all > 0 ? p / all : 1 / static_cast<double>(parts.size());
        return parts;
    }

    TensorNote tensor(const Plan& plan, ValueId v) const {
        const Value& physical = plan.program.values[v];
        const bool known = v.index() < plan.unfused.values.size();
        const Value& logical = known ? plan.unfused.values[v] : physical;
        const Value stored{logical.name, physical.dtype, logical.shape};
        TensorNote note{readable(logical.name), type_of(stored), {}, plan.program.is_constant(v)};
        if (physical.shape != logical.shape) note.layout = to_string(std::span<const Expr>(physical.shape));
        return note;
    }

    static std::vector<BoxId> makers_of(std::span<const ValueId> values, const std::map<ValueId, BoxId>& makers) {
        std::set<BoxId> out;
        for (const ValueId v : values)
            if (const auto it = makers.find(v); it != makers.end()) out.insert(it->second);
        return {out.begin(), out.end()};
    }

    void add_kernel(const Plan& plan, const KernelCall& call, size_t first, std::map<ValueId, BoxId>& makers) {
        const TileProgram& tiles = kernels_[call.kernel];
        KernelNote k;
        k.name = readable(call.name);
        k.code = call.kernel;
        Origin origin;
        for (const PrimitiveId id : call.primitives) origin.add(plan.program.primitives[id].origin);
        for (const uint32_t part : origin.parts) {
            PrimitiveNote& p = r_.primitives[first + part];
            k.repeated += p.kernels.empty() ? 0 : 1;
            p.kernels.push_back(r_.kernels.size());
            k.primitives.push_back(first + part);
        }
        for (const uint32_t n : origin.nodes) k.nodes.push_back(node_name(plan.program, n));
        const size_t inputs = tiles.stages.inputs.size();
        for (size_t i = 0; i < call.tensors.size(); ++i)
            (i < inputs ? k.reads : k.writes).push_back(tensor(plan, call.tensors[i]));
        k.from = makers_of(std::span(call.tensors).first(inputs), makers);
        k.not_fused = not_fused(plan, k.from, origin.parts, first, call.chosen);
        for (size_t i = inputs; i < call.tensors.size(); ++i) makers[call.tensors[i]] = {r_.kernels.size(), false};
        k.provider = call.provider;
        k.tiling = tiling_expression(tiles);
        if (target_.gpu) k.offer = offer_of(call.kernel);
        k.estimate_us = kernel_seconds(tiles, target_, sizes_) * 1e6;
        const Work work = work_of(tiles, sizes_, k.operations);
        k.bytes = work.bytes;
        k.limit = limit_of(work, target_, precision_);
        k.shares = shares_of(k.primitives);
        if (call.measured_seconds) k.alone_us = *call.measured_seconds * 1e6;
        r_.kernels.push_back(std::move(k));
        selected_.push_back(call.chosen);
    }

    /// What cuBLASLt and cuDNN are offered of a kernel for a GPU, where they are installed.
    const std::string& offer_of(size_t kernel) {
        const auto [it, fresh] = offers_.try_emplace(kernel);
        if (!fresh) return it->second;
        const Program& stages = kernels_[kernel].stages;
        const bool sums = std::any_of(stages.primitives.begin(), stages.primitives.end(), [](const Primitive& p) {
            return p.expr() != nullptr && contraction(*p.expr()).has_value();
        });
        if (!sums) return it->second;
        const auto refused = cuda::library_refusal(stages);
        if (!refused) return it->second = "the kernel";
        const auto found = cut_at_sums(stages, precision_, cuda::library_refusal);
        const auto* cut = std::get_if<KernelCut>(&found);
        if (cut == nullptr) return it->second = fmt::format("nothing ({})", std::get<Refusal>(found).reason);
        return it->second = fmt::format(
                   "{}{} ({})", cut->sums.size() == 1 ? "its sum" : fmt::format("{} of its sums", cut->sums.size()),
                   cuda::is_product_graph(stages) ? ", the kernel as cuDNN's graph" : "", refused->reason);
    }

    /// The reason why optimal orchestration did not select two neighbours as one kernel. `refused`: the reason of
    /// greedy orchestration's passes.
    std::string not_selected(std::optional<size_t> producer, std::optional<size_t> reader,
                             const std::string& refused) const {
        if (!producer || !reader) return refused;
        const OrchestrationReport& o = *r_.optimal;
        if (producer == reader)
            return "selected as one kernel, emitted as several: no shared rows in the whole program";
        if (const auto it = o.not_fused.find({*producer, *reader}); it != o.not_fused.end()) return it->second;
        if (o.kernels[*producer].piece != o.kernels[*reader].piece)
            return "they are in different pieces of the program (--piece-nodes)";
        return refused;
    }

    /// The reasons why a kernel is not fused with the producers of its operands. `parts`: its primitives. `from`: the
    /// producers. `first`: position of the plan's primitives. `selected`: KernelCall::chosen.
    std::vector<NotFused> not_fused(const Plan& plan, const std::vector<BoxId>& from, const Refusals::Parts& parts,
                                    size_t first, std::optional<size_t> selected) const {
        std::vector<NotFused> out;
        if (!plan.refusals) return out;
        std::map<std::string, size_t> by_reason;
        for (const BoxId producer : from) {
            if (producer.step) continue;
            Refusals::Parts other;
            for (const size_t p : r_.kernels[producer.index].primitives)
                other.push_back(static_cast<uint32_t>(p - first));
            const char* refused = plan.refusals->reason(other, parts);
            std::string reason = refused != nullptr ? refused : "no fusion pass applies to the two";
            if (r_.optimal) reason = not_selected(selected_[producer.index], selected, reason);
            if (parts.empty() || other.empty()) reason = "one of them converts a layout or merges split-K results";
            const auto [it, fresh] = by_reason.try_emplace(reason, out.size());
            if (fresh) out.push_back({{}, reason});
            out[it->second].kernels.push_back(producer.index);
        }
        return out;
    }

    std::vector<std::pair<std::string, double>> shares_of(const std::vector<size_t>& primitives) const {
        if (primitives.empty()) return {{kLayoutConversion, 1.0}};
        double all = 0;
        for (const size_t p : primitives) all += r_.primitives[p].operations;
        std::map<std::string, double> by_type;
        for (const size_t i : primitives) {
            const PrimitiveNote& p = r_.primitives[i];
            // In kernels that only move data, all primitives have equal shares.
            const double share = all > 0 ? p.operations / all : 1 / static_cast<double>(primitives.size());
            if (p.operators.empty()) by_type["(none)"] += share;
            for (size_t n = 0; n < p.operators.size(); ++n) by_type[p.operators[n]] += share * p.parts[n];
        }
        std::vector<std::pair<std::string, double>> out(by_type.begin(), by_type.end());
        std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
        return out;
    }

    const std::vector<TileProgram>& kernels_;
    const Target& target_;
    const Precision precision_;             ///< of a GPU's products
    std::map<size_t, std::string> offers_;  ///< offer_of
    const Bindings& sizes_;
    std::map<std::string, double> operations_of_node_;  ///< before rewriting
    Report& r_;
    std::vector<std::optional<size_t>> selected_;  ///< per kernel: KernelCall::chosen
};

/// Runs the models in turns, and profiles the kernels of the first one.
void measure(const std::vector<std::shared_ptr<const CompiledModel>>& models, const std::vector<Tensor>& inputs,
             int threads, double seconds, Report& report) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<std::vector<double>> ms(models.size());
    for (const auto& m : models) {
        sessions.push_back(std::make_unique<Session>(m, threads));
        sessions.back()->run_in_place(inputs);
    }
    std::map<std::string, std::vector<double>> by_name;  // microseconds of a run
    const double end = now_seconds() + seconds * static_cast<double>(models.size());
    constexpr size_t kFewest = 3;
    while (ms[0].size() < kFewest || now_seconds() < end) {
        for (size_t i = 0; i < models.size(); ++i) {
            const double start = now_seconds();
            sessions[i]->run_in_place(inputs);
            ms[i].push_back((now_seconds() - start) * 1e3);
        }
        std::map<std::string, double> us;
        for (const StepTime& s : profiled_run(*sessions[0], inputs))
            if (s.kernel >= 0) us[readable(s.name)] += s.duration_us;
        for (const auto& [name, t] : us) by_name[name].push_back(t);
    }
    for (size_t i = 0; i < models.size(); ++i) report.plans[i].measured_ms = median(ms[i]);
    std::map<std::string, size_t> namesakes;
    for (const KernelNote& k : report.kernels) ++namesakes[k.name];
    for (KernelNote& k : report.kernels)
        if (const auto it = by_name.find(k.name); it != by_name.end())
            k.in_model_us = median(it->second) / static_cast<double>(namesakes[k.name]);
}

}  // namespace

size_t Report::repeated() const {
    size_t n = 0;
    for (const KernelNote& k : kernels) n += k.repeated;
    return n;
}

std::vector<OperatorTotal> Report::operator_totals() const {
    std::map<std::string, OperatorTotal> by_type;
    for (const KernelNote& k : kernels)
        for (const auto& [type, share] : k.shares) {
            OperatorTotal& t = by_type[type];
            t.type = type;
            ++t.kernels;
            t.us += share * k.us();
            t.limit_us += share * k.limit.ms * 1e3;
        }
    std::vector<OperatorTotal> out;
    for (auto& [type, total] : by_type) out.push_back(std::move(total));
    std::stable_sort(out.begin(), out.end(),
                     [](const OperatorTotal& a, const OperatorTotal& b) { return a.us > b.us; });
    return out;
}

namespace {

/// The same products in f32 as in the plan that is explained.
void take_precision(const PrecisionChoice& choice, CompileOptions& options) {
    options.max_error = 0;
    options.where_faster = false;
    options.f32_products = choice.f32_products;
    if (!choice.note.empty()) options.precision = Precision::F32;
}

}  // namespace

Report explain(const Compilation& c, const PipelineOptions& pipeline, const ExplainOptions& options) {
    Target target = c.model->target();
    Report r;
    target.workers = r.threads = default_thread_count(pipeline.compile.threads);
    r.machine = readable(target.gpu ? target.gpu->name : target.cpu);
    r.calibrated = target.gpu ? target.gpu->measured : target.calibrated;
    r.gpu = target.gpu.has_value();
    const Precision precision = r.gpu ? pipeline.compile.precision : Precision::F32;
    r.orchestrator = pipeline.compile.orchestrator;
    r.compile_ms = c.compile_ms;
    if (pipeline.rewrite) r.rewrites = c.rewrites;
    if (r.gpu && r.rewrites) {  // the search's own costs are a CPU's
        r.rewrites->before = r.rewrites->planned_before;
        r.rewrites->after = r.rewrites->planned_after;
    }
    r.precision = c.precision;
    r.optimal = c.model->plan().optimal;
    r.codes = static_cast<size_t>(c.model->stats().kernels);
    r.launch_us = launch_seconds(target) * 1e6;
    r.peak_gflops = peak_gflops(target, precision);
    r.bandwidths = bandwidths(target);
    const std::vector<Tensor> inputs = options.sized || options.seconds > 0 ? options.inputs(c) : std::vector<Tensor>();
    Bindings sizes = options.sized ? bind_inputs(c.program, inputs) : Bindings();
    for (const auto& [v, size] : sizes) {
        const auto [name, step] = size_name(v);
        r.sizes[name] = size * step;
    }
    // Kernels are made for samples of sizes, but the report is about one size of each symbol.
    sizes.insert(c.program.assumed.begin(), c.program.assumed.end());
    for (const Var v : names_of(c.model->plan().program)) sizes.try_emplace(v, kAssumedExtent);
    Explanation(*c.model, c.program, target, precision, sizes, r).add(c.model->plan());

    std::vector<std::shared_ptr<const CompiledModel>> models = {c.model};
    r.plans.push_back({"this plan", 0, 0, {}});
    add_cost(c.model->plan(), c.model->kernels(), target, sizes, r.plans.back());
    for (const bool operators : {false, true}) {
        r.plans.push_back({operators ? "one kernel per operator" : "greedy", 0, 0, {}});
        if (options.progress) options.progress(r.plans.back().name);
        CompileOptions other = pipeline.compile;
        other.orchestrator = Orchestrator::Greedy;
        other.without = {};
        other.without.no_operator_fusion = operators;
        if (c.precision) take_precision(*c.precision, other);
        if (options.seconds > 0) {
            models.push_back(compile_program(c.rewritten, other));
            add_cost(models.back()->plan(), models.back()->kernels(), target, sizes, r.plans.back());
        } else {
            KernelSet kernels;
            OrchestrateOptions how = orchestrate_options(other);
            if (compares_layouts(other)) how.layouts = layouts_pay(c.rewritten, other);
            add_cost(plan_program(c.rewritten, kernels, how), kernels.kernels(), target, sizes, r.plans.back());
        }
    }
    if (options.seconds > 0) {
        if (options.progress) options.progress("running");
        measure(models, inputs, r.threads, options.seconds, r);
    }
    return r;
}

}  // namespace tilewright::explain
