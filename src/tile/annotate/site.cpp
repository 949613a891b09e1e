#include "tile/annotate/site.h"

#include <algorithm>
#include <numeric>

#include "tile/online.h"

namespace tilewright {

namespace {

/// Bytes of a tensor from which on a second-level cache does not hold it beside everything else.
constexpr int64_t kStreamedBytes = 512 * 1024;

/// The ranges of the kernel's axes under the loops around a statement.
std::vector<AxisSpan> spans_at(const TileProgram& p, const Walk& walk, const TreePath& path) {
    std::vector<AxisSpan> spans(p.axes.size());
    for (size_t a = 0; a < spans.size(); ++a)
        if (p.axes[a].extent.is_constant()) spans[a].extent = p.axes[a].extent.constant();
    for (const TileLoop* loop : walk.loops_below({}, path)) {
        AxisSpan& s = spans[loop->axis];
        if (s.extent && *s.extent <= loop->step) continue;
        s.full = false;
        s.lo_multiple = std::gcd(s.lo_multiple, loop->step);
        if (s.extent && *s.extent % loop->step == 0)
            s.extent = loop->step;
        else
            s.extent.reset();
    }
    return spans;
}

const TileLoop* innermost_parallel(const TileProgram& p) {
    const TileLoop* found = nullptr;
    for (const std::vector<Stmt>* body = &p.body; body->size() == 1;) {
        const auto* loop = std::get_if<TileLoop>(&(*body)[0].kind);
        if (loop == nullptr || !loop->parallel) break;
        found = loop;
        body = &loop->body;
    }
    return found;
}

/// Whether the stage's sums so far are multiplied when an online maximum changes.
bool is_rescaled(const TileProgram& p, const Walk& walk, PrimitiveId stage, const TreePath& path) {
    const auto scales = online_scales(p.stages, online_maxima(p));
    if (!scales[stage] || p.stages.primitives[stage].expr()->reducer == Reducer::None) return false;
    for (const auto& [at, compute] : walk.computes)
        if (compute->online && p.stages.primitives[compute->stage].outputs[0] == scales[stage]->maximum)
            return inside_reduction(p, walk, compute->stage, at, path);
    return false;
}

}  // namespace

bool OperandSite::streams() const {
    return memory && !near && bytes.is_constant() && bytes.constant() >= kStreamedBytes;
}

bool OperandSite::may_stream() const { return streams() || (memory && !bytes.is_constant()); }

int64_t StageSite::register_tile(size_t a) const {
    const int64_t r = a < micro->registers.size() ? micro->registers[a] : 1;
    return vector_axis(a) ? std::max<int64_t>(r, micro->lanes) : std::max<int64_t>(r, 1);
}

int64_t StageSite::virtual_threads(size_t a) const {
    return a < micro->virtual_threads.size() ? micro->virtual_threads[a] : 1;
}

std::vector<size_t> StageSite::order(bool reductions) const {
    std::vector<size_t> out;
    for (const size_t a : micro->order)
        if ((a >= expr->spatial) == reductions) out.push_back(a);
    for (size_t a = 0; a < expr->extents.size(); ++a)
        if ((a >= expr->spatial) == reductions && std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
    return out;
}

OperandSite operand_site(const TileProgram& p, const Walk& walk, ValueId value) {
    OperandSite site;
    const Value& v = p.stages.values[value];
    const bool stored =
        std::any_of(walk.stores.begin(), walk.stores.end(), [&](const auto& s) { return s.second->value == value; });
    site.memory = is_input(p, value) || (is_output(p, value) && !stored);
    site.near = p.near.count(value) != 0;
    site.far = p.stages.residence(value) == Residence::Memory;
    site.element_bytes = static_cast<int64_t>(byte_size(v.dtype));
    site.bytes = site.element_bytes;
    for (const Expr d : v.shape) site.bytes = site.bytes * d;
    site.strides.resize(v.shape.size());
    Expr stride = 1;
    for (size_t d = v.shape.size(); d-- > 0; stride = stride * v.shape[d]) site.strides[d] = stride;
    return site;
}

StageSite site_of(const TileProgram& p, const Walk& walk, const TreePath& path, const Compute& compute) {
    StageSite site;
    const Primitive& stage = p.stages.primitives[compute.stage];
    site.expr = stage.expr();
    site.micro = &compute.micro;
    const std::vector<size_t>& axes = p.stage_axes[compute.stage];
    const std::vector<AxisSpan> spans = spans_at(p, walk, path);
    for (const size_t a : axes) site.axes.push_back(spans[a]);
    std::map<ValueId, PrimitiveId> last_reader;
    for (const auto& [at, reader] : walk.computes)
        for (const Access& a : p.stages.primitives[reader->stage].expr()->accesses)
            last_reader[a.value] = reader->stage;
    for (size_t i = 0; i < site.expr->accesses.size(); ++i) {
        const ValueId value = site.expr->accesses[i].value;
        OperandSite operand = operand_site(p, walk, value);
        operand.last_read = last_reader.at(value) == compute.stage;
        for (const auto& [at, load] : walk.loads)
            if (load->stage == compute.stage && load->access == i) {
                operand.checked = true;
                operand.memory = false;
            }
        site.operands.push_back(std::move(operand));
    }
    site.result = operand_site(p, walk, stage.outputs[0]);
    site.read_back = last_reader.count(stage.outputs[0]) != 0;
    for (size_t k = site.expr->spatial; k < axes.size(); ++k) site.partial = site.partial || !site.axes[k].full;
    site.apart = partial_sums_of(p, walk, stage.outputs[0]).has_value();
    site.online = compute.online || is_rescaled(p, walk, compute.stage, path);
    const auto axis_of = [&](const TileLoop& loop) -> std::optional<size_t> {
        const auto it = std::find(axes.begin(), axes.end(), loop.axis);
        return it != axes.end() ? std::optional(static_cast<size_t>(it - axes.begin())) : std::nullopt;
    };
    if (const auto around = walk.loops_below({}, path); !around.empty()) site.loop_axis = axis_of(*around.back());
    if (const TileLoop* loop = innermost_parallel(p); loop != nullptr && p.stages.primitives.size() >= 2) {
        site.task_axis = axis_of(*loop);
        site.task_step = loop->step;
    }
    return site;
}

}  // namespace tilewright
