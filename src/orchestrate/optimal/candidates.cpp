#include "orchestrate/optimal/candidates.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace tilewright::optimal {

std::vector<std::vector<TensorId>> output_sets(const Dag& dag, const NodeSet& set, size_t most) {
    const std::vector<TensorId> exposed = dag.exposed(set);
    // Nodes without a reader in the set, each of which must write something.
    std::vector<NodeId> last;
    for (const NodeId n : set.nodes()) {
        const auto& writes = dag.nodes[n].writes;
        const bool read = std::any_of(writes.begin(), writes.end(), [&](TensorId t) {
            const auto& readers = dag.tensors[t].readers;
            return std::any_of(readers.begin(), readers.end(), [&](NodeId r) { return set.contains(r); });
        });
        if (!read) last.push_back(n);
    }
    std::vector<size_t> free;  // positions in `exposed` that may be omitted
    for (size_t i = 0; i < exposed.size(); ++i) {
        const NodeId from = dag.tensors[exposed[i]].producer;
        const auto siblings =
            std::count_if(exposed.begin(), exposed.end(), [&](TensorId t) { return dag.tensors[t].producer == from; });
        if (siblings > 1 || std::find(last.begin(), last.end(), from) == last.end()) free.push_back(i);
    }
    std::vector<std::vector<TensorId>> out;
    const auto without = [&](const std::vector<size_t>& left_out) {
        std::vector<TensorId> outputs;
        for (size_t i = 0; i < exposed.size(); ++i)
            if (std::find(left_out.begin(), left_out.end(), i) == left_out.end()) outputs.push_back(exposed[i]);
        for (const NodeId n : last)
            if (std::none_of(outputs.begin(), outputs.end(), [&](TensorId t) { return dag.tensors[t].producer == n; }))
                return;
        if (out.size() < most && std::find(out.begin(), out.end(), outputs) == out.end())
            out.push_back(std::move(outputs));
    };
    without({});
    // As few outputs as possible: the first one of each last node.
    std::vector<size_t> least;
    for (const size_t i : free) {
        const NodeId from = dag.tensors[exposed[i]].producer;
        const auto first =
            std::find_if(exposed.begin(), exposed.end(), [&](TensorId t) { return dag.tensors[t].producer == from; });
        const bool is_last = std::find(last.begin(), last.end(), from) != last.end();
        if (!is_last || *first != exposed[i]) least.push_back(i);
    }
    without(least);
    // All subsets of `count` free positions are omitted, in lexicographic order.
    for (size_t count = 1; count <= free.size() && out.size() < most; ++count) {
        std::vector<size_t> pick(count);
        for (size_t i = 0; i < count; ++i) pick[i] = i;
        while (out.size() < most) {
            std::vector<size_t> left_out;
            left_out.reserve(count);
            for (const size_t i : pick) left_out.push_back(free[i]);
            without(left_out);
            size_t i = count;
            while (i > 0 && pick[i - 1] == free.size() - count + i - 1) --i;
            if (i == 0) break;
            ++pick[i - 1];
            for (size_t j = i; j < count; ++j) pick[j] = pick[j - 1] + 1;
        }
    }
    return out;
}

std::vector<KnownCost> known_costs(const Dag& dag, const Paths& paths, const std::vector<NodeSet>& sets,
                                   const std::vector<double>& cost) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    TW_CHECK(sets.size() == cost.size());
    std::vector<KnownCost> known(sets.size());
    std::unordered_map<NodeSet, size_t, NodeSetHash> position;
    const auto with = [&](const NodeSet& set) {
        const auto it = position.find(set);
        return it == position.end() ? kInfinity : known[it->second].with;
    };
    for (size_t i = 0; i < sets.size(); ++i) {
        const NodeSet& set = sets[i];
        known[i].without = kInfinity;
        for (const NodeId n : set.nodes()) {
            if (set.size() == 1 || (paths.before(n).meets(set) && paths.after(n).meets(set))) continue;
            NodeSet one = dag.none(), rest = set;
            one.insert(n);
            rest.erase(n);
            double sum = with(one);
            for (const NodeSet& part : paths.parts(rest)) sum += with(part);
            known[i].without = std::min(known[i].without, sum);
        }
        known[i].with = std::min(cost[i], known[i].without);
        position.emplace(set, i);
    }
    return known;
}

}  // namespace tilewright::optimal
