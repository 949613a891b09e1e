// Function libraries: files whose functions define operators of other models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

/// A model with the input x and the output y, which does not import the domain `local`.
onnx::ModelProto empty_model() {
    onnx::ModelProto m = new_model();
    add_input(*m.mutable_graph(), "x", {4});
    add_output(*m.mutable_graph(), "y", {4});
    return m;
}

onnx::NodeProto& local(onnx::NodeProto& n) {
    n.set_domain("local");
    return n;
}

/// y = local.F(x)
onnx::ModelProto calling_model() {
    onnx::ModelProto m = empty_model();
    local(add_node(*m.mutable_graph(), "F", {"x"}, {"y"}, "call"));
    return m;
}

/// A file with nothing but the function local.NAME, which is one node.
onnx::ModelProto library_of(const std::string& name, const std::string& op) {
    onnx::ModelProto m;
    add_node(add_function(m, "local", name, {"v"}, {"r"}), op, {"v"}, {"r"}, "n");
    return m;
}

FunctionLibrary named(const onnx::ModelProto& m, const std::string& name = "lib.onnx") {
    return {name, to_bytes(m), {}};
}

Graph import(const onnx::ModelProto& m, const std::vector<FunctionLibrary>& libraries,
             const ImportLimits& limits = {}) {
    const std::string bytes = to_bytes(m);
    const Model model = load_model_from_bytes(bytes.data(), bytes.size(), {}, limits, libraries);
    EXPECT_THAT(model.graph.verify(), SizeIs(0));
    return model.graph;
}

