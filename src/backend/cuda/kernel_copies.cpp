// Loads, stores and copies of a kernel: elements between global memory, shared memory and registers.

#include "backend/cuda/kernel_text.h"
#include "base/error.h"

namespace tilewright::cuda {

void KernelGenerator::emit_load(const Load& load, bool ahead, const std::string& slot) {
    gpu::CopyJob c;
    load_job(load, c);
    const std::string& name = p_.stages.values[c.tensor].name;
    TW_CHECK(load.copy.has_value(), "the load of '{}' has no annotation of how it is copied", name);
    if (!groups_) {
        w_.line("// load {}", name);
        return emit_copy(c, *load.copy);
    }
    const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
    const auto boxes = gpu::as_boxes(c.copy, access, p_.stages.values[c.tensor], load.swizzle, v_);
    const auto* found = std::get_if<gpu::BoxCopy>(&boxes);
    if (load.copy->by != BlockCopy::By::Boxes) {
        w_.line("// load {}, by threads: {}", name, found != nullptr ? "as annotated" : std::get<std::string>(boxes));
        return emit_copy(c, *load.copy);
    }
    TW_CHECK(found != nullptr, "the load of '{}' is annotated to be made by TMA: {}", name,
             std::get<std::string>(boxes));
    w_.line("// load {}, by TMA", name);
    emit_boxes(*found, c, slot);
    if (!ahead) waiting_.push_back(c.buffer);
}

std::string KernelGenerator::map_of(const gpu::BoxCopy& boxes, ValueId tensor, int swizzle) {
    for (size_t i = 0; i < p_.stages.inputs.size(); ++i) {
        if (p_.stages.inputs[i] != tensor) continue;
        KernelText::Map map{i, boxes.extents, boxes.box, swizzle};
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

void KernelGenerator::emit_boxes(const gpu::BoxCopy& boxes, const gpu::CopyJob& c, const std::string& slot) {
    const TensorExpr& copy = c.copy;
    const Place& to = c.job.out;
    const std::string map = map_of(boxes, c.tensor, to.swizzle), at = arrival(counted_ ? *counted_ : c.buffer, slot);
    boxes_.insert(c.buffer);
    box_bytes_ += boxes.bytes;
    if (!counted_) {
        w_.open("if (elected)");
        w_.line("tw::expect_bytes({}, {});", at, boxes.bytes);
    }
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
    if (!counted_) w_.close();
}

std::optional<size_t> KernelGenerator::counting(const TileLoop& loop) const {
    std::optional<size_t> first;
    for (const Stmt& s : loop.body) {
        const auto* load = std::get_if<Load>(&s.kind);
        if (load == nullptr) continue;
        if (load->copy->by != BlockCopy::By::Boxes) return std::nullopt;
        if (!first) first = existing(copy_of(load->stage, load->access));
    }
    return first;
}

void KernelGenerator::boxes_of_step(const std::string& slot, const std::function<void()>& loads) {
    Writer outside = std::move(w_);
    w_ = outside.inner(1);
    box_bytes_ = 0;
    loads();
    const Writer inside = std::move(w_);
    w_ = std::move(outside);
    w_.open("if (elected)");
    w_.line("tw::expect_bytes({}, {});", arrival(*counted_, slot), box_bytes_);
    w_.insert(inside);
    w_.close();
}

void KernelGenerator::wait_for_box(size_t buffer, const std::string& slot) {
    waited_.insert(buffer);
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
    w.add("const bool elected = tw::elected();");
    w.line("if (elected) tw::begin_arrivals(s_arrivals, {});", block_.arrival_count);
    w.add("tw::barrier();");
    for (const size_t buffer : waited_) w.line("u32 arrived_{} = 0;", block_.arrivals[buffer]);
    return w.text();
}

void KernelGenerator::emit_store(const Store& store, const TreePath&) {
    gpu::CopyJob c;
    store_job(store, c);
    const std::string& name = p_.stages.values[store.value].name;
    TW_CHECK(store.copy.has_value(), "the store of '{}' has no annotation of how it is copied", name);
    w_.line("// store {}", name);
    emit_copy(c, *store.copy);
}

void KernelGenerator::emit_copy(gpu::CopyJob& c, const BlockCopy& how) {
    TW_CHECK(how.by != BlockCopy::By::Boxes, "'{}' cannot be copied by TMA", c.job.names[0]);
    set_copy(c, how);
    emit(c.job);
}

}  // namespace tilewright::cuda
