#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "backend/cuda/barriers.h"
#include "backend/cuda/box_copy.h"
#include "backend/cuda/device_text.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/scalar_text.h"
#include "backend/cuda/stage_text.h"
#include "base/error.h"
#include "tile/gpu_memory.h"
#include "tile/online.h"
#include "tile/walk.h"

namespace tilewright::cuda {

namespace {

std::vector<Expr> row_major_strides(std::span<const Expr> shape) {
    std::vector<Expr> strides(shape.size());
    Expr s = 1;
    for (size_t d = shape.size(); d-- > 0;) {
        strides[d] = s;
        s = s * shape[d];
    }
    return strides;
}

/// Symbols and scalars that the kernel's code can mention, in a stable order.
std::vector<Var> names_of(const TileProgram& p) {
    std::set<std::string> seen;
    std::vector<Var> out;
    const auto collect = [&](Expr e) {
        for (const Var v : variables(e))
            if ((v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) && seen.insert(Expr::var(v).text()).second)
                out.push_back(v);
    };
    const auto collect_body = [&](const ScalarBody& body) {
        for (const ScalarNode& n : body.nodes())
            if (n.op == ScalarOp::Index) collect(n.index);
    };
    for (const TileAxis& a : p.axes) collect(a.extent);
    for (const Value& v : p.stages.values)
        for (const Expr& d : v.shape) collect(d);
    for (const Primitive& s : p.stages.primitives) {
        const TensorExpr& e = *s.expr();
        for (const Expr& x : e.extents) collect(x);
        for (const Access& a : e.accesses) {
            for (const Expr& i : a.index) collect(i);
            for (const Expr& i : a.valid) collect(i);
        }
        for (const Expr& i : e.output_index) collect(i);
        collect_body(e.body);
        collect_body(e.epilogue);
    }
    return out;
}

class KernelGenerator {
  public:
    KernelGenerator(const TileProgram& program, const CodegenOptions& options)
        : p_(program),
          options_(options),
          tree_(walk(program)),
          groups_(has_groups()),
          block_(gpu::block_memory(program, options.most_threads, options.target.block_shared_bytes)),
          threads_(block_.threads),
          registers_(block_.registers),
          in_memory_(block_.in_memory),
          plan_(block_.plan),
          barriers_(barriers(program, plan_, in_memory_)),
          scales_(online_scales(program.stages, online_maxima(program))) {}

    KernelText run(const std::string& function) {
        if (groups_ && options_.target.capability() != 90)
            throw RuntimeError(
                fmt::format("kernel '{}' multiplies by four warps at a time, which sm_90a alone has; '{}' is sm_{}",
                            p_.name, options_.target.name, options_.target.capability()));
        out_.name = identifier(function.empty() ? p_.name : function);
        v_.fresh(out_.name);
        out_.threads = threads_;
        std::string arguments = declare_arguments();
        declare_buffers();
        const size_t behind_declarations = w_.text().size();
        for (const auto& [path, compute] : tree_.computes)
            if (compute->online) online_[p_.stages.primitives[compute->stage].outputs[0]] = {compute->stage, path};
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
        if (out_.shared_bytes > options_.target.block_shared_bytes)
            throw RuntimeError(
                fmt::format("kernel '{}' needs {} bytes of shared memory a block, {} has {}: smaller tiles "
                            "would fit",
                            p_.name, out_.shared_bytes, options_.target.name, options_.target.block_shared_bytes));
        out_.text = fmt::format("// {}: {}\nTW_KERNEL({}, {})({}) {{\n", p_.name, tiling_expression(p_), out_.name,
                                out_.threads, arguments) +
                    code + "}\n";
        return std::move(out_);
    }

  private:
    // --- sums that stay in registers through loops: they are zeros in front of them, and the epilogue stands behind
    //
    //     r_c[...] = 0; for (step ...) { ...; r_c[...] += ... } r_c[...] = max(r_c[...] + bias, 0)

