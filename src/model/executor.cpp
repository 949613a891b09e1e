#include "model/executor.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "model/step_order.h"
#include "program/analysis/contraction.h"

namespace tilewright {

Names::Names(const std::vector<Var>& vars) {
    for (const Var v : vars) slots_.try_emplace(v, slots_.size());
    values_.assign(slots_.size(), 0);
}

size_t Names::slot(Var v) const {
    const auto it = slots_.find(v);
    TW_CHECK(it != slots_.end(), "{} has no slot", Expr::var(v).text());
    return it->second;
}

int64_t Names::evaluate(Expr e) const {
    if (e.is_constant()) return e.constant();
    const std::function<std::optional<int64_t>(Var)> look = [this](Var v) -> std::optional<int64_t> {
        return values_[slot(v)];
    };
    Env env;
    env.names = &look;
    return tilewright::evaluate(e, env);
}

namespace {

void collect(std::set<Var>& out, Expr e) {
    for (const Var v : variables(e))
        if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) out.insert(v);
}

void collect(std::set<Var>& out, const Plan& plan) {
    for (const Value& v : plan.program.values)
        for (const Expr& d : v.shape) collect(out, d);
    for (const Primitive& p : plan.program.primitives) {
        if (const TensorExpr* e = p.expr()) {
            for (const Expr& x : e->extents) collect(out, x);
        } else if (const auto* read = std::get_if<ReadScalar>(&p.kind)) {
            collect(out, scalar(read->name));
        } else if (const auto* loop = std::get_if<Loop>(&p.kind)) {
            if (loop->trip_count) collect(out, *loop->trip_count);
        }
    }
    for (const Requirement& r : plan.program.requirements) {
        collect(out, r.a);
        collect(out, r.b);
    }
    for (const Step& s : plan.steps)
        for (const auto& body : s.bodies) collect(out, *body);
}

/// More than any machine has, and far from overflowing: sums of such sizes fit 63 bits.
constexpr int64_t kMostBytes = int64_t{1} << 50;

/// memcpy that takes null pointers where there is nothing to copy: a caller's empty tensor need not lie anywhere.
void copy_bytes(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

double product_flops(const TensorExpr& e, const Names& names) {
    if (!contraction(e) || e.accesses.size() < 2) return 0;
    double points = 2;
    for (const Expr& x : e.extents) points *= static_cast<double>(names.evaluate(x));
    return points;
}

std::vector<Var> variables_of(const Plan& plan, const std::vector<cpu::CompiledKernel>& kernels) {
    std::set<Var> all;
    collect(all, plan);
    for (const cpu::CompiledKernel& k : kernels) all.insert(k.names.begin(), k.names.end());
    return {all.begin(), all.end()};
}

struct Executor::Impl {
    /// Where a value is right now.
    struct Slot {
        void* data = nullptr;
        Shape shape;
        std::vector<std::byte> own;  ///< memory of values whose size only the data decides
        int64_t arena_offset = -1;
        bool late = false;  ///< size not known when the plan starts
        bool constant = false, input = false;
        bool placed = false;                                        ///< an output that the caller has given memory for
        bool fixed() const { return constant || input || placed; }  ///< where it lies is not ours to say
    };
    struct KernelState {
        const cpu::CompiledKernel* kernel = nullptr;
        std::vector<void*> tensors;
        std::vector<int64_t> names;
        std::unique_ptr<cpu::LibraryCall::Runs> library;  ///< in place of generated code
        int64_t tasks = 0;
        bool alone = false;       ///< one thread does all tasks
        bool to_and_fro = false;  ///< every other run does the tasks in the opposite order
        bool late = false;
    };
    struct StepState {
        KernelState kernel;
        std::vector<std::unique_ptr<Executor>> bodies;
        std::vector<TensorView> views;
        /// Loop: storage of carried values, of those that a step is making, of slices and collected outputs.
        std::vector<std::vector<std::byte>> carried, next, slices, collected;
        std::vector<Shape> carried_shapes, collected_shapes;
        /// Loop: what its body's executor sees, so that loops may run side by side.
        std::unique_ptr<ExecutionContext> context;
        std::vector<StepTime> times;
        std::exception_ptr error;
        std::vector<const Requirement*> requirements;  ///< whose last name it binds
    };
    /// Kernels that run slice by slice, where the last of them stands. A thread has memory of its own for what they
    /// hand on, one slice of it.
    struct SlicedSteps {
        const Slices* of = nullptr;
        std::vector<int64_t> kept_bytes;           ///< by kept value: of a thread's slice, a multiple of 64
        std::vector<std::vector<void*>> tensors;   ///< by kernel and thread
        std::vector<double> spent_us;              ///< likewise, where somebody wants to know
        std::vector<std::vector<int>> kept_place;  ///< by kernel and tensor: which kept value it is, -1: none
    };
    /// Output dimensions that a step binds: value, dimension, slot.
    struct Binding {
        ValueId value;
        size_t dim;
        size_t slot;
    };

    const Plan& plan;
    ExecutionContext& context;
    IndexVector<ValueId, Slot> slots;
    std::vector<StepState> steps;
    const int workers;  ///< at most
    std::vector<SlicedSteps> sliced;
    std::vector<int> sliced_as;              ///< by step: which of them it is part of, -1: none
    std::vector<std::vector<size_t>> order;  ///< in which steps run; those that stand together run side by side
    std::map<PrimitiveId, std::vector<Binding>> bindings;
    std::vector<std::vector<std::pair<size_t, size_t>>> input_bindings;  ///< per input: (dimension, slot)
    std::set<Var> early;
    std::vector<const Requirement*> early_requirements;  ///< over names that are known when the plan starts
    Arena arena;
    uint64_t arena_charged = 0;  ///< bytes of it that the budget knows of
    bool prepared = false;
    bool backward = false;  ///< this run does the tasks of some kernels in the opposite order
    std::vector<size_t> early_slots;
    std::vector<int64_t> early_values;
    double flops = 0;

    Impl(const Plan& p, ExecutionContext& c, const std::vector<Var>& known)
        : plan(p), context(c), slots(p.program.values.size()), workers(c.pool != nullptr ? c.pool->size() : 1) {
        early.insert(known.begin(), known.end());
        input_bindings.resize(plan.program.inputs.size());
        for (size_t i = 0; i < plan.program.inputs.size(); ++i) {
            const Value& v = plan.program.values[plan.program.inputs[i]];
            slots[plan.program.inputs[i]].input = true;
            for (size_t d = 0; d < v.shape.size(); ++d)
                if (const auto var = v.shape[d].as_var();
                    var && var->kind == VarKind::Symbol && early.insert(*var).second)
                    input_bindings[i].emplace_back(d, context.names->slot(*var));
        }
        for (const auto& [v, tensor] : plan.program.constants) {
            slots[v].constant = true;
            slots[v].data = const_cast<void*>(tensor.data());
            slots[v].shape = tensor.shape();
        }
        for (const Var v : early) early_slots.push_back(context.names->slot(v));
        find_late();
        std::set<Var> so_far = early;
        std::vector<const Requirement*> requirements;
        for (const Requirement& r : plan.program.requirements)
            (is_early(r.a) && is_early(r.b) ? early_requirements : requirements).push_back(&r);
        for (const Step& step : plan.steps) {
            StepState state;
            if (const auto* call = std::get_if<KernelCall>(&step.what)) {
                state.kernel.kernel = &(*context.kernels)[call->kernel];
                if (state.kernel.kernel->library && context.pool != nullptr)
                    state.kernel.library = state.kernel.kernel->library->runs(context.pool->size());
                state.kernel.tensors.resize(call->tensors.size());
                state.kernel.names.resize(state.kernel.kernel->names.size());
                for (const Var v : state.kernel.kernel->names)
                    state.kernel.late = state.kernel.late || early.count(v) == 0;
                for (const ValueId v : call->tensors) state.kernel.late = state.kernel.late || slots[v].late;
            } else {
                const PrimitiveId id = std::get<PrimitiveId>(step.what);
                const Primitive& primitive = plan.program.primitives[id];
                for (const ValueId v : primitive.outputs) {
                    const Value& value = plan.program.values[v];
                    for (size_t d = 0; d < value.shape.size(); ++d)
                        if (const auto var = value.shape[d].as_var();
                            var && var->kind == VarKind::Symbol && so_far.insert(*var).second)
                            bindings[id].push_back({v, d, context.names->slot(*var)});
                }
                if (const auto* read = std::get_if<ReadScalar>(&primitive.kind))
                    so_far.insert(*scalar(read->name).as_var());
                if (std::get_if<Loop>(&primitive.kind) != nullptr)
                    state.context = std::make_unique<ExecutionContext>(context);
                for (const auto& body : step.bodies)
                    state.bodies.push_back(std::make_unique<Executor>(*body, state.context ? *state.context : context,
                                                                      std::vector<Var>(so_far.begin(), so_far.end())));
                std::erase_if(requirements, [&](const Requirement* r) {
                    const bool now = are_known(r->a, so_far) && are_known(r->b, so_far);
                    if (now) state.requirements.push_back(r);
                    return now;
                });
            }
            steps.push_back(std::move(state));
        }
        TW_CHECK(requirements.empty(), "nothing binds the names of {} and {}", requirements[0]->a.text(),
                 requirements[0]->b.text());
        find_order();
        find_slices();
    }

    // --- kernels slice by slice

    void find_slices() {
        sliced_as.assign(steps.size(), -1);
        for (const Slices& of : plan.slices) {
            SlicedSteps group{&of, {}, {}, {}, {}};
            bool known = true;
            for (size_t k = 0; k < of.count; ++k) {
                const KernelState& state = steps[of.first + k].kernel;
                known = known && !state.late && !state.library;
                const auto& tensors = std::get<KernelCall>(plan.steps[of.first + k].what).tensors;
                group.kept_place.emplace_back();
                for (const ValueId v : tensors) {
                    const auto it = std::find(of.kept.begin(), of.kept.end(), v);
                    group.kept_place.back().push_back(it == of.kept.end() ? -1
                                                                          : static_cast<int>(it - of.kept.begin()));
                }
                for (int t = 0; t < workers; ++t) group.tensors.emplace_back(tensors.size());
            }
            if (!known) continue;
            group.spent_us.resize(group.tensors.size());
            for (size_t k = 0; k < of.count; ++k) sliced_as[of.first + k] = static_cast<int>(sliced.size());
            sliced.push_back(std::move(group));
        }
    }

    bool runs_later(size_t s) const {
        return sliced_as[s] >= 0 && s + 1 != sliced[static_cast<size_t>(sliced_as[s])].of->first +
                                                 sliced[static_cast<size_t>(sliced_as[s])].of->count;
    }

    void run_slices(SlicedSteps& group) {
        const Slices& of = *group.of;
        const bool profiled = context.profile != nullptr;
        const double begun = profiled ? now_us() : 0;
        for (size_t k = 0; k < of.count; ++k)
            fetch_places(std::get<KernelCall>(plan.steps[of.first + k].what), steps[of.first + k].kernel);
        std::fill(group.spent_us.begin(), group.spent_us.end(), 0);
        const auto body = [&](int64_t begin, int64_t end, int worker) {
            std::byte* scratch = context.scratch + worker * context.scratch_stride;
            double before = profiled ? now_us() : 0;
            for (int64_t slice = begin; slice < end; ++slice)
                for (size_t k = 0; k < of.count; ++k) {
                    const KernelState& state = steps[of.first + k].kernel;
                    const size_t mine = k * static_cast<size_t>(workers) + static_cast<size_t>(worker);
                    std::vector<void*>& tensors = group.tensors[mine];
                    for (size_t i = 0; i < tensors.size(); ++i) {
                        tensors[i] = state.tensors[i];
                        if (const int kept = group.kept_place[k][i]; kept >= 0)
                            tensors[i] = slice_base(group, static_cast<size_t>(kept), slice, worker);
                    }
                    const int64_t tasks = state.tasks / of.slices;
                    state.kernel->run(tensors.data(), state.names.data(), slice * tasks, (slice + 1) * tasks, scratch);
                    if (!profiled) continue;
                    const double now = now_us();
                    group.spent_us[mine] += now - before;
                    before = now;
                }
        };
        if (context.pool == nullptr)
            body(0, of.slices, 0);
        else
            parallel_for(*context.pool, of.slices, body);
        if (profiled) tell(group, begun);
    }

    /// Where the whole value would lie if this slice of it lay in the thread's memory.
    void* slice_base(const SlicedSteps& group, size_t kept, int64_t slice, int worker) const {
        const auto mine = reinterpret_cast<uintptr_t>(slots[group.of->kept[kept]].data) +
                          static_cast<uintptr_t>(worker * group.kept_bytes[kept]);
        return reinterpret_cast<void*>(
            mine - static_cast<uintptr_t>(slice * (bytes_of(group.of->kept[kept]) / group.of->slices)));
    }

    /// Their times one behind the other, as if they had run so: of what the threads spent, the mean.
    void tell(const SlicedSteps& group, double start) {
        const auto n = static_cast<size_t>(workers);
        for (size_t k = 0; k < group.of->count; ++k) {
            const auto& call = std::get<KernelCall>(plan.steps[group.of->first + k].what);
            double spent = 0;
            for (size_t t = 0; t < n; ++t) spent += group.spent_us[k * n + t] / static_cast<double>(n);
            context.profile->push_back({call.name, start - context.profile_start_us, spent, flops_of(call),
                                        static_cast<int>(call.kernel), bytes_of(call)});
            start += spent;
        }
    }

    double flops_of(const KernelCall& call) const {
        double work = 0;
        for (const PrimitiveId p : call.primitives)
            work += product_flops(*plan.program.primitives[p].expr(), *context.names);
        return work;
    }

    // --- loops side by side

    /// A loop whose body is kernels alone, all sizes known when the plan starts: nothing can see when it runs, but for
    /// those that read its outputs.
    bool of_kernels_alone(size_t s) const {
        const auto* id = std::get_if<PrimitiveId>(&plan.steps[s].what);
        const auto* loop = id != nullptr ? std::get_if<Loop>(&plan.program.primitives[*id].kind) : nullptr;
        if (loop == nullptr || loop->has_condition || loop->condition || !loop->trip_count || bindings.count(*id) != 0)
            return false;
        const auto known = [&](ValueId v) { return !slots[v].late; };
        if (!is_early(*loop->trip_count)) return false;
        const Primitive& primitive = plan.program.primitives[*id];
        const std::vector<ValueId> in = primitive.inputs();
        const Impl& body = *steps[s].bodies[0]->impl_;
        return std::all_of(primitive.outputs.begin(), primitive.outputs.end(), known) &&
               std::all_of(in.begin(), in.end(), known) && body.sizes_stay() &&
               std::all_of(body.steps.begin(), body.steps.end(),
                           [](const StepState& k) { return k.kernel.kernel != nullptr && !k.kernel.late; });
    }

    void find_order() {
        const int threads = context.pool != nullptr ? context.pool->size() : 1;
        std::vector<bool> may_wait(plan.steps.size(), false);
        for (size_t s = 0; threads > 1 && s < plan.steps.size(); ++s) may_wait[s] = of_kernels_alone(s);
        order = step_order(plan, threads, may_wait);
    }

    /// A thread each. What one throws is thrown when all are done.
    void run_side_by_side(const std::vector<size_t>& loops) {
        parallel_for(*context.pool, static_cast<int64_t>(loops.size()), [&](int64_t begin, int64_t end, int worker) {
            for (int64_t k = begin; k < end; ++k) {
                StepState& state = steps[loops[static_cast<size_t>(k)]];
                const PrimitiveId id = std::get<PrimitiveId>(plan.steps[loops[static_cast<size_t>(k)]].what);
                ExecutionContext& own = *state.context;
                own.pool = nullptr;
                own.scratch = context.scratch + worker * context.scratch_stride;
                state.times.clear();
                own.profile = context.profile != nullptr ? &state.times : nullptr;
                state.error = nullptr;
                const double start = context.profile != nullptr ? now_us() : 0;
                try {
                    run_loop(id, std::get<Loop>(plan.program.primitives[id].kind), state);
                } catch (...) {
                    state.error = std::current_exception();
                }
                if (context.profile != nullptr)
                    state.times.push_back(
                        {plan.program.primitives[id].name, start - context.profile_start_us, now_us() - start, 0, -1});
            }
        });
        for (const size_t s : loops) {
            context.flops += steps[s].context->flops;
            if (context.profile != nullptr)
                context.profile->insert(context.profile->end(), steps[s].times.begin(), steps[s].times.end());
        }
        for (const size_t s : loops)
            if (steps[s].error) std::rethrow_exception(std::exchange(steps[s].error, nullptr));
    }

    void find_late() {
        for (const ValueId v : plan.program.values.ids())
            for (const Expr& d : plan.program.values[v].shape)
                for (const Var var : variables(d))
                    if (early.count(var) == 0) slots[v].late = true;
    }

    // --- preparation for one set of shapes

    bool same_names() const {
        if (!prepared) return false;
        for (size_t i = 0; i < early_slots.size(); ++i)
            if (context.names->value(early_slots[i]) != early_values[i]) return false;
        return true;
    }

    int64_t bytes_of(ValueId v) const {
        int64_t bytes = 0;
        if (__builtin_mul_overflow(element_count(slots[v].shape), byte_size(plan.program.values[v].dtype), &bytes) ||
            bytes > kMostBytes)
            throw RuntimeError(fmt::format("not enough memory: value '{}' has shape {}", plan.program.values[v].name,
                                           to_string(slots[v].shape)));
        return bytes;
    }

    void shape_value(ValueId v) {
        const Value& value = plan.program.values[v];
        Shape& shape = slots[v].shape;
        shape.resize(value.shape.size());
        for (size_t d = 0; d < shape.size(); ++d) {
            shape[d] = context.names->evaluate(value.shape[d]);
            if (shape[d] < 0)
                model_error("value '{}': dimension {} ({}) is {} at these input shapes", value.name, d,
                            value.shape[d].text(), shape[d]);
        }
    }

    void prepare() {
        if (same_names()) return;
        prepared = false;
        check(early_requirements);
        std::map<ValueId, BufferLife> lives;
        for (const ValueId v : plan.program.values.ids())
            if (!slots[v].late && !slots[v].constant && !slots[v].input) shape_value(v);
        const auto touch = [&](ValueId v, int64_t step) {
            if (slots[v].late || slots[v].fixed()) return;
            const auto [it, fresh] = lives.try_emplace(v, BufferLife{room_for(v) + 64, step, step});
            it->second.last_step = step;
        };
        std::vector<int64_t> runs(plan.steps.size());  // where
        for (size_t at = 0; at < order.size(); ++at)
            for (const size_t s : order[at]) runs[s] = static_cast<int64_t>(at);
        for (SlicedSteps& group : sliced) {
            group.kept_bytes.clear();
            for (const ValueId v : group.of->kept)
                group.kept_bytes.push_back((bytes_of(v) / group.of->slices + 63) / 64 * 64);
            for (size_t k = 0; k < group.of->count; ++k)
                runs[group.of->first + k] = runs[group.of->first + group.of->count - 1];
        }
        for (const std::vector<size_t>& now : order)
            for (const size_t s : now) {
                const int64_t step = runs[s];
                if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what)) {
                    for (const ValueId v : call->tensors) touch(v, step);
                } else {
                    const Primitive& p = plan.program.primitives[std::get<PrimitiveId>(plan.steps[s].what)];
                    for (const ValueId v : p.inputs()) touch(v, step);
                    for (const ValueId v : p.outputs) touch(v, step);
                }
            }
        for (const ValueId v : plan.program.outputs)
            if (auto it = lives.find(v); it != lives.end()) it->second.last_step = static_cast<int64_t>(order.size());
        std::vector<BufferLife> buffers;
        for (const auto& [v, life] : lives) buffers.push_back(life);
        const MemoryPlan memory = plan_memory(buffers);
        reserve_arena(memory.total);
        size_t i = 0;
        for (const auto& [v, life] : lives) {
            slots[v].arena_offset = memory.offsets[i++];
            slots[v].data = arena.data() + slots[v].arena_offset;
        }
        flops = 0;
        for (size_t s = 0; s < plan.steps.size(); ++s)
            if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what);
                call != nullptr && !steps[s].kernel.late) {
                prepare_kernel(*call, steps[s].kernel);
                for (const PrimitiveId p : call->primitives)
                    flops += product_flops(*plan.program.primitives[p].expr(), *context.names);
            }
        early_values.clear();
        for (const size_t s : early_slots) early_values.push_back(context.names->value(s));
        prepared = true;
    }

    void reserve_arena(int64_t bytes) {
        if (bytes <= arena.capacity()) return;
        context.memory->resize(arena_charged, static_cast<uint64_t>(bytes), false,
                               "what the model computes on the way");
        arena_charged = static_cast<uint64_t>(bytes);
        arena.reserve(bytes);
    }

    /// Bytes that a value takes in the arena.
    int64_t room_for(ValueId v) const {
        for (const SlicedSteps& group : sliced)
            for (size_t k = 0; k < group.of->kept.size(); ++k)
                if (group.of->kept[k] == v) return workers * group.kept_bytes[k];
        return bytes_of(v);
    }

    void prepare_kernel(const KernelCall& call, KernelState& state) {
        for (size_t i = 0; i < call.tensors.size(); ++i) state.tensors[i] = slots[call.tensors[i]].data;
        for (size_t i = 0; i < state.names.size(); ++i)
            state.names[i] = context.names->value(context.names->slot(state.kernel->names[i]));
        state.tasks = 1;
        for (const Expr& e : state.kernel->grid) state.tasks *= context.names->evaluate(e);
        state.alone = state.tasks > 1 && done_sooner_alone(call);
        // What every step of a loop reads whole, if it is about as large as a cache, is out of it when the next step
        // begins at its beginning again: the least recently used goes first. Read to and fro, what was read last is
        // read first (1 MB of weights, as much second-level cache: 11.0 us a step instead of 12.6). Tasks are run one
        // by one then, so they should be worth it.
        state.to_and_fro = state.tasks > 1 && bytes_of(call) >= 256 * 1024 &&
                           bytes_of(call) >= 16 * 1024 * static_cast<double>(state.tasks);
    }

    /// Whether handing out the work would take longer than doing it: some microseconds' worth, whatever sizes the
    /// schedule was made for.
    bool done_sooner_alone(const KernelCall& call) const {
        constexpr double kBytes = 64 * 1024, kFlops = 2e5;
        double work = 0;
        for (const PrimitiveId p : call.primitives)
            work += product_flops(*plan.program.primitives[p].expr(), *context.names);
        return work <= kFlops && bytes_of(call) <= kBytes;
    }

    /// Of the tensors it reads and writes.
    double bytes_of(const KernelCall& call) const {
        double bytes = 0;
        for (const ValueId v : call.tensors) {
            double size = static_cast<double>(byte_size(plan.program.values[v].dtype));
            for (const Expr d : plan.program.values[v].shape) size *= static_cast<double>(context.names->evaluate(d));
            bytes += size;
        }
        return bytes;
    }

    // --- running

    void run() {
        prepare();
        context.flops += flops;
        for (const std::vector<size_t>& now : order) {
            if (now.size() > 1) {
                run_side_by_side(now);
                continue;
            }
            const size_t s = now[0];
            if (sliced_as[s] >= 0) {
                if (!runs_later(s)) run_slices(sliced[static_cast<size_t>(sliced_as[s])]);
                continue;
            }
            const double start = context.profile != nullptr ? now_us() : 0;
            if (const auto* call = std::get_if<KernelCall>(&plan.steps[s].what)) {
                run_kernel(*call, steps[s].kernel);
                if (context.profile != nullptr) {
                    const double end = now_us();
                    context.profile->push_back({call->name, start - context.profile_start_us, end - start,
                                                flops_of(*call), static_cast<int>(call->kernel), bytes_of(*call)});
                }
            } else {
                const PrimitiveId id = std::get<PrimitiveId>(plan.steps[s].what);
                run_other(id, steps[s]);
                check(steps[s].requirements);
                if (context.profile != nullptr)
                    context.profile->push_back(
                        {plan.program.primitives[id].name, start - context.profile_start_us, now_us() - start, 0, -1});
            }
        }
    }

    void run_kernel(const KernelCall& call, KernelState& state) {
        if (state.late) {
            for (const ValueId v : call.tensors)
                if (slots[v].late && is_result(call, v)) allocate_late(v);
            prepare_kernel(call, state);
            for (const PrimitiveId p : call.primitives)
                context.flops += product_flops(*plan.program.primitives[p].expr(), *context.names);
        } else {
            fetch_places(call, state);
        }
        if (state.tasks <= 0) return;
        if (state.library) {
            state.library->run(state.tensors.data(), context.scratch);
            return;
        }
        const auto body = [&](int64_t begin, int64_t end, int worker) {
            std::byte* scratch = context.scratch + worker * context.scratch_stride;
            if (!backward || !state.to_and_fro)
                return state.kernel->run(state.tensors.data(), state.names.data(), begin, end, scratch);
            for (int64_t task = end; task-- > begin;)
                state.kernel->run(state.tensors.data(), state.names.data(), task, task + 1, scratch);
        };
        if (state.tasks == 1 || state.alone || context.pool == nullptr)
            body(0, state.tasks, 0);
        else
            parallel_for(*context.pool, state.tasks, body);
    }

    /// Inputs are wherever the caller has them this time.
    void fetch_places(const KernelCall& call, KernelState& state) const {
        for (size_t i = 0; i < call.tensors.size(); ++i)
            if (slots[call.tensors[i]].input || slots[call.tensors[i]].placed)
                state.tensors[i] = slots[call.tensors[i]].data;
    }

    bool is_result(const KernelCall& call, ValueId v) const {
        for (const PrimitiveId p : call.primitives)
            if (plan.program.primitives[p].outputs[0] == v) return true;
        return false;
    }

    void allocate_late(ValueId v) {
        shape_value(v);
        Slot& slot = slots[v];
        context.memory->grow(slot.own, static_cast<uint64_t>(bytes_of(v)) + 128, [&] {
            return fmt::format("value '{}' of shape {}", plan.program.values[v].name, to_string(slot.shape));
        });
        slot.data = slot.own.data() + (64 - reinterpret_cast<uintptr_t>(slot.own.data()) % 64) % 64;
    }

    TensorView view(ValueId v) const { return {plan.program.values[v].dtype, slots[v].shape, slots[v].data}; }

    /// Takes the numbers of a step's fresh output dimensions, checks the others, and gives the output its memory.
    void* place_output(PrimitiveId id, ValueId v, std::span<const int64_t> shape) {
        const Value& value = plan.program.values[v];
        const auto describe = [&] { return plan.program.primitives[id].name; };
        if (shape.size() != value.shape.size())
            model_error("'{}' gave '{}' rank {}, expected {}", describe(), value.name, shape.size(),
                        value.shape.size());
        if (auto it = bindings.find(id); it != bindings.end())
            for (const Binding& b : it->second)
                if (b.value == v) context.names->set(b.slot, shape[b.dim]);
        for (size_t d = 0; d < shape.size(); ++d)
            if (const int64_t expected = context.names->evaluate(value.shape[d]); expected != shape[d])
                model_error("'{}' gave '{}' {} elements in dimension {}, expected {} ({})", describe(), value.name,
                            shape[d], d, expected, value.shape[d].text());
        if (slots[v].late) allocate_late(v);
        return slots[v].data;
    }

    struct Outputs : OpaqueOutputs {
        Impl& self;
        PrimitiveId id;
        Outputs(Impl& s, PrimitiveId p) : self(s), id(p) {}
        TensorView allocate(size_t k, std::span<const int64_t> shape) override {
            const Primitive& p = self.plan.program.primitives[id];
            TW_CHECK(k < p.outputs.size());
            self.place_output(id, p.outputs[k], shape);
            return self.view(p.outputs[k]);
        }
    };

    void run_other(PrimitiveId id, StepState& state) {
        const Primitive& primitive = plan.program.primitives[id];
        if (const auto* opaque = std::get_if<Opaque>(&primitive.kind)) {
            state.views.clear();
            for (const ValueId v : opaque->inputs) state.views.push_back(v ? view(v) : TensorView{});
            Outputs outputs(*this, id);
            opaque->op->run(state.views, outputs);
        } else if (const auto* read = std::get_if<ReadScalar>(&primitive.kind)) {
            const TensorView t = view(read->value);
            if (read->position >= t.count())
                model_error("'{}' reads element {} of '{}', which has {}", primitive.name, read->position,
                            plan.program.values[read->value].name, t.count());
            const Tensor wrapped(t.dtype, Shape(t.shape.begin(), t.shape.end()), t.data, nullptr);
            context.names->set(context.names->slot(*scalar(read->name).as_var()), wrapped.get_int(read->position));
        } else if (const auto* branch = std::get_if<If>(&primitive.kind)) {
            run_if(id, *branch, state);
        } else {
            ExecutionContext& own = *state.context;
            own.pool = context.pool;
            own.scratch = context.scratch;
            own.profile = context.profile;
            run_loop(id, std::get<Loop>(primitive.kind), state);
            context.flops += own.flops;
        }
    }

    void run_if(PrimitiveId id, const If& branch, StepState& state) {
        const bool yes = *static_cast<const uint8_t*>(slots[branch.condition].data) != 0;
        Executor& body = *state.bodies[yes ? 0 : 1];
        for (size_t i = 0; i < branch.captures.size(); ++i)
            body.set_input(i, slots[branch.captures[i]].data, slots[branch.captures[i]].shape);
        body.run();
        const Primitive& primitive = plan.program.primitives[id];
        for (size_t k = 0; k < primitive.outputs.size(); ++k) {
            const TensorView out = body.output(k);
            void* to = place_output(id, primitive.outputs[k], out.shape);
            copy_bytes(to, out.data, static_cast<size_t>(out.count()) * byte_size(out.dtype));
        }
    }

    template <class What>
    void assign(std::vector<std::byte>& storage, const void* data, size_t bytes, const What& what) {
        context.memory->grow(storage, bytes + 128, what);
        copy_bytes(aligned(storage), data, bytes);
    }

    /// Copies between a tensor and one slice of it along `axis`.
    static void copy_slice(std::byte* whole, std::byte* slice, const Shape& shape, int64_t axis, int64_t at,
                           size_t element, bool out_of_whole) {
        size_t outer = 1, inner = element;
        for (int64_t d = 0; d < axis; ++d) outer *= static_cast<size_t>(shape[static_cast<size_t>(d)]);
        for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) inner *= static_cast<size_t>(shape[d]);
        const size_t stride = inner * static_cast<size_t>(shape[static_cast<size_t>(axis)]);
        for (size_t o = 0; o < outer; ++o) {
            std::byte* w = whole + o * stride + static_cast<size_t>(at) * inner;
            std::byte* s = slice + o * inner;
            if (out_of_whole)
                copy_bytes(s, w, inner);
            else
                copy_bytes(w, s, inner);
        }
    }

    // --- loops

    static bool are_known(Expr e, const std::set<Var>& known) {
        const std::vector<Var> names = variables(e);
        return std::all_of(names.begin(), names.end(), [&](Var v) { return known.count(v) != 0; });
    }
    /// Whether the number is known when the plan starts.
    bool is_early(Expr e) const { return are_known(e, early); }

    void check(const std::vector<const Requirement*>& requirements) const {
        for (const Requirement* r : requirements)
            tilewright::check(*r, plan.program, [this](Expr e) { return context.names->evaluate(e); });
    }

    /// Whether every run of this plan, as a loop's body, finds the sizes of the one before.
    bool sizes_stay() const {
        return std::all_of(input_bindings.begin(), input_bindings.end(), [](const auto& b) { return b.empty(); });
    }

    /// Whether the caller may say where output `i` is to be: a kernel writes it, and its size stays.
    bool can_place(size_t i) const {
        const ValueId v = plan.program.outputs.at(i);
        if (!sizes_stay() || slots[v].late || slots[v].constant || slots[v].input) return false;
        return std::any_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) {
            const auto* call = std::get_if<KernelCall>(&s.what);
            return call != nullptr && is_result(*call, v);
        });
    }

    /// Of an output that can be placed.
    size_t output_bytes(size_t i) const {
        const Value& value = plan.program.values[plan.program.outputs.at(i)];
        size_t bytes = byte_size(value.dtype);
        for (const Expr d : value.shape)
            if (__builtin_mul_overflow(bytes, static_cast<size_t>(context.names->evaluate(d)), &bytes) ||
                bytes > kMostBytes)
                throw RuntimeError(fmt::format("not enough memory: value '{}' is too large", value.name));
        return bytes;
    }

    /// The next run writes output `i` there, 64-byte aligned. Every run needs a place from then on, until null takes
    /// the output back.
    void place(size_t i, void* data) {
        Slot& slot = slots[plan.program.outputs.at(i)];
        if (slot.placed && data == nullptr) prepared = false;
        slot.placed = data != nullptr;
        if (slot.placed) slot.data = data;
    }

    static std::byte* aligned(std::vector<std::byte>& storage) {
        return storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
    }

    /// Where stacked output `i` of the loop lies, if the body can write each slice to where it stays; else null.
    ///     [3, 8, 256] = slices of 8 KiB: the first at 0, then at 8 KiB, at 16 KiB; reversed, the first at 16 KiB
    std::byte* stacked_in_place(PrimitiveId id, const Loop& loop, size_t i, int64_t trips, const Impl& body) {
        const Primitive& primitive = plan.program.primitives[id];
        const ValueId v = primitive.outputs[loop.carried.size() + i];
        if (loop.scan_outputs[i].axis != 0 || loop.has_condition || slots[v].late || bindings.count(id) != 0)
            return nullptr;
        const size_t out = loop.carried.size() + i;
        if (!body.can_place(out)) return nullptr;
        const Value& slice = body.plan.program.values[body.plan.program.outputs[out]];
        Shape whole{trips};
        for (const Expr& d : slice.shape) whole.push_back(context.names->evaluate(d));
        auto* to = static_cast<std::byte*>(place_output(id, v, whole));
        const int64_t bytes = bytes_of(v) / trips;
        return bytes % 64 == 0 && reinterpret_cast<uintptr_t>(to) % 64 == 0 ? to : nullptr;
    }

    void run_loop(PrimitiveId id, const Loop& loop, StepState& state) {
        state.context->flops = 0;
        state.context->profile_start_us = context.profile_start_us;
        Executor& body = *state.bodies[0];
        const Primitive& primitive = plan.program.primitives[id];
        const Program& body_program = *loop.body;
        const size_t n_carried = loop.carried.size();
        state.carried.resize(n_carried);
        state.next.resize(n_carried);
        state.carried_shapes.resize(n_carried);
        state.slices.resize(loop.scan_inputs.size());
        state.collected.resize(loop.scan_outputs.size());
        state.collected_shapes.resize(loop.scan_outputs.size());
        std::vector<size_t> collected_bytes(loop.scan_outputs.size(), 0);
        int64_t iteration = 0;
        const auto what = [&] { return fmt::format("loop '{}', after {} iterations,", primitive.name, iteration); };
        int64_t trips = INT64_MAX;
        if (loop.trip_count) trips = context.names->evaluate(*loop.trip_count);
        const size_t first_carried = loop.has_condition ? 1 : 0;
        std::vector<bool> places(n_carried);  ///< the body writes the value into storage that is then swapped in
        for (size_t i = 0; i < n_carried; ++i) {
            places[i] = body.impl_->can_place(first_carried + i);
            if (places[i]) {
                const size_t bytes = body.impl_->output_bytes(first_carried + i);
                context.memory->grow(state.carried[i], bytes + 128, what);
                context.memory->grow(state.next[i], bytes + 128, what);
            }
            assign(state.carried[i], slots[loop.carried[i]].data, static_cast<size_t>(bytes_of(loop.carried[i])), what);
            state.carried_shapes[i] = slots[loop.carried[i]].shape;
        }
        std::vector<std::byte*> stacked(loop.scan_outputs.size(), nullptr);
        for (size_t i = 0; i < stacked.size() && trips > 0; ++i) {
            stacked[i] = stacked_in_place(id, loop, i, trips, *body.impl_);
            if (stacked[i] == nullptr) body.impl_->place(first_carried + n_carried + i, nullptr);
        }
        uint8_t condition = 1;
        if (loop.condition) condition = *static_cast<const uint8_t*>(slots[*loop.condition].data);
        const Shape scalar_shape;
        for (; iteration < trips && condition != 0; ++iteration) {
            size_t in = 0;
            body.set_input(in++, &iteration, scalar_shape);
            if (loop.has_condition) body.set_input(in++, &condition, scalar_shape);
            for (size_t i = 0; i < n_carried; ++i) {
                body.set_input(in++, aligned(state.carried[i]), state.carried_shapes[i]);
                if (places[i]) body.impl_->place(first_carried + i, aligned(state.next[i]));
            }
            for (size_t i = 0; i < loop.scan_inputs.size(); ++i) {
                const Loop::ScanInput& scan = loop.scan_inputs[i];
                const Slot& whole = slots[scan.value];
                const int64_t length = whole.shape[static_cast<size_t>(scan.axis)];
                const int64_t at = scan.reverse ? length - 1 - iteration : iteration;
                const size_t element = byte_size(plan.program.values[scan.value].dtype);
                Shape slice = whole.shape;
                slice.erase(slice.begin() + scan.axis);
                const size_t bytes = static_cast<size_t>(element_count(slice)) * element;
                auto* base = static_cast<std::byte*>(whole.data);
                if (scan.axis == 0) {
                    body.set_input(in++, base + static_cast<size_t>(at) * bytes, slice);
                } else {
                    context.memory->grow(state.slices[i], bytes + 64, what);
                    copy_slice(base, state.slices[i].data(), whole.shape, scan.axis, at, element, true);
                    body.set_input(in++, state.slices[i].data(), slice);
                }
            }
            for (const ValueId v : loop.captures) body.set_input(in++, slots[v].data, slots[v].shape);
            for (size_t i = 0; i < stacked.size(); ++i) {
                if (stacked[i] == nullptr) continue;
                const int64_t at = loop.scan_outputs[i].reverse ? trips - 1 - iteration : iteration;
                const int64_t bytes = bytes_of(primitive.outputs[n_carried + i]) / trips;
                body.impl_->place(n_carried + i, stacked[i] + at * bytes);
            }
            body.impl_->backward = iteration % 2 != 0;
            body.run();
            size_t out = 0;
            if (loop.has_condition) condition = *static_cast<const uint8_t*>(body.output(out++).data);
            for (size_t i = 0; i < n_carried; ++i) {
                const TensorView v = body.output(out++);
                if (places[i])
                    std::swap(state.carried[i], state.next[i]);
                else
                    assign(state.carried[i], v.data, static_cast<size_t>(v.count()) * byte_size(v.dtype), what);
                state.carried_shapes[i].assign(v.shape.begin(), v.shape.end());
            }
            for (size_t i = 0; i < loop.scan_outputs.size(); ++i) {
                const TensorView v = body.output(out++);
                if (stacked[i] != nullptr) continue;
                const size_t bytes = static_cast<size_t>(v.count()) * byte_size(v.dtype);
                // Where the trips are counted, the whole is asked for at once: too many fail here, not hours later.
                const bool counted = iteration == 0 && !loop.has_condition;
                size_t needed = collected_bytes[i] + bytes;
                if (counted && __builtin_mul_overflow(bytes, static_cast<size_t>(trips), &needed)) needed = kMostBytes;
                context.memory->grow(state.collected[i], std::min<size_t>(needed, kMostBytes) + 64, what);
                copy_bytes(state.collected[i].data() + collected_bytes[i], v.data, bytes);
                collected_bytes[i] += bytes;
                state.collected_shapes[i].assign(v.shape.begin(), v.shape.end());
            }
        }
        for (size_t i = 0; i < n_carried; ++i) {
            void* to = place_output(id, primitive.outputs[i], state.carried_shapes[i]);
            copy_bytes(to, aligned(state.carried[i]), static_cast<size_t>(bytes_of(primitive.outputs[i])));
        }
        for (size_t i = 0; i < loop.scan_outputs.size(); ++i) {
            if (stacked[i] != nullptr) continue;
            const Loop::ScanOutput& scan = loop.scan_outputs[i];
            const ValueId v = primitive.outputs[n_carried + i];
            Shape slice = state.collected_shapes[i];
            if (iteration == 0) {  // the slice's shape as the body declares it
                const size_t at = (loop.has_condition ? 1 : 0) + n_carried + i;
                slice.clear();
                for (const Expr& d : body_program.values[body_program.outputs[at]].shape)
                    slice.push_back(is_early(d) ? context.names->evaluate(d) : 0);
            }
            Shape whole = slice;
            whole.insert(whole.begin() + scan.axis, iteration);
            auto* to = static_cast<std::byte*>(place_output(id, v, whole));
            const size_t element = byte_size(plan.program.values[v].dtype);
            const size_t bytes = static_cast<size_t>(element_count(slice)) * element;
            for (int64_t t = 0; t < iteration; ++t)
                copy_slice(to, state.collected[i].data() + static_cast<size_t>(t) * bytes, whole, scan.axis,
                           scan.reverse ? iteration - 1 - t : t, element, false);
        }
    }
};

