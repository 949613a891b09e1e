// Hostile and damaged files: an error with the place in the file; never a crash, and never much memory.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using namespace import_test;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// The error for arbitrary bytes; empty if they are a valid model.
std::string error_for_bytes(const std::string& bytes, const std::string& folder = {}) {
    try {
        const Model m = load_model_from_bytes(bytes.data(), bytes.size(), folder);
        for (const std::string& problem : m.graph.verify()) ADD_FAILURE() << problem;
        m.graph.print();
    } catch (const ModelError& e) {
        return e.what();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "";
}

TEST(MalformedModel, TruncatedAtEveryLengthIsAnError) {
    for (const auto& [name, m] : sample_models()) {
        SCOPED_TRACE(name);
        if (name == "external") continue;
        const std::string bytes = to_bytes(m);
        EXPECT_EQ(error_for_bytes(""), "<memory>: the file is empty");
        for (size_t length = 1; length < bytes.size(); ++length) {
            const std::string error = error_for_bytes(bytes.substr(0, length));
            // Functions come last in a file: a file that is truncated between two of them is valid, without the others.
            onnx::ModelProto whole;
            if (error.empty() && whole.ParsePartialFromString(bytes.substr(0, length)) &&
                whole.functions_size() < m.functions_size())
                continue;
            EXPECT_THAT(error, AnyOf(HasSubstr("the file ends early"), HasSubstr("damaged"),
                                     HasSubstr("the file is not an ONNX model"), HasSubstr("does not import")))
                << length;
        }
        EXPECT_EQ(error_for_bytes(bytes), "");
    }
}

TEST(MalformedModel, OtherKindsOfFilesAreNamedInMemoryToo) {
    EXPECT_EQ(error_for_bytes("PK\3\4"), "<memory>: the file is a ZIP archive, not an ONNX model");
}

TEST(MalformedModel, ChangedBytesAreAnErrorOrAModel) {
    const TemporaryFolder folder;
    folder.write("data.bin", std::string(64, '\1'));
    const auto samples = sample_models();
    rc::check("any bytes of a sample changed", [&] {
        std::string bytes = to_bytes(samples[*rc::gen::inRange<size_t>(0, samples.size())].second);
        const int changes = *rc::gen::inRange(1, 5);
        for (int i = 0; i < changes; ++i)
            bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
        error_for_bytes(bytes, folder.path());
    });
}

TEST(MalformedModel, CycleIsNamed) {
    onnx::ModelProto m = relu_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_node(g, "Add", {"x", "c"}, {"a"}, "A");
    add_node(g, "Neg", {"a"}, {"b"}, "B");
    add_node(g, "Abs", {"b"}, {"c"}, "C");
    add_node(g, "Abs", {"c"}, {"d"}, "after");
    EXPECT_EQ(import_error(m),
              "<memory>: the graph has a cycle: node 'A' (Add, opset 13) -> node 'B' (Neg, opset 13) -> "
              "node 'C' (Abs, opset 13) -> node 'A' (Add, opset 13)");
}

TEST(MalformedModel, NodeThatReadsItselfIsACycle) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->mutable_node(0)->set_input(0, "y");
    EXPECT_EQ(import_error(m),
              "<memory>: the graph has a cycle: node 'act' (Relu, opset 13) -> node 'act' (Relu, opset 13)");
}

