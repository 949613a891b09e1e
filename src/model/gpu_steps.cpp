// A plan's runs of kernels as operators that the session's GPU runs.

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "model/gpu_model.h"

namespace tilewright {

namespace {

constexpr size_t kMostShapes = 32;  ///< that a step remembers

/// Kernels that follow each other.
class GpuKernelRun : public OpaqueOp {
  public:
    /// `inputs`: what the host brings; `outputs`: what it fetches; `kept`: places of what runs leave for each other on
    /// the device, of which these kernels write `made`.
    GpuKernelRun(const Plan& plan, std::vector<const KernelCall*> calls, std::vector<ValueId> inputs,
                 std::vector<ValueId> outputs, std::map<ValueId, size_t> kept, std::vector<ValueId> made,
                 const GpuModel& model, GpuMemory& memory)
        : plan_(plan),
          calls_(std::move(calls)),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          kept_(std::move(kept)),
          made_(std::move(made)),
          model_(model),
          memory_(memory) {
        std::set<Var> mentioned;
        const auto add = [&](Expr e) {
            for (const Var v : variables(e))
                if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) mentioned.insert(v);
        };
        for (const KernelCall* call : calls_) {
            for (const ValueId v : call->tensors)
                for (const Expr& d : plan_.program.values[v].shape) add(d);
            const cuda::KernelText& text = text_of(*call);
            for (const Expr& g : text.grid) add(g);
            mentioned.insert(text.names.begin(), text.names.end());
            const std::vector<Var>& offers = model_.offers().names(call->kernel);
            mentioned.insert(offers.begin(), offers.end());
        }
        names_.assign(mentioned.begin(), mentioned.end());
    }

