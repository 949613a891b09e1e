// The import of well-formed files.

#include "graph/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using namespace import_test;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

template <class E, class F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const E& e) {
        return e.what();
    }
    ADD_FAILURE() << "no such error";
    return "";
}

std::vector<std::string> node_names(const Graph& g) {
    std::vector<std::string> names;
    for (const Node& n : g.nodes) names.push_back(n.name);
    return names;
}

onnx::GraphProto& add_subgraph(onnx::NodeProto& n, const std::string& name) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_type(onnx::AttributeProto::GRAPH);
    return *a.mutable_g();
}

TEST(Import, ReadsAFile) {
    const TemporaryFolder folder;
    const std::string path = folder.write("relu.onnx", to_bytes(relu_model()));
    const Model m = load_model(path);
    EXPECT_EQ(m.path, path);
    EXPECT_EQ(m.producer, "test");
    EXPECT_EQ(m.ir_version, 8);
    EXPECT_THAT(m.opsets, ElementsAre(Pair("", 13)));
    EXPECT_EQ(m.graph.print(), R"(graph g {
  input x: f32[2, 3]
  (y) = Relu@13(x)  # act
  output y: f32[2, 3]
}
)");
}

TEST(Import, ReadsWhatTheFileSaysAboutTheModel) {
    onnx::ModelProto m = relu_model();
    m.set_domain("org.example");
    m.set_doc_string("two lines");
    m.set_model_version(3);
    m.mutable_graph()->set_doc_string("of the graph");
    for (const char* key : {"author", "labels"}) {
        onnx::StringStringEntryProto* entry = m.add_metadata_props();
        entry->set_key(key);
        entry->set_value(std::string("some ") + key);
    }
    const std::string bytes = to_bytes(m);
    const ModelInfo info = load_model_from_bytes(bytes.data(), bytes.size()).info;
    EXPECT_EQ(info.producer, "test");
    EXPECT_EQ(info.graph_name, "g");
    EXPECT_EQ(info.domain, "org.example");
    EXPECT_EQ(info.description, "two lines");
    EXPECT_EQ(info.graph_description, "of the graph");
    EXPECT_EQ(info.version, 3);
    EXPECT_THAT(info.metadata, ElementsAre(Pair("author", "some author"), Pair("labels", "some labels")));
}

TEST(Import, NamesAFileThatCannotBeOpened) {
    const TemporaryFolder folder;
    EXPECT_EQ(message_of<RuntimeError>([&] { load_model(folder / "none.onnx"); }),
              "cannot open " + folder / "none.onnx" + ": No such file or directory");
    EXPECT_EQ(message_of<RuntimeError>([&] { load_model(folder.path()); }),
              "cannot read " + folder.path() + ": it is a folder");
}

TEST(Import, RecognisesFilesThatAreNotModels) {
    const TemporaryFolder folder;
    const auto import_message = [&](const std::string& bytes) {
        const std::string path = folder.write("m.onnx", bytes);
        return message_of<ModelError>([&] { load_model(path); }).substr(path.size());
    };
    EXPECT_EQ(import_message(""), ": the file is empty");
    EXPECT_EQ(import_message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              ": the file is a Git LFS pointer, not the model itself");
    EXPECT_EQ(import_message("PK\3\4 and more"), ": the file is a ZIP archive, not an ONNX model");
    EXPECT_EQ(import_message(std::string("\x20\0\0\0ORTM....", 12)),
              ": the file is in ONNX Runtime's own format, not ONNX");
    EXPECT_EQ(import_message("just some text"),
              ": the file ends early, is damaged, or is not an ONNX model: 117 bytes should follow byte 2");
    EXPECT_EQ(import_message("<html><body>Not found</body></html>"),
              ": the file is damaged near byte 1, or is not an ONNX model");
    EXPECT_EQ(import_message(std::string("\x08\x08", 2)), ": the file is not an ONNX model: it has no graph");
}

TEST(Import, ReadsAPipe) {
    const TemporaryFolder folder;
    const std::string bytes = to_bytes(relu_model());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(ends[1]);
    EXPECT_THAT(load_model("/dev/fd/" + std::to_string(ends[0])).graph.nodes, SizeIs(1));
    close(ends[0]);
}