TEST(MalformedModel, CycleThroughASubgraphIsNamed) {
    onnx::ModelProto m = relu_model();
    onnx::NodeProto& n = *m.mutable_graph()->mutable_node(0);
    onnx::AttributeProto& a = add_attribute(n, "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    add_node(*a.mutable_g(), "Neg", {"y"}, {"z"});
    EXPECT_EQ(import_error(m),
              "<memory>: the graph has a cycle: node 'act' (Relu, opset 13) -> node 'act' (Relu, opset 13)");
}

TEST(MalformedModel, LongCycleIsCut) {
    onnx::ModelProto m = relu_model();
    for (int i = 0; i < 1000; ++i)
        add_node(*m.mutable_graph(), "Neg", {fmt::format("t{}", (i + 999) % 1000)}, {fmt::format("t{}", i)});
    EXPECT_THAT(import_error(m), EndsWith("-> 992 more -> node 'Neg_1' (Neg, opset 13)"));
}

TEST(MalformedModel, UndefinedNamesAreNamed) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->mutable_node(0)->set_input(0, "nowhere");
    EXPECT_EQ(import_error(m),
              "<memory>: node 'act' (Relu, opset 13) reads 'nowhere', which no node, input or initialiser defines");
    m = relu_model();
    add_output(*m.mutable_graph(), "z");
    EXPECT_EQ(import_error(m), "<memory>: graph output 'z' is defined by no node, input or initialiser");
    m.mutable_graph()->mutable_output(1)->set_name("");
    EXPECT_EQ(import_error(m), "<memory>: graph output '' is defined by no node, input or initialiser");
    m.mutable_graph()->clear_output();
    EXPECT_EQ(import_error(m), "<memory>: the graph declares no outputs");
}

TEST(MalformedModel, NamesOfASubgraphAreNotVisibleOutside) {
    onnx::ModelProto m = relu_model();
    onnx::AttributeProto& a = add_attribute(*m.mutable_graph()->mutable_node(0), "body");
    a.set_type(onnx::AttributeProto::GRAPH);
    add_node(*a.mutable_g(), "Neg", {"x"}, {"inside"});
    add_node(*m.mutable_graph(), "Neg", {"inside"}, {"z"}, "outside");
    EXPECT_EQ(import_error(m),
              "<memory>: node 'outside' (Neg, opset 13) reads 'inside', which no node, input or initialiser defines");
}

TEST(MalformedModel, SecondDefinitionsNameBothPlaces) {
    onnx::ModelProto m = relu_model();
    add_node(*m.mutable_graph(), "Neg", {"x"}, {"y"}, "other");
    EXPECT_EQ(import_error(m),
              "<memory>: tensor 'y' is defined twice: by node 'act' ('Relu') and by node 'other' ('Neg')");
    m = relu_model();
    add_input(*m.mutable_graph(), "x", {1});
    EXPECT_EQ(import_error(m), "<memory>: tensor 'x' is defined twice: by a graph input and by a graph input");
    m = relu_model();
    add_initializer(*m.mutable_graph(), "w", {1}, {1});
    add_initializer(*m.mutable_graph(), "w", {1}, {2});
    EXPECT_EQ(import_error(m), "<memory>: tensor 'w' is defined twice: by an initialiser and by an initialiser");
    m = relu_model();
    add_initializer(*m.mutable_graph(), "y", {1}, {1});
    EXPECT_EQ(import_error(m), "<memory>: tensor 'y' is defined twice: by an initialiser and by node 'act' ('Relu')");
    m = relu_model();
    m.mutable_graph()->mutable_node(0)->add_output("y");
    EXPECT_EQ(import_error(m),
              "<memory>: tensor 'y' is defined twice: by node 'act' ('Relu') and by node 'act' ('Relu')");
}

TEST(MalformedModel, MissingNamesAndTypesAreErrors) {
    onnx::ModelProto m = relu_model();
    add_initializer(*m.mutable_graph(), "", {1}, {1});
    EXPECT_EQ(import_error(m), "<memory>: an initialiser has an empty name");
    m = relu_model();
    add_input(*m.mutable_graph(), "", {1});
    EXPECT_EQ(import_error(m), "<memory>: a graph input has an empty name");
    m = relu_model();
    m.mutable_graph()->mutable_input(0)->clear_type();
    EXPECT_EQ(import_error(m), "<memory>: graph input 'x' declares no element type");
    m = relu_model();
    m.mutable_graph()->mutable_node(0)->clear_op_type();
    EXPECT_EQ(import_error(m), "<memory>: node 'act' at position 0 has no operator");
    m = relu_model();
    add_attribute(*m.mutable_graph()->mutable_node(0), "").set_i(1);
    EXPECT_EQ(import_error(m), "<memory>: node 'act' (Relu, opset 13) has an attribute without a name");
    m = relu_model();
    m.clear_opset_import();
    EXPECT_EQ(import_error(m),
              "<memory>: node 'act' (Relu, opset 0) uses the operator set 'ai.onnx', which the model does not import");
    m = relu_model();
    m.mutable_opset_import(0)->set_version(-5);
    EXPECT_THAT(import_error(m), HasSubstr("uses the operator set 'ai.onnx', which the model does not import"));
}

