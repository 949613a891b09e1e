#include "compile/f32_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/option_error.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Node named(const char* name, const char* op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
    Node n;
    n.name = name;
    n.op = op;
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    return n;
}

/// Two layers, and a head inside a branch.
Graph encoder() {
    const auto branch = std::make_shared<Graph>();
    branch->nodes = {named("/head/MatMul", "MatMul", {"h[1]", "head.weight"}, {"logits"})};
    Node choice = named("choice", "If", {"c"}, {"y"});
    choice.attributes["then_branch"] = std::shared_ptr<const Graph>(branch);
    Graph g;
    g.nodes = {named("/layer.0/MatMul", "MatMul", {"x", "fc.0.weight"}, {"h0"}),
               named("/layer.1/MatMul", "MatMul", {"h0", "fc.1.weight"}, {"h[1]"}), choice};
    return g;
}

/// The message and the hint for a pattern that matches nothing.
std::string refusal(const std::string& pattern) {
    try {
        f32_nodes(encoder(), {"/layer.*", pattern});
    } catch (const OptionError& e) {
        return std::string(e.what()) + "; " + e.hint();
    }
    return "accepted";
}

TEST(F32Nodes, MatchNamesOfNodesAndOfTheirTensors) {
    const Graph g = encoder();
    EXPECT_TRUE(f32_nodes(g, {}).empty());
    EXPECT_THAT(f32_nodes(g, {"/layer.1/MatMul"}), ElementsAre("/layer.1/MatMul"));
    EXPECT_THAT(f32_nodes(g, {"/layer.*"}), ElementsAre("/layer.0/MatMul", "/layer.1/MatMul"));
    EXPECT_TRUE(has_f32_node(g, "/layer.1/*"));
    EXPECT_FALSE(has_f32_node(g, "/layer.2/*"));
    EXPECT_THAT(f32_nodes(g, {"fc.[01].weight"}), ElementsAre("/layer.0/MatMul", "/layer.1/MatMul"));
    EXPECT_THAT(f32_nodes(g, {"h0"}), ElementsAre("/layer.0/MatMul", "/layer.1/MatMul"))
        << "the node that computes it, and its reader";
    EXPECT_THAT(f32_nodes(g, {"?", "h\\[1\\]"}),
                ElementsAre("/head/MatMul", "/layer.0/MatMul", "/layer.1/MatMul", "choice"));
}

TEST(F32Nodes, MatchNodesOfSubgraphs) { EXPECT_THAT(f32_nodes(encoder(), {"/head/*"}), ElementsAre("/head/MatMul")); }

TEST(F32Nodes, RefuseAPatternThatMatchesNothing) {
    EXPECT_THAT(refusal("/laier.0/MatMul"), HasSubstr("no node or tensor of the model matches '/laier.0/MatMul'"));
    EXPECT_THAT(refusal("/laier.0/MatMul"), HasSubstr("did you mean '/layer.0/MatMul'"));
    EXPECT_THAT(refusal("weight"), HasSubstr("did you mean 'fc.0.weight' or 'fc.1.weight' or 'head.weight'?"))
        << "a pattern matches whole names";
    EXPECT_THAT(refusal("decoder/*"), HasSubstr("with * for any text"));
}

}  // namespace
}  // namespace tilewright
