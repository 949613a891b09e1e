#pragma once
// The primitive graph as orchestration sees it: nodes that read and write tensors (Korch §4).
//
// What a node computes is of no interest here. A Dag is made from a Program (a node a primitive), from part of another
// Dag (`piece_of`), or by hand.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tilewright::optimal {

struct NodeTag;
struct TensorTag;
using NodeId = Id<NodeTag>;
using TensorId = Id<TensorTag>;

/// A set of nodes as bits. Sets that meet in an operation are of one graph, whose number of nodes they were made with.
class NodeSet {
  public:
    NodeSet() = default;
    explicit NodeSet(size_t nodes) : words_((nodes + 63) / 64) {}
    NodeSet(size_t nodes, const std::vector<NodeId>& members) : NodeSet(nodes) {
        for (const NodeId n : members) insert(n);
    }

    bool contains(NodeId n) const { return (words_[n.index() / 64] >> (n.index() % 64) & 1) != 0; }
    void insert(NodeId n) { words_[n.index() / 64] |= uint64_t{1} << (n.index() % 64); }
    void erase(NodeId n) { words_[n.index() / 64] &= ~(uint64_t{1} << (n.index() % 64)); }
    bool empty() const;
    size_t size() const;
    bool subset_of(const NodeSet& other) const;
    bool meets(const NodeSet& other) const;
    NodeSet& operator|=(const NodeSet& other);
    NodeSet& operator&=(const NodeSet& other);
    NodeSet& operator-=(const NodeSet& other);
    friend NodeSet operator|(NodeSet a, const NodeSet& b) { return a |= b; }
    friend NodeSet operator&(NodeSet a, const NodeSet& b) { return a &= b; }
    friend NodeSet operator-(NodeSet a, const NodeSet& b) { return a -= b; }
    friend auto operator<=>(const NodeSet&, const NodeSet&) = default;

    /// The smallest member; none of an empty set.
    NodeId first() const;
    /// Members in ascending order.
    std::vector<NodeId> nodes() const;
    uint64_t hash() const;

  private:
    std::vector<uint64_t> words_;
};

struct NodeSetHash {
    size_t operator()(const NodeSet& s) const { return s.hash(); }
};

struct Dag {
    struct Node {
        std::string name;
        std::vector<TensorId> reads, writes;  ///< each tensor once
    };
    struct Tensor {
        std::string name;
        double weight = 1;            ///< what materialising it is worth, say its bytes
        NodeId producer;              ///< none: it is given
        std::vector<NodeId> readers;  ///< ascending
        bool needed = false;          ///< a result of the graph
    };
    IndexVector<NodeId, Node> nodes;  ///< in topological order
    IndexVector<TensorId, Tensor> tensors;

    TensorId add_given(std::string name, double weight = 1);
    /// A node that writes one tensor of its own name.
    NodeId add_node(std::string name, const std::vector<TensorId>& reads, double weight = 1);
    TensorId add_output(NodeId node, std::string name, double weight = 1);
    TensorId result(NodeId node, size_t output = 0) const { return nodes[node].writes.at(output); }

    NodeSet none() const { return NodeSet(nodes.size()); }
    NodeSet all() const;
    NodeSet set(const std::vector<NodeId>& members) const { return {nodes.size(), members}; }

    /// Tensors that the set reads and does not write, in order of first use.
    std::vector<TensorId> inputs(const NodeSet& set) const;
    /// Tensors written in the set that are needed or read outside of it, in order of the nodes.
    std::vector<TensorId> exposed(const NodeSet& set) const;
    /// One sentence per fault: a tensor with two producers, a node that reads what comes later, lists that disagree.
    std::vector<std::string> verify() const;
};

/// A graph of `nodes` nodes with one tensor each, called "p1", "p2", ... as in the paper; results are those without
/// a reader. `edges` count from 0.
Dag dag_of_edges(size_t nodes, const std::vector<std::pair<size_t, size_t>>& edges);

/// Node k is primitive k, tensor v is value v; a tensor's weight is its bytes (dynamic dimensions count as
/// 64). Constants are no tensors of any node: every kernel has them for nothing.
Dag dag_of(const Program& program);

/// Part of a graph as a graph of its own: what others make is given, what others read is needed.
struct Piece {
    Dag dag;
    IndexVector<NodeId, NodeId> nodes;        ///< those of the whole graph
    IndexVector<TensorId, TensorId> tensors;  ///< likewise
};
Piece piece_of(const Dag& whole, const std::vector<NodeId>& members);

/// Reachability over paths of at least one edge.
class Paths {
  public:
    explicit Paths(const Dag& dag);
    const NodeSet& before(NodeId n) const { return before_[n]; }
    const NodeSet& after(NodeId n) const { return after_[n]; }
    /// Nodes that share an edge with n.
    const NodeSet& beside(NodeId n) const { return beside_[n]; }

    /// Definition 1: no path leaves the set and comes back.
    bool convex(const NodeSet& set) const;
    /// The smallest convex set around: with every node on a path between two members.
    NodeSet closure(const NodeSet& set) const;
    /// Definition 2, an execution state: with a node everything that it reads from.
    bool is_state(const NodeSet& set) const;
    bool connected(const NodeSet& set) const;
    /// The connected parts of a set, each led by its smallest node, in order of those.
    std::vector<NodeSet> parts(const NodeSet& set) const;

  private:
    IndexVector<NodeId, NodeSet> before_, after_, beside_;
};

}  // namespace tilewright::optimal
