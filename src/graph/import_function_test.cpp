// Model-local functions: every call is replaced by the function's body.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using namespace import_test;
using testing::HasSubstr;
using testing::SizeIs;

/// A model with the input x, the output y, and the operator set 'local'.
onnx::ModelProto local_model() {
    onnx::ModelProto m = new_model();
    auto& import = *m.add_opset_import();
    import.set_domain("local");
    import.set_version(1);
    add_input(*m.mutable_graph(), "x", {4});
    add_output(*m.mutable_graph(), "y", {4});
    return m;
}

template <class Body>
onnx::NodeProto& add_call(Body& body, const std::string& function, const Names& inputs, const Names& outputs,
                          const std::string& name = "call") {
    onnx::NodeProto& n = add_node(body, function, inputs, outputs, name);
    n.set_domain("local");
    return n;
}

/// The lines of the printed graph that are nodes, without indentation.
std::string nodes_of(const onnx::ModelProto& m) {
    std::string out;
    const std::string print = import_model(m).graph.print();
    for (size_t begin = 0; begin < print.size();) {
        const size_t end = print.find('\n', begin);
        if (print.compare(begin, 3, "  (") == 0) out += print.substr(begin + 2, end - begin - 1);
        begin = end + 1;
    }
    return out;
}

TEST(FunctionImport, ReplacesCallsByTheBody) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "Double", {"v"}, {"r"});
    add_node(f, "Add", {"v", "v"}, {"sum"}, "add");
    add_node(f, "Identity", {"sum"}, {"r"});
    f.mutable_opset_import(0)->set_version(14);
    add_call(*m.mutable_graph(), "Double", {"x"}, {"t"}, "first");
    add_call(*m.mutable_graph(), "Double", {"t"}, {"y"}, "second");
    EXPECT_EQ(nodes_of(m),
              "(first/sum) = Add@14(x, x)  # first/add\n"
              "(t) = Identity@14(first/sum)  # first/Identity_1\n"
              "(second/sum) = Add@14(t, t)  # second/add\n"
              "(y) = Identity@14(second/sum)  # second/Identity_1\n");
}

TEST(FunctionImport, TakesAttributesFromTheCallOrTheDefault) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    f.add_attribute("alpha");
    f.add_attribute("gamma");
    onnx::AttributeProto beta;
    beta.set_name("beta");
    beta.set_type(onnx::AttributeProto::INTS);
    beta.add_ints(7);
    add_unknown(f, 11, beta.SerializeAsString());  // FunctionProto.attribute_proto
    onnx::NodeProto& inner = add_node(f, "Op", {"v"}, {"r"}, "op");
    add_reference(inner, "a", "alpha", onnx::AttributeProto::FLOAT);
    add_reference(inner, "b", "beta", onnx::AttributeProto::INTS);
    add_reference(inner, "c", "gamma", onnx::AttributeProto::INT);
    onnx::NodeProto& first = add_call(*m.mutable_graph(), "F", {"x"}, {"t"}, "first");
    add_attribute(first, "alpha").set_f(0.5f);
    onnx::NodeProto& second = add_call(*m.mutable_graph(), "F", {"t"}, {"y"}, "second");
    add_attribute(second, "alpha").set_f(1.5f);
    add_attribute(second, "beta").add_ints(8);
    EXPECT_EQ(nodes_of(m),
              "(t) = Op@13(x) {a=0.5, b=[7]}  # first/op\n"
              "(y) = Op@13(t) {a=1.5, b=[8]}  # second/op\n");
}

TEST(FunctionImport, PassesAttributesOnThroughNestedCalls) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& inner = add_function(m, "local", "Inner", {"v"}, {"r"});
    add_reference(add_node(inner, "Op", {"v"}, {"r"}, "op"), "value", "i", onnx::AttributeProto::INT);
    onnx::FunctionProto& outer = add_function(m, "local", "Outer", {"v"}, {"r"});
    add_reference(add_call(outer, "Inner", {"v"}, {"r"}, "in"), "i", "o", onnx::AttributeProto::INT);
    add_attribute(add_call(*m.mutable_graph(), "Outer", {"x"}, {"y"}, "out"), "o").set_i(42);
    EXPECT_EQ(nodes_of(m), "(y) = Op@13(x) {value=42}  # out/in/op\n");
}

