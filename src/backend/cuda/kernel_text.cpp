#include "backend/cuda/kernel_text.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "backend/cuda/device_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda {

KernelText KernelGenerator::run(const std::string& function) {
    if (groups_ && !target_.has_wgmma())
        throw RuntimeError(
            fmt::format("kernel '{}' multiplies by four warps at a time, which sm_90a alone has; '{}' is sm_{}",
                        p_.name, target_.name, target_.capability()));
    out_.name = identifier(function.empty() ? p_.name : function);
    for (const std::string& name : {out_.name, std::string("warpgroup"), std::string("elected")}) v_.fresh(name);
    out_.threads = threads_;
    std::string arguments = declare_arguments();
    declare_buffers();
    const size_t behind_declarations = w_.text().size();
    const std::vector<Stmt>* body = &p_.body;
    TreePath path;
    grid(body, path);
    begin_scope(path);
    statements(*body, path);
    out_.shared_bytes = block_.shared_bytes;
    arguments += map_arguments_;
    std::string code = w_.text();
    if (early_at_) code.insert(*early_at_, early_.text());
    code.insert(behind_declarations, begin_arrivals());
    // (With this, or counted_block, ptxas puts registers of some convolutions into local memory.)
    if (groups_)
        code.insert(behind_declarations, fmt::format("    tw::assume_threads<{}>();\n"
                                                     "    const int warpgroup = tw::warpgroup();\n",
                                                     threads_));
    if (!threads_write_) code = without_fences(code);
    if (out_.shared_bytes > target_.block_shared_bytes)
        throw RuntimeError(
            fmt::format("kernel '{}' needs {} bytes of shared memory a block, {} has {}: smaller tiles "
                        "would fit",
                        p_.name, out_.shared_bytes, target_.name, target_.block_shared_bytes));
    // ptxas would put registers into local memory for blocks that shared memory has no room for. (Kernels on warpgroups
    // need none, and got longer loops where they may take more registers.)
    const bool alone = !groups_ && blocks_of_sm(target_, out_.threads, 1, out_.shared_bytes) <= 1;
    out_.text = fmt::format("// {}: {}\nTW_KERNEL({}, {}{})({}) {{\n", p_.name, tiling_expression(p_), out_.name,
                            out_.threads, alone ? ", 1" : "", arguments) +
                code + "}\n";
    return std::move(out_);
}

bool KernelGenerator::overlaps(const TileLoop& loop) {
    if (loop.stages < 3) return false;
    return std::any_of(loop.body.begin(), loop.body.end(), [](const Stmt& s) {
        const auto* compute = std::get_if<Compute>(&s.kind);
        return compute != nullptr && compute->micro.annotations.overlap == true;
    });
}

void KernelGenerator::finish_sums(const TreePath& loop) {
    for (const auto& [path, compute] : finished_behind(loop)) {
        w_.line("// sums of compute {}", compute->stage.value);
        if (tree_.split)
            emit_parts(*compute, path, StageJob::Phase::Finish);
        else
            emit_job(*compute, path, StageJob::Phase::Finish);
    }
}

void KernelGenerator::emit_parts(const Compute& compute, const TreePath& path, StageJob::Phase phase) {
    emit_job(compute, path, phase, StageJob::Parts::Give);
    w_.line("if (!tw::last_to_arrive({} + {} / ({}), {})) return;", part_counters_, parts_.first, parts_.count,
            parts_.count);
    emit_job(compute, path, phase, StageJob::Parts::Join);
}

