// Models written back, and parts of models.

#include "graph/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/import.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

Model reimported(const Model& m) {
    const std::string bytes = model_to_bytes(m);
    return load_model_from_bytes(bytes.data(), bytes.size());
}

TEST(Export, GivesBackWhatTheImporterReads) {
    for (const auto& [name, proto] : import_test::sample_models()) {
        const std::string bytes = import_test::to_bytes(proto);
        Model m;
        try {
            m = load_model_from_bytes(bytes.data(), bytes.size());
        } catch (const ModelError&) {
            continue;  // external data
        }
        EXPECT_EQ(reimported(m).graph.print(), m.graph.print()) << name;
    }
}

/// x -> a -> b -> c, and y = c + a; w is an initialiser of b.
Model diamond() {
    onnx::ModelProto m = import_test::new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    import_test::add_input(g, "x", {2});
    import_test::add_initializer(g, "w", {2}, {1, 2});
    import_test::add_node(g, "Relu", {"x"}, {"a"}, "first");
    import_test::add_node(g, "Add", {"a", "w"}, {"b"}, "second");
    import_test::add_node(g, "Neg", {"b"}, {"c"}, "third");
    import_test::add_node(g, "Add", {"c", "a"}, {"y"}, "last");
    import_test::add_output(g, "y", {2});
    return import_test::import_model(m);
}

std::vector<std::string> nodes_of(const Model& m) {
    std::vector<std::string> names;
    for (const Node& n : m.graph.nodes) names.push_back(n.name);
    return names;
}

const std::map<std::string, DeclaredType> kAll = [] {
    std::map<std::string, DeclaredType> types;
    for (const char* name : {"x", "a", "b", "c", "y"}) types[name] = declared_type(Tensor(DType::F32, {2}));
    return types;
}();

TEST(Submodel, HasTheNodesThatAreNamedAndReadsTheOthersResults) {
    const Submodel part = submodel(diamond(), {"second", "third"}, {{"c", kAll.at("c")}}, kAll);
    EXPECT_THAT(nodes_of(part.model), ElementsAre("second", "third"));
    EXPECT_THAT(part.inputs, ElementsAre("a"));
    EXPECT_EQ(part.model.graph.initializers.count("w"), 1u);
    EXPECT_EQ(reimported(part.model).graph.print(), part.model.graph.print());
}

TEST(Submodel, ReachesBackToWhatIsKnown) {
    auto known = kAll;
    known.erase("a");
    const Submodel part = submodel(diamond(), {"last"}, {{"y", kAll.at("y")}}, known);
    EXPECT_THAT(nodes_of(part.model), ElementsAre("first", "last"));
    EXPECT_THAT(part.inputs, UnorderedElementsAre("c", "x"));
    EXPECT_THROW(submodel(diamond(), {"last"}, {{"y", kAll.at("y")}}, {}), ModelError);
}

TEST(Submodel, ReadsWhatItsSubgraphsRead) {
    onnx::ModelProto m = import_test::new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    import_test::add_input(g, "condition", {}, 9);
    import_test::add_input(g, "x", {2});
    import_test::add_node(g, "Relu", {"x"}, {"a"}, "first");
    onnx::NodeProto& branch = import_test::add_node(g, "If", {"condition"}, {"y"}, "branch");
    for (const char* name : {"then_branch", "else_branch"}) {
        onnx::AttributeProto& body = import_test::add_attribute(branch, name);
        body.set_type(onnx::AttributeProto::GRAPH);
        body.mutable_g()->set_name(name);
        import_test::add_node(*body.mutable_g(), "Neg", {"a"}, {std::string(name) + "/r"}, std::string(name) + "/n");
        import_test::add_output(*body.mutable_g(), std::string(name) + "/r", {2});
    }
    import_test::add_output(g, "y", {2});
    const Model model = import_test::import_model(m);
    auto known = kAll;
    known["condition"] = declared_type(Tensor(DType::Bool, {}));
    const Submodel part = submodel(model, {"branch"}, {{"y", kAll.at("y")}}, known);
    EXPECT_THAT(part.inputs, UnorderedElementsAre("a", "condition"));
    EXPECT_EQ(reimported(part.model).graph.print(), part.model.graph.print());
}

}  // namespace
}  // namespace tilewright