TEST(Import, AcceptsOldAndFutureVersions) {
    onnx::ModelProto m = relu_model();
    m.set_ir_version(3);
    EXPECT_EQ(import_model(m).ir_version, 3);
    m.set_ir_version(99);
    m.mutable_opset_import(0)->set_version(1000);
    EXPECT_EQ(import_model(m).graph.nodes[0].opset, 1000);
    m.set_ir_version(1);
    m.clear_opset_import();
    EXPECT_EQ(import_model(m).graph.nodes[0].opset, 1);
}

TEST(Import, IgnoresUnknownFields) {
    onnx::ModelProto m = relu_model();
    m.mutable_unknown_fields()->AddLengthDelimited(26, "a configuration");
    m.mutable_unknown_fields()->AddVarint(1000, 1);
    m.mutable_unknown_fields()->AddFixed32(1001, 1);
    m.mutable_unknown_fields()->AddFixed64(1002, 1);
    m.mutable_graph()->mutable_unknown_fields()->AddLengthDelimited(16, "metadata");
    add_unknown(*m.mutable_graph()->mutable_node(0), 9, "metadata");
    m.add_training_info()->mutable_algorithm()->add_node()->set_op_type("");
    EXPECT_THAT(import_model(m).graph.nodes, SizeIs(1));
}

TEST(Import, GivesEachNodeTheOpsetOfItsDomain) {
    onnx::ModelProto m = relu_model();
    m.mutable_opset_import(0)->set_domain("ai.onnx");
    auto& ml = *m.add_opset_import();
    ml.set_domain("ai.onnx.ml");
    ml.set_version(2);
    auto& unused = *m.add_opset_import();
    unused.set_domain("com.vendor");
    unused.set_version(1);
    m.mutable_graph()->mutable_node(0)->set_domain("ai.onnx");
    onnx::NodeProto& n = add_node(*m.mutable_graph(), "Scaler", {"x"}, {"z"});
    n.set_domain("ai.onnx.ml");
    const Model model = import_model(m);
    EXPECT_THAT(model.opsets, ElementsAre(Pair("", 13), Pair("ai.onnx.ml", 2), Pair("com.vendor", 1)));
    EXPECT_EQ(model.graph.nodes[0].domain, "");
    EXPECT_EQ(model.graph.nodes[0].opset, 13);
    EXPECT_EQ(model.graph.nodes[1].domain, "ai.onnx.ml");
    EXPECT_EQ(model.graph.nodes[1].opset, 2);
}

TEST(Import, RefusesAnOperatorOfADomainThatIsNotImported) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->mutable_node(0)->set_domain("com.vendor");
    EXPECT_EQ(
        import_error(m),
        "<memory>: node 'act' (com.vendor.Relu, opset 0) uses the operator set 'com.vendor', which the model does "
        "not import");
    m = relu_model();
    auto& again = *m.add_opset_import();
    again.set_domain("ai.onnx");
    again.set_version(9);
    EXPECT_EQ(import_error(m), "<memory>: the model imports the operator set 'ai.onnx' in the versions 13 and 9");
}

TEST(Import, GivesUnnamedNodesUniqueNames) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_node(g, "Neg", {"x"}, {"a"});
    add_node(g, "Neg", {"a"}, {"b"});
    add_node(g, "Abs", {"b"}, {"c"}, "Neg_1");  // names of the file take precedence over generated ones
    add_node(g, "Abs", {"c"}, {"d"}, "twice");
    add_node(g, "Abs", {"d"}, {"y"}, "twice");
    add_output(g, "y", {1});
    EXPECT_THAT(node_names(import_model(m).graph), ElementsAre("Neg_0", "Neg_1_2", "Neg_1", "twice", "twice_2"));
}

