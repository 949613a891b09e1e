#include "tile/gpu_block.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "program/analysis/access.h"
#include "tile/softmax_sum.h"

namespace tilewright::gpu {

Block::Block(const TileProgram& program, const BlockLimits& limits)
    : p_(program),
      tree_(walk(program)),
      block_(block_memory(program, limits.threads, limits.shared_bytes)),
      threads_(block_.threads),
      registers_(block_.registers),
      in_memory_(block_.in_memory),
      plan_(block_.plan),
      scales_(online_scales(program.stages, online_maxima(program))),
      online_(online_stages(program, tree_)),
      rounds_(std::any_of(tree_.computes.begin(), tree_.computes.end(),
                          [](const auto& c) { return c.second->micro.matrix.has_value(); })),
      objects_(plan_.buffers.size()) {
    for (const auto* list : {&p_.stages.inputs, &p_.stages.outputs})
        for (const ValueId v : *list) {
            memory_[v].storage = p_.stages.values[v].dtype;
            memory_[v].strides = row_major_strides(p_.stages.values[v].shape);
        }
    for (const auto& [path, compute] : tree_.computes)
        if (auto late = late_factor_of(compute->stage))
            late_.emplace(p_.stages.primitives[compute->stage].outputs[0], std::move(*late));
    for (const auto& [path, compute] : tree_.computes)
        if (const auto loop = summed_through(path, *compute)) through_[compute->stage] = *loop;
    for (const TileAxis& a : p_.axes) ranges_.push_back(AxisRange::of(a.extent));
}

Block::Grid Block::grid_loops(const std::vector<Stmt>*& body, TreePath& path) const {
    Grid grid;
    std::vector<Expr> remaining;
    remaining.reserve(p_.axes.size());
    for (const TileAxis& a : p_.axes) remaining.push_back(a.extent);
    while (body->size() == 1) {
        const auto* loop = std::get_if<TileLoop>(&(*body)[0].kind);
        if (loop == nullptr || !loop->parallel) break;
        grid.loops.push_back(loop);
        const Expr trips = ceil_div(remaining[loop->axis], loop->step);
        grid.trips.push_back(variables().simplified(splits(*loop) ? max(trips, 1) : trips));
        remaining[loop->axis] = loop->step;
        path.push_back(0);
        body = &loop->body;
    }
    return grid;
}

AxisRange Block::grid_range(const TileLoop& loop, const AxisRange& outer, Expr counter) const {
    const AxisRange r = narrowed(outer, counter, loop.step, variables());
    return splits(loop) ? part_of_sum(r) : r;
}

std::string Block::split_fault() const {
    if (!tree_.split) return "";
    for (const auto& [path, compute] : tree_.computes) {
        const TensorExpr& e = *p_.stages.primitives[compute->stage].expr();
        const Share share = share_of(p_, tree_, path, compute->stage);
        for (size_t a = 0; a < e.spatial; ++a)
            if (!share.most[a].is_constant())
                return fmt::format("the parts of a sum have no constant extent along {}",
                                   p_.axes[p_.stage_axes[compute->stage][a]].name);
        if (share.cut && through_.count(compute->stage) == 0)
            return "the parts of a sum do not stay in registers through the loops of a block";
    }
    return "";
}

Partition Block::split_share() const {
    const auto& [path, compute] = tree_.computes.at(0);
    const Primitive& stage = p_.stages.primitives[compute->stage];
    if (through_.count(compute->stage) != 0) return registers_.values.at(stage.outputs[0]);
    return make_partition(*stage.expr(), compute->micro, share_of(p_, tree_, path, compute->stage), threads_);
}

std::optional<TreePath> Block::summed_through(const TreePath& path, const Compute& compute) const {
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

std::vector<std::pair<TreePath, const Compute*>> Block::finished_behind(const TreePath& loop) const {
    std::vector<std::pair<TreePath, const Compute*>> out;
    for (const auto& [path, compute] : tree_.computes) {
        const auto it = through_.find(compute->stage);
        if (it == through_.end() || it->second != loop) continue;
        const bool has_epilogue = !p_.stages.primitives[compute->stage].expr()->epilogue.empty();
        if (has_epilogue || tree_.split || stays_in_flight(*compute)) out.emplace_back(path, compute);
    }
    return out;
}

bool may_overlap(const TileLoop& loop) {
    if (loop.stages < 3) return false;
    const auto is_load = [](const Stmt& s) { return std::holds_alternative<Load>(s.kind); };
    const auto behind = std::find_if_not(loop.body.begin(), loop.body.end(), is_load);
    const auto* compute = behind == loop.body.end() ? nullptr : std::get_if<Compute>(&behind->kind);
    return compute != nullptr && std::all_of(behind + 1, loop.body.end(), is_load) && compute->micro.matrix &&
           compute->micro.matrix->group();
}

bool Block::may_overlap(const TileLoop& loop) const {
    if (!gpu::may_overlap(loop)) return false;
    return std::all_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
        const auto* compute = std::get_if<Compute>(&s.kind);
        return compute == nullptr || stays_in_flight(*compute);
    });
}

