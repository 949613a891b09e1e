#include "orchestrate/optimal/chain_sets.h"

#include <algorithm>
#include <set>

namespace tilewright::optimal {

namespace {

class ChainSets {
  public:
    ChainSets(const Dag& dag, const Paths& paths, const std::function<NodeWork(NodeId)>& work)
        : dag_(dag), paths_(paths), before_(dag.nodes.size()) {
        for (const NodeId n : dag.nodes.ids()) work_.push_back(work(n));
        // The products that reach a node through other nodes only.
        for (const NodeId n : dag.nodes.ids())
            for (const TensorId t : dag.nodes[n].reads)
                if (const NodeId from = dag.tensors[t].producer) {
                    if (product(from))
                        before_[n].insert(from);
                    else
                        before_[n].insert(before_[from].begin(), before_[from].end());
                }
    }

    std::vector<NodeSet> run(size_t most) {
        std::set<std::set<NodeId>> pairs, triples;
        for (const NodeId last : dag_.nodes.ids())
            if (product(last))
                for (const NodeId first : before_[last]) pairs.insert({first, last});
        for (const std::set<NodeId>& a : pairs)
            for (const std::set<NodeId>& b : pairs) {
                std::set<NodeId> both = a;
                both.insert(b.begin(), b.end());
                if (both.size() == 3) triples.insert(both);
            }
        std::set<std::set<NodeId>> normalised;
        for (const NodeId last : dag_.nodes.ids()) {
            if (!product(last)) continue;
            std::set<NodeId> group = reductions_before({last});
            if (group.empty()) continue;
            group.merge(reductions_before(group));
            group.insert(last);
            normalised.insert(std::move(group));
        }
        for (const auto* groups : {&pairs, &triples, &normalised})
            for (const std::set<NodeId>& group : *groups) around(group);
        std::stable_sort(out_.begin(), out_.end(), [](const NodeSet& a, const NodeSet& b) {
            return a.first() != b.first() ? a.first() < b.first() : a.size() < b.size();
        });
        if (out_.size() > most) out_.resize(most);
        return std::move(out_);
    }

  private:
    bool product(NodeId n) const { return work_[n] == NodeWork::Product; }

    /// Reductions that reach one of the nodes through elementwise nodes only.
    std::set<NodeId> reductions_before(const std::set<NodeId>& nodes) const {
        std::set<NodeId> out, seen;
        std::vector<NodeId> open(nodes.begin(), nodes.end());
        while (!open.empty()) {
            const NodeId n = open.back();
            open.pop_back();
            for (const TensorId t : dag_.nodes[n].reads) {
                const NodeId from = dag_.tensors[t].producer;
                if (!from || !seen.insert(from).second) continue;
                if (work_[from] == NodeWork::Reduction) out.insert(from);
                if (work_[from] == NodeWork::Elementwise) open.push_back(from);
            }
        }
        return out;
    }

    void add(const NodeSet& set) {
        if (std::find(out_.begin(), out_.end(), set) == out_.end()) out_.push_back(set);
    }

    void around(const std::set<NodeId>& products) {
        NodeSet set = dag_.none();
        for (const NodeId n : products) set.insert(n);
        set = paths_.closure(set);
        const auto others = [&](const NodeSet& s) {
            const std::vector<NodeId> nodes = s.nodes();
            return std::any_of(nodes.begin(), nodes.end(),
                               [&](NodeId n) { return product(n) && products.count(n) == 0; });
        };
        if (others(set)) return;
        // Operands of inner nodes (masks, scales) come first, then those of the first products.
        std::set<NodeId> first;
        for (const NodeId n : products)
            if (std::none_of(before_[n].begin(), before_[n].end(), [&](NodeId p) { return products.count(p) != 0; }))
                first.insert(n);
        take_feeding(set, [&](NodeId reader) { return first.count(reader) == 0; });
        add(set);
        take_feeding(set, [](NodeId) { return true; });
        add(set);
        for (NodeId next = only_reader(set); next; next = only_reader(set)) set.insert(next);
        add(set);
    }

    /// Adds elementwise nodes whose readers are all in the set and accepted by `into`.
    void take_feeding(NodeSet& set, const std::function<bool(NodeId)>& into) const {
        for (size_t k = dag_.nodes.size(); k-- > 0;) {
            const NodeId n(k);
            if (set.contains(n) || work_[n] != NodeWork::Elementwise) continue;
            const auto& writes = dag_.nodes[n].writes;
            const bool feeds = std::all_of(writes.begin(), writes.end(), [&](TensorId t) {
                const Dag::Tensor& tensor = dag_.tensors[t];
                return !tensor.needed && !tensor.readers.empty() &&
                       std::all_of(tensor.readers.begin(), tensor.readers.end(),
                                   [&](NodeId r) { return set.contains(r) && into(r); });
            });
            if (feeds) set.insert(n);
        }
    }

    /// The elementwise node that is the only reader of the set's single result, if the set stays convex with it; else
    /// an invalid id.
    NodeId only_reader(const NodeSet& set) const {
        const std::vector<TensorId> exposed = dag_.exposed(set);
        if (exposed.size() != 1 || dag_.tensors[exposed[0]].needed) return {};
        const auto& readers = dag_.tensors[exposed[0]].readers;
        if (readers.size() != 1 || work_[readers[0]] != NodeWork::Elementwise) return {};
        NodeSet with = set;
        with.insert(readers[0]);
        return paths_.convex(with) ? readers[0] : NodeId();
    }

    const Dag& dag_;
    const Paths& paths_;
    IndexVector<NodeId, NodeWork> work_;
    IndexVector<NodeId, std::set<NodeId>> before_;
    std::vector<NodeSet> out_;
};

}  // namespace

std::vector<NodeSet> chain_sets(const Dag& dag, const Paths& paths, const std::function<NodeWork(NodeId)>& work,
                                size_t most) {
    return ChainSets(dag, paths, work).run(most);
}

}  // namespace tilewright::optimal