TEST(FunctionImport, LeavesOutOptionalInputsAndOutputs) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"a", "b", "c"}, {"r", "s"});
    add_node(f, "Op", {"a", "b", "c"}, {"r", "s"}, "op");
    add_call(*m.mutable_graph(), "F", {"x", ""}, {"y"});
    EXPECT_EQ(nodes_of(m), "(y, call/s) = Op@13(x, _, _)  # call/op\n");
}

TEST(FunctionImport, CopiesOutputsThatAreInputsOrComeTwice) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"v", "r", "r"});
    add_node(f, "Neg", {"v"}, {"r"}, "neg");
    add_call(*m.mutable_graph(), "F", {"x"}, {"a", "b", "y"});
    EXPECT_EQ(nodes_of(m),
              "(b) = Neg@13(x)  # call/neg\n"
              "(a) = Identity@13(x)  # call/Identity\n"
              "(y) = Identity@13(b)  # call/Identity_2\n");
}

TEST(FunctionImport, ChoosesByOverload) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& plain = add_function(m, "local", "F", {"v"}, {"r"});
    add_node(plain, "Neg", {"v"}, {"r"}, "n");
    onnx::FunctionProto& other = add_function(m, "local", "F", {"v"}, {"r"});
    add_node(other, "Abs", {"v"}, {"r"}, "n");
    add_unknown(other, 13, "abs");  // FunctionProto.overload
    add_call(*m.mutable_graph(), "F", {"x"}, {"t"}, "one");
    add_unknown(add_call(*m.mutable_graph(), "F", {"t"}, {"y"}, "two"), 8, "abs");  // NodeProto.overload
    EXPECT_EQ(nodes_of(m), "(t) = Neg@13(x)  # one/n\n(y) = Abs@13(t)  # two/n\n");
}

TEST(FunctionImport, ReachesIntoSubgraphsOnBothSides) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"c", "v"}, {"r"});
    onnx::NodeProto& branch = add_node(f, "If", {"c"}, {"r"}, "if");
    for (const char* name : {"then_branch", "else_branch"}) {
        onnx::AttributeProto& a = add_attribute(branch, name);
        a.set_type(onnx::AttributeProto::GRAPH);
        a.mutable_g()->set_name(name);
        onnx::NodeProto& n = add_node(*a.mutable_g(), "Op", {"v"}, {"z"}, "op");
        add_reference(n, "k", "alpha", onnx::AttributeProto::INT);
        add_output(*a.mutable_g(), "z");
    }
    // The call is in a Loop's body.
    onnx::NodeProto& loop = add_node(*m.mutable_graph(), "Loop", {"", "", "x"}, {"y"}, "loop");
    onnx::AttributeProto& a = add_attribute(loop, "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto& body = *a.mutable_g();
    body.set_name("body");
    add_input(body, "i", {}, 7);
    add_input(body, "c", {}, 9);
    add_input(body, "s", {4});
    add_node(body, "Identity", {"c"}, {"c2"}, "go");
    add_attribute(add_call(body, "F", {"c", "s"}, {"s2"}), "alpha").set_i(3);
    add_output(body, "c2", {}, 9);
    add_output(body, "s2", {4});
    const Graph g = import_model(m).graph;
    EXPECT_EQ(g.nodes[0].attr_graph("body")->print(), R"(graph body {
  input i: i64[]
  input c: bool[]
  input s: f32[4]
  (c2) = Identity@13(c)  # go
  (s2) = If@13(c)  # call/if
    else_branch = graph else_branch {
      (call/z_2) = Op@13(s) {k=3}  # call/op_2
      output call/z_2: f32[]
    }
    then_branch = graph then_branch {
      (call/z) = Op@13(s) {k=3}  # call/op
      output call/z: f32[]
    }
  output c2: bool[]
  output s2: f32[4]
}
)");
}