std::string KernelGenerator::declare_arguments() {
    std::string s;
    const auto declare = [&](ValueId v, bool written) {
        const Value& value = p_.stages.values[v];
        Place& place = memory_.at(v);
        place.object = v_.fresh("g_" + identifier(value.name));
        out_.tensors.push_back({place.object, value.dtype, written});
        s += fmt::format("{}tw::{}<{}> {}", s.empty() ? "" : ", ", written ? "Out" : "In", storage_type(value.dtype),
                         place.object);
    };
    for (const ValueId v : p_.stages.inputs) declare(v, false);
    for (const ValueId v : p_.stages.outputs) declare(v, true);
    for (const Buffer& b : plan_.buffers)
        if (b.elsewhere && !in_registers(b)) out_.scratch_bytes += (b.bytes + 255) / 256 * 256;
    if (tree_.split) {
        const std::string fault = split_fault();
        if (!fault.empty()) throw RuntimeError(fmt::format("kernel '{}': {}", p_.name, fault));
        const TensorExpr& e = *p_.stages.primitives[PrimitiveId(0)].expr();
        parts_ = gpu::sum_parts(split_share(), e.spatial);
        parts_.offset = out_.scratch_bytes;
        const auto bytes = parts_.elements() * static_cast<int64_t>(byte_size(compute_type(e.body.dtype())));
        parts_.stride = out_.scratch_bytes += (bytes + 255) / 256 * 256;
    }
    if (out_.scratch_bytes > 0) {
        scratch_ = v_.fresh("g_scratch");
        s += fmt::format("{}tw::Out<u8> {}", s.empty() ? "" : ", ", scratch_);
    }
    if (tree_.split) {
        part_counters_ = v_.fresh("g_counters");
        s += fmt::format(", tw::Out<u32> {}", part_counters_);
    }
    out_.names = dynamic_names(p_);
    for (const Var v : out_.names) {
        const std::string name = v_.fresh("n_" + identifier(var_name(v)));
        v_.name(v, name);
        s += fmt::format("{}i64 {}", s.empty() ? "" : ", ", name);
    }
    return s;
}

bool KernelGenerator::has_groups() const {
    return std::any_of(tree_.computes.begin(), tree_.computes.end(),
                       [](const auto& c) { return c.second->micro.matrix && c.second->micro.matrix->group(); });
}

void KernelGenerator::declare_buffers() {
    int64_t in_memory_offset = 0;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
        const Buffer& b = plan_.buffers[i];
        const std::string& value = p_.stages.values[b.value].name;
        const std::string name = v_.fresh((in_registers(b) ? "r_"
                                           : b.elsewhere   ? "m_"
                                                           : "s_") +
                                          std::string(b.correction ? "correction_" : "") + identifier(value));
        objects_[i] = name;
        if (in_registers(b)) continue;
        if (b.elsewhere) {
            w_.line("const tw::Out<{0}> {1} = tw::scratch<{0}>({2}, i64(tw::block()) * {3} + {4}, {5}, \"{1}\");",
                    storage_type(b.dtype), name, scratch_, out_.scratch_bytes, in_memory_offset,
                    element_count(b.physical));
            in_memory_offset += (b.bytes + 255) / 256 * 256;
            continue;
        }
        const std::string type = storage_type(b.dtype);
        const int64_t count = b.copies == 1 ? element_count(b.physical) : b.copies * elements_of_copy(b);
        w_.line("const tw::Shared<{0}> {1} = tw::shared<{0}>({2}, {3}, \"{4}\");  // {5}{6}", type, name, b.offset,
                count, name, b.copies == 1 ? "" : fmt::format("{} x ", b.copies),
                to_string(std::span<const int64_t>(b.physical)));
    }
}

int64_t KernelGenerator::elements_of_copy(const Buffer& b) {
    return b.bytes / b.copies / static_cast<int64_t>(byte_size(b.dtype));
}

