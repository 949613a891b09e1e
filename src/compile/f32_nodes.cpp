#include "compile/f32_nodes.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <memory>

#include "base/option_error.h"
#include "base/suggest.h"

namespace tilewright {

namespace {

/// A node's name, and the names of its tensors.
struct Named {
    std::string node;
    std::vector<std::string> names;
};

void list_nodes(const Graph& graph, std::vector<Named>& all) {
    for (const Node& n : graph.nodes) {
        Named named = {n.name, {n.name}};
        for (const auto* tensors : {&n.inputs, &n.outputs})
            std::copy_if(tensors->begin(), tensors->end(), std::back_inserter(named.names),
                         [](const std::string& t) { return !t.empty(); });
        all.push_back(std::move(named));
        for (const auto& [name, attribute] : n.attributes)
            if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute)) list_nodes(**body, all);
    }
}

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches(const std::string& pattern, const Named& node) {
    return std::any_of(node.names.begin(), node.names.end(), [&](const auto& x) { return matches(pattern, x); });
}

/// What the user may have meant.
std::string hint_for(const std::string& pattern, const std::vector<Named>& all) {
    constexpr size_t kMost = 3;
    std::set<std::string> names;
    for (const Named& n : all) names.insert(n.names.begin(), n.names.end());
    std::string text = pattern;
    std::erase(text, '*');
    std::vector<std::string> near = closest_names(text, {names.begin(), names.end()});
    if (text.empty() || near.empty())
        return "give the name of a node or of one of its tensors, with * for any text; `tilewright explain` lists "
               "nodes";
    near.resize(std::min(near.size(), kMost));
    for (std::string& n : near) n = quoted_name(n);
    return fmt::format("did you mean {}?", fmt::join(near, " or "));
}

}  // namespace

std::set<std::string> f32_nodes(const Graph& graph, const std::vector<std::string>& patterns) {
    std::vector<Named> all;
    if (!patterns.empty()) list_nodes(graph, all);
    std::set<std::string> found;
    for (const std::string& pattern : patterns) {
        bool any = false;
        for (const Named& n : all)
            if (matches(pattern, n)) {
                found.insert(n.node);
                any = true;
            }
        if (!any)
            throw OptionError(
                fmt::format("no node or tensor of the model matches {}, which is to stay in f32", quoted_name(pattern)),
                hint_for(pattern, all));
    }
    return found;
}

bool has_f32_node(const Graph& graph, const std::string& pattern) {
    std::vector<Named> all;
    list_nodes(graph, all);
    return std::any_of(all.begin(), all.end(), [&](const Named& n) { return matches(pattern, n); });
}

}  // namespace tilewright