TEST(Import, SortsNodesAndKeepsAValidOrder) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_node(g, "Neg", {"b"}, {"y"}, "last");
    add_node(g, "Neg", {"x"}, {"a"}, "first");
    add_node(g, "Neg", {"x"}, {"unused"}, "other");
    add_node(g, "Neg", {"a"}, {"b"}, "middle");
    add_output(g, "y", {1});
    EXPECT_THAT(node_names(import_model(m).graph), ElementsAre("first", "other", "middle", "last"));
}

TEST(Import, SortsBySubgraphReadsToo) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_input(g, "cond", {}, 9);
    onnx::NodeProto& n = add_node(g, "If", {"cond"}, {"y"}, "if");
    onnx::GraphProto& then_branch = add_subgraph(n, "then_branch");
    onnx::GraphProto& inner = add_subgraph(add_node(then_branch, "If", {"cond"}, {"r"}, "inner"), "then_branch");
    add_node(inner, "Neg", {"late"}, {"s"});
    add_output(inner, "s");
    add_output(then_branch, "r");
    add_output(add_subgraph(n, "else_branch"), "late");  // an outer value as a branch's result
    add_node(g, "Neg", {"x"}, {"late"}, "late");
    add_output(g, "y", {1});
    EXPECT_THAT(node_names(import_model(m).graph), ElementsAre("late", "if"));
}

TEST(Import, LeavesOutInputsThatAreInitializers) {
    onnx::ModelProto m = new_model();
    m.set_ir_version(3);
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "w", {1});
    add_input(g, "x", {1});
    add_initializer(g, "w", {1}, {5});
    add_node(g, "Add", {"x", "w"}, {"y"});
    add_output(g, "y", {1});
    const Graph graph = import_model(m).graph;
    ASSERT_THAT(graph.inputs, SizeIs(1));
    EXPECT_EQ(graph.inputs[0].name, "x");
    EXPECT_EQ(graph.initializers.at("w").get(0), 5);
}

TEST(Import, BindsSubgraphInputsByPosition) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    onnx::GraphProto& body = add_subgraph(add_node(g, "Loop", {"", "", "x"}, {"y"}, "loop"), "body");
    body.set_name("body");
    for (const char* name : {"i", "c", "s", "w"}) add_input(body, name, {1});
    add_initializer(body, "w", {1}, {1});
    add_node(body, "Identity", {"c"}, {"c2"});
    add_node(body, "Add", {"s", "w"}, {"s2"});
    add_output(body, "c2");
    add_output(body, "s2");
    add_output(g, "y", {1});
    EXPECT_EQ(import_error(m), "<memory>: subgraph 'body': its input 'w' is an initialiser too");
    m.set_ir_version(3);
    EXPECT_THAT(import_model(m).graph.nodes[0].attr_graph("body")->inputs, SizeIs(3));
    body.mutable_input()->SwapElements(2, 3);
    EXPECT_EQ(import_error(m), "<memory>: subgraph 'body': its input 's' comes after initialisers");
}

TEST(Import, RenamesShadowingNames) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_input(g, "cond", {}, 9);
    onnx::NodeProto& n = add_node(g, "If", {"cond"}, {"y"}, "if");
    for (const char* branch : {"then_branch", "else_branch"}) {
        onnx::GraphProto& sub = add_subgraph(n, branch);
        add_node(sub, "Neg", {"x"}, {"z"});  // also defined outside, after the If
        add_node(sub, "Abs", {"z"}, {"r"});  // the same name in both branches: their scopes are separate
        add_output(sub, "r");
    }
    add_node(g, "Neg", {"y"}, {"z"});
    add_output(g, "z", {1});
    const Graph graph = import_model(m).graph;
    const Graph& then_branch = *graph.nodes[0].attr_graph("then_branch");
    EXPECT_THAT(then_branch.nodes[0].outputs, ElementsAre("z_2"));
    EXPECT_THAT(then_branch.nodes[1].inputs, ElementsAre("z_2"));
    EXPECT_THAT(then_branch.nodes[1].outputs, ElementsAre("r"));
    EXPECT_THAT(graph.nodes[0].attr_graph("else_branch")->nodes[0].outputs, ElementsAre("z_3"));
}

