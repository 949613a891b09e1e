// The invariants of a Graph.

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "graph/graph.h"

namespace tilewright {

namespace {

/// The values defined so far in one graph, and the enclosing graphs.
struct Visible {
    const Visible* outer = nullptr;
    std::unordered_set<std::string> names;

    bool contains(const std::string& name) const {
        for (const Visible* v = this; v != nullptr; v = v->outer)
            if (v->names.count(name) != 0) return true;
        return false;
    }
};

class Verifier {
  public:
    void graph(const Graph& g, const Visible* outer) {
        Visible visible{outer, {}};
        for (const GraphInput& i : g.inputs) define(visible, i.name, "graph input");
        for (const auto& [name, tensor] : g.initializers) {
            define(visible, name, "initialiser");
            if (!tensor.defined()) problems.push_back(fmt::format("initialiser {} has no data", quoted_name(name)));
        }
        for (const Node& n : g.nodes) node(n, visible);
        for (const GraphInput& o : g.outputs)
            if (o.name.empty() || !visible.contains(o.name))
                problems.push_back(fmt::format("graph output {} is not defined", quoted_name(o.name)));
    }

    std::vector<std::string> problems;

  private:
    void define(Visible& visible, const std::string& name, const std::string& by) {
        if (name.empty()) {
            problems.push_back(fmt::format("{} has an empty name", by));
        } else if (visible.contains(name)) {
            problems.push_back(fmt::format("{} defines {} a second time", by, quoted_name(name)));
        } else {
            visible.names.insert(name);
        }
    }

    void node(const Node& n, Visible& visible) {
        if (n.op.empty()) problems.push_back(fmt::format("{} has no operator", n.describe()));
        if (n.opset <= 0) problems.push_back(fmt::format("{} has no operator set version", n.describe()));
        if (!n.name.empty() && !node_names_.insert(n.name).second)
            problems.push_back(fmt::format("{}: its name is not unique", n.describe()));
        for (const std::string& input : n.inputs)
            if (!input.empty() && !visible.contains(input))
                problems.push_back(
                    fmt::format("{} reads {}, which is not defined before it", n.describe(), quoted_name(input)));
        for (const auto& [name, value] : n.attributes) attribute(n, name, value, visible);
        for (const std::string& output : n.outputs)
            if (!output.empty()) define(visible, output, n.describe());
    }

    void attribute(const Node& n, const std::string& name, const Attribute& value, const Visible& visible) {
        const auto missing = [&](const char* what) {
            problems.push_back(fmt::format("{}: attribute {} holds no {}", n.describe(), quoted_name(name), what));
        };
        if (const auto* tensor = std::get_if<Tensor>(&value)) {
            if (!tensor->defined()) missing("tensor");
        } else if (const auto* subgraph = std::get_if<std::shared_ptr<const Graph>>(&value)) {
            if (*subgraph == nullptr) return missing("graph");
            graph(**subgraph, &visible);
        }
    }

    std::unordered_set<std::string> node_names_;
};

}  // namespace

std::vector<std::string> Graph::verify() const {
    Verifier v;
    v.graph(*this, nullptr);
    return std::move(v.problems);
}

}  // namespace tilewright
