#include "orchestrate/optimal/kernel_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "schedule/chain/chain.h"

namespace tilewright::optimal {

namespace {

size_t products(const Program& p) {
    return static_cast<size_t>(std::count_if(p.primitives.begin(), p.primitives.end(),
                                             [](const Primitive& q) { return chain::is_product(*q.expr()); }));
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
    for (const ValueId v : outputs) p.outputs.push_back(local.at(v));
    return part;
}

KernelMaker::KernelMaker(const Program& program, const OrchestrateOptions& options, Schedules& schedules)
    : program_(program), options_(options), schedules_(schedules) {
    TW_CHECK(schedules.how().machine, "costs of kernels need a machine");
    for (const Primitive& p : program.primitives) {
        const TensorExpr* e = p.expr();
        reduces_.push_back(e == nullptr || e->reducer == Reducer::None ? 0 : chain::is_product(*e) ? 2 : 1);
    }
}

bool KernelMaker::hopeless(const std::vector<PrimitiveId>& members) const {
    size_t reductions = 0;
    bool product = false;
    for (const PrimitiveId id : members) {
        reductions += reduces_[id] > 0 ? 1 : 0;
        product = product || reduces_[id] == 2;
    }
    return product && reductions > 1;
}

const KernelMaker::Made& KernelMaker::make(const std::vector<PrimitiveId>& members,
                                           const std::vector<ValueId>& outputs) {
    Part part = part_of(program_, members, outputs, false);
    std::string key = print(part.program);
    for (const bool constant : part.constant) key += constant ? 'c' : 'v';
    const auto it = known_.find(key);
    if (it != known_.end()) return it->second;
    return known_.emplace(std::move(key), made(std::move(part))).first->second;
}

KernelMaker::Made KernelMaker::made(Part part) {
    Made result;
    const Program fused = fuse_greedily(part.program);
    std::vector<KernelGroup> groups = group_rows(fused, true);
    const bool chain = groups.size() > 1 && schedules_.how().chains() && products(fused) > 1;
    if (groups.size() > 1 && !chain) {
        result.reason = "its stages share no rows";
        return result;
    }
    Program laid = fused;
    if (options_.layouts && !options_.without.layouts_first) {
        // Contents play no part: only shapes do.
        for (const ValueId v : fused.values.ids()) {
            if (!part.constant[v.index()]) continue;
            laid.constants.emplace(v, Tensor(laid.values[v].dtype, evaluate(laid.values[v].shape, Bindings()), false));
            laid.inputs.erase(std::remove(laid.inputs.begin(), laid.inputs.end(), v), laid.inputs.end());
        }
        laid = assign_layouts(laid, options_.target, Boundary::Free);
    }
    KernelBody body;
    if (chain) {
        KernelGroup group = whole(laid);
        group.chain = true;
        body = extract(laid, group);
        const auto& scheduled = schedules_.chain(body);
        if (!scheduled) {
            result.reason = "no schedule as a chain";
            return result;
        }
        result.tiles = scheduled->program;
        result.seconds = scheduled->seconds;
    } else {
        // Where the layouts stand in the way of sharing rows, they would not in the whole program either: as it was.
        std::vector<KernelGroup> after = group_rows(laid, true);
        body = after.size() == 1 ? extract(laid, after[0]) : extract(fused, groups[0]);
        const Schedules::Scheduled& scheduled = schedules_.kernel(body);
        result.tiles = scheduled.program;
        result.seconds = scheduled.seconds;
    }
    result.seconds += kKernelSeconds;
    result.at_least = kKernelSeconds;
    result.at_least += schedules_.at_least(body);
    return result;
}

}  // namespace tilewright::optimal