void KernelGenerator::grid(const std::vector<Stmt>*& body, TreePath& path) {
    auto [loops, trips] = grid_loops(body, path);
    out_.grid = std::move(trips);
    Expr rest = v_.add("block", {Expr(0), product(out_.grid) - 1});
    if (loops.empty()) return;
    w_.line("{} = tw::{}block();", v_.declaration(rest), groups_ ? "counted_" : "");
    std::vector<Expr> counter(loops.size());
    for (size_t k = loops.size(); k-- > 0;) {
        const Expr n = out_.grid[k];
        if (n.is_constant(1)) continue;
        counter[k] = v_.add("block_" + p_.axes[loops[k]->axis].name, {Expr(0), n - 1});
        w_.line("{} = {};", v_.declaration(counter[k]), v_.text(v_.simplified(mod(rest, n))));
        rest = v_.simplified(floor_div(rest, n));
    }
    for (size_t k = 0; k < loops.size(); ++k) {
        AxisRange& r = ranges_[loops[k]->axis];
        if (r.covered_by(loops[k]->step)) continue;
        r = grid_range(*loops[k], r, counter[k]);
        v_.call(r.hi, "end_" + p_.axes[loops[k]->axis].name, w_);
    }
    if (!tree_.split) return;
    // Blocks with the parts of a tile are neighbours, since the split loop is the innermost one.
    out_.counters = v_.simplified(product({out_.grid.begin(), out_.grid.end() - 1}));
    parts_.memory = scratch_;
    parts_.count = v_.text(out_.grid.back());
    parts_.first = v_.fresh("first_block");
    w_.line("const int {} = tw::block() - int({});", parts_.first,
            out_.grid.back().is_constant(1) ? "0" : v_.text(counter.back()));
}

void KernelGenerator::barrier() {
    if (groups_) w_.add(kFence);
    w_.add("tw::barrier();");
}

std::string KernelGenerator::without_fences(const std::string& code) {
    std::string out;
    for (size_t at = 0; at < code.size();) {
        const size_t end = code.find('\n', at) + 1, text = code.find_first_not_of(' ', at);
        if (code.compare(text, end - 1 - text, kFence) != 0) out.append(code, at, end - at);
        at = end;
    }
    return out;
}

void KernelGenerator::statements(const std::vector<Stmt>& body, const TreePath& path) {
    for (size_t i = 0; i < body.size(); ++i) {
        TreePath here = path;
        here.push_back(i);
        if (!std::holds_alternative<Load>(body[i].kind)) wait_for_boxes();
        if (barriers_.count(here) != 0) barrier();
        if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
            tile_loop(*loop, here);
            finish_sums(here);
        } else if (const auto* load = std::get_if<Load>(&body[i].kind)) {
            if (!runs_ahead(path)) emit_load(*load, false);
        } else if (const auto* compute = std::get_if<Compute>(&body[i].kind))
            emit_compute(*compute, here);
        else
            emit_store(std::get<Store>(body[i].kind), path);
    }
    wait_for_boxes();
}

void KernelGenerator::tile_loop(const TileLoop& loop, const TreePath& path) {
    const AxisRange outer = ranges_[loop.axis];
    const bool once = outer.covered_by(loop.step);
    if (!once) {
        const Expr last = ceil_div(outer.most, loop.step) - 1;
        const Expr counter = v_.add("step_" + p_.axes[loop.axis].name, {Expr(0), last});
        const Steps steps = live_steps(loop, path, outer);
        if (loop.stages > 1) run_ahead(loop, path, outer, steps);
        if (groups_ && tree_.computes.size() > 1 && !early_at_) early_at_ = w_.text().size();
        ++open_loops_;
        open_steps(loop, path, counter, last, steps);
        if (loop.stages > 1) counters_[path] = counter;
        ranges_[loop.axis] = narrowed(outer, counter, loop.step, v_);
        if (steps.count) {
            ranges_[loop.axis].begin = v_.simplified(steps.first * loop.step);
            ranges_[loop.axis].end = v_.simplified(min(outer.total, *steps.count * loop.step));
        }
        v_.call(ranges_[loop.axis].hi, "end_" + p_.axes[loop.axis].name, w_);
    }
    begin_scope(path);
    if (!once && loop.stages > 1)
        pipelined_body(loop, path, outer, live_.at(path));
    else
        statements(loop.body, path);
    if (!once) {
        v_.forget(ranges_[loop.axis].hi);
        --open_loops_;
        w_.close();
        if (slots_.count(path) != 0) w_.close();
        if (loop.stages > 1 && overlaps(loop)) w_.add("tw::wait_products<0>();");
    }
    ranges_[loop.axis] = outer;
}