    /// The outermost of the loops through which the statement's sums stay in registers, with nothing else to do to
    /// them on the way. Nothing where the statement begins and ends its sums itself.
    std::optional<TreePath> summed_through(const TreePath& path, const Compute& compute) const {
        const PrimitiveId s = compute.stage;
        const TensorExpr& e = *p_.stages.primitives[s].expr();
        const ValueId v = p_.stages.primitives[s].outputs[0];
        const auto buffer = buffer_of(v);
        if (e.reducer == Reducer::None || compute.online || scales_[s] || !buffer ||
            !in_registers(plan_.buffers[*buffer]))
            return std::nullopt;
        const DType kept = plan_.buffers[*buffer].dtype;
        if (compute_type(kept) != kept || kept != e.body[e.body.root()].dtype) return std::nullopt;
        // Sums over what lies in the registers of several threads count each once: they begin with what there was.
        if (registers_.stages.count(s) != 0 && !compute.micro.matrix) return std::nullopt;
        const TreePath& home = plan_.buffers[*buffer].scope;
        const std::vector<TileLoop const*> loops = tree_.loops_below(home, path);
        const auto reductions = std::span(p_.stage_axes[s]).subspan(e.spatial);
        if (loops.empty() || std::any_of(loops.begin(), loops.end(), [&](const TileLoop* loop) {
                return loop->parallel ||
                       std::find(reductions.begin(), reductions.end(), loop->axis) == reductions.end();
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

    /// Whether the products of a step may go on while the next begins: it then writes over the copies of the step
    /// before the last, which takes three of them.
    bool in_flight(const TileLoop& loop) const {
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
    bool stays_in_flight(const Compute& compute) const {
        return compute.micro.matrix && compute.micro.matrix->group && through_.count(compute.stage) != 0;
    }
    /// Steps from the one that is computed to the one that is copied.
    int steps_ahead(const TileLoop& loop) const { return loop.stages - (in_flight(loop) ? 2 : 1); }

    /// What is left to do to the sums behind the loop that stood there.
    void finish_sums(const TreePath& loop) {
        for (const auto& [path, compute] : tree_.computes) {
            const auto it = through_.find(compute->stage);
            if (it == through_.end() || it->second != loop) continue;
            const bool has_epilogue = !p_.stages.primitives[compute->stage].expr()->epilogue.empty();
            if (!has_epilogue && !stays_in_flight(*compute)) continue;
            w_.line("// sums of compute {}", compute->stage.value);
            compute_job(*compute, path, StageJob::Phase::Finish);
        }
    }

    // --- what the kernel is called with

    std::string declare_arguments() {
        std::string s;
        const auto declare = [&](ValueId v, bool written) {
            const Value& value = p_.stages.values[v];
            Place place;
            place.object = v_.fresh("g_" + identifier(value.name));
            place.storage = value.dtype;
            place.strides = row_major_strides(value.shape);
            out_.tensors.push_back({place.object, value.dtype, written});
            s += fmt::format("{}tw::{}<{}> {}", s.empty() ? "" : ", ", written ? "Out" : "In",
                             storage_type(value.dtype), place.object);
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
        out_.names = names_of(p_);
        for (const Var v : out_.names) {
            const std::string name = v_.fresh("n_" + identifier(var_name(v)));
            v_.name(v, name);
            s += fmt::format("{}i64 {}", s.empty() ? "" : ", ", name);
        }
        return s;
    }

    // --- threads

    /// Whether four warps multiply together somewhere.
    bool has_groups() const {
        return std::any_of(tree_.computes.begin(), tree_.computes.end(),
                           [](const auto& c) { return c.second->micro.matrix && c.second->micro.matrix->group; });
    }

    // --- shared memory and registers

    bool in_registers(const Buffer& b) const { return b.elsewhere && in_memory_.count(b.value) == 0; }

    void declare_buffers() {
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

    /// From one copy of a buffer to the next.
    static int64_t elements_of_copy(const Buffer& b) {
        return b.bytes / b.copies / static_cast<int64_t>(byte_size(b.dtype));
    }

    Place place_of(size_t buffer) {
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
    std::optional<size_t> buffer_where(const std::function<bool(const Buffer&)>& is) const {
        for (size_t i = 0; i < plan_.buffers.size(); ++i)
            if (is(plan_.buffers[i])) return i;
        return std::nullopt;
    }
    size_t existing(std::optional<size_t> buffer) const {
        TW_CHECK(buffer.has_value(), "a copy of kernel '{}' has no buffer", p_.name);
        return *buffer;
    }
    std::optional<size_t> copy_of(PrimitiveId stage, size_t access) const {
        return buffer_where([&](const Buffer& b) { return b.access && *b.access == std::pair(stage, access); });
    }
    std::optional<size_t> buffer_of(ValueId v) const {
        return buffer_where([&](const Buffer& b) { return !b.access && !b.correction && b.value == v; });
    }
    /// The same for a statement of stage `reader`: in registers it is indexed by that one's coordinates.
    Place place_of(ValueId v, PrimitiveId reader) {
        Place place = place_of(v);
        index_registers(place, v, p_.stage_axes[reader]);
        return place;
    }
    void index_registers(Place& place, ValueId v, const std::vector<size_t>& axes) const {
        if (!place.in_registers) return;
        const PrimitiveId from = p_.stages.producers()[v];
        for (size_t j = 0; j < p_.stages.primitives[from].expr()->spatial; ++j)
            if (const auto it = std::find(axes.begin(), axes.end(), p_.stage_axes[from][j]); it != axes.end())
                place.register_axes.push_back(static_cast<size_t>(it - axes.begin()));
    }
    Place place_of(ValueId v) {
        if (const auto b = buffer_of(v)) return place_of(*b);
        const auto it = memory_.find(v);
        TW_CHECK(it != memory_.end(), "value '{}' of kernel '{}' lives nowhere", p_.stages.values[v].name, p_.name);
        return it->second;
    }
    Place correction_of(ValueId maximum, PrimitiveId reader) {
        const auto b = buffer_where([&](const Buffer& x) { return x.correction && x.value == maximum; });
        TW_CHECK(b.has_value(), "an online maximum of kernel '{}' has no correction", p_.name);
        Place place = place_of(*b);
        index_registers(place, maximum, p_.stage_axes[reader]);
        return place;
    }

    // --- ranges and loops

    /// The range of one step of a loop.
    AxisRange narrowed(const AxisRange& outer, Expr counter, int64_t step) const {
        AxisRange r = outer;
        r.whole = false;
        r.lo = v_.simplified(outer.lo + counter * step);
        r.hi = v_.nonnegative(outer.hi - r.lo - step) ? r.lo + step : v_.simplified(min(outer.hi, r.lo + step));
        r.most = min(outer.most, step);
        if (!r.most.is_constant()) r.most = step;
        return r;
    }
    static bool covers(const AxisRange& r, int64_t step) { return r.most.is_constant() && r.most.constant() <= step; }

    /// Goes into the parallel loops; the block's number says where it stands in each.
    void grid(const std::vector<Stmt>*& body, TreePath& path) {
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

    /// What threads have written to shared memory is seen by all of them, and by what runs beside them.
    void barrier() {
        if (groups_) w_.add(kFence);
        w_.add("tw::barrier();");
    }
    static constexpr std::string_view kFence = "tw::fence_async();";
    /// Where the copy engine alone writes to shared memory there is nothing to fence.
    static std::string without_fences(const std::string& code) {
        std::string out;
        for (size_t at = 0; at < code.size();) {
            const size_t end = code.find('\n', at) + 1, text = code.find_first_not_of(' ', at);
            if (code.compare(text, end - 1 - text, kFence) != 0) out.append(code, at, end - at);
            at = end;
        }
        return out;
    }

    void statements(const std::vector<Stmt>& body, const TreePath& path) {
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

    void tile_loop(const TileLoop& loop, const TreePath& path) {
        const AxisRange outer = ranges_[loop.axis];
        const bool once = covers(outer, loop.step);
        if (!once) {
            const Expr length = v_.simplified(outer.hi - outer.lo);
            const Expr counter =
                v_.add("step_" + p_.axes[loop.axis].name, {Expr(0), ceil_div(outer.most, loop.step) - 1});
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

    // --- pipelined loops: step i waits for its copies, begins those of step i + stages - 1, and computes
    //
    //     for (ahead = 0; ahead < 2; ++ahead) { if (it exists) { copy to buffer ahead } commit }
    //     for (step ...) { wait_async<1>; barrier; { if (step + 2 exists) { copy to buffer (step + 2) % 3 } commit }
    //     ... }
    //
    // One barrier a step does for both: what this step reads has arrived for every thread, and what is written over has
    // been read by every thread, in the step before. Where products go on behind their step, what the step before reads
    // is still being read: copies are begun one step less ahead, over those of the step before that, for which every
    // thread has waited.

    /// The Loads of the step that `ahead` counts, into the buffers `copy` behind the first.
    void copies_of_step(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr ahead,
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
    /// Declares a name for one copy of a buffer.
    std::string copy_name(size_t buffer, const std::string& copy) {
        const Buffer& b = plan_.buffers[buffer];
        const std::string name = v_.fresh(objects_[buffer] + "_at");
        w_.line("const tw::Shared<{}> {} = {} + {} * {};", storage_type(b.dtype), name, objects_[buffer], copy,
                elements_of_copy(b));
        return name;
    }

    void run_ahead(const TileLoop& loop, const TreePath& path, const AxisRange& outer, Expr length) {
        const Expr ahead = v_.add("ahead", {Expr(0), ceil_div(outer.most, loop.step) - 1});
        const std::string name = v_.name(ahead);
        w_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", name, steps_ahead(loop)));
        w_.open(fmt::format("if ({} < {})", v_.text(ahead * loop.step), v_.text(length)));
        copies_of_step(loop, path, outer, ahead, name);
        w_.close();
        if (copies_by_threads(loop)) w_.add("tw::commit_async();");
        w_.close();
    }
    /// Whether some of its Loads are no boxes. They have been emitted once.
    bool copies_by_threads(const TileLoop& loop) const {
        return std::any_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
            const auto* load = std::get_if<Load>(&s.kind);
            return load != nullptr && boxes_.count(existing(copy_of(load->stage, load->access))) == 0;
        });
    }

    void pipelined_body(const TileLoop& loop, const TreePath& path, const AxisRange& outer) {
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

    /// Buffers that live under this loop are addressed relative to where the ranges start here.
    void enter_scope(const TreePath& path) {
        for (size_t a = 0; a < p_.axes.size(); ++a) starts_[{path, a}] = ranges_[a].lo;
        for (size_t i = 0; i < plan_.buffers.size(); ++i)
            if (in_registers(plan_.buffers[i]) && plan_.buffers[i].scope == path) declare_registers(i);
    }
    void declare_registers(size_t buffer) {
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
    std::vector<int64_t> registers_of(ValueId v) const {
        std::vector<int64_t> out = registers_.values.at(v).registers;
        out.resize(p_.stages.primitives[p_.stages.producers()[v]].expr()->spatial);
        return out;
    }

    // --- statements

    struct OnlineMaximum {
        PrimitiveId stage;
        TreePath at;
    };

    /// C++ for whether the current ranges reach the end of what the stage reduces; empty: they certainly do.
    std::string is_final(PrimitiveId stage) const {
        std::string s;
        for (size_t k = p_.stages.primitives[stage].expr()->spatial; k < p_.stage_axes[stage].size(); ++k) {
            const AxisRange& r = ranges_[p_.stage_axes[stage][k]];
            if (r.whole) continue;
            s += fmt::format("{}{} == {}", s.empty() ? "" : " && ", v_.text(r.hi), v_.text(r.total));
        }
        return s;
    }

    /// What the stage has to do with maxima that are still being found. `expr` becomes its expression where it
    /// reads the factor for what it summed up before.
    void online_jobs(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& expr) {
        if (compute.online)
            job.correction = correction_of(p_.stages.primitives[compute.stage].outputs[0], compute.stage);
        for (size_t i = 0; i < job.expr->accesses.size(); ++i)
            if (const auto it = online_.find(job.expr->accesses[i].value); it != online_.end())
                job.accesses[i].final = is_final(it->second.stage);
        const std::optional<OnlineScale>& scale = scales_[compute.stage];
        if (!scale || job.expr->reducer == Reducer::None) return;
        const OnlineMaximum& maximum = online_.at(scale->maximum);
        if (!inside_reduction(p_, tree_, maximum.stage, maximum.at, path)) return;
        job.rescale = job.expr->accesses.size();
        expr = with_factor(*job.expr, *scale);
        job.accesses.push_back(correction_of(scale->maximum, compute.stage));
        job.names.push_back("factor");
        job.expr = &expr;
    }

    void emit_compute(const Compute& compute, const TreePath& path) {
        const Primitive& stage = p_.stages.primitives[compute.stage];
        w_.line("// compute {}: {} = {}", compute.stage.value, p_.stages.values[stage.outputs[0]].name,
                print(p_.stages, *stage.expr()));
        compute_job(compute, path,
                    through_.count(compute.stage) != 0 ? StageJob::Phase::Steps : StageJob::Phase::Whole);
    }
    void compute_job(const Compute& compute, const TreePath& path, StageJob::Phase phase) {
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
        online_jobs(compute, path, job, expr);
        const auto adopted = registers_.stages.find(compute.stage);
        // (Behind the loops more threads would share a sum than have added to it.)
        const Partition* share = phase != StageJob::Phase::Whole      ? &registers_.values.at(stage.outputs[0])
                                 : adopted != registers_.stages.end() ? &adopted->second
                                                                      : nullptr;
        emit(job, share);
    }

    /// Along which axes of the stage the copy that a Load makes for it ends in zeros: there the index leaves the
    /// tensor, and what lies outside of it is 0.
    std::vector<bool> zero_behind(PrimitiveId stage, size_t access) const {
        const TensorExpr& e = *p_.stages.primitives[stage].expr();
        const Access& a = e.accesses[access];
        std::vector<bool> out(e.extents.size(), false);
        const bool local = std::any_of(tree_.loads.begin(), tree_.loads.end(), [&](const auto& load) {
            return load.second->stage == stage && load.second->access == access &&
                   load.second->padding == Padding::Local;
        });
        if (!local || a.fill != 0) return out;
        for (size_t k = 0; k < e.extents.size(); ++k)
            for (size_t d = 0; d < a.index.size(); ++d) {
                const auto linear = linear_in(a.index[d], {VarKind::Axis, static_cast<uint32_t>(k)});
                if (!linear || !linear->coefficient.is_constant() || linear->coefficient.constant() < 1) continue;
                const Expr behind =
                    linear->coefficient * e.extents[k] + linear->rest;  // the first point behind the end
                if (prove_nonnegative(simplify(behind - p_.stages.values[a.value].shape[d], e.ranges()), e.ranges()))
                    out[k] = true;
            }
        return out;
    }

    bool emit(StageJob& job, const Partition* share) {
        job.threads = threads_;
        job.room = block_.room;
        threads_write_ = threads_write_ || job.out.shared || (job.correction && job.correction->shared);
        gpu::Share own;
        for (size_t k = 0; k < job.ranges.size(); ++k) {
            own.most.push_back(job.ranges[k].most);
            own.cut = own.cut || (k >= job.expr->spatial && !job.ranges[k].whole);
        }
        job.share = share != nullptr ? *share : gpu::make_partition(*job.expr, *job.micro, own, threads_);
        TW_CHECK(job.share.group <= 32 || block_.exchanges, "warps of kernel '{}' have no room for their sums",
                 p_.name);
        return emit_stage(w_, v_, job);
    }

    static AxisRange range_of(int64_t extent) { return {0, extent, extent, extent, true}; }

    /// Element j of the buffer's memory is element origin + logical(j) of the tensor.
    /// `slot`: C++ for which copy of its buffer it is.
    void emit_load(const Load& load, bool async, const std::string& slot = "0") {
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
        Access read;
        read.value = access.value;
        read.fill = access.fill;
        read.valid = logical.valid;
        for (size_t d = 0; d < shape.size(); ++d) {
            const Expr index = to.origin[d] + logical.index[d];
            read.index.push_back(index);
            if (load.padding == Padding::Global) continue;
            read.valid.push_back(index);
            read.valid.push_back(shape[d] - 1 - index);
        }
        for (const Expr& condition : access.valid) {
            const auto on = condition_on_index(access, condition);
            TW_CHECK(on.has_value(), "condition {} of a loaded access is not one of a single index", condition.text());
            read.valid.push_back(read.index[on->dimension] * on->sign + on->rest);
        }
        copy.accesses = {read};
        copy.body.set_root(copy.body.access(0, b.dtype));
        job.out = to;
        job.out.origin.clear();
        job.out.layout.reset();
        job.async = async && access.fill == 0;
        const std::string& name = p_.stages.values[access.value].name;
        if (groups_) {
            const auto boxes = as_boxes(copy, access, p_.stages.values[access.value], load.swizzle, v_);
            if (const auto* found = std::get_if<BoxCopy>(&boxes)) {
                w_.line("// load {}, by the copy engine", name);
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

    // --- boxes by the copy engine (box_copy.h)

    /// The map of a tensor, by its name.
    std::string map_of(const BoxCopy& boxes, ValueId tensor) {
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
    std::string arrival(size_t buffer, const std::string& slot) const {
        return fmt::format("s_arrivals + ({} + {})", block_.arrivals[buffer], slot);
    }
    void emit_boxes(const BoxCopy& boxes, const TensorExpr& copy, const Place& to, size_t buffer, ValueId tensor,
                    const std::string& slot) {
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
    /// Every copy of a buffer comes again and again: `arrived_...` has the parity of its next time as a bit.
    void wait_for_box(size_t buffer, const std::string& slot) {
        const std::string parity = fmt::format("arrived_{}", block_.arrivals[buffer]);
        w_.line("tw::wait_arrival({}, {} >> {} & 1);", arrival(buffer, slot), parity, slot);
        w_.line("{} ^= 1u << {};", parity, slot);
    }
    void wait_for_boxes() {
        for (const size_t buffer : waiting_) wait_for_box(buffer, "0");
        waiting_.clear();
    }
    /// What stands in front of everything where there are boxes.
    std::string begin_arrivals() const {
        if (boxes_.empty()) return "";
        Writer w = Writer().inner(1);
        w.line("const tw::Shared<u64> s_arrivals = tw::shared<u64>({}, {}, \"arrivals\");", block_.arrivals_at,
               block_.arrival_count);
        w.line("if (tw::thread() == 0) tw::begin_arrivals(s_arrivals, {});", block_.arrival_count);
        w.add("tw::barrier();");
        for (const size_t buffer : boxes_) w.line("u32 arrived_{} = 0;", block_.arrivals[buffer]);
        return w.text();
    }

    void emit_store(const Store& store, const TreePath&) {
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

    static bool leaves_room(const layout::Primitive& p) {
        const auto* pad = std::get_if<layout::Pad>(&p);
        return pad != nullptr && pad->before == 0;
    }
    /// Whether Loads in front of this scope's statements have run ahead.
    bool runs_ahead(const TreePath& scope) const { return counters_.count(scope) != 0; }

    /// Copies element by element; by vectors of 16 bytes where both sides have them.
    void emit_copy(const TensorExpr& copy, StageJob& job, Place from, const std::string& name, const Partition* share) {
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

    /// The copy's axes as its operand lies in memory, the one with the shortest way from point to point last:
    /// neighbours in a warp go along it, whatever the order in which the copy lies in shared memory.
    std::vector<size_t> by_memory(const TensorExpr& copy, const Place& from) const {
        std::vector<size_t> order(copy.spatial);
        std::iota(order.begin(), order.end(), size_t{0});
        if (!from.origin.empty()) return order;
        Expr offset = 0;
        for (size_t d = 0; d < copy.accesses[0].index.size(); ++d)
            offset += copy.accesses[0].index[d] * from.strides[d];
        std::vector<int64_t> way;
        for (size_t a = 0; a < copy.spatial; ++a) {
            const auto linear = linear_in(offset, var_of(axis(a)));
            way.push_back(linear && linear->coefficient.is_constant() ? linear->coefficient.constant() : INT64_MAX);
        }
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return way[a] > way[b]; });
        return order;
    }

    /// The axis along which the copy's operand lies side by side in memory: neighbours in a warp go along it, for
    /// memory is read by lines. Of shared memory any axis will do.
    std::optional<size_t> contiguous_axis(const TensorExpr& copy, const Place& from) const {
        if (!from.origin.empty()) return std::nullopt;
        Expr offset = 0;
        for (size_t d = 0; d < copy.accesses[0].index.size(); ++d)
            offset += copy.accesses[0].index[d] * from.strides[d];
        for (size_t a = copy.spatial; a-- > 0;) {
            const auto linear = linear_in(offset, var_of(axis(a)));
            if (linear && linear->coefficient.is_constant(1) && !copy.extents[a].is_constant(1)) return a;
        }
        return std::nullopt;
    }

    const TileProgram& p_;
    const CodegenOptions& options_;
    const Walk tree_;
    const bool groups_;
    const gpu::BlockMemory block_;
    const int threads_;
    const gpu::RegisterValues& registers_;
    const std::set<ValueId>& in_memory_;  ///< buffers of these are in memory
    const BufferPlan& plan_;
    const std::set<TreePath> barriers_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    KernelText out_;
    Writer w_ = Writer().inner(1);
    Variables v_;
    std::map<ValueId, Place> memory_;
    std::vector<std::string> objects_;  ///< of buffers
    std::vector<AxisRange> ranges_;     ///< current, per kernel axis
    std::map<std::pair<TreePath, size_t>, Expr> starts_;
    std::map<TreePath, Expr> counters_;  ///< of pipelined loops
    std::map<ValueId, OnlineMaximum> online_;
    std::map<PrimitiveId, TreePath> through_;  ///< summed_through
    std::string scratch_;
    bool threads_write_ = false;   ///< to shared memory
    std::set<size_t> boxes_;       ///< buffers that the copy engine fills
    std::vector<size_t> waiting_;  ///< those that nobody has waited for yet
    std::vector<std::string> map_names_;
    std::string map_arguments_;
};

}  // namespace

std::string device_header() { return std::string(kDeviceCuda) + "\n" + kDeviceCommon; }

KernelText generate(const TileProgram& program, const CodegenOptions& options, const std::string& function) {
    return KernelGenerator(program, options).run(function);
}

}  // namespace tilewright::cuda
