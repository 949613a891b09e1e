#include "orchestrate/optimal/states.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace tilewright::optimal {

namespace {

/// Calls `visit` for each state once, until it returns false.
void each_state(const Dag& dag, const std::function<bool(const NodeSet&)>& visit) {
    std::unordered_set<NodeSet, NodeSetHash> known;
    std::vector<NodeSet> stack{dag.none()};
    known.insert(dag.none());
    while (!stack.empty()) {
        const NodeSet state = std::move(stack.back());
        stack.pop_back();
        if (!visit(state)) return;
        for (const NodeId v : dag.nodes.ids()) {
            if (state.contains(v)) continue;
            const auto& reads = dag.nodes[v].reads;
            const bool can = std::all_of(reads.begin(), reads.end(), [&](TensorId t) {
                const NodeId u = dag.tensors[t].producer;
                return !u || state.contains(u);
            });
            if (!can) continue;
            NodeSet next = state;
            next.insert(v);
            if (known.insert(next).second) stack.push_back(std::move(next));
        }
    }
}

}  // namespace

std::vector<NodeSet> execution_states(const Dag& dag, size_t most) {
    std::vector<NodeSet> out;
    each_state(dag, [&](const NodeSet& state) {
        TW_CHECK(out.size() < most, "more than {} execution states", most);
        out.push_back(state);
        return true;
    });
    return out;
}

size_t count_states(const Dag& dag, size_t most) {
    size_t n = 0;
    each_state(dag, [&](const NodeSet&) { return ++n < most; });
    return n;
}

std::vector<NodeSet> state_differences(const std::vector<NodeSet>& states) {
    std::unordered_set<NodeSet, NodeSetHash> known;
    for (const NodeSet& small : states)
        for (const NodeSet& large : states)
            if (small != large && small.subset_of(large)) known.insert(large - small);
    std::vector<NodeSet> out(known.begin(), known.end());
    std::sort(out.begin(), out.end());
    return out;
}

namespace {

class Enumeration {
  public:
    Enumeration(const Dag& dag, const Paths& paths, const ConvexOptions& options)
        : dag_(dag), paths_(paths), options_(options), most_sets_(std::max(options.most_sets, dag.nodes.size())) {}

    /// False if there are more sets than allowed.
    bool run(size_t most_nodes) {
        most_nodes_ = most_nodes;
        result_ = {};
        result_.most_nodes = most_nodes;
        NodeSet smaller = dag_.none();
        for (const NodeId root : dag_.nodes.ids()) {
            NodeSet one = dag_.none();
            one.insert(root);
            if (found(one) && !grow(one, smaller)) return false;
            smaller.insert(root);
        }
        return result_.sets.size() <= most_sets_;
    }

    ConvexSets result() {
        std::sort(result_.sets.begin(), result_.sets.end(), [](const NodeSet& a, const NodeSet& b) {
            const size_t m = a.size(), n = b.size();
            return m != n ? m < n : a < b;
        });
        return std::move(result_);
    }

  private:
    bool pruned(const NodeSet& set) {
        if (!options_.pruned) return false;
        const auto it = pruned_.find(set);
        return it != pruned_.end() ? it->second : pruned_.emplace(set, options_.pruned(set)).first->second;
    }

    bool found(const NodeSet& set) {
        if (set.size() > most_nodes_) return false;
        if (pruned(set)) {
            ++result_.pruned;
            return false;
        }
        result_.sets.push_back(set);
        return true;
    }

    NodeSet around(const NodeSet& set) const {
        if (!options_.connected) return dag_.all() - set;
        NodeSet out = dag_.none();
        for (const NodeId n : set.nodes()) out |= paths_.beside(n);
        return out - set;
    }

    /// Lists the proper supersets of `set` without `excluded`.
    bool grow(const NodeSet& set, NodeSet excluded) {
        if (result_.sets.size() > most_sets_) return false;
        for (const NodeId v : (around(set) - excluded).nodes()) {
            NodeSet with = set;
            with.insert(v);
            with = paths_.closure(with);
            if (!with.meets(excluded) && found(with) && !grow(with, excluded)) return false;
            excluded.insert(v);
        }
        return true;
    }

    const Dag& dag_;
    const Paths& paths_;
    const ConvexOptions& options_;
    size_t most_sets_;
    size_t most_nodes_ = 0;
    ConvexSets result_;
    std::unordered_map<NodeSet, bool, NodeSetHash> pruned_;
};

}  // namespace

ConvexSets convex_sets(const Dag& dag, const Paths& paths, const ConvexOptions& options) {
    Enumeration enumeration(dag, paths, options);
    const size_t most = std::min(options.most_nodes, dag.nodes.size());
    if (enumeration.run(most)) return enumeration.result();
    // The maximum number of nodes is increased while the sets fit the limit.
    size_t fits = 1;
    while (enumeration.run(fits + 1)) ++fits;
    enumeration.run(fits);
    ConvexSets result = enumeration.result();
    result.capped = true;
    return result;
}

}  // namespace tilewright::optimal