bool Block::stays_in_flight(const Compute& compute) const {
    return compute.micro.matrix && compute.micro.matrix->group() && through_.count(compute.stage) != 0;
}

Place Block::place_of(size_t buffer) const {
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
    for (const Expr& base : b.base) place.origin.push_back(variables().simplified(substitute_axes(base, starts)));
    const std::vector<Expr> physical(b.physical.begin(), b.physical.end());
    place.strides = row_major_strides(physical);
    place.box.assign(b.box.begin(), b.box.end());
    if (!b.layout.is_identity()) place.layout = b.layout;
    return place;
}

std::optional<size_t> Block::buffer_where(const std::function<bool(const Buffer&)>& is) const {
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
        if (is(plan_.buffers[i])) return i;
    return std::nullopt;
}

size_t Block::existing(std::optional<size_t> buffer) const {
    TW_CHECK(buffer.has_value(), "a copy of kernel '{}' has no buffer", p_.name);
    return *buffer;
}

std::optional<size_t> Block::copy_of(PrimitiveId stage, size_t access) const {
    return buffer_where([&](const Buffer& b) { return b.access && *b.access == std::pair(stage, access); });
}

std::optional<size_t> Block::buffer_of(ValueId v) const {
    return buffer_where([&](const Buffer& b) { return !b.access && !b.correction && b.value == v; });
}

std::optional<LateFactor> Block::late_factor_of(PrimitiveId stage) const {
    const ValueId v = p_.stages.primitives[stage].outputs[0];
    const auto buffer = buffer_of(v);
    if (!rounds_ || scales_[stage] || !buffer || !in_registers(plan_.buffers[*buffer]) || is_output(p_, v) ||
        plan_.buffers[*buffer].dtype != DType::F32)
        return std::nullopt;
    bool taken = false;
    for (const auto& [path, compute] : tree_.computes) {
        const TensorExpr& e = *p_.stages.primitives[compute->stage].expr();
        if (std::none_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) { return a.value == v; })) continue;
        if (!takes_factor(e, v)) return std::nullopt;
        taken = true;
    }
    return taken ? late_factor(p_.stages.primitives[stage].expr()->epilogue) : std::nullopt;
}

Place Block::place_of(ValueId v, PrimitiveId reader) const {
    Place place = place_of(v);
    if (const auto late = late_.find(v); late != late_.end()) place.factor = late->second.factor;
    index_registers(place, v, p_.stage_axes[reader]);
    return place;
}

void Block::index_registers(Place& place, ValueId v, const std::vector<size_t>& axes) const {
    if (!place.in_registers) return;
    const PrimitiveId from = p_.stages.producers()[v];
    for (const size_t j : registers_.values.at(v).array_axes()) {
        if (j >= p_.stages.primitives[from].expr()->spatial) continue;
        if (const auto it = std::find(axes.begin(), axes.end(), p_.stage_axes[from][j]); it != axes.end())
            place.register_axes.push_back(static_cast<size_t>(it - axes.begin()));
    }
}

