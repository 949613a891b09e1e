#include "graph/import_sort.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "base/error.h"

namespace tilewright::import_detail {

namespace {

using Producers = std::unordered_map<std::string_view, uint32_t>;

void collect_producers_read(const Node& n, const Producers& producers, std::vector<uint32_t>& out);

/// A subgraph's own names differ from those of the outer graph, so a name of an outer node is a dependence.
void collect_producers_read(const Graph& g, const Producers& producers, std::vector<uint32_t>& out) {
    for (const Node& n : g.nodes) collect_producers_read(n, producers, out);
    for (const GraphInput& o : g.outputs)
        if (const auto it = producers.find(o.name); it != producers.end()) out.push_back(it->second);
}

void collect_producers_read(const Node& n, const Producers& producers, std::vector<uint32_t>& out) {
    for (const std::string& input : n.inputs)
        if (const auto it = producers.find(input); it != producers.end()) out.push_back(it->second);
    for (const auto& [name, value] : n.attributes)
        if (const auto* graph = std::get_if<std::shared_ptr<const Graph>>(&value))
            collect_producers_read(**graph, producers, out);
}

/// Follows unsorted predecessors from any unsorted node until one repeats: that part of the path is a cycle.
[[noreturn]] void report_cycle(const Graph& g, const std::vector<std::vector<uint32_t>>& reads,
                               const std::vector<uint32_t>& waiting_for) {
    uint32_t at = 0;
    while (waiting_for[at] == 0) ++at;
    std::vector<uint32_t> path;
    std::vector<size_t> place(g.nodes.size(), SIZE_MAX);
    while (place[at] == SIZE_MAX) {
        place[at] = path.size();
        path.push_back(at);
        at = *std::find_if(reads[at].begin(), reads[at].end(), [&](uint32_t p) { return waiting_for[p] != 0; });
    }
    path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(place[at]));
    std::reverse(path.begin(), path.end());  // from producer to reader
    std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());

    constexpr size_t kShown = 8;
    std::string text;
    for (size_t i = 0; i < std::min(path.size(), kShown); ++i) text += g.nodes[path[i]].describe() + " -> ";
    if (path.size() > kShown) text += fmt::format("{} more -> ", path.size() - kShown);
    model_error("the graph has a cycle: {}{}", text, g.nodes[path.front()].describe());
}

}  // namespace

void sort_topologically(Graph& g) {
    Producers producers;
    for (uint32_t i = 0; i < g.nodes.size(); ++i)
        for (const std::string& output : g.nodes[i].outputs)
            if (!output.empty()) producers.emplace(output, i);

    std::vector<std::vector<uint32_t>> reads(g.nodes.size());  // the producers of each node's operands, each once
    std::vector<uint32_t> waiting_for(g.nodes.size());
    bool sorted = true;
    for (uint32_t i = 0; i < g.nodes.size(); ++i) {
        collect_producers_read(g.nodes[i], producers, reads[i]);
        std::sort(reads[i].begin(), reads[i].end());
        reads[i].erase(std::unique(reads[i].begin(), reads[i].end()), reads[i].end());
        waiting_for[i] = static_cast<uint32_t>(reads[i].size());
        sorted &= reads[i].empty() || reads[i].back() < i;
    }
    if (sorted) return;

    std::vector<std::vector<uint32_t>> readers(g.nodes.size());
    for (uint32_t i = 0; i < g.nodes.size(); ++i)
        for (uint32_t p : reads[i]) readers[p].push_back(i);
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t i = 0; i < g.nodes.size(); ++i)
        if (waiting_for[i] == 0) ready.push(i);
    std::vector<uint32_t> order;
    while (!ready.empty()) {
        const uint32_t i = ready.top();
        ready.pop();
        order.push_back(i);
        for (uint32_t r : readers[i])
            if (--waiting_for[r] == 0) ready.push(r);
    }
    if (order.size() != g.nodes.size()) report_cycle(g, reads, waiting_for);

    std::vector<Node> nodes;
    nodes.reserve(order.size());
    for (uint32_t i : order) nodes.push_back(std::move(g.nodes[i]));
    g.nodes = std::move(nodes);
}

}  // namespace tilewright::import_detail
