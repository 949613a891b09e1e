#include "provider/capability.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ops/lowering.h"
#include "provider/context_node.h"
#include "provider/partition.h"

namespace tilewright::provider {

namespace {

/// A node, and the values that it and its subgraphs read.
struct NodeInfo {
    const OrtNode* node = nullptr;
    std::vector<const OrtValueInfo*> reads, writes;  ///< reads: without constants
    bool has_subgraphs = false;
};

/// Whether a value can pass from ONNX Runtime to a session and back: both store its elements alike.
bool is_exchangeable(const DeclaredType& type) {
    if (type.container != DeclaredType::Container::None || !type.has_dtype || !type.shape) return false;
    switch (type.dtype) {
        case DType::I4:
        case DType::U4:
        case DType::F4E2M1:
        case DType::I2:
        case DType::U2:
            return false;  // packed there
        default:
            return true;
    }
}

bool is_excluded(const Api& api, const Settings& settings, const OrtNode* node) {
    const auto has = [&](const char* name) {
        return std::find(settings.excluded.begin(), settings.excluded.end(), name) != settings.excluded.end();
    };
    return has(api.get<const char*>(api.node_operator, node)) || has(api.get<const char*>(api.node_name, node));
}

/// Each EPContext node is a region. What is beside them was left to ONNX Runtime when they were made.
Capability compiled_regions(const Api& api, const OrtGraph* graph, const Settings& settings) {
    Capability out;
    for (const OrtNode* n : api.list(api.graph_node_count, api.graph_nodes, graph)) {
        ++out.nodes;
        if (is_context_node(api, n) && !is_excluded(api, settings, n))
            out.regions.push_back({{n}, {}, {}, true});
        else
            out.refused.push_back(fmt::format("node '{}' ({}): the model was compiled without it",
                                              api.get<const char*>(api.node_name, n),
                                              api.get<const char*>(api.node_operator, n)));
    }
    return out;
}

class Search {
  public:
    Search(const Api& api, const OrtGraph* graph, const Settings& settings)
        : api_(api), graph_(graph), settings_(settings) {
        for (const OrtNode* n : nodes_of(api, graph)) nodes_.push_back(info_of(n));
        for (const OrtValueInfo* v : api.list(api.graph_output_count, api.graph_outputs, graph))
            if (v != nullptr) needed_.insert(api.name(v));
        link();
        reasons_.resize(nodes_.size());
    }

    Capability run() {
        Capability out;
        out.nodes = nodes_.size();
        exclude();
        // Every round refuses at least one node more, or is the last one.
        for (bool refused = true; refused;) {
            std::vector<bool> supported;
            for (const std::string& reason : reasons_) supported.push_back(reason.empty());
            out.regions.clear();
            refused = false;
            for (const std::vector<size_t>& group : partition(producers_, supported)) {
                out.regions.push_back(region_of(group));
                refused |= !accepts(group, out.regions.back());
            }
        }
        for (size_t i = 0; i < nodes_.size(); ++i)
            if (!reasons_[i].empty())
                out.refused.push_back(fmt::format("node '{}' ({}): {}", text(api_.node_name, i),
                                                  text(api_.node_operator, i), reasons_[i]));
        return out;
    }

  private:
    std::string text(OrtStatus* (*function)(const OrtNode*, const char**), size_t i) const {
        return api_.get<const char*>(function, nodes_[i].node);
    }

    NodeInfo info_of(const OrtNode* node) const {
        NodeInfo n;
        n.node = node;
        n.has_subgraphs = api_.get<size_t>(api_.node_subgraph_count, node) > 0;
        const auto add_reads = [&](const std::vector<const OrtValueInfo*>& values) {
            for (const OrtValueInfo* v : values)
                if (v != nullptr && !api_.get<bool>(api_.value_is_constant_initializer, v)) n.reads.push_back(v);
        };
        add_reads(api_.list(api_.node_input_count, api_.node_inputs, node));
        add_reads(api_.list(api_.node_implicit_input_count, api_.node_implicit_inputs, node));
        for (const OrtValueInfo* v : api_.list(api_.node_output_count, api_.node_outputs, node))
            if (v != nullptr) n.writes.push_back(v);
        return n;
    }

    void link() {
        std::map<std::string, size_t> writer;
        for (size_t i = 0; i < nodes_.size(); ++i)
            for (const OrtValueInfo* v : nodes_[i].writes) writer[api_.name(v)] = i;
        producers_.resize(nodes_.size());
        for (size_t i = 0; i < nodes_.size(); ++i)
            for (const OrtValueInfo* v : nodes_[i].reads) {
                readers_[api_.name(v)].push_back(i);
                if (const auto w = writer.find(api_.name(v)); w != writer.end()) producers_[i].push_back(w->second);
            }
    }