TEST(FunctionImport, ResolvesAGraphAttributeInTheCallersScope) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"c"}, {"r"});
    add_node(f, "Neg", {"c"}, {"x"}, "hides");  // not the caller's x
    onnx::NodeProto& branch = add_node(f, "If", {"c"}, {"r"}, "if");
    add_reference(branch, "then_branch", "g", onnx::AttributeProto::GRAPH);
    add_reference(branch, "else_branch", "g", onnx::AttributeProto::GRAPH);
    onnx::AttributeProto& a = add_attribute(add_call(*m.mutable_graph(), "F", {"x"}, {"y"}), "g");
    a.set_type(onnx::AttributeProto::GRAPH);
    a.mutable_g()->set_name("given");
    add_initializer(*a.mutable_g(), "w", {1}, {5});
    add_node(*a.mutable_g(), "Add", {"x", "w"}, {"z"}, "add");
    add_output(*a.mutable_g(), "z");
    EXPECT_EQ(import_model(m).graph.print(), R"(graph g {
  input x: f32[4]
  (call/x) = Neg@13(x)  # call/hides
  (y) = If@13(x)  # call/if
    else_branch = graph given {
      initializer w: f32[1] {5}
      (z) = Add@13(x, w)  # add_2
      output z: f32[]
    }
    then_branch = graph given {
      initializer w: f32[1] {5}
      (z) = Add@13(x, w)  # add
      output z: f32[]
    }
  output y: f32[4]
}
)");
}

TEST(FunctionImport, SharesTensorsBetweenExpansions) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    onnx::AttributeProto& a = add_attribute(add_node(f, "Constant", {}, {"c"}, "const"), "value");
    a.set_type(onnx::AttributeProto::TENSOR);
    a.mutable_t()->set_data_type(1);
    a.mutable_t()->add_dims(2000);
    a.mutable_t()->set_raw_data(std::string(8000, '\0'));
    add_node(f, "Add", {"v", "c"}, {"r"}, "add");
    add_call(*m.mutable_graph(), "F", {"x"}, {"t"}, "one");
    add_call(*m.mutable_graph(), "F", {"t"}, {"y"}, "two");
    const Graph g = import_model(m).graph;
    ASSERT_THAT(g.nodes, SizeIs(4));
    EXPECT_EQ(g.nodes[0].attr_tensor("value")->data(), g.nodes[2].attr_tensor("value")->data());
}

TEST(FunctionImport, AvoidsNamesOfTheFile) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    add_node(f, "Neg", {"v"}, {"t"}, "n");
    add_node(f, "Neg", {"t"}, {"r"}, "o");
    add_initializer(*m.mutable_graph(), "call/t", {1}, {1});
    add_node(*m.mutable_graph(), "Neg", {"x"}, {"unused"}, "call/n");
    add_call(*m.mutable_graph(), "F", {"x"}, {"y"});
    EXPECT_EQ(nodes_of(m),
              "(unused) = Neg@13(x)  # call/n\n"
              "(call/t_2) = Neg@13(x)  # call/n_2\n"
              "(y) = Neg@13(call/t_2)  # call/o\n");
}

TEST(FunctionImport, MayHaveABodyOutOfOrder) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    add_node(f, "Abs", {"t"}, {"r"}, "second");
    add_node(f, "Neg", {"v"}, {"t"}, "first");
    add_call(*m.mutable_graph(), "F", {"x"}, {"y"});
    EXPECT_EQ(nodes_of(m), "(call/t) = Neg@13(x)  # call/first\n(y) = Abs@13(call/t)  # call/second\n");
}