TEST(MalformedModel, UnsupportedAttributeKindsAreErrors) {
    onnx::ModelProto m = relu_model();
    onnx::AttributeProto& a = add_attribute(*m.mutable_graph()->mutable_node(0), "a");
    const std::string place = "<memory>: attribute 'a' of node 'act' (Relu, opset 13)";
    EXPECT_EQ(import_error(m), place + " holds a value of a kind that is not supported (UNDEFINED)");
    a.set_type(onnx::AttributeProto::GRAPHS);
    EXPECT_EQ(import_error(m), place + " holds a value of a kind that is not supported (GRAPHS)");
    a.set_type(onnx::AttributeProto::TENSOR);
    EXPECT_EQ(import_error(m), place + " is a tensor of type data type 0, which is not supported");
    a.set_type(onnx::AttributeProto::INT);
    *m.mutable_graph()->mutable_node(0)->add_attribute() = a;
    EXPECT_EQ(import_error(m), "<memory>: node 'act' (Relu, opset 13) has the attribute 'a' twice");
}

TEST(MalformedModel, DeclaredShapesMustBeCountable) {
    onnx::ModelProto m = relu_model();
    auto& shape = *m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    shape.mutable_dim(0)->set_dim_value(int64_t{1} << 40);
    shape.mutable_dim(1)->set_dim_value(int64_t{1} << 40);
    EXPECT_EQ(import_error(m), "<memory>: the declared shape of 'x' has more elements than can be counted");
}

/// If inside If inside If ..., nested `depth` times.
onnx::ModelProto nested_ifs(int depth) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto* g = m.mutable_graph();
    add_input(*g, "c", {}, 9);
    for (int i = 0; i < depth; ++i) {
        const std::string result = fmt::format("y{}", i);
        onnx::NodeProto& n = add_node(*g, "If", {"c"}, {result}, fmt::format("if{}", i));
        add_output(*g, result);
        onnx::AttributeProto& a = add_attribute(n, "then_branch");
        a.set_type(onnx::AttributeProto::GRAPH);
        g = a.mutable_g();
    }
    add_node(*g, "Neg", {"c"}, {"leaf"});
    add_output(*g, "leaf");
    return m;
}