    void exclude() {
        for (size_t i = 0; i < nodes_.size(); ++i)
            if (is_excluded(api_, settings_, nodes_[i].node)) reasons_[i] = "the option 'exclude' names it";
    }

    Region region_of(const std::vector<size_t>& group) const {
        Region r;
        std::set<std::string> written, seen;
        for (const size_t i : group)
            for (const OrtValueInfo* v : nodes_[i].writes) written.insert(api_.name(v));
        for (const size_t i : group) {
            r.nodes.push_back(nodes_[i].node);
            for (const OrtValueInfo* v : nodes_[i].reads)
                if (written.count(api_.name(v)) == 0 && seen.insert(api_.name(v)).second) r.inputs.push_back(v);
            for (const OrtValueInfo* v : nodes_[i].writes)
                if (is_read_elsewhere(api_.name(v), group)) r.outputs.push_back(v);
        }
        return r;
    }

    bool is_read_elsewhere(const std::string& value, const std::vector<size_t>& group) const {
        if (needed_.count(value) != 0) return true;
        const auto readers = readers_.find(value);
        return readers != readers_.end() && std::any_of(readers->second.begin(), readers->second.end(), [&](size_t i) {
                   return !std::binary_search(group.begin(), group.end(), i);
               });
    }

    /// False: some node of the group is refused now.
    bool accepts(const std::vector<size_t>& group, const Region& region) {
        std::set<std::string> strange;  // values at the border that cannot pass it
        for (const auto* border : {&region.inputs, &region.outputs})
            for (const OrtValueInfo* v : *border)
                if (!is_exchangeable(declared_type(api_, v))) strange.insert(api_.name(v));
        if (!strange.empty()) return !refuse_users(group, strange);
        return !refuse_unsupported(group, region);
    }

    bool refuse_users(const std::vector<size_t>& group, const std::set<std::string>& values) {
        for (const size_t i : group)
            for (const auto* used : {&nodes_[i].reads, &nodes_[i].writes})
                for (const OrtValueInfo* v : *used)
                    if (values.count(api_.name(v)) != 0)
                        reasons_[i] =
                            fmt::format("value '{}' is no tensor of known rank and supported type", api_.name(v));
        return true;
    }

    /// Returns whether there is any.
    bool refuse_unsupported(const std::vector<size_t>& group, const Region& region) {
        const auto refuse_all = [&](const std::string& reason) {
            for (const size_t i : group) reasons_[i] = reason;
            return true;
        };
        try {
            const Model model = read_region(api_, graph_, region, Constants::View);
            if (const auto faults = model.graph.verify(); !faults.empty()) return refuse_all(faults.front());
            std::vector<Problem> problems;
            LowerOptions options;
            options.dims = settings_.pipeline.compile.dims;
            options.ranges = settings_.pipeline.compile.ranges;
            lower(model, options, &problems);
            std::map<std::string, size_t> by_name;
            for (size_t k = 0; k < group.size(); ++k) by_name[model.graph.nodes[k].name] = group[k];
            for (const Problem& p : problems) refuse(group, by_name, p);
            return !problems.empty();
        } catch (const std::exception& e) {  // a bug of ours as well leaves the nodes to ONNX Runtime
            return refuse_all(e.what());
        }
    }

    void refuse(const std::vector<size_t>& group, const std::map<std::string, size_t>& by_name, const Problem& p) {
        if (const auto found = by_name.find(p.node); found != by_name.end()) {
            reasons_[found->second] = p.reason;
            return;
        }
        // In a subgraph, or of the model itself.
        const std::string reason = fmt::format("node '{}' ({}): {}", p.node, p.op, p.reason);
        const bool any = std::any_of(group.begin(), group.end(), [&](size_t i) { return nodes_[i].has_subgraphs; });
        for (const size_t i : group)
            if (nodes_[i].has_subgraphs || !any) reasons_[i] = reason;
    }

    const Api& api_;
    const OrtGraph* graph_;
    const Settings& settings_;
    std::vector<NodeInfo> nodes_;
    std::vector<std::vector<size_t>> producers_;
    std::map<std::string, std::vector<size_t>> readers_;  // by value
    std::set<std::string> needed_;                        // the graph's outputs
    std::vector<std::string> reasons_;                    // by node: why it is not taken
};

}  // namespace

Capability capability_of(const Api& api, const OrtGraph* graph, const Settings& settings) {
    Capability compiled = compiled_regions(api, graph, settings);
    return compiled.regions.empty() ? Search(api, graph, settings).run() : compiled;
}

}  // namespace tilewright::provider