TEST(FunctionImport, ChecksCallsAndBodies) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    onnx::NodeProto& body = add_node(f, "Neg", {"v"}, {"r"}, "n");
    onnx::NodeProto& call = add_call(*m.mutable_graph(), "F", {"x", "x"}, {"y"});
    EXPECT_EQ(
        import_error(m),
        "<memory>: node 'call' (local.F, opset 1) has 2 inputs and 1 outputs, and function 'local.F' has 1 and 1");
    call.mutable_input()->RemoveLast();
    body.set_input(0, "x");  // the caller's names are not visible in the function
    EXPECT_EQ(
        import_error(m),
        "<memory>: node 'call/n' (Neg, opset 13) in function 'local.F' reads 'x', which no node, input or initialiser "
        "defines");
    body.set_input(0, "v");
    body.set_output(0, "other");
    EXPECT_EQ(import_error(m), "<memory>: function 'local.F' does not define its output 'r'");
    body.set_output(0, "v");
    EXPECT_EQ(import_error(m), "<memory>: tensor 'v' is defined twice: by a function input and by node 'n' ('Neg')");
    body.set_output(0, "r");
    f.add_input("v");
    EXPECT_EQ(import_error(m), "<memory>: function 'local.F' has the input 'v' twice");
    f.mutable_input()->RemoveLast();
    add_attribute(call, "a").set_i(1);
    add_attribute(call, "a").set_i(2);
    EXPECT_EQ(import_error(m), "<memory>: node 'call' (local.F, opset 1) has the attribute 'a' twice");
    call.clear_attribute();
    *m.add_functions() = f;
    EXPECT_EQ(import_error(m), "<memory>: function 'local.F' is defined twice");
    m.mutable_functions()->RemoveLast();
    f.clear_opset_import();
    m.mutable_opset_import(0)->set_domain("other");
    EXPECT_EQ(
        import_error(m),
        "<memory>: node 'call/n' (Neg, opset 0) in function 'local.F' uses the operator set 'ai.onnx', which the model "
        "does not import");
}

TEST(FunctionImport, ReturnsNoInputThatTheCallLeavesOut) {
    onnx::ModelProto m = local_model();
    add_function(m, "local", "F", {"v"}, {"v"});
    add_call(*m.mutable_graph(), "F", {""}, {"y"});
    EXPECT_EQ(import_error(m), "<memory>: node 'call' (local.F, opset 1) leaves out 'v', which the function returns");
}

TEST(FunctionImport, ReturnsNoConstantThatIsNotSupported) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r", "s"});
    add_node(f, "Neg", {"v"}, {"r"}, "n");
    onnx::AttributeProto& a = add_attribute(add_node(f, "Constant", {}, {"s"}, "text"), "value");
    a.set_type(onnx::AttributeProto::TENSOR);
    a.mutable_t()->set_data_type(onnx::TensorProto::STRING);
    onnx::NodeProto& call = add_call(*m.mutable_graph(), "F", {"x"}, {"y"});
    EXPECT_EQ(nodes_of(m), "(y) = Neg@13(x)  # call/n\n");  // unused
    call.add_output("z");
    EXPECT_EQ(import_error(m),
              "<memory>: function 'local.F' returns 's', a constant of type string, which is not supported");
}

TEST(FunctionImport, RefusesAReferenceOutsideOfAFunction) {
    onnx::ModelProto m = relu_model();
    add_reference(*m.mutable_graph()->mutable_node(0), "a", "b", onnx::AttributeProto::INT);
    EXPECT_EQ(import_error(m),
              "<memory>: node 'act' (Relu, opset 13): attribute 'a' refers to 'b' of a function, outside of any");
}

TEST(FunctionImport, DetectsRecursion) {
    onnx::ModelProto m = local_model();
    add_call(add_function(m, "local", "F", {"v"}, {"r"}), "G", {"v"}, {"r"}, "to_g");
    add_call(add_function(m, "local", "G", {"v"}, {"r"}), "F", {"v"}, {"r"}, "to_f");
    add_call(*m.mutable_graph(), "F", {"x"}, {"y"});
    EXPECT_EQ(
        import_error(m),
        "<memory>: function 'local.F' calls itself, by node 'call/to_g/to_f' (local.F, opset 1) in function 'local.G'");
}