Place Block::place_of(ValueId v) const {
    if (const auto b = buffer_of(v)) return place_of(*b);
    const auto it = memory_.find(v);
    TW_CHECK(it != memory_.end(), "value '{}' of kernel '{}' has no memory", p_.stages.values[v].name, p_.name);
    return it->second;
}

Place Block::correction_of(ValueId maximum, PrimitiveId reader) const {
    const auto b = buffer_where([&](const Buffer& x) { return x.correction && x.value == maximum; });
    TW_CHECK(b.has_value(), "an online maximum of kernel '{}' has no correction", p_.name);
    Place place = place_of(*b);
    index_registers(place, maximum, p_.stage_axes[reader]);
    return place;
}

void Block::enter_scope(const TreePath& path) {
    for (size_t a = 0; a < p_.axes.size(); ++a) starts_[{path, a}] = ranges_[a].lo;
}

bool Block::may_be_unfinished(PrimitiveId stage) const {
    const std::vector<size_t>& axes = p_.stage_axes[stage];
    return std::any_of(axes.begin() + static_cast<std::ptrdiff_t>(p_.stages.primitives[stage].expr()->spatial),
                       axes.end(), [&](size_t a) { return !ranges_[a].whole; });
}

void Block::add_online(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& own) const {
    if (compute.online) job.correction = correction_of(p_.stages.primitives[compute.stage].outputs[0], compute.stage);
    for (size_t i = 0; i < job.expr->accesses.size(); ++i)
        if (const auto it = online_.find(job.expr->accesses[i].value); it != online_.end())
            job.accesses[i].unfinished = may_be_unfinished(it->second.stage);
    std::optional<RescaledSum> sum = rescaled_sum(p_, tree_, online_, scales_[compute.stage], compute.stage, path);
    if (!sum) return;
    job.rescale = job.expr->accesses.size();
    job.accesses.push_back(correction_of(sum->maximum, compute.stage));
    job.names.push_back("factor");
    own = std::move(sum->expr);
    job.expr = &own;
}

void Block::compute_job(const Compute& compute, const TreePath& path, StageJob::Phase phase, StageJob& job,
                        TensorExpr& own) const {
    const Primitive& stage = p_.stages.primitives[compute.stage];
    job.phase = phase;
    job.expr = stage.expr();
    job.micro = &compute.micro;
    job.rounds = rounds_;
    if (const auto late = late_.find(stage.outputs[0]); late != late_.end()) {
        own = *stage.expr();
        own.epilogue = late->second.epilogue;
        job.expr = &own;
    }
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
            job.accesses.back().from_one = job.expr->accesses[i].valid.empty() && is_softmax_sum(p_.stages, v);
        }
    }
    job.out = place_of(stage.outputs[0], compute.stage);
    add_online(compute, path, job, own);
    const auto adopted = registers_.stages.find(compute.stage);
    // (Behind the loops more threads would share a sum than have added to it.)
    const Partition* share = phase != StageJob::Phase::Whole      ? &registers_.values.at(stage.outputs[0])
                             : adopted != registers_.stages.end() ? &adopted->second
                                                                  : nullptr;
    share_out(job, share);
}

std::vector<bool> Block::zero_behind(PrimitiveId stage, size_t access) const {
    const TensorExpr& e = *p_.stages.primitives[stage].expr();
    const Access& a = e.accesses[access];
    std::vector<bool> out(e.extents.size(), false);
    const bool local = std::any_of(tree_.loads.begin(), tree_.loads.end(), [&](const auto& load) {
        return load.second->stage == stage && load.second->access == access && load.second->padding == Padding::Local;
    });
    if (!local || a.fill != 0) return out;
    for (size_t k = 0; k < e.extents.size(); ++k) out[k] = leaves_tensor_behind(p_.stages, e, a, k);
    return out;
}

