#include <algorithm>

#include "base/error.h"
#include "program/text.h"
#include "tile/tile.h"

namespace tilewright {

namespace {

std::string join(const std::vector<std::string>& parts) {
    std::string s;
    for (const std::string& p : parts) s += (s.empty() ? "" : " ") + p;
    return s;
}

class Printer {
  public:
    explicit Printer(const TileProgram& program) : p_(program) {}

    std::string run() {
        out_ = "tile " + name_text(p_.name) + " {\n";
        out_ += "stages {\n" + print(p_.stages) + "}\n";
        return schedule() + "}\n";
    }

    std::string schedule() {
        std::vector<std::string> axes;
        axes.reserve(p_.axes.size());
        for (const TileAxis& a : p_.axes) axes.push_back(fmt::format("{}=\"{}\"", name_text(a.name), a.extent.text()));
        out_ += "axes " + join(axes) + "\n";
        for (const PrimitiveId s : p_.stages.primitives.ids()) {
            std::vector<std::string> names;
            for (const size_t a : p_.stage_axes[s]) names.push_back(name_text(p_.axes[a].name));
            out_ += fmt::format("stage {} over [{}]\n", s.value, join(names));
        }
        for (const auto& [v, layout] : p_.buffer_layouts)
            out_ += fmt::format("buffer {} layout \"{}\"\n", value_name(v), print_layout(layout));
        for (const ValueId v : p_.near) out_ += fmt::format("near {}\n", value_name(v));
        statements(p_.body, 0);
        return std::move(out_);
    }

  private:
    static std::string print_layout(const Layout& layout) { return tilewright::print(layout); }

    std::string value_name(ValueId v) const { return name_text(p_.stages.values[v].name); }
    std::string axis_name(size_t a) const { return name_text(p_.axes[a].name); }
    std::string axis_name(PrimitiveId stage, size_t a) const { return axis_name(p_.stage_axes[stage].at(a)); }

    void statements(const std::vector<Stmt>& body, int depth) {
        for (const Stmt& s : body) {
            out_ += std::string(static_cast<size_t>(depth) * 2, ' ');
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) {
                out_ += fmt::format("{} {} by {}{} {{\n", loop->parallel ? "parallel" : "for", axis_name(loop->axis),
                                    loop->step, loop->stages == 1 ? "" : fmt::format(" stages {}", loop->stages));
                statements(loop->body, depth + 1);
                out_ += std::string(static_cast<size_t>(depth) * 2, ' ') + "}\n";
            } else if (const auto* load = std::get_if<Load>(&s.kind)) {
                std::vector<std::string> order;
                for (const size_t d : load->copy ? load->copy->order : std::vector<size_t>())
                    order.push_back(std::to_string(d));
                out_ += fmt::format("load {} access {} layout \"{}\"{} padding {}{}\n", load->stage.value, load->access,
                                    print_layout(load->layout),
                                    load->swizzle == 0 ? "" : fmt::format(" swizzle {}", load->swizzle),
                                    to_string(load->padding), block_copy(load->copy, order));
            } else if (const auto* compute = std::get_if<Compute>(&s.kind)) {
                out_ += "compute " + micro(*compute) + "\n";
            } else {
                const Store& store = std::get<Store>(s.kind);
                std::vector<std::string> order;
                for (const size_t a : store.copy ? store.copy->order : std::vector<size_t>())
                    order.push_back(axis_name(p_.stages.producers()[store.value], a));
                out_ += fmt::format("store {} padding {}{}{}\n", value_name(store.value), to_string(store.padding),
                                    store.non_temporal ? non_temporal(*store.non_temporal) : "",
                                    block_copy(store.copy, order));
            }
        }
    }

    std::string micro(const Compute& c) const {
        const Micro& m = c.micro;
        std::string s = std::to_string(c.stage.value) + (c.online ? " online" : "");
        if (m.vector_axis) s += fmt::format(" vector {} lanes {}", axis_name(c.stage, *m.vector_axis), m.lanes);
        if (m.matrix)
            s += fmt::format(" matrix {}{}{} [{} {} {}]", to_string(m.matrix->type),
                             m.matrix->form == MatrixForm::Warp ? "" : " ", to_string(m.matrix->form),
                             axis_name(c.stage, m.matrix->rows), axis_name(c.stage, m.matrix->columns),
                             axis_name(c.stage, m.matrix->sum));
        std::vector<std::string> registers, order, threads;
        for (size_t a = 0; a < m.registers.size(); ++a)
            if (m.registers[a] != 1) registers.push_back(fmt::format("{}={}", axis_name(c.stage, a), m.registers[a]));
        for (const size_t a : m.order) order.push_back(axis_name(c.stage, a));
        for (size_t a = 0; a < m.virtual_threads.size(); ++a)
            if (m.virtual_threads[a] != 1)
                threads.push_back(fmt::format("{}={}", axis_name(c.stage, a), m.virtual_threads[a]));
        if (!registers.empty()) s += " registers [" + join(registers) + "]";
        if (!order.empty()) s += " order [" + join(order) + "]";
        if (!threads.empty()) s += " vthreads [" + join(threads) + "]";
        return s + " padding " + std::string(to_string(m.padding)) + annotations(c);
    }

    static std::string non_temporal(NonTemporal above) {
        if (above == kNonTemporalNever) return " non_temporal never";
        return above == kNonTemporalAlways ? " non_temporal always" : fmt::format(" non_temporal above {}", above);
    }