TEST(Import, ReadsDeclaredDimensions) {
    onnx::ModelProto m = relu_model();
    auto& shape = *m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    shape.clear_dim();
    for (const char* text : {"batch", "-1", "", "?", "34", "None"}) shape.add_dim()->set_dim_param(text);
    for (int64_t number : {0, 7, -1}) shape.add_dim()->set_dim_value(number);
    shape.add_dim();
    const Graph g = import_model(m).graph;
    const DeclaredDim unknown;
    EXPECT_THAT(*g.inputs[0].type.shape,
                ElementsAre(DeclaredDim("batch"), unknown, unknown, unknown, DeclaredDim("34"), unknown,
                            DeclaredDim(int64_t{0}), DeclaredDim(int64_t{7}), unknown, unknown));
}

TEST(Import, DistinguishesAnUnknownRankFromAScalar) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    m.mutable_graph()->mutable_output(0)->clear_type();
    const Graph g = import_model(m).graph;
    EXPECT_FALSE(g.inputs[0].type.shape.has_value());
    EXPECT_TRUE(g.inputs[0].type.has_dtype);
    EXPECT_FALSE(g.outputs[0].type.has_dtype);
}

TEST(Import, ReadsContainersAndNamesUnsupportedTypes) {
    onnx::ModelProto m = relu_model();
    const auto add = [&](const char* name) -> onnx::TypeProto& {
        onnx::ValueInfoProto& v = *m.mutable_graph()->add_input();
        v.set_name(name);
        return *v.mutable_type();
    };
    add("sequence").mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(7);
    add("optional").mutable_optional_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
    add("both")
        .mutable_optional_type()
        ->mutable_elem_type()
        ->mutable_sequence_type()
        ->mutable_elem_type()
        ->mutable_tensor_type()
        ->set_elem_type(1);
    add("string").mutable_tensor_type()->set_elem_type(8);
    add("complex").mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(14);
    add("map").mutable_map_type()->set_key_type(7);
    add("sparse").mutable_sparse_tensor_type()->set_elem_type(1);
    add("new").mutable_tensor_type()->set_elem_type(77);
    std::string print = import_model(m).graph.print();
    print = print.substr(0, print.find("  (y)"));
    EXPECT_EQ(print, R"(graph g {
  input x: f32[2, 3]
  input sequence: sequence(i64[...])
  input optional: optional(f32[...])
  input both: optional(sequence(f32[...]))
  input string: unsupported(string)
  input complex: unsupported(complex64)
  input map: unsupported(map)
  input sparse: unsupported(sparse tensor)
  input new: unsupported(data type 77)
)");
}

TEST(Import, KeepsTypesOfIntermediateValuesOnly) {
    onnx::ModelProto m = relu_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_node(g, "Neg", {"y"}, {"z"});
    for (const char* name : {"x", "z", "unused"}) {
        onnx::ValueInfoProto& v = *g.add_value_info();
        v.set_name(name);
        v.mutable_type()->mutable_tensor_type()->set_elem_type(1);
    }
    EXPECT_THAT(import_model(m).graph.value_info, ElementsAre(Pair("z", testing::_)));
}

