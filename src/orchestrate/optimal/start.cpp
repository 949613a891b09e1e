#include "orchestrate/optimal/start.h"

#include <algorithm>
#include <map>
#include <set>

namespace tilewright::optimal {

namespace {

ValueId value_of(TensorId t) { return ValueId(t.index()); }
PrimitiveId primitive_of(NodeId n) { return PrimitiveId(n.index()); }

}  // namespace

std::vector<Candidate> start_of(const Piece& piece, const GreedyPlan& greedy) {
    const Dag& dag = piece.dag;
    const auto tensor = [&](TensorId t, bool second) {
        return second && greedy.layouts[value_of(piece.tensors[t])].second.has_value()
                   ? TensorId(t.index() + dag.tensors.size())
                   : t;
    };
    const auto at_boundary = [&](TensorId t) { return greedy.layouts[value_of(piece.tensors[t])].at_boundary; };
    std::map<PrimitiveId, NodeId> local;
    for (const NodeId n : dag.nodes.ids()) local[primitive_of(piece.nodes[n])] = n;
    std::set<ValueId> written;
    for (const GreedyKernel& k : greedy.kernels)
        for (const PlacedValue& v : k.writes) written.insert(v.value);
    const auto placed = [](const std::vector<PlacedValue>& list, ValueId v) {
        const auto it = std::find_if(list.begin(), list.end(), [&](const PlacedValue& p) { return p.value == v; });
        return it == list.end() ? std::nullopt : std::optional(it->second);
    };
    std::vector<Candidate> out;
    std::set<TensorId> there, wanted;
    for (const GreedyKernel& k : greedy.kernels) {
        NodeSet set = dag.none();
        for (const PrimitiveId id : k.members)
            if (const auto it = local.find(id); it != local.end()) set.insert(it->second);
        if (set.empty()) continue;
        Candidate c;
        c.covers = set.nodes();
        for (const TensorId t : dag.inputs(set))
            c.inputs.push_back(tensor(t, placed(k.reads, value_of(piece.tensors[t])).value_or(at_boundary(t))));
        for (const NodeId n : c.covers)
            for (const TensorId t : dag.nodes[n].writes) {
                const ValueId v = value_of(piece.tensors[t]);
                const std::optional<bool> mine = placed(k.writes, v);
                if (mine || (dag.tensors[t].needed && written.count(v) == 0))
                    c.outputs.push_back(tensor(t, mine.value_or(at_boundary(t))));
            }
        // Values that the kernel reads and copies into the other layout.
        for (const TensorId t : dag.inputs(set))
            if (const std::optional<bool> copied = placed(k.writes, value_of(piece.tensors[t])))
                if (const TensorId to = tensor(t, *copied);
                    std::find(c.inputs.begin(), c.inputs.end(), to) == c.inputs.end())
                    c.outputs.push_back(to);
        if (c.outputs.empty()) continue;
        wanted.insert(c.inputs.begin(), c.inputs.end());
        there.insert(c.outputs.begin(), c.outputs.end());
        out.push_back(std::move(c));
    }
    for (const TensorId t : dag.tensors.ids()) {
        if (dag.tensors[t].needed) wanted.insert(tensor(t, at_boundary(t)));
        if (!dag.tensors[t].producer) there.insert(tensor(t, at_boundary(t)));
    }
    const size_t n = dag.tensors.size();
    for (const TensorId t : wanted) {
        const TensorId other(t.index() < n ? t.index() + n : t.index() - n);
        if (there.count(t) == 0 && there.count(other) != 0) out.push_back({{other}, {t}, {}, 0});
    }
    return out;
}

}  // namespace tilewright::optimal
