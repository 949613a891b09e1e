#include "orchestrate/joint/layout_options.h"

#include <algorithm>
#include <map>
#include <set>

#include "layout/propagate.h"
#include "program/analysis/contraction.h"

namespace tilewright::joint {

namespace {

/// A copy of an input or output that choose_layouts made: `original` has the value's place in the program.
struct Copy {
    ValueId original, fresh;
};

std::optional<Copy> copy_at_boundary(const Primitive& p) {
    if (p.source != "layout" || p.expr() == nullptr) return std::nullopt;
    const ValueId from = p.expr()->accesses[0].value, to = p.outputs[0];
    // Fresh values are added behind all others.
    return from.index() < to.index() ? Copy{from, to} : Copy{to, from};
}

/// Values that are row-major at some point.
std::set<ValueId> row_major_at_boundary(const Program& program) {
    std::set<ValueId> out = row_major_values(program);
    for (const Primitive& p : program.primitives) {
        if (p.expr() != nullptr) continue;
        for (const ValueId v : p.inputs()) out.insert(v);
    }
    return out;
}

}  // namespace

RuleLayouts without_copies(const ChosenLayouts& rule) {
    RuleLayouts out;
    out.program = rule.program;
    std::map<ValueId, ValueId> original;
    IndexVector<PrimitiveId, Primitive> kept;
    for (const Primitive& p : rule.program.primitives) {
        if (const auto copy = copy_at_boundary(p))
            original[copy->fresh] = copy->original;
        else
            kept.push_back(p);
    }
    std::set<ValueId> copied;
    for (const auto& [fresh, from] : original) copied.insert(from);
    for (const PrimitiveId id : kept.ids()) {
        Primitive& p = kept[id];
        if (p.expr() == nullptr) continue;
        for (Access& a : p.expr()->accesses) {
            if (copied.count(a.value) != 0) out.not_copied.emplace(id, a.value);
            if (const auto it = original.find(a.value); it != original.end()) a.value = it->second;
        }
        for (ValueId& v : p.outputs)
            if (const auto it = original.find(v); it != original.end()) v = it->second;
    }
    out.program.primitives = std::move(kept);
    out.layouts.resize(out.program.values.size());
    for (const auto& [v, layout] : rule.values) {
        const auto it = original.find(v);
        out.layouts[it == original.end() ? v : it->second] = layout;
    }
    return out;
}

namespace {

/// What contractions compute, and the computed tensors that they read.
struct ContractionTensors {
    std::set<ValueId> results, operands;
    explicit ContractionTensors(const Program& program) {
        for (const Primitive& p : program.primitives) {
            if (p.expr() == nullptr || !contraction(*p.expr())) continue;
            results.insert(p.outputs[0]);
            for (const Access& a : p.expr()->accesses)
                if (!program.is_constant(a.value)) operands.insert(a.value);
        }
    }
};

}  // namespace

LayoutOptions layout_options(const RuleLayouts& rule, const std::vector<Proposal>& proposals, size_t most,
                             Ablation without) {
    const Program& program = rule.program;
    LayoutOptions out;
    out.resize(program.values.size());
    const std::set<ValueId> row_major = row_major_at_boundary(program);
    for (const ValueId v : program.values.ids()) {
        out[v] = {rule.layouts[v]};
        if (row_major.count(v) != 0 && !rule.layouts[v].is_identity()) out[v].emplace_back();
    }
    const PropagateOptions propagation = layout_propagation(program);
    struct Wanted {
        Layout layout;
        double gain = 0;
    };
    IndexVector<ValueId, std::map<std::string, Wanted>> wanted;
    wanted.resize(program.values.size());
    const ContractionTensors ends(program);
    PropagateOptions beyond = propagation;  // results of other contractions as well
    beyond.complex = [](const Program&, const Primitive&) { return false; };
    const auto reaches = [&](const Proposal& p, const std::set<ValueId>& others) {
        const auto all = propagate_layouts(program, {{p.value, p.layout}}, beyond);
        return std::any_of(all.begin(), all.end(), [&](const auto& of) { return others.count(of.first) != 0; });
    };
    for (const Proposal& p : proposals) {
        std::map<ValueId, Layout> spread = {{p.value, p.layout}};
        if (without != Ablation::WithoutPropagation && !expands(p.layout, program.values[p.value].shape))
            spread = propagate_layouts(program, std::move(spread),
                                       !p.result && without == Ablation::BackwardOnly ? beyond : propagation);
        // The other contraction decides about a tensor between two.
        const bool one_way = p.result ? without == Ablation::BackwardOnly : without == Ablation::ForwardOnly;
        if (one_way && reaches(p, p.result ? ends.operands : ends.results)) continue;
        for (auto& [v, layout] : spread) {
            Wanted& w = wanted[v][print(layout)];
            w.layout = layout;
            w.gain += p.gain;
        }
    }
    for (const ValueId v : program.values.ids()) {
        if (program.is_constant(v)) continue;
        std::vector<Wanted> best;
        for (auto& [text, w] : wanted[v]) best.push_back(std::move(w));
        std::stable_sort(best.begin(), best.end(), [](const Wanted& a, const Wanted& b) { return a.gain > b.gain; });
        for (Wanted& w : best)
            if (out[v].size() < most && std::find(out[v].begin(), out[v].end(), w.layout) == out[v].end())
                out[v].push_back(std::move(w.layout));
    }
    return out;
}

}  // namespace tilewright::joint