TEST(Import, RefusesUnsupportedConstantsOnlyIfRead) {
    onnx::ModelProto m = relu_model();
    onnx::GraphProto& g = *m.mutable_graph();
    onnx::TensorProto& labels = *g.add_initializer();
    labels.set_name("labels");
    labels.set_data_type(8);
    labels.add_dims(1);
    labels.add_string_data("cat");
    onnx::AttributeProto& value = add_attribute(add_node(g, "Constant", {}, {"c"}), "value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(14);
    const Graph graph = import_model(m).graph;
    EXPECT_THAT(graph.initializers, IsEmpty());
    EXPECT_THAT(node_names(graph), ElementsAre("act"));

    onnx::NodeProto& reader = add_node(g, "Gather", {"labels", "x"}, {"z"}, "read");
    EXPECT_EQ(import_error(m),
              "<memory>: node 'read' (Gather, opset 13) reads 'labels', a constant of type string, which is "
              "not supported");
    reader.set_input(0, "c");
    EXPECT_EQ(import_error(m),
              "<memory>: node 'read' (Gather, opset 13) reads 'c', a constant of type complex64, which is "
              "not supported");
    g.mutable_node()->RemoveLast();
    add_output(g, "labels");
    EXPECT_EQ(import_error(m), "<memory>: graph output 'labels' is a constant of type string, which is not supported");
}

TEST(Import, ReadsEveryKindOfAttribute) {
    onnx::ModelProto m = relu_model();
    onnx::NodeProto& n = *m.mutable_graph()->mutable_node(0);
    add_attribute(n, "i").set_i(-3);
    add_attribute(n, "f").set_f(0.5f);
    add_attribute(n, "s").set_s(std::string("a\0b", 3));
    add_attribute(n, "is").add_ints(4);
    add_attribute(n, "fs").add_floats(1.5f);
    add_attribute(n, "ss").add_strings("x");
    onnx::TensorProto& t = *add_attribute(n, "t").mutable_t();
    t.set_data_type(7);
    t.add_int64_data(9);
    *add_attribute(n, "ts").add_tensors() = t;
    onnx::SparseTensorProto& sparse = *add_attribute(n, "sparse").mutable_sparse_tensor();
    n.mutable_attribute()->rbegin()->set_type(onnx::AttributeProto::SPARSE_TENSOR);
    sparse.mutable_values()->set_data_type(1);
    sparse.mutable_values()->add_dims(0);
    sparse.add_dims(2);
    add_attribute(n, "empty").set_type(onnx::AttributeProto::INTS);
    const Model model = import_model(m);
    const Node& node = model.graph.nodes[0];
    // All but two have no `type` field, as in old files: their type follows from the field that is set.
    EXPECT_EQ(node.attr_int("i", 0), -3);
    EXPECT_EQ(node.attr_float("f", 0), 0.5f);
    EXPECT_EQ(node.attr_string("s", ""), std::string("a\0b", 3));
    EXPECT_THAT(node.attr_ints("is", {}), ElementsAre(4));
    EXPECT_THAT(node.attr_floats("fs", {}), ElementsAre(1.5f));
    EXPECT_THAT(node.attr_strings("ss", {}), ElementsAre("x"));
    EXPECT_EQ(node.attr_tensor("t")->get_int(0), 9);
    EXPECT_THAT(std::get<std::vector<Tensor>>(node.attributes.at("ts")), SizeIs(1));
    EXPECT_EQ(*node.attr_tensor("sparse"), Tensor(DType::F32, {2}));
    EXPECT_THAT(node.attr_ints("empty", {1}), IsEmpty());
}

TEST(Import, AlignsLargeInitializers) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->set_name("shifts what follows by an odd number");
    std::vector<float> values(5000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    add_initializer(*m.mutable_graph(), "w", {50, 100}, values);
    const Graph g = import_model(m).graph;
    const Tensor& w = g.initializers.at("w");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.data()) % 64, 0u);
    EXPECT_EQ(w.as<float>()[4999], 4999);
}

TEST(Import, MergesRepeatedMessages) {
    // Protobuf merges repeated occurrences of a message: appended bytes extend the model.
    onnx::ModelProto more;
    add_initializer(*more.mutable_graph(), "w", {1}, {4});
    add_node(*more.mutable_graph(), "Add", {"y", "w"}, {"z"}, "added");
    add_output(*more.mutable_graph(), "z", {});
    const std::string bytes = to_bytes(relu_model()) + to_bytes(more);
    const Model m = load_model_from_bytes(bytes.data(), bytes.size());
    EXPECT_THAT(node_names(m.graph), ElementsAre("act", "added"));
    EXPECT_THAT(m.graph.outputs, SizeIs(2));
}

TEST(Import, ReadsEverySample) {
    const TemporaryFolder folder;
    folder.write("data.bin", std::string(32, '\0'));
    for (const auto& [name, m] : sample_models()) {
        SCOPED_TRACE(name);
        EXPECT_FALSE(import_model(m, {}, folder.path()).graph.print().empty());
    }
}

}  // namespace
}  // namespace tilewright
