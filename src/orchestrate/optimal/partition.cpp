#include "orchestrate/optimal/partition.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace tilewright::optimal {

namespace {

/// A depth-first order of the nodes [begin, end), none of which depends on a later node.
std::vector<NodeId> depth_first(const Dag& dag, size_t begin, size_t end) {
    const auto inside = [&](NodeId n) { return n && n.index() >= begin && n.index() < end; };
    std::vector<size_t> waits(end - begin, 0);
    for (size_t k = begin; k < end; ++k)
        for (const TensorId t : dag.nodes[NodeId(k)].reads)
            if (inside(dag.tensors[t].producer)) ++waits[k - begin];
    std::vector<NodeId> ready, order;
    for (size_t k = end; k-- > begin;)
        if (waits[k - begin] == 0) ready.emplace_back(k);
    while (!ready.empty()) {
        const NodeId n = ready.back();
        ready.pop_back();
        order.push_back(n);
        std::vector<NodeId> next;
        for (const TensorId t : dag.nodes[n].writes)
            for (const NodeId r : dag.tensors[t].readers)
                if (inside(r) && --waits[r.index() - begin] == 0) next.push_back(r);
        std::sort(next.rbegin(), next.rend());
        ready.insert(ready.end(), next.begin(), next.end());
    }
    TW_CHECK(order.size() == end - begin, "the graph is not in topological order");
    return order;
}

struct Cost {
    size_t split = 0;
    double crossing = 0;
    size_t cuts = 0;
    friend auto operator<=>(const Cost& a, const Cost& b) {
        return std::tie(a.split, a.crossing, a.cuts) <=> std::tie(b.split, b.crossing, b.cuts);
    }
    friend Cost operator+(const Cost& a, const Cost& b) {
        return {a.split + b.split, a.crossing + b.crossing, a.cuts + b.cuts};
    }
};

struct Cuts {
    Cost cost;
    std::vector<size_t> begins;  ///< first position of each piece
};

Cuts cheapest_cuts(const Dag& dag, const std::vector<NodeId>& order, const PartitionOptions& options) {
    const size_t n = order.size();
    std::vector<size_t> position(dag.nodes.size(), SIZE_MAX);
    for (size_t k = 0; k < n; ++k) position[order[k].index()] = k;
    // Cut i is before the node at position i.
    std::vector<Cost> cut(n + 1);
    for (size_t i = 1; i < n; ++i) cut[i].cuts = 1;
    for (const NodeId node : order)
        for (const TensorId t : dag.nodes[node].writes) {
            size_t last = position[node.index()];
            for (const NodeId r : dag.tensors[t].readers)
                if (position[r.index()] != SIZE_MAX) last = std::max(last, position[r.index()]);
            for (size_t i = position[node.index()] + 1; i <= last; ++i) cut[i].crossing += dag.tensors[t].weight;
        }
    for (const std::vector<NodeId>& group : options.together) {
        size_t first = SIZE_MAX, last = 0;
        for (const NodeId m : group)
            if (position[m.index()] != SIZE_MAX) {
                first = std::min(first, position[m.index()]);
                last = std::max(last, position[m.index()]);
            }
        for (size_t i = first; i < last; ++i) ++cut[i + 1].split;
    }
    std::vector<Cost> best(n + 1);
    std::vector<size_t> from(n + 1, SIZE_MAX);
    for (size_t j = 1; j <= n; ++j)
        for (size_t i = j > options.most_nodes ? j - options.most_nodes : 0; i < j; ++i) {
            const Cost cost = best[i] + (i == 0 ? Cost() : cut[i]);
            if (from[j] != SIZE_MAX && !(cost < best[j])) continue;
            best[j] = cost;
            from[j] = i;
        }
    Cuts result;
    result.cost = best[n];
    for (size_t j = n; j > 0; j = from[j]) result.begins.push_back(from[j]);
    std::reverse(result.begins.begin(), result.begins.end());
    return result;
}

}  // namespace

Partition partition(const Dag& dag, const PartitionOptions& options) {
    TW_CHECK(options.most_nodes > 0, "a piece has at least one node");
    const auto alone = [&](size_t k) { return options.alone && options.alone(NodeId(k)); };
    Partition result;
    for (size_t begin = 0; begin < dag.nodes.size();) {
        if (alone(begin)) {
            result.pieces.push_back({NodeId(begin++)});
            continue;
        }
        size_t end = begin;
        while (end < dag.nodes.size() && !alone(end)) ++end;
        std::vector<NodeId> order;
        for (size_t k = begin; k < end; ++k) order.emplace_back(k);
        Cuts cuts = cheapest_cuts(dag, order, options);
        std::vector<NodeId> other = depth_first(dag, begin, end);
        Cuts better = cheapest_cuts(dag, other, options);
        if (better.cost < cuts.cost) {
            cuts = std::move(better);
            order = std::move(other);
        }
        for (size_t k = 0; k < cuts.begins.size(); ++k) {
            const size_t until = k + 1 < cuts.begins.size() ? cuts.begins[k + 1] : order.size();
            result.pieces.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(cuts.begins[k]),
                                       order.begin() + static_cast<std::ptrdiff_t>(until));
        }
        result.cuts += cuts.cost.cuts;
        result.crossing += cuts.cost.crossing;
        result.split += cuts.cost.split;
        begin = end;
    }
    return result;
}

}  // namespace tilewright::optimal
