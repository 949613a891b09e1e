#include "orchestrate/optimal/dag.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/error.h"
#include "program/analysis/dynamic.h"

namespace tilewright::optimal {

bool NodeSet::empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t w) { return w == 0; });
}

size_t NodeSet::size() const {
    size_t n = 0;
    for (const uint64_t w : words_) n += static_cast<size_t>(std::popcount(w));
    return n;
}

bool NodeSet::subset_of(const NodeSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
        if ((words_[i] & ~other.words_[i]) != 0) return false;
    return true;
}

bool NodeSet::meets(const NodeSet& other) const {
    for (size_t i = 0; i < words_.size(); ++i)
        if ((words_[i] & other.words_[i]) != 0) return true;
    return false;
}

NodeSet& NodeSet::operator|=(const NodeSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
}

NodeSet& NodeSet::operator&=(const NodeSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
}

NodeSet& NodeSet::operator-=(const NodeSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
}

NodeId NodeSet::first() const {
    for (size_t i = 0; i < words_.size(); ++i)
        if (words_[i] != 0) return NodeId(i * 64 + static_cast<size_t>(std::countr_zero(words_[i])));
    return {};
}

std::vector<NodeId> NodeSet::nodes() const {
    std::vector<NodeId> out;
    for (size_t i = 0; i < words_.size(); ++i)
        for (uint64_t w = words_[i]; w != 0; w &= w - 1)
            out.emplace_back(i * 64 + static_cast<size_t>(std::countr_zero(w)));
    return out;
}

uint64_t NodeSet::hash() const {
    uint64_t h = 0x9e3779b97f4a7c15;
    for (const uint64_t w : words_) {
        h = (h ^ w) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
    }
    return h;
}

TensorId Dag::add_given(std::string name, double weight) {
    Tensor t;
    t.name = std::move(name);
    t.weight = weight;
    return tensors.push_back(std::move(t));
}

NodeId Dag::add_node(std::string name, const std::vector<TensorId>& reads, double weight) {
    const NodeId id(nodes.size());
    Node node;
    node.name = name;
    for (const TensorId t : reads)
        if (std::find(node.reads.begin(), node.reads.end(), t) == node.reads.end()) node.reads.push_back(t);
    for (const TensorId t : node.reads) tensors[t].readers.push_back(id);
    nodes.push_back(std::move(node));
    add_output(id, std::move(name), weight);
    return id;
}

TensorId Dag::add_output(NodeId node, std::string name, double weight) {
    const TensorId t = add_given(std::move(name), weight);
    tensors[t].producer = node;
    nodes[node].writes.push_back(t);
    return t;
}

NodeSet Dag::all() const {
    NodeSet s = none();
    for (const NodeId n : nodes.ids()) s.insert(n);
    return s;
}

std::vector<TensorId> Dag::inputs(const NodeSet& set) const {
    std::vector<TensorId> out;
    for (const NodeId n : set.nodes())
        for (const TensorId t : nodes[n].reads) {
            const NodeId from = tensors[t].producer;
            if (from && set.contains(from)) continue;
            if (std::find(out.begin(), out.end(), t) == out.end()) out.push_back(t);
        }
    return out;
}

std::vector<TensorId> Dag::exposed(const NodeSet& set) const {
    std::vector<TensorId> out;
    for (const NodeId n : set.nodes())
        for (const TensorId t : nodes[n].writes) {
            const Tensor& tensor = tensors[t];
            if (tensor.needed ||
                std::any_of(tensor.readers.begin(), tensor.readers.end(), [&](NodeId r) { return !set.contains(r); }))
                out.push_back(t);
        }
    return out;
}

std::vector<std::string> Dag::verify() const {
    std::vector<std::string> faults;
    std::set<TensorId> written;
    for (const NodeId n : nodes.ids()) {
        for (const TensorId t : nodes[n].reads) {
            const Tensor& tensor = tensors[t];
            if (tensor.producer && tensor.producer >= n)
                faults.push_back(fmt::format("{} reads {}, which is not made before it", nodes[n].name, tensor.name));
            if (std::count(tensor.readers.begin(), tensor.readers.end(), n) != 1)
                faults.push_back(fmt::format("{} reads {}, which does not list it once", nodes[n].name, tensor.name));
        }
        for (const TensorId t : nodes[n].writes) {
            if (!written.insert(t).second) faults.push_back(fmt::format("{} has two producers", tensors[t].name));
            if (tensors[t].producer != n)
                faults.push_back(fmt::format("{} writes {}, which names another", nodes[n].name, tensors[t].name));
        }
    }
    for (const Tensor& t : tensors) {
        if (!std::is_sorted(t.readers.begin(), t.readers.end()))
            faults.push_back(fmt::format("readers of {} are out of order", t.name));
        for (const NodeId r : t.readers)
            if (!nodes.contains(r)) faults.push_back(fmt::format("{} has a reader that is no node", t.name));
    }
    return faults;
}

