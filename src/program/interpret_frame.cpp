#include "program/interpret_frame.h"

#include <algorithm>

#include "base/error.h"
#include "program/analysis/contraction.h"

namespace tilewright::interp {

namespace {

class FrameBuilder {
  public:
    FrameBuilder(const Plan& plan, const ScalarBody& body, const std::vector<Form>& index, size_t lane_axis)
        : plan_(plan), index_(index) {
        frame_.lane_axis = lane_axis;
        frame_.body = &body;
        frame_.registers.resize(plan.registers.size());
        frame_.accesses.resize(plan.accesses.size());
        frame_.index.resize(body.nodes().size());
        frame_.node_varies.assign(body.nodes().size(), 0);
        register_done_.assign(plan.registers.size(), 0);
        access_done_.assign(plan.accesses.size(), 0);
        node_done_.assign(body.nodes().size(), 0);
    }

    Frame build() {
        need_node(frame_.body->root());
        const ScalarBody& body = *frame_.body;
        const auto product = product_factors(body);
        if (product && is_float(body.dtype()) && (*product)[0].slot && (*product)[1].slot) {
            frame_.product_a = *(*product)[0].slot;
            frame_.product_b = *(*product)[1].slot;
            frame_.products = simple_product(frame_.product_a) && simple_product(frame_.product_b) &&
                              std::none_of(frame_.steps.begin(), frame_.steps.end(),
                                           [](const Step& s) { return s.kind == Step::Kind::Register; });
        }
        return std::move(frame_);
    }

  private:
    bool simple_product(uint32_t slot) const {
        const AccessPlan& a = plan_.accesses[slot];
        const DType t = a.tensor.dtype();
        return (t == DType::F32 || t == DType::F64) && frame_.accesses[slot].affine &&
               static_cast<double>(static_cast<float>(a.fill.f)) == a.fill.f;
    }

    LaneForm lane_form(const Form& form) {
        LaneForm r;
        r.constant = form.constant;
        for (size_t k = 0; k < form.axes.size(); ++k) {
            if (form.axes[k] == 0) continue;
            r.axes.emplace_back(static_cast<uint32_t>(k), form.axes[k]);
            if (k == frame_.lane_axis) r.step = form.axes[k];
        }
        for (const auto& [id, c] : form.registers) {
            need_register(id);
            (frame_.registers[id].varies ? r.columns : r.scalars).emplace_back(id, c);
        }
        return r;
    }

    void need_register(uint32_t id) {
        if (register_done_[id] != 0) return;
        register_done_[id] = 1;
        const Register& r = plan_.registers[id];
        LaneRegister& out = frame_.registers[id];
        if (r.kind == Register::Kind::Load) {
            need_access(r.access);
            out.varies = frame_.accesses[r.access].varies;
        } else {
            out.a = lane_form(r.a);
            out.b = lane_form(r.b);
            out.varies = out.a.varies() || out.b.varies();
        }
        frame_.steps.push_back({Step::Kind::Register, id});
    }

    void need_access(uint32_t slot) {
        if (access_done_[slot] != 0) return;
        access_done_[slot] = 1;
        const AccessPlan& a = plan_.accesses[slot];
        LaneAccess& out = frame_.accesses[slot];
        out.slot = slot;
        out.address = lane_form(a.address);
        out.affine = out.address.affine();
        out.varies = out.address.varies();
        for (const Check& c : a.checks) {
            out.checks.push_back({lane_form(c.index), c.dimension, c.position});
            out.affine = out.affine && out.checks.back().index.affine();
            out.varies = out.varies || out.checks.back().index.varies();
        }
        for (const Form& c : a.conditions) {
            out.conditions.push_back(lane_form(c));
            out.affine = out.affine && out.conditions.back().affine();
            out.varies = out.varies || out.conditions.back().varies();
        }
        frame_.steps.push_back({Step::Kind::Access, slot});
    }