/// F0 is `leaf`; each further function calls the previous one twice.
onnx::ModelProto doubling_model(int levels, bool with_leaf) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& leaf = add_function(m, "local", "F0", {"v"}, {"v"});
    if (with_leaf) add_node(leaf, "Neg", {"v"}, {"unused"}, "n");
    for (int i = 1; i <= levels; ++i) {
        onnx::FunctionProto& f = add_function(m, "local", fmt::format("F{}", i), {"v"}, {"r"});
        add_call(f, fmt::format("F{}", i - 1), {"v"}, {"t"}, "a");
        add_call(f, fmt::format("F{}", i - 1), {"t"}, {"r"}, "b");
    }
    add_call(*m.mutable_graph(), fmt::format("F{}", levels), {"x"}, {"y"});
    return m;
}

TEST(FunctionImport, BoundsTheNodesOfAnExpansion) {
    ImportLimits limits;
    limits.max_nodes = 10'000;
    EXPECT_EQ(import_error(doubling_model(28, true), limits),
              "<memory>: the model has more than 10000 nodes after its functions are expanded");
    EXPECT_EQ(import_error(doubling_model(28, false), limits),
              "<memory>: the model has more than 10000 nodes after its functions are expanded");
    EXPECT_THAT(import_error(doubling_model(40, true)), HasSubstr("nests function calls more than 32 deep"));
    EXPECT_THAT(import_model(doubling_model(3, true)).graph.nodes, SizeIs(16));  // 8 times Neg and Identity
}

TEST(FunctionImport, BoundsTheBytesOfAnExpansion) {
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    add_attribute(add_node(f, "Op", {"v"}, {"r"}, "n"), "text").set_s(std::string(100'000, 'x'));
    for (int i = 0; i < 20; ++i)
        add_call(*m.mutable_graph(), "F", {"x"}, {i == 0 ? std::string("y") : fmt::format("t{}", i)},
                 fmt::format("c{}", i));
    ImportLimits limits;
    limits.max_expanded_bytes = 1'000'000;
    EXPECT_EQ(import_error(m, limits),
              "<memory>: expanding functions and sparse tensors makes the model more than 1000000 bytes larger than "
              "its file");
    limits.max_expanded_bytes = 3'000'000;
    EXPECT_THAT(import_model(m, limits).graph.nodes, SizeIs(20));
}

TEST(FunctionImport, BoundsTheDeclarationsOfAnExpansion) {
    // One node whose subgraph has very many outputs, a few bytes each in the file.
    onnx::ModelProto m = local_model();
    onnx::FunctionProto& f = add_function(m, "local", "F", {"v"}, {"r"});
    onnx::AttributeProto& a = add_attribute(add_node(f, "If", {"v"}, {"r"}, "n"), "then_branch");
    a.set_type(onnx::AttributeProto::GRAPH);
    for (int i = 0; i < 10'000; ++i) a.mutable_g()->add_output()->set_name("v");
    for (int i = 0; i < 20; ++i)
        add_call(*m.mutable_graph(), "F", {"x"}, {i == 0 ? std::string("y") : fmt::format("t{}", i)},
                 fmt::format("c{}", i));
    ImportLimits limits;
    limits.max_expanded_bytes = 10'000'000;
    EXPECT_THAT(import_error(m, limits), HasSubstr("makes the model more than 10000000 bytes larger than its file"));
}

TEST(FunctionImport, KeepsNamesOfDeepNestsShort) {
    onnx::ModelProto m = local_model();
    const std::string base(150, 'n');
    add_node(add_function(m, "local", "F0", {"v"}, {"r"}), "Neg", {"v"}, {"r"}, base);
    for (int i = 1; i <= 20; ++i) {
        onnx::FunctionProto& f = add_function(m, "local", fmt::format("F{}", i), {"v"}, {"r"});
        add_call(f, fmt::format("F{}", i - 1), {"v"}, {"r"}, base);
    }
    add_call(*m.mutable_graph(), "F20", {"x"}, {"y"});
    EXPECT_LT(import_model(m).graph.nodes[0].name.size(), 250u);
}

}  // namespace
}  // namespace tilewright