void KernelGenerator::open_steps(const TileLoop& loop, const TreePath& path, Expr counter, Expr last,
                                 const Steps& steps) {
    if (!in_rounds(loop))
        return w_.open(fmt::format("for ({0} {1} = {2}; {3}; ++{1})", v_.type(counter), v_.name(counter),
                                   v_.text(steps.first), exists(counter, loop, steps)));
    const Expr round = v_.add("round", {Expr(0), floor_div(last, loop.stages)});
    const Expr slot = v_.add("slot", {Expr(0), Expr(loop.stages - 1)});
    const Expr begin = steps.first + round * loop.stages;
    w_.open(fmt::format("for ({0} {1} = 0; {2}; ++{1})", v_.type(round), v_.name(round), exists(begin, loop, steps)));
    w_.add("TW_UNROLL");
    w_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", v_.name(slot), loop.stages));
    w_.line("{} = {};", v_.declaration(counter), v_.text(begin + slot));
    w_.line("if (!({})) break;", exists(counter, loop, steps));
    slots_[path] = v_.name(slot);
}

std::string KernelGenerator::slot_of(const TileLoop& loop, const TreePath& path, Expr step) const {
    const auto it = slots_.find(path);
    return it != slots_.end() ? it->second : fmt::format("({} % {})", v_.name(step), loop.stages);
}

void KernelGenerator::copies_of_step(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr ahead,
                                     const std::string& copy) {
    const AxisRange current = ranges_[loop.axis];
    const auto starts = starts_;
    ranges_[loop.axis] = narrowed(outer, ahead, loop.step, v_);
    v_.call(ranges_[loop.axis].hi, "end_" + p_.axes[loop.axis].name, w_);
    enter_scope(path);
    const auto loads = [&] {
        for (const Stmt& s : loop.body)
            if (const auto* load = std::get_if<Load>(&s.kind)) {
                const size_t buffer = existing(copy_of(load->stage, load->access));
                const std::string whole = objects_[buffer];
                objects_[buffer] = copy_name(buffer, copy);
                emit_load(*load, true, copy);
                objects_[buffer] = whole;
            }
    };
    counted_ = counting(loop);
    if (counted_)
        boxes_of_step(copy, loads);
    else
        loads();
    counted_.reset();
    v_.forget(ranges_[loop.axis].hi);
    ranges_[loop.axis] = current;
    starts_ = starts;
}

std::string KernelGenerator::copy_name(size_t buffer, const std::string& copy) {
    const Buffer& b = plan_.buffers[buffer];
    const std::string name = v_.fresh(objects_[buffer] + "_at");
    w_.line("const tw::Shared<{}> {} = {} + {} * {};", storage_type(b.dtype), name, objects_[buffer], copy,
            elements_of_copy(b));
    return name;
}

KernelGenerator::Steps KernelGenerator::live_steps(const TileLoop& loop, const TreePath& path, const AxisRange& outer) {
    Steps steps;
    steps.length = v_.simplified(outer.hi - outer.lo);
    std::vector<AxisBounds> ranges;
    for (const AxisRange& r : ranges_) ranges.push_back({r.lo, r.hi});
    const LiveRange live = outer.whole && outer.begin.is_constant(0)
                               ? live_range(live_conditions(p_, tree_, path), loop.axis, ranges)
                               : LiveRange();
    if (live.end || live.begin) {
        const std::string name = "steps_" + p_.axes[loop.axis].name;
        const Expr most = ceil_div(outer.most, loop.step);
        const Expr end = live.end ? min(steps.length, max(*live.end, 1)) : steps.length;
        const Expr count = v_.add(name, {Expr(0), most});
        w_.line("const {} {} = {};  // others are masked", v_.type(count), v_.name(count),
                v_.text(v_.simplified(ceil_div(end, loop.step))));
        steps.count = count;
        if (live.begin) {
            steps.first = v_.add("first_" + p_.axes[loop.axis].name, {Expr(0), most - 1});
            w_.line("const {} {} = {};", v_.type(steps.first), v_.name(steps.first),
                    v_.text(max(min(floor_div(max(*live.begin, 0), loop.step), count - 1), 0)));
        }
    }
    live_.insert_or_assign(path, steps);
    return steps;
}

std::string KernelGenerator::exists(Expr step, const TileLoop& loop, const Steps& steps) const {
    if (steps.count) return fmt::format("{} < {}", v_.text(step), v_.text(*steps.count));
    return fmt::format("{} < {}", v_.text(step * loop.step), v_.text(steps.length));
}