    std::string print() const override { return fmt::format("Gpu({} kernels)", calls_.size()); }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        Prepared& p = prepared();
        memory_.reserve(p.device_bytes, p.pinned_bytes);
        for (const ValueId v : made_) memory_.keep(kept_.at(v), p.bytes.at(v));
        if (!p.bound || p.generation != memory_.generation()) bind(p);
        for (size_t i = 0; i < inputs_.size(); ++i)
            if (p.bytes.at(inputs_[i]) > 0)
                std::memcpy(memory_.pinned() + p.pinned.at(inputs_[i]), inputs[i].data,
                            static_cast<size_t>(p.bytes.at(inputs_[i])));
        const cuda::Gpu::Stream& stream = memory_.stream();
        try {
            if (memory_.context().profile != nullptr) {
                timed(p);
            } else if (p.runs++ == 0) {
                enqueue(p);  // shapes that come once are not worth a graph
            } else {
                if (!p.graph) p.graph = stream.capture([&] { enqueue(p); });
                stream.launch(*p.graph);
            }
        } catch (...) {
            // Copies that are under way must not meet memory that is gone.
            try {
                stream.synchronize();
            } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): the first error is the one to report
            }
            throw;
        }
        stream.synchronize();
        memory_.context().flops += p.flops;
        for (size_t k = 0; k < outputs_.size(); ++k) {
            const TensorView to = outputs.allocate(k, p.shapes.at(outputs_[k]));
            if (p.bytes.at(outputs_[k]) > 0)
                std::memcpy(to.data, memory_.pinned() + p.pinned.at(outputs_[k]),
                            static_cast<size_t>(p.bytes.at(outputs_[k])));
        }
    }

  private:
    struct Launch {
        std::shared_ptr<const cuda::LibraryPlan> library;  ///< runs in place of the generated kernel
        bool failed = false;                               ///< the library's, so that the generated kernel runs
        bool generated = true;                             ///< there is memory for it
        int64_t blocks = 1;
        std::vector<void*> tensors, pointers;  ///< the latter with the generated kernel's memory
        std::vector<long long> names;
        std::vector<void*> arguments;  ///< addresses of those
    };
    /// All that follows from the names' numbers.
    struct Prepared {
        std::vector<int64_t> numbers;
        std::map<ValueId, Shape> shapes;
        std::map<ValueId, int64_t> bytes, device, pinned;  ///< sizes, and offsets
        std::vector<int64_t> scratch;                      ///< offset of each call's
        std::shared_ptr<void> counters;                    ///< of all calls, each at a place of its own
        std::vector<int64_t> counters_at;                  ///< offset of each call's
        int64_t device_bytes = 0, pinned_bytes = 0;
        double flops = 0;
        std::vector<Launch> launches;
        bool bound = false;  ///< launches hold addresses of this generation
        uint64_t generation = 0;
        int runs = 0;
        std::optional<cuda::Gpu::Graph> graph;
        uint64_t used = 0;
    };

    const cuda::KernelText& text_of(const KernelCall& call) const { return model_.model()->gpu_kernels()[call.kernel]; }
    const Names& names() const { return *memory_.context().names; }
    bool constant(ValueId v) const { return plan_.program.constants.count(v) != 0; }

    Prepared& prepared() const {
        std::vector<int64_t> numbers;
        numbers.reserve(names_.size());
        for (const Var v : names_) numbers.push_back(names().value(names().slot(v)));
        auto it = std::find_if(known_.begin(), known_.end(), [&](const auto& p) { return p->numbers == numbers; });
        if (it == known_.end()) {
            if (known_.size() == kMostShapes)
                known_.erase(std::min_element(known_.begin(), known_.end(),
                                              [](const auto& a, const auto& b) { return a->used < b->used; }));
            known_.push_back(std::make_unique<Prepared>(prepare(std::move(numbers))));
            it = std::prev(known_.end());
        }
        (*it)->used = ++clock_;
        return **it;
    }

    Prepared prepare(std::vector<int64_t> numbers) const {
        Prepared p;
        p.numbers = std::move(numbers);
        const auto measure = [&](ValueId v) {
            const Value& value = plan_.program.values[v];
            Shape shape;
            for (const Expr& d : value.shape) shape.push_back(names().evaluate(d));
            p.bytes[v] = element_count(shape) * static_cast<int64_t>(byte_size(value.dtype));
            p.shapes[v] = std::move(shape);
        };
        // Lives: inputs arrive before the first kernel, outputs leave after the last.
        const auto last = static_cast<int64_t>(calls_.size());
        std::map<ValueId, BufferLife> lives;
        const auto touch = [&](ValueId v, int64_t step) {
            if (constant(v)) return;
            if (p.bytes.count(v) == 0) measure(v);
            if (kept_.count(v) != 0) return;
            const auto [it, fresh] = lives.try_emplace(v, BufferLife{p.bytes.at(v), step, step});
            it->second.last_step = std::max(it->second.last_step, step);
        };
        for (const ValueId v : inputs_) touch(v, 0);
        for (size_t c = 0; c < calls_.size(); ++c)
            for (const ValueId v : calls_[c]->tensors) touch(v, static_cast<int64_t>(c));
        for (const ValueId v : outputs_) touch(v, last);
        std::vector<BufferLife> buffers;
        buffers.reserve(lives.size() + calls_.size());
        for (const auto& [v, life] : lives) buffers.push_back(life);
        const auto aligned = [](int64_t bytes) {
            return (bytes + cuda::kTensorAlignment - 1) / cuda::kTensorAlignment * cuda::kTensorAlignment;
        };
        int64_t counter_bytes = 0;
        std::map<size_t, std::shared_ptr<const cuda::LibraryPlan>> chosen;
        for (size_t c = 0; c < calls_.size(); ++c) {
            const cuda::KernelText& text = text_of(*calls_[c]);
            Launch launch;
            for (const Expr& g : text.grid) launch.blocks *= names().evaluate(g);
            for (const Var v : text.names) launch.names.push_back(names().value(names().slot(v)));
            const auto step = static_cast<int64_t>(c);
            const std::vector<Var>& sized = model_.offers().names(calls_[c]->kernel);
            launch.library = library_of(calls_[c]->kernel, chosen);
            if (launch.library && launch.library->prepared_bytes() > 0 && model_.prepared(plan_, *calls_[c]) == nullptr)
                launch.library = nullptr;
            launch.generated = launch.library == nullptr || !sized.empty();
            buffers.push_back({std::max(launch.library ? launch.library->workspace_bytes() : 0,
                                        launch.generated ? text.scratch_bytes * launch.blocks : 0),
                               step, step});
            p.counters_at.push_back(counter_bytes);
            if (launch.generated && text.counters)
                counter_bytes = aligned(counter_bytes + 4 * names().evaluate(*text.counters));
            p.launches.push_back(std::move(launch));
            p.flops += product_flops(*calls_[c], names());
        }
        const MemoryPlan plan = plan_memory(buffers, cuda::kTensorAlignment);
        size_t i = 0;
        for (const auto& [v, life] : lives) p.device[v] = plan.offsets[i++];
        p.scratch.assign(plan.offsets.begin() + static_cast<std::ptrdiff_t>(i), plan.offsets.end());
        p.device_bytes = std::max<int64_t>(plan.total, 1);
        if (counter_bytes > 0) p.counters = model_.gpu().allocate_zeros(static_cast<size_t>(counter_bytes));
        for (const auto* list : {&inputs_, &outputs_})
            for (const ValueId v : *list)
                if (p.pinned.emplace(v, p.pinned_bytes).second) p.pinned_bytes += (p.bytes.at(v) + 63) / 64 * 64;
        return p;
    }

    /// What a library runs in place of the kernel at these sizes; null: nothing. `chosen`: of kernels seen before.
    std::shared_ptr<const cuda::LibraryPlan> library_of(
        size_t kernel, std::map<size_t, std::shared_ptr<const cuda::LibraryPlan>>& chosen) const {
        const auto [it, fresh] = chosen.try_emplace(kernel);
        if (!fresh) return it->second;
        Bindings sizes;
        for (const Var v : model_.offers().names(kernel)) sizes.emplace(v, names().value(names().slot(v)));
        return it->second = model_.offers().plan(kernel, sizes);
    }

    void bind(Prepared& p) const {
        for (size_t c = 0; c < calls_.size(); ++c) {
            Launch& launch = p.launches[c];
            launch.tensors.clear();
            for (const ValueId v : calls_[c]->tensors) launch.tensors.push_back(address(p, v));
            launch.pointers = launch.tensors;
            if (launch.library && launch.library->prepared_bytes() > 0)
                launch.tensors.push_back(model_.prepared(plan_, *calls_[c]));
            if (!launch.generated) continue;
            if (text_of(*calls_[c]).scratch_bytes > 0) launch.pointers.push_back(memory_.device() + p.scratch[c]);
            if (text_of(*calls_[c]).counters)
                launch.pointers.push_back(static_cast<std::byte*>(p.counters.get()) + p.counters_at[c]);
            launch.arguments.clear();
            for (void*& at : launch.pointers) launch.arguments.push_back(static_cast<void*>(&at));
            for (long long& n : launch.names) launch.arguments.push_back(&n);
        }
        p.graph.reset();
        p.generation = memory_.generation();
        p.bound = true;
    }

    void* address(const Prepared& p, ValueId v) const {
        if (constant(v)) return model_.weight(plan_.program.constants.at(v).data());
        if (const auto it = kept_.find(v); it != kept_.end()) return memory_.kept(it->second);
        return memory_.device() + p.device.at(v);
    }
    void bring_inputs(const Prepared& p) const {
        for (const ValueId v : inputs_)
            memory_.stream().to_device(address(p, v), memory_.pinned() + p.pinned.at(v),
                                       static_cast<size_t>(p.bytes.at(v)));
    }
    void launch(Prepared& p, size_t c) const {
        Launch& l = p.launches[c];
        if (l.library && !l.failed) try {
                return l.library->run(memory_.stream(), l.tensors, memory_.device() + p.scratch[c]);
            } catch (const RuntimeError&) {
                // It has not run at these sizes before. A graph is captured of what has run.
                if (!l.generated || p.runs > 1) throw;
                l.failed = true;
            }
        memory_.stream().launch(model_.kernel(calls_[c]->kernel), l.blocks, l.arguments);
    }
    void fetch_outputs(const Prepared& p) const {
        for (const ValueId v : outputs_)
            memory_.stream().to_host(memory_.pinned() + p.pinned.at(v), address(p, v),
                                     static_cast<size_t>(p.bytes.at(v)));
    }
    void enqueue(Prepared& p) const {
        bring_inputs(p);
        for (size_t c = 0; c < calls_.size(); ++c) launch(p, c);
        fetch_outputs(p);
    }

    /// Each kernel waited for, a StepTime each.
    void timed(Prepared& p) const {
        bring_inputs(p);
        memory_.stream().synchronize();
        const ExecutionContext& context = memory_.context();
        for (size_t c = 0; c < calls_.size(); ++c) {
            const double start = now_us();
            launch(p, c);
            memory_.stream().synchronize();
            const double flops = product_flops(*calls_[c], names());
            double bytes = 0;
            for (const ValueId v : calls_[c]->tensors)
                bytes += static_cast<double>(constant(v) ? static_cast<int64_t>(plan_.program.constants.at(v).bytes())
                                                         : p.bytes.at(v));
            context.profile->push_back(
                {calls_[c]->name, start, now_us() - start, flops, static_cast<int>(calls_[c]->kernel), bytes});
        }
        fetch_outputs(p);
    }

    const Plan& plan_;
    std::vector<const KernelCall*> calls_;
    std::vector<ValueId> inputs_, outputs_;
    std::map<ValueId, size_t> kept_;
    std::vector<ValueId> made_;
    const GpuModel& model_;
    GpuMemory& memory_;
    std::vector<Var> names_;
    // A session's, which one thread at a time runs.
    mutable std::vector<std::unique_ptr<Prepared>> known_;
    mutable uint64_t clock_ = 0;
};

