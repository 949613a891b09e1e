#include "orchestrate/optimal/kernel_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/options.h"
#include "orchestrate/split_k.h"
#include "schedule/chain/chain.h"

namespace tilewright::optimal {

namespace {

size_t links(const Program& p) {
    return static_cast<size_t>(std::count_if(p.primitives.begin(), p.primitives.end(),
                                             [](const Primitive& q) { return chain::is_link(*q.expr()); }));
}

KernelGroup whole(const Program& p) {
    KernelGroup group;
    group.primitives = p.primitives.ids();
    group.row_axes.resize(group.primitives.size());
    return group;
}

}  // namespace

Part part_of(const Program& whole, const std::vector<PrimitiveId>& members, const std::vector<ValueId>& outputs,
             bool names) {
    Part part;
    Program& p = part.program;
    p.name = "part";
    std::map<ValueId, ValueId> local;
    const auto value = [&](ValueId v) {
        const auto it = local.find(v);
        if (it != local.end()) return it->second;
        Value copy = whole.values[v];
        if (!names) copy.name = fmt::format("v{}", p.values.size());
        part.whole.push_back(v);
        part.constant.push_back(whole.is_constant(v));
        part.copy.push_back(false);
        return local[v] = p.values.push_back(std::move(copy));
    };
    std::set<ValueId> made;
    for (const PrimitiveId id : members) made.insert(whole.primitives[id].outputs[0]);
    for (const PrimitiveId id : members) {
        Primitive copy = whole.primitives[id];
        for (const ValueId v : copy.inputs())
            if (made.count(v) == 0 && local.count(v) == 0) p.inputs.push_back(value(v));
        for (Access& a : copy.expr()->accesses) a.value = value(a.value);
        copy.outputs = {value(copy.outputs[0])};
        if (!names) {
            copy.name = fmt::format("p{}", p.primitives.size());
            copy.source.clear();
        }
        p.primitives.push_back(std::move(copy));
    }
    for (const ValueId v : outputs) (made.count(v) != 0 ? p.outputs : part.copied).push_back(local.at(v));
    return part;
}

Program with_copies(Part& part, Program p) {
    IndexVector<PrimitiveId, Primitive> stages;
    for (const ValueId from : part.copied) {
        Value copy = p.values[from];
        copy.name += "/copy";
        const ValueId to = p.values.push_back(std::move(copy));
        for (Primitive& q : p.primitives)
            for (Access& a : q.expr()->accesses)
                if (a.value == from) a.value = to;
        stages.push_back(layout_copy(p, from, to));
        p.outputs.push_back(to);
        part.whole.push_back(part.whole[from.index()]);
        part.constant.push_back(false);
        part.copy.push_back(true);
    }
    for (Primitive& q : p.primitives) stages.push_back(std::move(q));
    p.primitives = std::move(stages);
    return p;
}

std::vector<bool> placed(const Part& part, const ValueLayouts& layouts, const std::vector<PlacedValue>& reads,
                         const std::vector<PlacedValue>& writes) {
    std::map<ValueId, bool> from, to;
    bool some = false, any = false;
    for (const auto* list : {&reads, &writes})
        for (const PlacedValue& v : *list) {
            (list == &reads ? from : to)[v.value] = v.second;
            some = some || layouts[v.value].second.has_value();
            any = any || (v.second && layouts[v.value].second.has_value());
        }
    std::vector<bool> out;
    for (size_t k = 0; k < part.whole.size(); ++k) {
        const ValueId v = part.whole[k];
        const auto read = from.find(v), written = to.find(v);
        bool second = any || !some;
        if (written != to.end()) second = written->second;
        if (read != from.end() && !part.copy[k]) second = read->second;
        out.push_back(layouts[v].second.has_value() && !part.constant[k] && second);
    }
    return out;
}

KernelMaker::KernelMaker(const Program& program, const ValueLayouts& layouts, const OrchestrateOptions& options,
                         Schedules& schedules)
    : program_(program), layouts_(layouts), options_(options), schedules_(schedules) {
    TW_CHECK(schedules.how().estimates, "costs of kernels need a machine");
    for (const Primitive& p : program.primitives) {
        const TensorExpr* e = p.expr();
        work_.push_back(e == nullptr || e->reducer == Reducer::None ? NodeWork::Elementwise
                        : chain::is_link(*e)                        ? NodeWork::Product
                                                                    : NodeWork::Reduction);
    }
}

bool KernelMaker::pruned(const std::vector<PrimitiveId>& members) const {
    size_t reductions = 0;
    bool product = false;
    for (const PrimitiveId id : members) {
        reductions += work_[id] != NodeWork::Elementwise ? 1 : 0;
        product = product || work_[id] == NodeWork::Product;
    }
    return product && reductions > 1;
}

KernelMaker::Request KernelMaker::request(const std::vector<PrimitiveId>& members,
                                          const std::vector<PlacedValue>& reads,
                                          const std::vector<PlacedValue>& writes) const {
    std::vector<ValueId> outputs;
    outputs.reserve(writes.size());
    for (const PlacedValue& v : writes) outputs.push_back(v.value);
    Request r;
    r.part = part_of(program_, members, outputs, false);
    r.text = print(r.part.program);
    r.key = r.text;
    for (const ValueId v : r.part.copied) r.key += fmt::format("copy {} ", v.index());
    r.second = placed(r.part, layouts_, reads, writes);
    for (size_t k = 0; k < r.part.whole.size(); ++k) {
        r.key += r.part.constant[k] ? 'c' : 'v';
        if (r.second[k]) r.key += layouts_[r.part.whole[k]].text;
    }
    return r;
}

std::optional<size_t> KernelMaker::find(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                                        const std::vector<PlacedValue>& writes) const {
    const auto it = known_.find(request(members, reads, writes).key);
    return it != known_.end() ? std::optional(it->second) : std::nullopt;
}

size_t KernelMaker::make(const std::vector<PrimitiveId>& members, const std::vector<PlacedValue>& reads,
                         const std::vector<PlacedValue>& writes) {
    Request r = request(members, reads, writes);
    const auto it = known_.find(r.key);
    if (it != known_.end()) return it->second;
    const auto [fused, fresh] = fused_.try_emplace(r.text);
    if (fresh) fused->second = fuse_greedily(r.part.program, {}, &fusions_);
    const Program stages = with_copies(r.part, fused->second);
    const std::vector<bool> second = placed(r.part, layouts_, reads, writes);
    std::map<ValueId, Layout> layouts;
    for (size_t k = 0; k < r.part.whole.size(); ++k)
        if (second[k]) layouts.emplace(ValueId(k), layouts_[r.part.whole[k]].other());
    made_.push_back(made(r.part, stages, layouts));
    return known_.emplace(std::move(r.key), made_.size() - 1).first->second;
}

size_t KernelMaker::convert(ValueId value, bool to_second) {
    Part part;
    part.program.name = "part";
    const ValueId from = part.program.values.push_back(program_.values[value]);
    const ValueId to = part.program.values.push_back(program_.values[value]);
    part.program.values[from].name = "v0";
    part.program.values[to].name = "v1";
    part.program.inputs = {from};
    part.program.outputs = {to};
    part.program.primitives.push_back(layout_copy(part.program, from, to));
    part.program.primitives[PrimitiveId(0)].source.clear();
    part.whole = {value, value};
    part.constant = part.copy = {false, false};
    const std::string key = print(part.program) + (to_second ? " to " : " from ") + layouts_[value].text;
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    made_.push_back(made(part, part.program, {{to_second ? to : from, layouts_[value].other()}}));
    return known_.emplace(key, made_.size() - 1).first->second;
}

KernelMaker::Made KernelMaker::made(const Part& part, const Program& stages, const std::map<ValueId, Layout>& layouts) {
    Made result;
    Program laid = stages;
    const size_t products = links(laid);
    if (options_.layouts) {
        // Only shapes matter, not contents.
        for (const ValueId v : laid.values.ids()) {
            if (!part.constant[v.index()]) continue;
            laid.constants.emplace(v, Tensor(laid.values[v].dtype, evaluate(laid.values[v].shape, Bindings()), false));
            laid.inputs.erase(std::remove(laid.inputs.begin(), laid.inputs.end(), v), laid.inputs.end());
        }
        laid = lay_out(laid, layouts, options_.scheduling.target, lay_out_options(options_, Contents::Anything));
    }
    const std::vector<KernelGroup> groups = fuse_rows(laid);
    if (groups.size() > 1 && (products == 0 || !schedules_.how().chains())) {
        result.reason =
            products > 1 ? "several products, but the scheduler does not support chains" : "its stages share no rows";
        return result;
    }
    KernelGroup group = groups.size() == 1 ? groups[0] : whole(laid);
    group.chain = groups.size() > 1;
    const KernelBody body = extract(laid, group);
    std::vector<bool> weights;
    for (size_t i = 0; i < body.stages.inputs.size(); ++i) {
        const ValueId v = body.tensors[i];
        weights.push_back(laid.is_constant(v) || (v.index() < part.constant.size() && part.constant[v.index()]));
    }
    if (group.chain) {
        const auto& scheduled = schedules_.estimated_chain(body);
        if (!scheduled) {
            result.reason = "no schedule as a chain";
            return result;
        }
        schedule(body, *scheduled, weights, result);
        result.kind = Kind::Chain;
        result.margin = 1 / (1 - chain_gain(body.stages, schedules_.how())) - 1;
    } else {
        schedule(body, schedules_.kernel(body), weights, result);
        const bool reduces = std::any_of(laid.primitives.begin(), laid.primitives.end(),
                                         [](const Primitive& p) { return p.expr()->reducer != Reducer::None; });
        result.kind = products > 0 ? Kind::Product : reduces ? Kind::Reduction : Kind::Elementwise;
    }
    result.seconds += kKernelSeconds;
    result.at_least = kKernelSeconds + schedules_.at_least(body);
    return result;
}

void KernelMaker::schedule(const KernelBody& body, const Schedules::Scheduled& whole, const std::vector<bool>& weights,
                           Made& result) {
    const auto parts = split_kernel(body, whole, schedules_);
    if (!parts) {
        result.seconds = whole.seconds;
        result.kernels.push_back({whole.program, weights});
        return;
    }
    result.seconds = parts->seconds;
    std::set<std::string> constant;  // values are identified by name
    for (size_t i = 0; i < weights.size(); ++i)
        if (weights[i]) constant.insert(body.stages.values[body.stages.inputs[i]].name);
    for (const SplitKernel::Part& part : parts->parts)
        for (const KernelGroup& g : part.groups) {
            const KernelBody one = extract(part.stages, g);
            ScheduledKernel kernel;
            if (g.chain) {
                const auto& chain = schedules_.estimated_chain(one);
                TW_CHECK(chain, "a chain without a schedule");
                kernel.tiles = chain->program;
            } else {
                kernel.tiles = schedules_.kernel(one).program;
            }
            for (size_t i = 0; i < one.stages.inputs.size(); ++i)
                kernel.weights.push_back(constant.count(part.stages.values[one.tensors[i]].name) != 0);
            result.kernels.push_back(std::move(kernel));
        }
}

}  // namespace tilewright::optimal