void Block::share_out(StageJob& job, const Partition* share) const {
    job.threads = threads_;
    job.room = block_.room;
    Share own;
    for (size_t k = 0; k < job.ranges.size(); ++k) {
        own.most.push_back(job.ranges[k].most);
        own.cut = own.cut || (k >= job.expr->spatial && !job.ranges[k].whole);
    }
    job.share = share != nullptr ? *share : make_partition(*job.expr, *job.micro, own, threads_);
    const auto size = std::max<int64_t>(4, byte_size(job.expr->body.dtype()));
    TW_CHECK(job.share.exchange_bytes(threads_, size, job.expr->spatial) <= block_.exchange_bytes,
             "warps of kernel '{}' have no room for their sums", p_.name);
}

namespace {

bool leaves_room(const layout::Primitive& p) {
    const auto* pad = std::get_if<layout::Pad>(&p);
    return pad != nullptr && pad->before == 0;
}

}  // namespace

void Block::load_job(const Load& load, CopyJob& out) const {
    out.buffer = existing(copy_of(load.stage, load.access));
    const Buffer& b = plan_.buffers[out.buffer];
    const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
    out.tensor = access.value;
    const Place to = place_of(out.buffer);
    std::vector<Expr> j;
    // Room that is left between rows, to put them on other banks, stays empty.
    Layout written = b.layout;
    while (!written.primitives.empty() && leaves_room(written.primitives.back())) written.primitives.pop_back();
    for (const Expr& d : physical_shape(written, to.box)) {
        out.copy.extents.push_back(d);
        out.job.ranges.push_back(AxisRange::of(d));
        out.job.axes.push_back(fmt::format("d{}", j.size()));
        j.push_back(axis(j.size()));
    }
    out.copy.spatial = out.copy.extents.size();
    LogicalIndex logical{j, {}};
    if (!written.is_identity()) logical = logical_index(written, to.box, j);
    out.copy.accesses = {copied_access(access, logical, to.origin, p_.stages.values[access.value].shape,
                                       load.padding == Padding::Global)};
    out.copy.body.set_root(out.copy.body.access(0, b.dtype));
    out.job.out = to;
    out.job.out.origin.clear();
    out.job.out.layout.reset();
    out.job.accesses = {memory_.at(access.value)};
    out.job.names = {p_.stages.values[access.value].name};
    out.job.expr = &out.copy;
}

void Block::store_job(const Store& store, CopyJob& out) const {
    out.buffer = existing(buffer_of(store.value));
    out.tensor = store.value;
    const PrimitiveId stage = p_.stages.producers()[store.value];
    const TensorExpr& e = *p_.stages.primitives[stage].expr();
    Access read;
    read.value = store.value;
    read.index = result_index(e);
    for (size_t k = 0; k < e.spatial; ++k) {
        out.copy.extents.push_back(e.extents[k]);
        out.job.ranges.push_back(ranges_[p_.stage_axes[stage][k]]);
        out.job.axes.push_back(p_.axes[p_.stage_axes[stage][k]].name);
    }
    out.copy.spatial = e.spatial;
    out.copy.output_index = e.output_index;
    out.copy.accesses = {read};
    out.copy.body.set_root(out.copy.body.access(0, plan_.buffers[out.buffer].dtype));
    out.job.out = memory_.at(store.value);
    Place from = place_of(out.buffer);
    out.shared_out = registers_.values.count(store.value) != 0;
    if (out.shared_out)
        for (const size_t k : registers_.values.at(store.value).array_axes())
            if (k < e.spatial) from.register_axes.push_back(k);
    out.job.accesses = {std::move(from)};
    out.job.names = {p_.stages.values[store.value].name};
    out.job.expr = &out.copy;
}

void Block::set_copy(CopyJob& c, const BlockCopy& how) const {
    c.micro = Micro();
    c.micro.annotations.access = ThreadAccess{{{0, OperandRead::By::Elements, how.width}}, how.width};
    c.job.async = how.by == BlockCopy::By::Async;
    c.job.micro = &c.micro;
    if (c.shared_out) return share_out(c.job, &registers_.values.at(c.tensor));
    if (!how.order.empty()) {
        c.micro.vector_axis = how.order.back();
        c.micro.order = how.order;
        c.micro.registers.assign(c.copy.spatial, 1);
        c.micro.registers[how.order.back()] = how.width;
    }
    share_out(c.job, nullptr);
}

}  // namespace tilewright::gpu