Dag dag_of_edges(size_t nodes, const std::vector<std::pair<size_t, size_t>>& edges) {
    Dag dag;
    for (size_t n = 0; n < nodes; ++n) {
        std::vector<TensorId> reads;
        for (const auto& [from, to] : edges) {
            TW_CHECK(from < to && to < nodes, "edge {} -> {} of {} nodes", from, to, nodes);
            if (to == n) reads.push_back(dag.result(NodeId(from)));
        }
        dag.add_node(fmt::format("p{}", n + 1), reads);
    }
    for (Dag::Tensor& t : dag.tensors) t.needed = t.readers.empty();
    return dag;
}

Dag dag_of(const Program& program) {
    Dag dag;
    for (const Value& v : program.values) {
        dag.add_given(v.name, assumed_points(v.shape, program.assumed) * static_cast<double>(byte_size(v.dtype)));
    }
    for (const PrimitiveId id : program.primitives.ids()) {
        const Primitive& p = program.primitives[id];
        Dag::Node node;
        node.name = p.name;
        for (const ValueId v : p.inputs())
            if (!program.is_constant(v)) node.reads.emplace_back(v.index());
        for (const ValueId v : p.outputs) node.writes.emplace_back(v.index());
        const NodeId n = dag.nodes.push_back(std::move(node));
        for (const TensorId t : dag.nodes[n].reads) dag.tensors[t].readers.push_back(n);
        for (const TensorId t : dag.nodes[n].writes) dag.tensors[t].producer = n;
    }
    for (const ValueId v : program.outputs) dag.tensors[TensorId(v.index())].needed = true;
    return dag;
}

Piece piece_of(const Dag& whole, const std::vector<NodeId>& members) {
    Piece piece;
    NodeSet inside(whole.nodes.size(), members);
    std::vector<TensorId> local(whole.tensors.size());
    const auto tensor = [&](TensorId t) {
        if (local[t.index()]) return local[t.index()];
        piece.tensors.push_back(t);
        return local[t.index()] = piece.dag.add_given(whole.tensors[t].name, whole.tensors[t].weight);
    };
    for (const NodeId n : inside.nodes()) {
        Dag::Node node;
        node.name = whole.nodes[n].name;
        for (const TensorId t : whole.nodes[n].reads) node.reads.push_back(tensor(t));
        for (const TensorId t : whole.nodes[n].writes) node.writes.push_back(tensor(t));
        const NodeId mine = piece.dag.nodes.push_back(std::move(node));
        piece.nodes.push_back(n);
        for (const TensorId t : piece.dag.nodes[mine].reads) piece.dag.tensors[t].readers.push_back(mine);
        for (const TensorId t : piece.dag.nodes[mine].writes) piece.dag.tensors[t].producer = mine;
    }
    for (const TensorId t : whole.exposed(inside)) piece.dag.tensors[local[t.index()]].needed = true;
    return piece;
}

Paths::Paths(const Dag& dag)
    : before_(dag.nodes.size(), dag.none()),
      after_(dag.nodes.size(), dag.none()),
      beside_(dag.nodes.size(), dag.none()) {
    for (const NodeId n : dag.nodes.ids())
        for (const TensorId t : dag.nodes[n].reads)
            if (const NodeId from = dag.tensors[t].producer) {
                before_[n] |= before_[from];
                before_[n].insert(from);
                beside_[n].insert(from);
                beside_[from].insert(n);
            }
    for (const NodeId n : dag.nodes.ids())
        for (const NodeId b : before_[n].nodes()) after_[b].insert(n);
}

NodeSet Paths::closure(const NodeSet& set) const {
    NodeSet above = set, below = set;
    for (const NodeId n : set.nodes()) {
        above |= before_[n];
        below |= after_[n];
    }
    return above & below;
}

bool Paths::convex(const NodeSet& set) const { return closure(set) == set; }

bool Paths::is_state(const NodeSet& set) const {
    const std::vector<NodeId> nodes = set.nodes();
    return std::all_of(nodes.begin(), nodes.end(), [&](NodeId n) { return before_[n].subset_of(set); });
}

std::vector<NodeSet> Paths::parts(const NodeSet& set) const {
    std::vector<NodeSet> out;
    NodeSet left = set;
    while (!left.empty()) {
        NodeSet part(before_.size()), border = part;
        border.insert(left.first());
        while (!border.empty()) {
            part |= border;
            NodeSet next(before_.size());
            for (const NodeId n : border.nodes()) next |= beside_[n];
            border = (next & set) - part;
        }
        left -= part;
        out.push_back(part);
    }
    return out;
}

bool Paths::connected(const NodeSet& set) const { return parts(set).size() <= 1; }

}  // namespace tilewright::optimal