void KernelGenerator::run_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer,
                                const Steps& steps) {
    const Expr ahead = v_.add("ahead", {Expr(0), ceil_div(outer.most, loop.step) - 1});
    const std::string name = v_.name(ahead), first = v_.text(steps.first);
    const bool from_0 = steps.first.is_constant(0);
    w_.open(fmt::format("for (int {0} = {1}; {0} < {2}{3}; ++{0})", name, first, from_0 ? "" : first + " + ",
                        steps_ahead(loop)));
    w_.open(fmt::format("if ({})", exists(ahead, loop, steps)));
    copies_of_step(loop, path, outer, ahead,
                   from_0            ? name
                   : in_rounds(loop) ? fmt::format("({} - {})", name, first)
                                     : fmt::format("({} % {})", name, loop.stages));
    w_.close();
    if (copies_by_threads(loop)) w_.add("tw::commit_async();");
    w_.close();
}

bool KernelGenerator::copies_by_threads(const TileLoop& loop) const {
    return std::any_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
        const auto* load = std::get_if<Load>(&s.kind);
        return load != nullptr && boxes_.count(existing(copy_of(load->stage, load->access))) == 0;
    });
}

void KernelGenerator::pipelined_body(const TileLoop& loop, const TreePath& path, const AxisRange& outer,
                                     const Steps& steps) {
    const Expr counter = counters_.at(path);
    if (copies_by_threads(loop)) w_.line("tw::wait_async<{}>();", steps_ahead(loop) - 1);
    const auto counts = counting(loop);
    for (const Stmt& s : loop.body)
        if (const auto* load = std::get_if<Load>(&s.kind)) {
            const size_t buffer = existing(copy_of(load->stage, load->access));
            if (counts ? buffer == *counts : boxes_.count(buffer) != 0)
                wait_for_box(buffer, slot_of(loop, path, counter));
        }
    barrier();
    w_.open("");
    const Expr ahead = v_.add("ahead", {Expr(0), ceil_div(outer.most, loop.step) - 1});
    w_.line("const {} {} = {} + {};", v_.type(ahead), v_.name(ahead), v_.name(counter), steps_ahead(loop));
    w_.open(fmt::format("if ({})", exists(ahead, loop, steps)));
    std::string slot = slot_of(loop, path, ahead);
    if (in_rounds(loop)) {
        const std::string own = std::exchange(slot, v_.fresh("slot_ahead"));
        w_.line("const int {} = ({} + {}) % {};", slot, own, steps_ahead(loop), loop.stages);
    }
    copies_of_step(loop, path, outer, ahead, slot);
    w_.close();
    if (copies_by_threads(loop)) w_.add("tw::commit_async();");
    w_.close();
    std::map<size_t, std::string> whole;
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (plan_.buffers[i].access && plan_.buffers[i].scope == path) {
            whole[i] = objects_[i];
            objects_[i] = copy_name(i, slot_of(loop, path, counter));
        }
    statements(loop.body, path);
    for (const auto& [i, name] : whole) objects_[i] = name;
}

void KernelGenerator::begin_scope(const TreePath& path) {
    enter_scope(path);
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (in_registers(plan_.buffers[i]) && plan_.buffers[i].scope == path) declare_registers(i);
}

void KernelGenerator::declare_registers(size_t buffer) {
    const Buffer& b = plan_.buffers[buffer];
    const std::vector<int64_t> extents = registers_of(b.value);
    w_.add(array_declaration(storage_type(b.dtype), objects_[buffer], extents) + ";");
    const PrimitiveId from = p_.stages.producers()[b.value];
    if (b.correction || (through_.count(from) == 0 && !begun(buffer))) return;
    std::string element = objects_[buffer];
    int loops = 0;
    for (const int64_t n : extents) {
        if (n == 1) continue;
        const std::string r = v_.fresh("r");
        w_.add("TW_UNROLL");
        w_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", r, n));
        element += fmt::format("[{}]", r);
        ++loops;
    }
    w_.line("{} = {};", element, identity_of(p_.stages.primitives[from].expr()->reducer, b.dtype));
    while (loops-- > 0) w_.close();
}