    /// " copy [0 1] by 4 async"
    static std::string block_copy(const std::optional<BlockCopy>& copy, const std::vector<std::string>& order) {
        if (!copy) return "";
        if (copy->by == BlockCopy::By::Boxes) return " copy by boxes";
        return fmt::format(" copy{} by {}{}", order.empty() ? "" : " [" + join(order) + "]", copy->width,
                           copy->by == BlockCopy::By::Async ? " async" : "");
    }

    std::string axis_list(PrimitiveId stage, const std::vector<size_t>& axes) const {
        std::vector<std::string> names;
        for (const size_t a : axes) names.push_back(axis_name(stage, a));
        return "[" + join(names) + "]";
    }

    std::string annotations(const Compute& c) const {
        const Annotations& a = c.micro.annotations;
        std::string s;
        if (a.accumulators) {
            s += fmt::format(" accumulators {}", a.accumulators->most);
            if (a.accumulators->in_flight != 0) s += fmt::format(" in_flight {}", a.accumulators->in_flight);
        }
        if (a.hoist_scale) {
            s += fmt::format(" scale_hoisted {}", a.hoist_scale->vectors);
            if (a.hoist_scale->in_flight != 1) s += fmt::format(" in_flight {}", a.hoist_scale->in_flight);
        }
        if (a.unroll_sum) s += *a.unroll_sum ? " sum unrolled" : " sum looped";
        if (a.epilogue_loop) {
            s += " epilogue_loop " + axis_list(c.stage, a.epilogue_loop->axes);
            if (a.epilogue_loop->vectors != 1) s += fmt::format(" vectors {}", a.epilogue_loop->vectors);
            if (a.epilogue_loop->steps != 1) s += fmt::format(" steps {}", a.epilogue_loop->steps);
        }
        if (a.non_temporal) s += non_temporal(*a.non_temporal);
        if (a.prefetch && a.prefetch->empty()) s += " prefetch never";
        for (const Prefetch& p : a.prefetch.value_or(std::vector<Prefetch>())) {
            s += fmt::format(" prefetch {} {} bytes {}", p.access, to_string(p.kind), p.bytes);
            if (p.results != 1) s += fmt::format(" results {}", p.results);
        }
        if (a.stream_left) s += *a.stream_left ? " left streamed" : " left kept";
        if (a.resume_late) s += *a.resume_late ? " partial_sums late" : " partial_sums early";
        for (const Tail& t : a.tails) {
            std::vector<std::string> sizes;
            for (const int64_t size : t.sizes) sizes.push_back(std::to_string(size));
            s += fmt::format(" tail {} [{}]{}", axis_name(c.stage, t.axis), join(sizes), t.shift ? " shift" : "");
            if (t.border > 0) s += fmt::format(" border {}", t.border);
        }
        if (a.cut) s += " cut " + axis_list(c.stage, *a.cut);
        return s + gpu_annotations(c);
    }

    std::string gpu_annotations(const Compute& c) const {
        const Annotations& a = c.micro.annotations;
        std::string s;
        if (a.unroll) {
            std::vector<std::string> steps;
            for (size_t k = 0; k < a.unroll->size(); ++k)
                if ((*a.unroll)[k] != 1) steps.push_back(fmt::format("{}={}", axis_name(c.stage, k), (*a.unroll)[k]));
            s += " unroll [" + join(steps) + "]";
        }
        for (const OperandRead& r : a.access ? a.access->reads : std::vector<OperandRead>())
            s += fmt::format(" read {} {}", r.access,
                             r.by == OperandRead::By::Fragments ? "by fragments"
                             : r.by == OperandRead::By::Place   ? "in place"
                                                                : fmt::format("by {}", r.width));
        if (a.access) s += fmt::format(" write by {}", a.access->write);
        if (a.overlap) s += *a.overlap ? " products overlapped" : " products awaited";
        return s;
    }

    const TileProgram& p_;
    std::string out_;
};

/// "mh(n(k(La,Lb,C0),Ld,C1),Se)"
std::string expression(const TileProgram& p, const std::vector<Stmt>& body) {
    std::string s;
    for (const Stmt& statement : body) {
        if (!s.empty()) s += ',';
        if (const auto* loop = std::get_if<TileLoop>(&statement.kind)) {
            const bool alone = loop->body.size() == 1 && std::holds_alternative<TileLoop>(loop->body[0].kind);
            const std::string inside = expression(p, loop->body);
            s += p.axes[loop->axis].name + (alone ? inside : "(" + inside + ")");
        } else if (const auto* load = std::get_if<Load>(&statement.kind)) {
            s += "L" + p.stages.values[p.stages.primitives[load->stage].expr()->accesses.at(load->access).value].name;
        } else if (const auto* compute = std::get_if<Compute>(&statement.kind)) {
            s += fmt::format("C{}", compute->stage.value);
        } else {
            s += "S" + p.stages.values[std::get<Store>(statement.kind).value].name;
        }
    }
    return s;
}

}  // namespace

std::string print(const TileProgram& program) { return Printer(program).run(); }

std::string print_schedule(const TileProgram& program) { return Printer(program).schedule(); }

std::string print_without_names(const TileProgram& program) {
    TileProgram unnamed = program;
    unnamed.name = "kernel";
    unnamed.stages.name = "stages";
    return print(unnamed);
}

std::string tiling_expression(const TileProgram& program) { return expression(program, program.body); }

}  // namespace tilewright