TEST(MalformedModel, NestingIsLimited) {
    import_model(nested_ifs(32));
    EXPECT_EQ(import_error(nested_ifs(33)), "<memory>: node 'if32' (If, opset 13) nests subgraphs more than 32 deep");
    EXPECT_EQ(import_error(nested_ifs(1000)),
              "<memory>: a node at byte 16 is damaged, or nests subgraphs more than 32 deep");
    // Deeper than protobuf classes support without a deep stack, so built as bytes: lengths from the inside out.
    std::string node;
    const auto wrap = [](int field, const std::string& bytes) {
        std::string out(1, static_cast<char>(field << 3 | 2));
        for (size_t n = bytes.size();; n >>= 7) {
            out += static_cast<char>((n & 0x7F) | (n >= 0x80 ? 0x80 : 0));
            if (n < 0x80) break;
        }
        return out + bytes;
    };
    for (int i = 0; i < 2'000; ++i) node = wrap(5, wrap(6, wrap(1, node)));  // attribute { g { node } }
    EXPECT_THAT(error_for_bytes(wrap(7, wrap(1, node))), EndsWith("is damaged, or nests subgraphs more than 32 deep"));
    // Nested types are skipped without recursion.
    std::string type;
    for (int i = 0; i < 2'000; ++i) type = wrap(4, wrap(1, type));  // sequence_type { elem_type }
    EXPECT_THAT(error_for_bytes(wrap(7, wrap(11, wrap(2, type)))), HasSubstr("is damaged near byte"));
}

TEST(MalformedModel, DepthLimitIsConfigurable) {
    ImportLimits limits;
    limits.max_subgraph_depth = 200;
    import_model(nested_ifs(200), limits);
    limits.max_subgraph_depth = 2;
    EXPECT_EQ(import_error(nested_ifs(3), limits),
              "<memory>: node 'if2' (If, opset 13) nests subgraphs more than 2 deep");
}

TEST(MalformedModel, LimitOnNodesHoldsInAllGraphsTogether) {
    ImportLimits limits;
    limits.max_nodes = 3;
    import_model(nested_ifs(2), limits);
    EXPECT_EQ(import_error(nested_ifs(3), limits),
              "<memory>: the model has more than 3 nodes after its functions are expanded");
    onnx::ModelProto m = relu_model();
    for (int i = 0; i < 3; ++i) add_node(*m.mutable_graph(), "Neg", {"x"}, {fmt::format("t{}", i)});
    EXPECT_EQ(import_error(m, limits), "<memory>: the model has more than 3 nodes");
}

TEST(MalformedModel, LongAndUnprintableNamesAreTruncatedInMessages) {
    onnx::ModelProto m = relu_model();
    m.mutable_graph()->mutable_node(0)->set_name("\x1b[2J" + std::string(10'000, 'n'));
    m.mutable_graph()->mutable_node(0)->set_op_type(std::string(10'000, 'o'));
    m.mutable_graph()->mutable_node(0)->set_input(0, std::string("bad\xff\n\0", 6));
    const std::string error = import_error(m);
    EXPECT_LT(error.size(), 1000u);
    EXPECT_THAT(error, StartsWith("<memory>: node '\\u{1b}[2Jnnnn"));
    EXPECT_THAT(error, HasSubstr("...' (10004 bytes)"));
    EXPECT_THAT(error, HasSubstr("reads 'bad\\xff\\n\\u{0}'"));
}

TEST(MalformedModel, LengthsPastTheEndAllocateNothing) {
    // graph { initializer { raw_data: 2^31 - 1 bytes, which are missing } }
    const std::string bytes(
        "\x3a\x0e\x2a\x0c\x4a\xff\xff\xff\xff\x07"
        "abcd",
        14);
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    EXPECT_EQ(error_for_bytes(bytes),
              "<memory>: the file ends early, is damaged, or is not an ONNX model: 14 bytes should follow byte 2");
    EXPECT_EQ(
        error_for_bytes(bytes + "ab"),
        "<memory>: the file ends early, is damaged, or is not an ONNX model: 2147483647 bytes should follow byte 10");
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100'000);  // kilobytes
}

TEST(MalformedModel, GroupsAndFieldZeroAreDamage) {
    EXPECT_EQ(error_for_bytes("\x0b\x0c"), "<memory>: the file is damaged near byte 1, or is not an ONNX model");
    EXPECT_EQ(error_for_bytes(std::string("\x00\x01", 2)),
              "<memory>: the file is damaged near byte 1, or is not an ONNX model");
    EXPECT_EQ(error_for_bytes(std::string(20, '\xff')),
              "<memory>: the file is damaged near byte 0, or is not an ONNX model");
}

TEST(MalformedModel, FunctionAttributeThatIsDamagedIsNamed) {
    onnx::ModelProto m = relu_model();
    add_unknown(add_function(m, "local", "F", {}, {}), 11, "\xff\xff");
    EXPECT_EQ(import_error(m), "<memory>: an attribute of function 'local.F' is damaged");
}

}  // namespace
}  // namespace tilewright
