#pragma once
// The primitive graph for orchestration: nodes that read and write tensors (Korch §4), without what the nodes compute.
// A Dag is made from a Program (one node per primitive), from a part of another Dag (`piece_of`), or by hand.
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

/// A set of nodes as bits. Operands of an operation must be sets of one graph, made with its number of nodes.
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

    /// The smallest member; an invalid id for an empty set.
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
        double weight = 1;            ///< cost of materialising it, such as its bytes
        NodeId producer;              ///< none: an input of the graph
        std::vector<NodeId> readers;  ///< ascending
        bool needed = false;          ///< a result of the graph
    };
    IndexVector<NodeId, Node> nodes;  ///< in topological order
    IndexVector<TensorId, Tensor> tensors;

    TensorId add_given(std::string name, double weight = 1);
    /// Adds a node that writes one tensor of the node's name.
    NodeId add_node(std::string name, const std::vector<TensorId>& reads, double weight = 1);
    TensorId add_output(NodeId node, std::string name, double weight = 1);
    TensorId result(NodeId node, size_t output = 0) const { return nodes[node].writes.at(output); }

    NodeSet none() const { return NodeSet(nodes.size()); }
    NodeSet all() const;
    NodeSet set(const std::vector<NodeId>& members) const { return {nodes.size(), members}; }

    /// Tensors that the set reads but does not write, in order of first use.
    std::vector<TensorId> inputs(const NodeSet& set) const;
    /// Tensors written in the set that are needed or read outside of it, in order of the nodes.
    std::vector<TensorId> exposed(const NodeSet& set) const;
    /// One sentence per error: a tensor with two producers, a node that reads a later one, inconsistent lists.
    std::vector<std::string> verify() const;
};

/// A graph of `nodes` nodes with one tensor each, named "p1", "p2", ... as in the paper. Tensors without a reader are
/// needed. `edges` count from 0.
Dag dag_of_edges(size_t nodes, const std::vector<std::pair<size_t, size_t>>& edges);

/// The graph of a program: node k is primitive k, and tensor v is value v. The weight of a tensor is its bytes (dynamic
/// dimensions count as 64). Constants are not read by nodes, because they are free for every kernel.
Dag dag_of(const Program& program);

/// A part of a graph as a graph of its own: tensors of other producers are inputs, tensors of other readers are needed.
struct Piece {
    Dag dag;
    IndexVector<NodeId, NodeId> nodes;        ///< node of the piece -> node of the whole graph
    IndexVector<TensorId, TensorId> tensors;  ///< tensor of the piece -> tensor of the whole graph
};
Piece piece_of(const Dag& whole, const std::vector<NodeId>& members);

/// Reachability over paths of at least one edge.
class Paths {
  public:
    explicit Paths(const Dag& dag);
    const NodeSet& before(NodeId n) const { return before_[n]; }
    const NodeSet& after(NodeId n) const { return after_[n]; }
    /// Nodes that have an edge to or from n.
    const NodeSet& beside(NodeId n) const { return beside_[n]; }

    /// Definition 1: no path leaves the set and returns to it.
    bool convex(const NodeSet& set) const;
    /// The smallest convex set that contains the set: its members and all nodes on paths between them.
    NodeSet closure(const NodeSet& set) const;
    /// Definition 2, an execution state: the set contains all predecessors of its members.
    bool is_state(const NodeSet& set) const;
    bool connected(const NodeSet& set) const;
    /// The connected components of a set, in order of their smallest nodes.
    std::vector<NodeSet> parts(const NodeSet& set) const;

  private:
    IndexVector<NodeId, NodeSet> before_, after_, beside_;
};

}  // namespace tilewright::optimal