/// What a kernel reads of the plan's values.
std::vector<ValueId> reads_of(const KernelCall& call, const GpuModel& model) {
    const size_t inputs = model.model()->kernels()[call.kernel].stages.inputs.size();
    return {call.tensors.begin(), call.tensors.begin() + static_cast<std::ptrdiff_t>(inputs)};
}

}  // namespace

Plan on_gpu(const Plan& plan, const GpuModel& model, GpuMemory& memory) {
    Plan out;
    out.program = plan.program;
    // What the host reads, and what a run of kernels writes for a later one.
    std::set<ValueId> by_host(plan.program.outputs.begin(), plan.program.outputs.end());
    std::map<ValueId, size_t> places, run_of;  // the run that writes it
    size_t run = 0;
    for (const Step& step : plan.steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) {
            ++run;
            for (const ValueId v : plan.program.primitives[std::get<PrimitiveId>(step.what)].inputs())
                by_host.insert(v);
            continue;
        }
        const std::vector<ValueId> of_call = reads_of(*call, model);
        for (const ValueId v : of_call)
            if (const auto it = run_of.find(v); it != run_of.end() && it->second != run && places.count(v) == 0)
                places.emplace(v, memory.new_place());
        for (size_t k = of_call.size(); k < call->tensors.size(); ++k) run_of[call->tensors[k]] = run;
    }
    for (size_t s = 0; s < plan.steps.size();) {
        if (!std::holds_alternative<KernelCall>(plan.steps[s].what)) {
            Step step{plan.steps[s].what, {}};
            for (const auto& body : plan.steps[s].bodies)
                step.bodies.push_back(std::make_shared<const Plan>(on_gpu(*body, model, memory)));
            out.steps.push_back(std::move(step));
            ++s;
            continue;
        }
        std::vector<const KernelCall*> calls;
        std::vector<ValueId> inputs, written, outputs, made;
        std::map<ValueId, size_t> kept;
        for (; s < plan.steps.size() && std::holds_alternative<KernelCall>(plan.steps[s].what); ++s) {
            const KernelCall& call = std::get<KernelCall>(plan.steps[s].what);
            calls.push_back(&call);
            const std::vector<ValueId> of_call = reads_of(call, model);
            for (const ValueId v : of_call) {
                if (const auto it = places.find(v); it != places.end()) {
                    kept.insert(*it);
                    continue;
                }
                const auto in = [&](const std::vector<ValueId>& list) {
                    return std::find(list.begin(), list.end(), v) != list.end();
                };
                if (plan.program.constants.count(v) == 0 && !in(written) && !in(inputs)) inputs.push_back(v);
            }
            written.insert(written.end(), call.tensors.begin() + static_cast<std::ptrdiff_t>(of_call.size()),
                           call.tensors.end());
        }
        for (const ValueId v : written) {
            if (by_host.count(v) != 0) outputs.push_back(v);
            if (const auto it = places.find(v); it != places.end()) {
                kept.insert(*it);
                made.push_back(v);
            }
        }
        Opaque op;
        op.op = std::make_shared<const GpuKernelRun>(plan, calls, inputs, outputs, kept, made, model, memory);
        op.inputs.assign(inputs.begin(), inputs.end());
        Primitive primitive;
        primitive.name =
            calls.size() == 1 ? calls[0]->name : fmt::format("{} and {} more", calls[0]->name, calls.size() - 1);
        primitive.outputs = outputs;
        primitive.kind = std::move(op);
        out.steps.push_back({out.program.primitives.push_back(std::move(primitive)), {}});
    }
    return out;
}

}  // namespace tilewright