std::string error_of(const onnx::ModelProto& m, const std::vector<FunctionLibrary>& libraries,
                     const ImportLimits& limits = {}) {
    try {
        import(m, libraries, limits);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "no error";
}

std::string operators(const Graph& g) {
    std::string s;
    for (const Node& n : g.nodes) s += n.name + " " + n.op + "@" + std::to_string(n.opset) + "; ";
    return s;
}

TEST(FunctionLibrary, DefinesOperatorsOfAModel) {
    EXPECT_EQ(operators(import(calling_model(), {named(library_of("F", "Neg"))})), "call/n Neg@13; ");
}

TEST(FunctionLibrary, MayCallFunctionsOfOtherFiles) {
    onnx::ModelProto m = calling_model();
    add_node(add_function(m, "local", "H", {"v"}, {"r"}), "Abs", {"v"}, {"r"}, "h");
    onnx::ModelProto f, g;
    local(add_node(add_function(f, "local", "F", {"v"}, {"r"}), "G", {"v"}, {"r"}, "g"));
    local(add_node(add_function(g, "local", "G", {"v"}, {"r"}), "H", {"v"}, {"r"}, "h"));
    EXPECT_EQ(operators(import(m, {named(f), named(g, "other.onnx")})), "call/g/h/h Abs@13; ");
}

TEST(FunctionLibrary, YieldsToTheModelsOwnFunctions) {
    onnx::ModelProto m = calling_model();
    add_node(add_function(m, "local", "F", {"v"}, {"r"}), "Abs", {"v"}, {"r"}, "own");
    EXPECT_EQ(operators(import(m, {named(library_of("F", "Neg"))})), "call/own Abs@13; ");
}

TEST(FunctionLibrary, MustNotDefineWhatAnotherDefines) {
    EXPECT_EQ(error_of(calling_model(), {named(library_of("F", "Neg")), named(library_of("F", "Abs"), "other.onnx")}),
              "<memory>: function 'local.F' of 'other.onnx' is defined by 'lib.onnx' too");
    onnx::ModelProto twice = library_of("F", "Neg");
    *twice.add_functions() = twice.functions(0);
    EXPECT_EQ(error_of(calling_model(), {named(twice)}), "<memory>: function 'local.F' of 'lib.onnx' is defined twice");
}

TEST(FunctionLibrary, ImportsOperatorSetsForItsFunctions) {
    onnx::ModelProto library = library_of("F", "Neg");
    library.mutable_functions(0)->clear_opset_import();
    library.add_opset_import()->set_version(11);
    EXPECT_EQ(operators(import(calling_model(), {named(library)})), "call/n Neg@11; ");
}

TEST(FunctionLibrary, CountsForItsFunctionsAlone) {
    onnx::ModelProto library = relu_model();  // its graph is not looked at
    add_initializer(*library.mutable_graph(), "w", {2}, {1, 2});
    add_node(add_function(library, "local", "F", {"v"}, {"r"}), "Neg", {"v"}, {"r"}, "n");
    const Graph g = import(calling_model(), {named(library)});
    EXPECT_EQ(operators(g), "call/n Neg@13; ");
    EXPECT_THAT(g.initializers, SizeIs(0));
}

TEST(FunctionLibrary, IsNamedInErrors) {
    EXPECT_EQ(error_of(calling_model(), {named(relu_model())}), "lib.onnx: the file defines no functions");
    EXPECT_EQ(error_of(calling_model(), {{"lib.onnx", "", {}}}), "lib.onnx: the file is empty");
    EXPECT_THAT(error_of(calling_model(), {{"lib.onnx", "PK\3\4", {}}}), HasSubstr("lib.onnx: the file is a ZIP"));
    onnx::ModelProto broken = library_of("F", "Neg");
    broken.mutable_functions(0)->mutable_node(0)->set_input(0, "x");  // a name of the caller
    EXPECT_EQ(error_of(calling_model(), {named(broken)}),
              "<memory>: node 'call/n' (Neg, opset 13) in function 'local.F' of 'lib.onnx' reads 'x', which no node, "
              "input or initialiser defines");
    const TemporaryFolder folder;
    EXPECT_THROW(read_function_library(folder / "none.onnx"), RuntimeError);
    EXPECT_THROW(read_function_library(folder.path()), RuntimeError);
}

TEST(FunctionLibrary, IsRefusedWhereItIsDamaged) {
    const std::string whole = to_bytes(library_of("F", "Neg")), model = to_bytes(calling_model());
    const auto survives = [&](const std::string& bytes) {
        try {
            load_model_from_bytes(model.data(), model.size(), {}, {}, {{"lib.onnx", bytes, {}}});
        } catch (const ModelError& e) {
            EXPECT_NE(std::string(e.what()), "");
        }
    };
    for (size_t n = 0; n < whole.size(); ++n) survives(whole.substr(0, n));
    for (size_t n = 0; n < whole.size(); ++n)
        for (const int bit : {1, 8, 128}) {
            std::string flipped = whole;
            flipped[n] = static_cast<char>(flipped[n] ^ bit);
            survives(flipped);
        }
}

TEST(FunctionLibrary, HasTheModelsBudget) {
    onnx::ModelProto library = library_of("F0", "Neg");
    for (int i = 1; i <= 20; ++i) {
        onnx::FunctionProto& f = add_function(library, "local", "F" + std::to_string(i), {"v"}, {"r"});
        local(add_node(f, "F" + std::to_string(i - 1), {"v"}, {"t"}, "a"));
        local(add_node(f, "F" + std::to_string(i - 1), {"t"}, {"r"}, "b"));
    }
    onnx::ModelProto m = calling_model();
    m.mutable_graph()->mutable_node(0)->set_op_type("F20");
    ImportLimits limits;
    limits.max_nodes = 10'000;
    EXPECT_THAT(error_of(m, {named(library)}, limits),
                HasSubstr("more than 10000 nodes after its functions are expanded"));
    limits = {};
    limits.max_expanded_bytes = 100'000;
    EXPECT_THAT(error_of(m, {named(library)}, limits), HasSubstr("more than 100000 bytes larger"));
    onnx::ModelProto f = library_of("F", "Neg"), g = library_of("G", "Neg");
    local(*f.mutable_functions(0)->mutable_node(0)).set_op_type("G");
    local(*g.mutable_functions(0)->mutable_node(0)).set_op_type("F");
    EXPECT_THAT(error_of(calling_model(), {named(f), named(g, "other.onnx")}),
                AllOf(HasSubstr("function 'local.F' of 'lib.onnx' calls itself"), HasSubstr("of 'other.onnx'")));
}

TEST(FunctionLibrary, HasItsExternalDataInItsOwnFolder) {
    onnx::ModelProto library;
    onnx::FunctionProto& f = add_function(library, "local", "F", {"v"}, {"r"});
    onnx::AttributeProto& a = add_attribute(add_node(f, "Constant", {}, {"c"}, "w"), "value");
    a.set_type(onnx::AttributeProto::TENSOR);
    onnx::TensorProto& t = *a.mutable_t();
    t.set_data_type(1);
    t.add_dims(1);
    t.set_data_location(onnx::TensorProto::EXTERNAL);
    auto& location = *t.add_external_data();
    location.set_key("location");
    location.set_value("w.bin");
    add_node(f, "Add", {"v", "c"}, {"r"}, "add");
    const TemporaryFolder models, libraries;
    libraries.write("w.bin", std::string("\0\0\x80\x3f", 4));
    const std::string path = models.write("model.onnx", to_bytes(calling_model()));
    const std::string functions = libraries.write("lib.onnx", to_bytes(library));
    const Model model = load_model(path, {}, {read_function_library(functions)});
    EXPECT_TRUE(model.external_data);
    EXPECT_EQ(model.graph.nodes[0].attr_tensor("value")->get(0), 1);
    EXPECT_THAT(error_of(calling_model(), {named(library)}), HasSubstr("w.bin")) << "bytes have no folder";
}

}  // namespace
}  // namespace tilewright