Executor::Executor(const Plan& plan, ExecutionContext& context, const std::vector<Var>& known)
    : impl_(std::make_unique<Impl>(plan, context, known)) {}
Executor::~Executor() = default;

void Executor::set_input(size_t i, void* data, std::span<const int64_t> shape) {
    Impl& s = *impl_;
    const ValueId v = s.plan.program.inputs.at(i);
    const Value& value = s.plan.program.values[v];
    if (shape.size() != value.shape.size())
        model_error("input '{}' has rank {}, expected {} {}", value.name, shape.size(), value.shape.size(),
                    to_string(std::span<const Expr>(value.shape)));
    for (const auto& [dim, slot] : s.input_bindings[i]) s.context.names->set(slot, shape[dim]);
    for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t expected = s.context.names->evaluate(value.shape[d]);
        if (expected != shape[d])
            model_error("input '{}' has {} elements in dimension {}, expected {}{}", value.name, shape[d], d, expected,
                        value.shape[d].is_constant() ? "" : " (" + value.shape[d].text() + ")");
    }
    s.slots[v].data = data;
    s.slots[v].shape.assign(shape.begin(), shape.end());
}

void Executor::run() { impl_->run(); }
TensorView Executor::output(size_t i) const { return impl_->view(impl_->plan.program.outputs.at(i)); }
int64_t Executor::arena_bytes() const {
    int64_t bytes = impl_->arena.capacity();
    for (const auto& step : impl_->steps)
        for (const auto& body : step.bodies) bytes += body->arena_bytes();
    return bytes;
}

}  // namespace tilewright
