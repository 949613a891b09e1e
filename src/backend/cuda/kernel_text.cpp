#include "backend/cuda/kernel_text.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/cuda/device_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"
#include "program/analysis/access.h"

namespace tilewright::cuda {

KernelText KernelGenerator::run(const std::string& function) {
    if (groups_ && target_.capability() != 90)
        throw RuntimeError(
            fmt::format("kernel '{}' multiplies by four warps at a time, which sm_90a alone has; '{}' is sm_{}",
                        p_.name, target_.name, target_.capability()));
    out_.name = identifier(function.empty() ? p_.name : function);
    v_.fresh(out_.name);
    out_.threads = threads_;
    std::string arguments = declare_arguments();
    declare_buffers();
    const size_t behind_declarations = w_.text().size();
    online_ = online_stages(p_, tree_);
    for (const auto& [path, compute] : tree_.computes)
        if (const auto loop = summed_through(path, *compute)) through_[compute->stage] = *loop;
    for (const TileAxis& a : p_.axes) ranges_.push_back({0, a.extent, a.extent, a.extent, true});
    const std::vector<Stmt>* body = &p_.body;
    TreePath path;
    grid(body, path);
    enter_scope(path);
    statements(*body, path);
    out_.shared_bytes = block_.shared_bytes;
    arguments += map_arguments_;
    std::string code = w_.text();
    code.insert(behind_declarations, begin_arrivals());
    if (!threads_write_) code = without_fences(code);
    if (out_.shared_bytes > target_.block_shared_bytes)
        throw RuntimeError(
            fmt::format("kernel '{}' needs {} bytes of shared memory a block, {} has {}: smaller tiles "
                        "would fit",
                        p_.name, out_.shared_bytes, target_.name, target_.block_shared_bytes));
    out_.text = fmt::format("// {}: {}\nTW_KERNEL({}, {})({}) {{\n", p_.name, tiling_expression(p_), out_.name,
                            out_.threads, arguments) +
                code + "}\n";
    return std::move(out_);
}

std::optional<TreePath> KernelGenerator::summed_through(const TreePath& path, const Compute& compute) const {
    const PrimitiveId s = compute.stage;
    const TensorExpr& e = *p_.stages.primitives[s].expr();
    const ValueId v = p_.stages.primitives[s].outputs[0];
    const auto buffer = buffer_of(v);
    if (e.reducer == Reducer::None || compute.online || scales_[s] || !buffer || !in_registers(plan_.buffers[*buffer]))
        return std::nullopt;
    const DType kept = plan_.buffers[*buffer].dtype;
    if (compute_type(kept) != kept || kept != e.body[e.body.root()].dtype) return std::nullopt;
    // Sums over what lies in the registers of several threads count each once: they begin with what there was.
    if (registers_.stages.count(s) != 0 && !compute.micro.matrix) return std::nullopt;
    const TreePath& home = plan_.buffers[*buffer].scope;
    const std::vector<TileLoop const*> loops = tree_.loops_below(home, path);
    const auto reductions = std::span(p_.stage_axes[s]).subspan(e.spatial);
    if (loops.empty() || std::any_of(loops.begin(), loops.end(), [&](const TileLoop* loop) {
            return loop->parallel || std::find(reductions.begin(), reductions.end(), loop->axis) == reductions.end();
        }))
        return std::nullopt;
    for (size_t i = 0; i < e.accesses.size(); ++i)
        if (online_.count(e.accesses[i].value) != 0) return std::nullopt;
    // Behind the loops there is neither what Loads have brought nor what other statements make.
    if (!e.epilogue.empty())
        for (const uint32_t slot : e.epilogue.slots())
            if (!is_input(p_, e.accesses[slot].value) || copy_of(s, slot)) return std::nullopt;
    return TreePath(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(home.size()) + 1);
}

bool KernelGenerator::in_flight(const TileLoop& loop) const {
    if (loop.stages < 3) return false;
    size_t products = 0;
    for (const Stmt& s : loop.body) {
        if (std::holds_alternative<Load>(s.kind)) continue;
        const auto* compute = std::get_if<Compute>(&s.kind);
        if (compute == nullptr || !stays_in_flight(*compute)) return false;
        ++products;
    }
    return products == 1;
}

bool KernelGenerator::stays_in_flight(const Compute& compute) const {
    return compute.micro.matrix && compute.micro.matrix->group && through_.count(compute.stage) != 0;
}

void KernelGenerator::finish_sums(const TreePath& loop) {
    for (const auto& [path, compute] : tree_.computes) {
        const auto it = through_.find(compute->stage);
        if (it == through_.end() || it->second != loop) continue;
        const bool has_epilogue = !p_.stages.primitives[compute->stage].expr()->epilogue.empty();
        if (!has_epilogue && !stays_in_flight(*compute)) continue;
        w_.line("// sums of compute {}", compute->stage.value);
        compute_job(*compute, path, StageJob::Phase::Finish);
    }
}

std::string KernelGenerator::declare_arguments() {
    std::string s;
    const auto declare = [&](ValueId v, bool written) {
        const Value& value = p_.stages.values[v];
        Place place;
        place.object = v_.fresh("g_" + identifier(value.name));
        place.storage = value.dtype;
        place.strides = row_major_strides(value.shape);
        out_.tensors.push_back({place.object, value.dtype, written});
        s += fmt::format("{}tw::{}<{}> {}", s.empty() ? "" : ", ", written ? "Out" : "In", storage_type(value.dtype),
                         place.object);
        memory_[v] = std::move(place);
    };
    for (const ValueId v : p_.stages.inputs) declare(v, false);
    for (const ValueId v : p_.stages.outputs) declare(v, true);
    for (const Buffer& b : plan_.buffers)
        if (b.elsewhere && !in_registers(b)) out_.scratch_bytes += (b.bytes + 255) / 256 * 256;
    if (out_.scratch_bytes > 0) {
        scratch_ = v_.fresh("g_scratch");
        s += fmt::format("{}tw::Out<u8> {}", s.empty() ? "" : ", ", scratch_);
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
                       [](const auto& c) { return c.second->micro.matrix && c.second->micro.matrix->group; });
}

void KernelGenerator::declare_buffers() {
    int64_t in_memory_offset = 0;
    for (const Buffer& b : plan_.buffers) {
        const std::string& value = p_.stages.values[b.value].name;
        const std::string name = v_.fresh((in_registers(b) ? "r_"
                                           : b.elsewhere   ? "m_"
                                                           : "s_") +
                                          std::string(b.correction ? "correction_" : "") + identifier(value));
        objects_.push_back(name);
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

Place KernelGenerator::place_of(size_t buffer) {
    const Buffer& b = plan_.buffers[buffer];
    Place place;
    place.object = objects_[buffer];
    place.storage = b.dtype;
    place.in_registers = in_registers(b);
    place.shared = !b.elsewhere;
    place.swizzle = b.swizzle;
    std::vector<Expr> starts;
    starts.reserve(p_.axes.size());
    for (size_t a = 0; a < p_.axes.size(); ++a) starts.push_back(starts_.at({b.scope, a}));
    for (const Expr& base : b.base) place.origin.push_back(v_.simplified(substitute_axes(base, starts)));
    const std::vector<Expr> physical(b.physical.begin(), b.physical.end());
    place.strides = row_major_strides(physical);
    place.box.assign(b.box.begin(), b.box.end());
    if (!b.layout.is_identity()) place.layout = b.layout;
    return place;
}

std::optional<size_t> KernelGenerator::buffer_where(const std::function<bool(const Buffer&)>& is) const {
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (is(plan_.buffers[i])) return i;
    return std::nullopt;
}

size_t KernelGenerator::existing(std::optional<size_t> buffer) const {
    TW_CHECK(buffer.has_value(), "a copy of kernel '{}' has no buffer", p_.name);
    return *buffer;
}

std::optional<size_t> KernelGenerator::copy_of(PrimitiveId stage, size_t access) const {
    return buffer_where([&](const Buffer& b) { return b.access && *b.access == std::pair(stage, access); });
}

std::optional<size_t> KernelGenerator::buffer_of(ValueId v) const {
    return buffer_where([&](const Buffer& b) { return !b.access && !b.correction && b.value == v; });
}

Place KernelGenerator::place_of(ValueId v, PrimitiveId reader) {
    Place place = place_of(v);
    index_registers(place, v, p_.stage_axes[reader]);
    return place;
}

void KernelGenerator::index_registers(Place& place, ValueId v, const std::vector<size_t>& axes) const {
    if (!place.in_registers) return;
    const PrimitiveId from = p_.stages.producers()[v];
    for (size_t j = 0; j < p_.stages.primitives[from].expr()->spatial; ++j)
        if (const auto it = std::find(axes.begin(), axes.end(), p_.stage_axes[from][j]); it != axes.end())
            place.register_axes.push_back(static_cast<size_t>(it - axes.begin()));
}

Place KernelGenerator::place_of(ValueId v) {
    if (const auto b = buffer_of(v)) return place_of(*b);
    const auto it = memory_.find(v);
    TW_CHECK(it != memory_.end(), "value '{}' of kernel '{}' lives nowhere", p_.stages.values[v].name, p_.name);
    return it->second;
}

Place KernelGenerator::correction_of(ValueId maximum, PrimitiveId reader) {
    const auto b = buffer_where([&](const Buffer& x) { return x.correction && x.value == maximum; });
    TW_CHECK(b.has_value(), "an online maximum of kernel '{}' has no correction", p_.name);
    Place place = place_of(*b);
    index_registers(place, maximum, p_.stage_axes[reader]);
    return place;
}

AxisRange KernelGenerator::narrowed(const AxisRange& outer, Expr counter, int64_t step) const {
    AxisRange r = outer;
    r.whole = false;
    r.lo = v_.simplified(outer.lo + counter * step);
    r.hi = v_.nonnegative(outer.hi - r.lo - step) ? r.lo + step : v_.simplified(min(outer.hi, r.lo + step));
    r.most = min(outer.most, step);
    if (!r.most.is_constant()) r.most = step;
    return r;
}

void KernelGenerator::grid(const std::vector<Stmt>*& body, TreePath& path) {
    std::vector<const TileLoop*> loops;
    std::vector<Expr> remaining;
    remaining.reserve(p_.axes.size());
    for (const TileAxis& a : p_.axes) remaining.push_back(a.extent);
    while (body->size() == 1) {
        const auto* loop = std::get_if<TileLoop>(&(*body)[0].kind);
        if (loop == nullptr || !loop->parallel) break;
        loops.push_back(loop);
        out_.grid.push_back(v_.simplified(ceil_div(remaining[loop->axis], loop->step)));
        remaining[loop->axis] = loop->step;
        path.push_back(0);
        body = &loop->body;
    }
    Expr rest = v_.add("block", {Expr(0), product(out_.grid) - 1});
    if (loops.empty()) return;
    w_.line("{} = tw::block();", v_.declaration(rest));
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
        if (covers(r, loops[k]->step)) continue;
        r = narrowed(r, counter[k], loops[k]->step);
        v_.call(r.hi, "end_" + p_.axes[loops[k]->axis].name, w_);
    }
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
    const bool once = covers(outer, loop.step);
    if (!once) {
        const Expr length = v_.simplified(outer.hi - outer.lo);
        const Expr counter = v_.add("step_" + p_.axes[loop.axis].name, {Expr(0), ceil_div(outer.most, loop.step) - 1});
        if (loop.stages > 1) run_ahead(loop, path, outer, length);
        w_.open(fmt::format("for ({0} {1} = 0; {2} < {3}; ++{1})", v_.type(counter), v_.name(counter),
                            v_.text(counter * loop.step), v_.text(length)));
        if (loop.stages > 1) counters_[path] = counter;
        ranges_[loop.axis] = narrowed(outer, counter, loop.step);
        v_.call(ranges_[loop.axis].hi, "end_" + p_.axes[loop.axis].name, w_);
    }
    enter_scope(path);
    if (!once && loop.stages > 1)
        pipelined_body(loop, path, outer);
    else
        statements(loop.body, path);
    if (!once) {
        v_.forget(ranges_[loop.axis].hi);
        w_.close();
        if (loop.stages > 1 && in_flight(loop)) w_.add("tw::wait_products<0>();");
    }
    ranges_[loop.axis] = outer;
}

void KernelGenerator::copies_of_step(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr ahead,
                                     const std::string& copy) {
    const AxisRange current = ranges_[loop.axis];
    const auto starts = starts_;
    ranges_[loop.axis] = narrowed(outer, ahead, loop.step);
    v_.call(ranges_[loop.axis].hi, "end_" + p_.axes[loop.axis].name, w_);
    for (size_t a = 0; a < p_.axes.size(); ++a) starts_[{path, a}] = ranges_[a].lo;
    for (const Stmt& s : loop.body)
        if (const auto* load = std::get_if<Load>(&s.kind)) {
            const size_t buffer = existing(copy_of(load->stage, load->access));
            const std::string whole = objects_[buffer];
            objects_[buffer] = copy_name(buffer, copy);
            emit_load(*load, true, copy);
            objects_[buffer] = whole;
        }
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

void KernelGenerator::run_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr length) {
    const Expr ahead = v_.add("ahead", {Expr(0), ceil_div(outer.most, loop.step) - 1});
    const std::string name = v_.name(ahead);
    w_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", name, steps_ahead(loop)));
    w_.open(fmt::format("if ({} < {})", v_.text(ahead * loop.step), v_.text(length)));
    copies_of_step(loop, path, outer, ahead, name);
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

void KernelGenerator::pipelined_body(const TileLoop& loop, const TreePath& path, const AxisRange& outer) {
    const Expr counter = counters_.at(path), length = v_.simplified(outer.hi - outer.lo);
    if (copies_by_threads(loop)) w_.line("tw::wait_async<{}>();", steps_ahead(loop) - 1);
    for (const Stmt& s : loop.body)
        if (const auto* load = std::get_if<Load>(&s.kind)) {
            const size_t buffer = existing(copy_of(load->stage, load->access));
            if (boxes_.count(buffer) != 0)
                wait_for_box(buffer, fmt::format("({} % {})", v_.name(counter), loop.stages));
        }
    barrier();
    w_.open("");
    const Expr ahead = v_.add("ahead", {Expr(0), ceil_div(outer.most, loop.step) - 1});
    w_.line("const {} {} = {} + {};", v_.type(ahead), v_.name(ahead), v_.name(counter), steps_ahead(loop));
    w_.open(fmt::format("if ({} < {})", v_.text(ahead * loop.step), v_.text(length)));
    copies_of_step(loop, path, outer, ahead, fmt::format("({} % {})", v_.name(ahead), loop.stages));
    w_.close();
    if (copies_by_threads(loop)) w_.add("tw::commit_async();");
    w_.close();
    std::map<size_t, std::string> whole;
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (plan_.buffers[i].access && plan_.buffers[i].scope == path) {
            whole[i] = objects_[i];
            objects_[i] = copy_name(i, fmt::format("({} % {})", v_.name(counter), loop.stages));
        }
    statements(loop.body, path);
    for (const auto& [i, name] : whole) objects_[i] = name;
}

void KernelGenerator::enter_scope(const TreePath& path) {
    for (size_t a = 0; a < p_.axes.size(); ++a) starts_[{path, a}] = ranges_[a].lo;
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (in_registers(plan_.buffers[i]) && plan_.buffers[i].scope == path) declare_registers(i);
}

void KernelGenerator::declare_registers(size_t buffer) {
    const Buffer& b = plan_.buffers[buffer];
    const std::vector<int64_t> extents = registers_of(b.value);
    w_.add(array_declaration(storage_type(b.dtype), objects_[buffer], extents) + ";");
    const PrimitiveId from = p_.stages.producers()[b.value];
    if (b.correction || through_.count(from) == 0) return;
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

std::vector<int64_t> KernelGenerator::registers_of(ValueId v) const {
    std::vector<int64_t> out = registers_.values.at(v).registers;
    out.resize(p_.stages.primitives[p_.stages.producers()[v]].expr()->spatial);
    return out;
}

std::string KernelGenerator::is_final(PrimitiveId stage) const {
    std::string s;
    for (size_t k = p_.stages.primitives[stage].expr()->spatial; k < p_.stage_axes[stage].size(); ++k) {
        const AxisRange& r = ranges_[p_.stage_axes[stage][k]];
        if (r.whole) continue;
        s += fmt::format("{}{} == {}", s.empty() ? "" : " && ", v_.text(r.hi), v_.text(r.total));
    }
    return s;
}

void KernelGenerator::add_online(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& expr) {
    if (compute.online) job.correction = correction_of(p_.stages.primitives[compute.stage].outputs[0], compute.stage);
    for (size_t i = 0; i < job.expr->accesses.size(); ++i)
        if (const auto it = online_.find(job.expr->accesses[i].value); it != online_.end())
            job.accesses[i].final = is_final(it->second.stage);
    std::optional<RescaledSum> rescaled = rescaled_sum(p_, tree_, online_, scales_[compute.stage], compute.stage, path);
    if (!rescaled) return;
    job.rescale = job.expr->accesses.size();
    job.accesses.push_back(correction_of(rescaled->maximum, compute.stage));
    job.names.push_back("factor");
    expr = std::move(rescaled->expr);
    job.expr = &expr;
}

void KernelGenerator::emit_compute(const Compute& compute, const TreePath& path) {
    const Primitive& stage = p_.stages.primitives[compute.stage];
    w_.line("// compute {}: {} = {}", compute.stage.value, p_.stages.values[stage.outputs[0]].name,
            print(p_.stages, *stage.expr()));
    compute_job(compute, path, through_.count(compute.stage) != 0 ? StageJob::Phase::Steps : StageJob::Phase::Whole);
}

void KernelGenerator::compute_job(const Compute& compute, const TreePath& path, StageJob::Phase phase) {
    const Primitive& stage = p_.stages.primitives[compute.stage];
    StageJob job;
    job.phase = phase;
    if (phase == StageJob::Phase::Finish)
        job.in_flight = stays_in_flight(compute);
    else if (const auto loop = tree_.loops.find(scope_of(path)); loop != tree_.loops.end())
        job.in_flight = counters_.count(loop->first) != 0 && in_flight(*loop->second);
    job.expr = stage.expr();
    job.micro = &compute.micro;
    for (const size_t a : p_.stage_axes[compute.stage]) {
        job.ranges.push_back(ranges_[a]);
        job.axes.push_back(p_.axes[a].name);
    }
    for (size_t i = 0; i < job.expr->accesses.size(); ++i) {
        const ValueId v = job.expr->accesses[i].value;
        job.names.push_back(p_.stages.values[v].name);
        if (const auto copy = copy_of(compute.stage, i)) {
            job.accesses.push_back(place_of(*copy));
            job.accesses.back().checked = true;
            job.accesses.back().filled = true;
            job.accesses.back().zero_behind = zero_behind(compute.stage, i);
        } else {
            job.accesses.push_back(place_of(v, compute.stage));
        }
    }
    job.out = place_of(stage.outputs[0], compute.stage);
    TensorExpr expr;
    add_online(compute, path, job, expr);
    const auto adopted = registers_.stages.find(compute.stage);
    // (Behind the loops more threads would share a sum than have added to it.)
    const Partition* share = phase != StageJob::Phase::Whole      ? &registers_.values.at(stage.outputs[0])
                             : adopted != registers_.stages.end() ? &adopted->second
                                                                  : nullptr;
    emit(job, share);
}

std::vector<bool> KernelGenerator::zero_behind(PrimitiveId stage, size_t access) const {
    const TensorExpr& e = *p_.stages.primitives[stage].expr();
    const Access& a = e.accesses[access];
    std::vector<bool> out(e.extents.size(), false);
    const bool local = std::any_of(tree_.loads.begin(), tree_.loads.end(), [&](const auto& load) {
        return load.second->stage == stage && load.second->access == access && load.second->padding == Padding::Local;
    });
    if (!local || a.fill != 0) return out;
    for (size_t k = 0; k < e.extents.size(); ++k)
        for (size_t d = 0; d < a.index.size(); ++d) {
            const auto linear = linear_in(a.index[d], {VarKind::Axis, static_cast<uint32_t>(k)});
            if (!linear || !linear->coefficient.is_constant() || linear->coefficient.constant() < 1) continue;
            const Expr behind = linear->coefficient * e.extents[k] + linear->rest;  // the first point behind the end
            if (prove_nonnegative(simplify(behind - p_.stages.values[a.value].shape[d], e.ranges()), e.ranges()))
                out[k] = true;
        }
    return out;
}

bool KernelGenerator::emit(StageJob& job, const Partition* share) {
    job.threads = threads_;
    job.room = block_.room;
    threads_write_ = threads_write_ || job.out.shared || (job.correction && job.correction->shared);
    gpu::Share own;
    for (size_t k = 0; k < job.ranges.size(); ++k) {
        own.most.push_back(job.ranges[k].most);
        own.cut = own.cut || (k >= job.expr->spatial && !job.ranges[k].whole);
    }
    job.share = share != nullptr ? *share : gpu::make_partition(*job.expr, *job.micro, own, threads_);
    TW_CHECK(job.share.group <= 32 || block_.exchanges, "warps of kernel '{}' have no room for their sums", p_.name);
    return emit_stage(w_, v_, job);
}

std::string device_header() { return std::string(kDeviceCuda) + "\n" + kDeviceCommon; }

KernelText generate(const TileProgram& program, const GpuTarget& target, const std::string& function) {
    return KernelGenerator(program, target).run(function);
}

}  // namespace tilewright::cuda