    void need_node(ScalarId id) {
        if (!id || node_done_[id.index()] != 0) return;
        node_done_[id.index()] = 1;
        const ScalarNode& node = (*frame_.body)[id];
        char& varies = frame_.node_varies[id.index()];
        switch (node.op) {
            case ScalarOp::Const:
                return;
            case ScalarOp::Access:
                need_access(node.slot);
                varies = frame_.accesses[node.slot].varies ? 1 : 0;
                return;
            case ScalarOp::Acc:
                varies = 1;
                return;
            case ScalarOp::Index:
                frame_.index[id.index()] = lane_form(index_[id.index()]);
                varies = frame_.index[id.index()].varies() ? 1 : 0;
                break;
            default:
                for (const ScalarId child : {node.a, node.b, node.c}) {
                    need_node(child);
                    if (child && frame_.node_varies[child.index()] != 0) varies = 1;
                }
        }
        frame_.steps.push_back({Step::Kind::Node, static_cast<uint32_t>(id.index())});
    }

    const Plan& plan_;
    const std::vector<Form>& index_;
    Frame frame_;
    std::vector<char> register_done_, access_done_, node_done_;
};

}  // namespace

std::optional<ProductBlock> product_block(const Plan& plan, const Frame& frame) {
    if (!frame.products || frame.product_a == frame.product_b || frame.lane_axis != plan.row_axis) return std::nullopt;
    // Sums over an empty space read nothing.
    if (!plan.accesses[frame.product_a].used || !plan.accesses[frame.product_b].used) return std::nullopt;
    const auto guarded_along = [&](uint32_t slot, size_t axis) {
        const AccessPlan& a = plan.accesses[slot];
        return std::any_of(a.conditions.begin(), a.conditions.end(),
                           [&](const Form& f) { return f.axes[axis] != 0; }) ||
               std::any_of(a.checks.begin(), a.checks.end(), [&](const Check& c) { return c.index.axes[axis] != 0; });
    };
    std::optional<ProductBlock> best;
    for (size_t k = 0; k < plan.spatial; ++k) {
        if (k == plan.row_axis || guarded_along(frame.product_a, k) || guarded_along(frame.product_b, k)) continue;
        if (best && plan.extents[best->axis] >= plan.extents[k]) continue;
        const int64_t a = plan.accesses[frame.product_a].address.axes[k];
        const int64_t b = plan.accesses[frame.product_b].address.axes[k];
        if (a == 0 && b != 0) best = ProductBlock{k, frame.product_a, frame.product_b, b};
        if (b == 0 && a != 0) best = ProductBlock{k, frame.product_b, frame.product_a, a};
    }
    return best;
}

Frame make_frame(const Plan& plan, const ScalarBody& body, const std::vector<Form>& index, size_t lane_axis) {
    return FrameBuilder(plan, body, index, lane_axis).build();
}

namespace {

void add_run(double* acc, Strided a, Strided b, int64_t n, bool horizontal) {
    if (horizontal)
        *acc += dot_product(a, b, n);
    else
        add_products(acc, a, b, n);
}

Strided shifted(Strided s, int64_t lanes) {
    s.data = static_cast<const char*>(s.data) + s.step * lanes * (s.wide ? 8 : 4);
    return s;
}

int64_t checked(int64_t coefficient, int64_t v) {
    int64_t r = 0;
    if (__builtin_mul_overflow(coefficient, v, &r) || r > INT64_MAX / 4 || r < INT64_MIN / 4)
        internal_error(__FILE__, __LINE__, "index fits 64 bits", fmt::format("{} * {}", coefficient, v));
    return r;
}

/// Quotients or remainders of start + step * l, updated incrementally instead of dividing.
void divide_run(int64_t start, int64_t step, int64_t by, bool quotients, int64_t* out, int64_t n) {
    const int64_t q_step = floor_div(step, by), r_step = floor_mod(step, by);
    int64_t q = floor_div(start, by), r = floor_mod(start, by);
    for (int64_t l = 0; l < n; ++l) {
        out[l] = quotients ? q : r;
        q += q_step;
        r += r_step;
        if (r >= by) {
            r -= by;
            ++q;
        }
    }
}

int64_t apply(Register::Kind kind, int64_t a, int64_t b) {
    switch (kind) {
        case Register::Kind::FloorDiv:
            return floor_div(a, b);
        case Register::Kind::Mod:
            return floor_mod(a, b);
        case Register::Kind::Min:
            return std::min(a, b);
        case Register::Kind::Max:
            return std::max(a, b);
        default:
            return checked(a, b);
    }
}

}  // namespace

FrameRunner::FrameRunner(const Plan& plan, const Frame& frame, std::vector<int64_t>& axes)
    : plan_(plan),
      frame_(frame),
      axes_(axes),
      scalars_(plan.registers.size()),
      store_(plan.registers.size() + plan.accesses.size() + frame.body->nodes().size() + 3) {
    const size_t accesses_at = plan.registers.size();
    const size_t nodes_at = accesses_at + plan.accesses.size();
    const size_t end = nodes_at + frame.body->nodes().size();
    for (size_t r = 0; r < plan.registers.size(); ++r) registers_.push_back(store_[r]);
    for (size_t a = 0; a < plan.accesses.size(); ++a) accesses_.push_back(store_[accesses_at + a]);
    scratch_a_ = store_[end];
    scratch_b_ = store_[end + 1];
    acc_ = store_[end + 2];
    for (const ScalarId id : frame.body->nodes().ids()) {
        const ScalarNode& node = (*frame.body)[id];
        Column c = store_[nodes_at + id.index()];
        if (node.op == ScalarOp::Access) c = accesses_[node.slot];
        if (node.op == ScalarOp::Acc) c = acc_;
        if (node.op == ScalarOp::Const) fill_lanes(node.dtype, {node.value, node.int_value}, c, 0, kLanes);
        nodes_.push_back(c);
    }
}

/// The root at lanes [0, n), starting at the current point.
Column FrameRunner::run(int64_t n) {
    for (const Step& s : frame_.steps) {
        if (s.kind == Step::Kind::Node)
            run_node(s.id, n);
        else if (s.kind == Step::Kind::Access)
            run_access(frame_.accesses[s.id], n);
        else
            run_register(s.id, n);
    }
    return nodes_[frame_.body->root().index()];
}

/// acc[l] += product at lane l, or their sum added to acc[0] when the lanes are a reduction.
void FrameRunner::run_products(double* acc, int64_t n, bool horizontal) {
    const LaneAccess& a = frame_.accesses[frame_.product_a];
    const LaneAccess& b = frame_.accesses[frame_.product_b];
    int64_t cuts[6] = {0, 0, n, 0, n, n};
    valid_lanes(a, n, cuts[1], cuts[2]);
    valid_lanes(b, n, cuts[3], cuts[4]);
    if (cuts[2] - cuts[1] == n && cuts[4] - cuts[3] == n) {
        add_run(acc, strided(a), strided(b), n, horizontal);
        return;
    }
    const int64_t a_lo = cuts[1], a_hi = cuts[2], b_lo = cuts[3], b_hi = cuts[4];
    const float a_fill = static_cast<float>(plan_.accesses[a.slot].fill.f);
    const float b_fill = static_cast<float>(plan_.accesses[b.slot].fill.f);
    std::sort(cuts, cuts + 6);
    for (size_t k = 0; k + 1 < 6; ++k) {
        const int64_t lo = cuts[k], hi = cuts[k + 1];
        if (lo == hi) continue;
        const Strided x = lo >= a_lo && hi <= a_hi ? shifted(strided(a), lo) : Strided{&a_fill, 0, false};
        const Strided y = lo >= b_lo && hi <= b_hi ? shifted(strided(b), lo) : Strided{&b_fill, 0, false};
        add_run(horizontal ? acc : acc + lo, x, y, hi - lo, horizontal);
    }
}

void FrameRunner::run_products(const ProductBlock& block, std::span<const Column> acc, int64_t n) {
    const LaneAccess& fixed = frame_.accesses[block.fixed];
    const LaneAccess& moving = frame_.accesses[block.moving];
    run_access(fixed, n);  // as doubles, including fills
    const Strided a{accesses_[block.fixed].data, fixed.varies ? 1 : 0, true};
    int64_t lo = 0, hi = n;
    valid_lanes(moving, n, lo, hi);
    Strided b = strided(moving);
    const auto fill = static_cast<float>(plan_.accesses[block.moving].fill.f);
    for (const Column& c : acc) {
        if (lo > 0) add_products(c.f(), a, Strided{&fill, 0, false}, lo);
        if (lo < hi) add_products(c.f() + lo, shifted(a, lo), shifted(b, lo), hi - lo);
        if (hi < n) add_products(c.f() + hi, shifted(a, hi), Strided{&fill, 0, false}, n - hi);
        b.data = static_cast<const char*>(b.data) + block.step * (b.wide ? 8 : 4);
    }
}

/// Writes lanes [0, n) of the output; the write is the frame's only access.
void FrameRunner::write(Tensor& out, Column in, DType dtype, int64_t n) {
    for (const Step& s : frame_.steps)
        if (s.kind == Step::Kind::Register) run_register(s.id, n);
    const LaneAccess& a = frame_.accesses[plan_.output()];
    if (a.affine) {
        int64_t lo = 0, hi = n;
        valid_lanes(a, n, lo, hi);
        store_lanes(out, start(a.address), a.address.step, in, n);
        return;
    }
    for (const LaneCheck& c : a.checks) {
        spread(c.index, scratch_a_, n);
        for (int64_t l = 0; l < n; ++l)
            if (scratch_a_.i()[l] < 0 || scratch_a_.i()[l] >= c.dimension) out_of_bounds(a.slot, c, scratch_a_.i()[l]);
    }
    spread(a.address, scratch_a_, n);
    for (int64_t l = 0; l < n; ++l) store_lane(out, scratch_a_.i()[l], dtype, lane(dtype, in, l));
}

Strided FrameRunner::strided(const LaneAccess& a) const {
    const Tensor& t = plan_.accesses[a.slot].tensor;
    const bool wide = t.dtype() == DType::F64;
    return {static_cast<const char*>(t.data()) + start(a.address) * (wide ? 8 : 4), a.address.step, wide};
}

/// At lane 0, without columns.
int64_t FrameRunner::start(const LaneForm& f) const {
    int64_t v = f.constant;
    for (const auto& [k, c] : f.axes) v += c * axes_[k];
    for (const auto& [r, c] : f.scalars) v += checked(c, scalars_[r]);
    return v;
}
void FrameRunner::spread(const LaneForm& f, Column out, int64_t n) const {
    int64_t* o = out.i();
    const int64_t first = start(f);
    for (int64_t l = 0; l < n; ++l) o[l] = first + f.step * l;
    for (const auto& [r, c] : f.columns) {
        const int64_t* in = registers_[r].i();
        for (int64_t l = 0; l < n; ++l) o[l] += checked(c, in[l]);
    }
}

void FrameRunner::out_of_bounds(uint32_t slot, const LaneCheck& c, int64_t index) const {
    internal_error(
        __FILE__, __LINE__, "index is inside the operand",
        fmt::format("{} index {} of dimension {}, outside [0, {})",
                    slot == plan_.output() ? "the output is written at" : fmt::format("access @{} reads", slot), index,
                    c.position, c.dimension));
}

/// The lanes where all (affine) conditions hold; their (affine) indices are bounds-checked.
void FrameRunner::valid_lanes(const LaneAccess& a, int64_t n, int64_t& lo, int64_t& hi) const {
    lo = 0;
    hi = n;
    for (const LaneForm& c : a.conditions) clip_lanes(start(c), c.step, lo, hi);
    if (lo == hi) return;
    for (const LaneCheck& c : a.checks) {
        const int64_t first = start(c.index) + c.index.step * lo;
        const int64_t last = first + c.index.step * (hi - 1 - lo);
        if (first < 0 || first >= c.dimension) out_of_bounds(a.slot, c, first);
        if (last < 0 || last >= c.dimension) out_of_bounds(a.slot, c, last);
    }
}

void FrameRunner::run_access(const LaneAccess& a, int64_t n) {
    const AccessPlan& plan = plan_.accesses[a.slot];
    const Column out = accesses_[a.slot];
    const int64_t lanes = a.varies ? n : 1;
    if (a.affine) {
        int64_t lo = 0, hi = lanes;
        valid_lanes(a, lanes, lo, hi);
        if (lo > 0) fill_lanes(plan.dtype, plan.fill, out, 0, lo);
        if (lo < hi) load_lanes(plan.tensor, start(a.address), a.address.step, out, lo, hi);
        if (hi < lanes) fill_lanes(plan.dtype, plan.fill, out, hi, lanes);
    } else {
        gather(a, plan, out, lanes);
    }
    if (!a.varies && n > 1) fill_lanes(plan.dtype, lane(plan.dtype, out, 0), out, 1, n);
}

void FrameRunner::gather(const LaneAccess& a, const AccessPlan& plan, Column out, int64_t n) {
    bool valid[kLanes];
    std::fill_n(valid, n, true);
    for (const LaneForm& c : a.conditions) {
        spread(c, scratch_a_, n);
        for (int64_t l = 0; l < n; ++l) valid[l] = valid[l] && scratch_a_.i()[l] >= 0;
    }
    for (const LaneCheck& c : a.checks) {
        spread(c.index, scratch_a_, n);
        for (int64_t l = 0; l < n; ++l)
            if (valid[l] && (scratch_a_.i()[l] < 0 || scratch_a_.i()[l] >= c.dimension))
                out_of_bounds(a.slot, c, scratch_a_.i()[l]);
    }
    spread(a.address, scratch_a_, n);
    for (int64_t l = 0; l < n; ++l) {
        if (valid[l])
            load_lanes(plan.tensor, scratch_a_.i()[l] - l, 1, out, l, l + 1);
        else
            fill_lanes(plan.dtype, plan.fill, out, l, l + 1);
    }
}

void FrameRunner::run_register(uint32_t id, int64_t n) {
    const Register& r = plan_.registers[id];
    const LaneRegister& lr = frame_.registers[id];
    if (r.kind == Register::Kind::Load) {
        if (lr.varies)
            std::copy_n(accesses_[r.access].i(), n, registers_[id].i());
        else
            scalars_[id] = accesses_[r.access].i()[0];
        return;
    }
    if (!lr.varies) {
        scalars_[id] = apply(r.kind, start(lr.a), start(lr.b));
        return;
    }
    int64_t* out = registers_[id].i();
    const bool divides = r.kind == Register::Kind::FloorDiv || r.kind == Register::Kind::Mod;
    if (divides && lr.a.affine() && !lr.b.varies() && start(lr.b) > 0) {
        divide_run(start(lr.a), lr.a.step, start(lr.b), r.kind == Register::Kind::FloorDiv, out, n);
        return;
    }
    spread(lr.a, scratch_a_, n);
    spread(lr.b, scratch_b_, n);
    for (int64_t l = 0; l < n; ++l) out[l] = apply(r.kind, scratch_a_.i()[l], scratch_b_.i()[l]);
}

void FrameRunner::run_node(uint32_t id, int64_t n) {
    const ScalarNode& node = frame_.body->nodes()[ScalarId(id)];
    const Column out = nodes_[id];
    const bool varies = frame_.node_varies[id] != 0;
    const int64_t lanes = varies ? n : 1;
    if (node.op == ScalarOp::Index) {
        spread(frame_.index[id], out, lanes);
    } else {
        const auto column = [&](ScalarId child) { return child ? nodes_[child.index()] : Column{}; };
        const ScalarId typed = node.op == ScalarOp::Select ? node.b : node.a;
        eval_lanes(node, (*frame_.body)[typed].dtype, column(node.a), column(node.b), column(node.c), out, lanes);
    }
    if (!varies && n > 1) fill_lanes(node.dtype, lane(node.dtype, out, 0), out, 1, n);
}

}  // namespace tilewright::interp
