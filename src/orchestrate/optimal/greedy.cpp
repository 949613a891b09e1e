#include "orchestrate/optimal/greedy.h"

#include <algorithm>
#include <map>
#include <set>

#include "layout/propagate.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"

namespace tilewright::optimal {

namespace {

/// Copy of an input or output that choose_layouts made -> the original, whose alternative layout it has.
std::map<ValueId, ValueId> copies_of(const Program& laid, size_t values) {
    std::map<ValueId, ValueId> out;
    for (const Primitive& p : laid.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr || e->accesses.size() != 1) continue;
        const ValueId from = e->accesses[0].value, to = p.outputs[0];
        if (to.index() >= values && from.index() < values) out[to] = from;  // an input
        if (from.index() >= values && to.index() < values) out[from] = to;  // an output
    }
    return out;
}

ValueLayouts layouts_of(const Program& program, const ChosenLayouts& chosen, const std::map<ValueId, ValueId>& copies) {
    ValueLayouts out;
    out.resize(program.values.size());
    std::set<ValueId> there(program.inputs.begin(), program.inputs.end());
    for (const Primitive& p : chosen.program.primitives) {
        for (const ValueId v : p.inputs()) there.insert(v);
        there.insert(p.outputs.begin(), p.outputs.end());
    }
    // Layouts are propagated to values that are fused away, and only to these.
    PropagateOptions spread;
    spread.fixed = row_major_values(program);
    for (const auto& [v, t] : program.constants) spread.fixed.insert(v);
    spread.kept_dimensions = true;
    std::map<ValueId, Layout> wanted;
    for (const auto& [v, layout] : chosen.values) {
        const auto copy = copies.find(v);
        const ValueId mine = copy == copies.end() ? v : copy->second;
        if (mine.index() >= program.values.size() || program.is_constant(mine)) continue;
        out[mine].at_boundary = copy == copies.end();
        if (copy == copies.end())
            wanted[mine] = layout;
        else
            out[mine].second = layout;
    }
    for (const ValueId v : there)
        if (v.index() < program.values.size() && wanted.count(v) == 0) spread.fixed.insert(v);
    for (auto& [v, layout] : propagate_layouts(program, std::move(wanted), spread)) {
        out[v].at_boundary = true;
        out[v].second = std::move(layout);
    }
    for (const ValueId v : program.values.ids())
        if (out[v].second) out[v].text = print(*out[v].second);
    return out;
}

}  // namespace

GreedyPlan greedy_plan(const Program& program, const GreedyGroups& greedy) {
    const auto& [chosen, grouped] = greedy;
    const Program& laid = grouped.program;
    const std::vector<KernelGroup>& groups = grouped.groups;
    GreedyPlan plan;
    const std::map<ValueId, ValueId> copies = copies_of(chosen.program, program.values.size());
    plan.layouts = layouts_of(program, chosen, copies);
    const auto producers = program.producers();
    const KernelExtractor extracted(laid);
    for (const KernelGroup& group : groups) {
        const KernelBody body = extracted(group);
        GreedyKernel kernel;
        const auto place = [&](ValueId v) {
            const auto copy = copies.find(v);
            if (copy != copies.end()) return PlacedValue{copy->second, true};
            return PlacedValue{v, v.index() < program.values.size() && plan.layouts[v].at_boundary};
        };
        std::set<ValueId> reads;
        std::vector<ValueId> open;
        for (size_t i = 0; i < body.tensors.size(); ++i) {
            const PlacedValue v = place(body.tensors[i]);
            if (i >= body.stages.inputs.size()) {
                kernel.writes.push_back(v);
                open.push_back(v.value);
            } else if (!laid.is_constant(body.tensors[i])) {
                kernel.reads.push_back(v);
                reads.insert(v.value);
            }
        }
        // All primitives between the reads and the writes.
        std::set<PrimitiveId> members;
        while (!open.empty()) {
            const ValueId v = open.back();
            open.pop_back();
            const PrimitiveId from = producers[v];
            if (reads.count(v) != 0 || !from || !members.insert(from).second) continue;
            for (const ValueId u : program.primitives[from].inputs()) open.push_back(u);
        }
        if (members.empty()) continue;  // a copy
        kernel.members.assign(members.begin(), members.end());
        plan.kernels.push_back(std::move(kernel));
    }
    return plan;
}

}  // namespace tilewright::optimal