bool KernelGenerator::begun(size_t buffer) const {
    const Buffer& b = plan_.buffers[buffer];
    const PrimitiveId stage = p_.stages.producers()[b.value];
    const TensorExpr* e = p_.stages.primitives[stage].expr();
    if (!in_registers(b) || b.access || e == nullptr || e->reducer == Reducer::None) return false;
    bool cut = false;
    for (const auto& [path, compute] : tree_.computes) {
        if (compute->stage != stage) continue;
        for (const auto& [around, loop] : tree_.loops) {
            const bool between = around.size() > b.scope.size() && around.size() < path.size() &&
                                 std::equal(around.begin(), around.end(), path.begin());
            if (!between) continue;
            const auto& axes = p_.stage_axes[stage];
            if (std::find(axes.begin() + static_cast<std::ptrdiff_t>(e->spatial), axes.end(), loop->axis) == axes.end())
                return false;
            cut = true;
        }
    }
    return cut;
}

std::vector<int64_t> KernelGenerator::registers_of(ValueId v) const {
    const gpu::Partition& share = registers_.values.at(v);
    std::vector<int64_t> out;
    for (const size_t a : share.array_axes())
        if (a < p_.stages.primitives[p_.stages.producers()[v]].expr()->spatial) out.push_back(share.registers[a]);
    return out;
}

std::string KernelGenerator::is_final(PrimitiveId stage) const {
    std::string s;
    for (size_t k = p_.stages.primitives[stage].expr()->spatial; k < p_.stage_axes[stage].size(); ++k) {
        const AxisRange& r = ranges_[p_.stage_axes[stage][k]];
        if (r.whole) continue;
        s += fmt::format("{}{} == {}", s.empty() ? "" : " && ", v_.text(r.hi), v_.text(r.end));
    }
    return s;
}

void KernelGenerator::emit_compute(const Compute& compute, const TreePath& path) {
    const Primitive& stage = p_.stages.primitives[compute.stage];
    w_.line("// compute {}: {} = {}", compute.stage.value, p_.stages.values[stage.outputs[0]].name,
            print(p_.stages, *stage.expr()));
    const StageJob::Phase phase = phase_of(compute.stage);
    if (tree_.split && phase == StageJob::Phase::Whole)
        emit_parts(compute, path, phase);
    else
        emit_job(compute, path, phase);
}

void KernelGenerator::emit_job(const Compute& compute, const TreePath& path, StageJob::Phase phase,
                               StageJob::Parts parts) {
    StageJob job;
    TensorExpr own;
    compute_job(compute, path, phase, job, own);
    job.parts = parts;
    job.sum_parts = parts_;
    for (size_t i = 0; i < job.accesses.size(); ++i)
        if (job.accesses[i].unfinished) job.accesses[i].final = is_final(online_.at(job.expr->accesses[i].value).stage);
    if (phase == StageJob::Phase::Finish)
        job.overlapped = parts != StageJob::Parts::Join && stays_in_flight(compute);
    else if (const auto loop = tree_.loops.find(scope_of(path)); loop != tree_.loops.end())
        job.overlapped = counters_.count(loop->first) != 0 && overlaps(*loop->second);
    const auto out = buffer_of(p_.stages.primitives[compute.stage].outputs[0]);
    emit(job, phase == StageJob::Phase::Whole && out && begun(*out));
}

void KernelGenerator::emit(const StageJob& job, bool begun) {
    threads_write_ = threads_write_ || job.out.shared || (job.correction && job.correction->shared);
    emit_stage(w_, v_, job, begun, early_at_ && open_loops_ == 0 ? &early_ : nullptr);
}

std::string device_header() { return std::string(kDeviceCuda) + "\n" + kDeviceCommon; }

KernelText generate(const TileProgram& program, const GpuTarget& target, const std::string& function) {
    const TileProgram annotated = annotate(program, annotate_options(target));
    return KernelGenerator(annotated, target).run(function);
}

}  // namespace tilewright::cuda
