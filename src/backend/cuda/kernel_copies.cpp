// Loads, stores and copies of a kernel: elements between global memory, shared memory and registers.

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/cuda/kernel_text.h"
#include "backend/cuda/scalar_text.h"
#include "base/error.h"
#include "program/analysis/access.h"

namespace tilewright::cuda {

void KernelGenerator::emit_load(const Load& load, bool async, const std::string& slot) {
    const size_t buffer = existing(copy_of(load.stage, load.access));
    const Buffer& b = plan_.buffers[buffer];
    const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
    const std::vector<Expr>& shape = p_.stages.values[access.value].shape;
    const Place to = place_of(buffer);
    TensorExpr copy;
    StageJob job;
    std::vector<Expr> j;
    // Room that is left between rows, to put them on other banks, stays empty.
    Layout written = b.layout;
    while (!written.primitives.empty() && leaves_room(written.primitives.back())) written.primitives.pop_back();
    for (const Expr& d : physical_shape(written, to.box)) {
        copy.extents.push_back(d);
        job.ranges.push_back(range_of(d.constant()));
        job.axes.push_back(fmt::format("d{}", j.size()));
        j.push_back(axis(j.size()));
    }
    copy.spatial = copy.extents.size();
    LogicalIndex logical{j, {}};
    if (!written.is_identity()) logical = logical_index(written, to.box, j);
    copy.accesses = {copied_access(access, logical, to.origin, shape, load.padding == Padding::Global)};
    copy.body.set_root(copy.body.access(0, b.dtype));
    job.out = to;
    job.out.origin.clear();
    job.out.layout.reset();
    job.async = async && access.fill == 0;
    const std::string& name = p_.stages.values[access.value].name;
    if (groups_) {
        const auto boxes = as_boxes(copy, access, p_.stages.values[access.value], load.swizzle, v_);
        if (const auto* found = std::get_if<BoxCopy>(&boxes)) {
            w_.line("// load {}, by TMA", name);
            emit_boxes(*found, copy, job.out, buffer, access.value, slot);
            if (!async) waiting_.push_back(buffer);
            return;
        }
        w_.line("// load {}, by threads: {}", name, std::get<std::string>(boxes));
    } else {
        w_.line("// load {}", name);
    }
    emit_copy(copy, job, memory_.at(access.value), p_.stages.values[access.value].name, nullptr);
}

std::string KernelGenerator::map_of(const BoxCopy& boxes, ValueId tensor) {
    for (size_t i = 0; i < p_.stages.inputs.size(); ++i) {
        if (p_.stages.inputs[i] != tensor) continue;
        KernelText::Map map = boxes.map;
        map.tensor = i;
        for (size_t m = 0; m < out_.maps.size(); ++m)
            if (out_.maps[m].tensor == i && out_.maps[m].box == map.box && out_.maps[m].swizzle == map.swizzle)
                return map_names_[m];
        out_.maps.push_back(std::move(map));
        map_names_.push_back(v_.fresh("map_" + identifier(p_.stages.values[tensor].name)));
        map_arguments_ += fmt::format(", const TW_GRID_CONSTANT tw::TensorMap {}", map_names_.back());
        return map_names_.back();
    }
    internal_error(__FILE__, __LINE__, "boxes are of inputs", p_.name);
}

std::string KernelGenerator::arrival(size_t buffer, const std::string& slot) const {
    return fmt::format("s_arrivals + ({} + {})", block_.arrivals[buffer], slot);
}

void KernelGenerator::emit_boxes(const BoxCopy& boxes, const TensorExpr& copy, const Place& to, size_t buffer,
                                 ValueId tensor, const std::string& slot) {
    const std::string map = map_of(boxes, tensor), at = arrival(buffer, slot);
    boxes_.insert(buffer);
    w_.open("if (tw::thread() == 0)");
    w_.line("tw::expect_bytes({}, {});", at, boxes.bytes);
    std::vector<Expr> axes(copy.extents.size(), Expr(0));
    for (const size_t a : boxes.apart) {
        const int64_t count = copy.extents[a].constant();
        axes[a] = v_.add("box", {Expr(0), Expr(count - 1)});
        w_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", v_.name(axes[a]), count));
    }
    Expr offset = 0;
    for (const size_t a : boxes.apart) offset += axes[a] * to.strides[a];
    std::string where;
    const std::vector<Expr>& index = copy.accesses[0].index;
    for (size_t d = index.size(); d-- > 0;)
        where += fmt::format(", static_cast<int>({})", v_.text(v_.simplified(substitute_axes(index[d], axes))));
    w_.line("tw::copy_box({} + {}, {}, {}{});", to.object, v_.operand(v_.simplified(offset)), map, at, where);
    for (size_t k = 0; k < boxes.apart.size(); ++k) w_.close();
    w_.close();
}

void KernelGenerator::wait_for_box(size_t buffer, const std::string& slot) {
    const std::string parity = fmt::format("arrived_{}", block_.arrivals[buffer]);
    w_.line("tw::wait_arrival({}, {} >> {} & 1);", arrival(buffer, slot), parity, slot);
    w_.line("{} ^= 1u << {};", parity, slot);
}

void KernelGenerator::wait_for_boxes() {
    for (const size_t buffer : waiting_) wait_for_box(buffer, "0");
    waiting_.clear();
}

std::string KernelGenerator::begin_arrivals() const {
    if (boxes_.empty()) return "";
    Writer w = Writer().inner(1);
    w.line("const tw::Shared<u64> s_arrivals = tw::shared<u64>({}, {}, \"arrivals\");", block_.arrivals_at,
           block_.arrival_count);
    w.line("if (tw::thread() == 0) tw::begin_arrivals(s_arrivals, {});", block_.arrival_count);
    w.add("tw::barrier();");
    for (const size_t buffer : boxes_) w.line("u32 arrived_{} = 0;", block_.arrivals[buffer]);
    return w.text();
}

void KernelGenerator::emit_store(const Store& store, const TreePath&) {
    const size_t buffer = existing(buffer_of(store.value));
    const PrimitiveId stage = p_.stages.producers()[store.value];
    const TensorExpr& e = *p_.stages.primitives[stage].expr();
    TensorExpr copy;
    StageJob job;
    Access read;
    read.value = store.value;
    read.index = result_index(e);
    for (size_t k = 0; k < e.spatial; ++k) {
        copy.extents.push_back(e.extents[k]);
        job.ranges.push_back(ranges_[p_.stage_axes[stage][k]]);
        job.axes.push_back(p_.axes[p_.stage_axes[stage][k]].name);
    }
    copy.spatial = e.spatial;
    copy.output_index = e.output_index;
    copy.accesses = {read};
    copy.body.set_root(copy.body.access(0, plan_.buffers[buffer].dtype));
    job.out = memory_.at(store.value);
    Place from = place_of(buffer);
    std::optional<Partition> share;
    if (const auto it = registers_.values.find(store.value); it != registers_.values.end()) {
        share = it->second;
        for (size_t k = 0; k < e.spatial; ++k) from.register_axes.push_back(k);
    }
    w_.line("// store {}", p_.stages.values[store.value].name);
    emit_copy(copy, job, std::move(from), p_.stages.values[store.value].name, share ? &*share : nullptr);
}

bool KernelGenerator::leaves_room(const layout::Primitive& p) {
    const auto* pad = std::get_if<layout::Pad>(&p);
    return pad != nullptr && pad->before == 0;
}

void KernelGenerator::emit_copy(const TensorExpr& copy, StageJob& job, Place from, const std::string& name,
                                const Partition* share) {
    Micro micro;
    job.expr = &copy;
    job.micro = &micro;
    job.accesses = {std::move(from)};
    job.names = {name};
    if (share != nullptr || copy.spatial == 0) {
        emit(job, share);
        return;
    }
    micro.vector_axis = copy.spatial - 1;
    const auto registers = [&](int64_t last) {
        micro.registers.assign(copy.spatial, 1);
        micro.registers.back() = last;
    };
    const Expr most = job.ranges.back().most;
    micro.order = by_memory(copy, job.accesses[0]);
    for (int64_t width = 16 / static_cast<int64_t>(byte_size(job.out.storage)); width > 1; width /= 2) {
        if (!most.is_constant() || most.constant() % width != 0) continue;
        registers(width);
        const Writer before = w_;
        const Variables variables = v_;
        if (emit(job, nullptr)) return;
        w_ = before;
        v_ = variables;
    }
    registers(1);
    micro.order.clear();
    micro.vector_axis = contiguous_axis(copy, job.accesses[0]).value_or(copy.spatial - 1);
    emit(job, nullptr);
}

std::vector<size_t> KernelGenerator::by_memory(const TensorExpr& copy, const Place& from) const {
    std::vector<size_t> order(copy.spatial);
    std::iota(order.begin(), order.end(), size_t{0});
    if (!from.origin.empty()) return order;
    const Expr offset = strided_offset(copy.accesses[0].index, from.strides);
    std::vector<int64_t> way;
    for (size_t a = 0; a < copy.spatial; ++a) {
        const auto linear = linear_in(offset, var_of(axis(a)));
        way.push_back(linear && linear->coefficient.is_constant() ? linear->coefficient.constant() : INT64_MAX);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return way[a] > way[b]; });
    return order;
}

std::optional<size_t> KernelGenerator::contiguous_axis(const TensorExpr& copy, const Place& from) const {
    if (!from.origin.empty()) return std::nullopt;
    const Expr offset = strided_offset(copy.accesses[0].index, from.strides);
    for (size_t a = copy.spatial; a-- > 0;) {
        const auto linear = linear_in(offset, var_of(axis(a)));
        if (linear && linear->coefficient.is_constant(1) && !copy.extents[a].is_constant(1)) return a;
    }
    return std::nullopt;
}

}  // namespace tilewright::cuda
