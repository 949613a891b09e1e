#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const ModelError& e) {
        return e.what();
    }
    return "no error";
}

Node make_node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs, std::string name) {
    Node n;
    n.op = std::move(op);
    n.opset = 13;
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    n.name = std::move(name);
    return n;
}

DeclaredType f32(std::vector<DeclaredDim> shape) {
    DeclaredType t;
    t.has_dtype = true;
    t.shape = std::move(shape);
    return t;
}

/// y = Relu(Add(x, w))
Graph small_graph() {
    Graph g;
    g.name = "small";
    g.inputs.push_back({"x", f32({std::string("batch"), int64_t{3}, std::monostate()})});
    g.outputs.push_back({"y", f32({})});
    g.initializers.emplace("w", Tensor::of(DType::F32, {3}, std::vector<float>{1, -2.5f, 0}));
    g.nodes = {make_node("Add", {"x", "w"}, {"s"}, "add"), make_node("Relu", {"s"}, {"y"}, "relu")};
    return g;
}

TEST(NodeAttributes, AreReadByType) {
    Node n = make_node("Op", {}, {}, "n");
    n.attributes = {{"i", int64_t{7}},
                    {"f", 0.5f},
                    {"s", std::string("text")},
                    {"is", std::vector<int64_t>{1, 2}},
                    {"fs", std::vector<float>{1.5f}},
                    {"ss", std::vector<std::string>{"a", "b"}},
                    {"t", Tensor::of_i64({4})},
                    {"g", std::make_shared<const Graph>(small_graph())}};
    EXPECT_TRUE(n.has("i"));
    EXPECT_FALSE(n.has("j"));
    EXPECT_EQ(n.attr_int("i", 0), 7);
    EXPECT_EQ(n.attr_float("f", 0), 0.5f);
    EXPECT_EQ(n.attr_string("s", ""), "text");
    EXPECT_THAT(n.attr_ints("is", {}), ElementsAre(1, 2));
    EXPECT_THAT(n.attr_floats("fs", {}), ElementsAre(1.5f));
    EXPECT_THAT(n.attr_strings("ss", {}), ElementsAre("a", "b"));
    ASSERT_NE(n.attr_tensor("t"), nullptr);
    EXPECT_EQ(n.attr_tensor("t")->get_int(0), 4);
    ASSERT_NE(n.attr_graph("g"), nullptr);
    EXPECT_EQ(n.attr_graph("g")->name, "small");
}

TEST(NodeAttributes, FallBackWhenAbsent) {
    const Node n = make_node("Op", {}, {}, "n");
    EXPECT_EQ(n.attr_int("i", 5), 5);
    EXPECT_EQ(n.attr_float("f", 2), 2.0f);
    EXPECT_EQ(n.attr_string("s", "x"), "x");
    EXPECT_THAT(n.attr_ints("is", {3}), ElementsAre(3));
    EXPECT_EQ(n.attr_tensor("t"), nullptr);
    EXPECT_EQ(n.attr_graph("g"), nullptr);
}

TEST(NodeAttributes, NameNodeAndAttributeWhenOfAnotherType) {
    Node n = make_node("Softmax", {}, {}, "probs");
    n.attributes = {{"axis", 1.0f}, {"i", int64_t{1}}};
    EXPECT_EQ(error_of([&] { n.attr_int("axis", -1); }),
              "node 'probs' (Softmax, opset 13): attribute 'axis' should be an integer, and is a float");
    EXPECT_EQ(error_of([&] { n.attr_tensor("i"); }),
              "node 'probs' (Softmax, opset 13): attribute 'i' should be a tensor, and is an integer");
    EXPECT_EQ(error_of([&] { n.attr_ints("i", {}); }),
              "node 'probs' (Softmax, opset 13): attribute 'i' should be a list of integers, and is an integer");
}

TEST(QuotedName, KeepsTextOfAnyScript) {
    EXPECT_EQ(quoted_name("conv1"), "'conv1'");
    EXPECT_EQ(quoted_name(""), "''");
    EXPECT_EQ(quoted_name("größe/層_1"), "'größe/層_1'");
}

TEST(QuotedName, EscapesTerminalControlCharacters) {
    EXPECT_EQ(quoted_name("a\nb"), "'a\\nb'");
    EXPECT_EQ(quoted_name("\x1b[31m"), "'\\u{1b}[31m'");
    EXPECT_EQ(quoted_name("it's \\"), "'it\\'s \\\\'");
    EXPECT_EQ(quoted_name("\u202e"), "'\\u{202e}'");
    EXPECT_EQ(quoted_name(std::string("\0", 1)), "'\\u{0}'");
}

TEST(QuotedName, EscapesInvalidUtf8ByteByByte) {
    EXPECT_EQ(quoted_name("\xff\xfe"), "'\\xff\\xfe'");
    EXPECT_EQ(quoted_name("\xc3"), "'\\xc3'");                             // cut off
    EXPECT_EQ(quoted_name("\xc0\xaf"), "'\\xc0\\xaf'");                    // overlong
    EXPECT_EQ(quoted_name("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");           // surrogate
    EXPECT_EQ(quoted_name("\xf5\x80\x80\x80"), "'\\xf5\\x80\\x80\\x80'");  // past the last code point
}

TEST(QuotedName, CutsLongNames) {
    EXPECT_EQ(quoted_name(std::string(1000, 'x'), 4), "'xxxx...' (1000 bytes)");
    EXPECT_EQ(quoted_name("abcd", 4), "'abcd'");
    EXPECT_LT(quoted_name(std::string(1 << 20, 'x')).size(), 300u);
}

TEST(NodeDescribe, NamesOperatorAndDomain) {
    Node n = make_node("Conv", {}, {}, "conv1");
    EXPECT_EQ(n.describe(), "node 'conv1' (Conv, opset 13)");
    n.domain = "com.example";
    EXPECT_EQ(n.describe(), "node 'conv1' (com.example.Conv, opset 13)");
    n.op = "bad\n";
    EXPECT_EQ(n.describe(), "node 'conv1' (com.example.bad\\n, opset 13)");
}

TEST(GraphVerify, AcceptsAGoodGraph) { EXPECT_THAT(small_graph().verify(), IsEmpty()); }

TEST(GraphVerify, FindsAReadBeforeItsDefinition) {
    Graph g = small_graph();
    std::swap(g.nodes[0], g.nodes[1]);
    EXPECT_THAT(g.verify(), ElementsAre("node 'relu' (Relu, opset 13) reads 's', which is not defined before it"));
}

TEST(GraphVerify, FindsSecondDefinitions) {
    Graph g = small_graph();
    g.nodes.push_back(make_node("Neg", {"x"}, {"s"}, "again"));
    g.inputs.push_back({"x", {}});
    EXPECT_THAT(g.verify(), ElementsAre("graph input defines 'x' a second time",
                                        "node 'again' (Neg, opset 13) defines 's' a second time"));
}

TEST(GraphVerify, FindsMissingOutputsNamesAndOperators) {
    Graph g = small_graph();
    g.outputs.push_back({"nowhere", {}});
    g.nodes.push_back(make_node("", {}, {"t"}, "add"));
    g.nodes.back().opset = 0;
    EXPECT_THAT(
        g.verify(),
        ElementsAre("node 'add' (, opset 0) has no operator", "node 'add' (, opset 0) has no operator set version",
                    "node 'add' (, opset 0): its name is not unique", "graph output 'nowhere' is not defined"));
}

TEST(GraphVerify, ChecksSubgraphs) {
    Graph body;
    body.nodes = {make_node("Neg", {"x"}, {"n"}, "neg"), make_node("Neg", {"later"}, {"x"}, "hides")};
    body.outputs.push_back({"n", {}});
    Graph g = small_graph();
    Node n = make_node("If", {"y"}, {"r"}, "if");
    n.attributes = {{"then_branch", std::make_shared<const Graph>(body)},
                    {"else_branch", std::shared_ptr<const Graph>()}};
    g.nodes.push_back(n);
    g.nodes.push_back(make_node("Neg", {"r"}, {"later"}, "after"));
    EXPECT_THAT(g.verify(), ElementsAre("node 'if' (If, opset 13): attribute 'else_branch' holds no graph",
                                        "node 'hides' (Neg, opset 13) reads 'later', which is not defined before it",
                                        "node 'hides' (Neg, opset 13) defines 'x' a second time"));
}

TEST(GraphPrint, IsStableText) {
    Graph g = small_graph();
    g.value_info["s"] = f32({int64_t{1}});
    g.initializers.emplace("big", Tensor(DType::I8, {3, 4}));
    Node n = make_node("Custom", {"y", "", "odd name"}, {"r", ""}, "/block.0/custom");
    n.domain = "com.example";
    n.attributes = {{"f", 1.0f},
                    {"fs", std::vector<float>{0.5f, 1e30f}},
                    {"is", std::vector<int64_t>{-1, 2}},
                    {"s", std::string("it's")},
                    {"t", Tensor::of(DType::U64, {1}, std::vector<int64_t>{-1})}};
    g.nodes.push_back(n);
    Graph body;
    body.nodes = {make_node("Neg", {"x"}, {"n"}, "neg")};
    body.outputs.push_back({"n", {}});
    Node branch = make_node("If", {"y"}, {"q"}, "if");
    branch.attributes = {{"k", int64_t{2}}, {"then_branch", std::make_shared<const Graph>(body)}};
    g.nodes.push_back(branch);
    DeclaredType strings;
    strings.container = DeclaredType::Container::Unsupported;
    strings.unsupported = "string";
    g.inputs.push_back({"labels", strings});
    DeclaredType sequence = f32({std::monostate()});
    sequence.container = DeclaredType::Container::Sequence;
    g.outputs.push_back({"q", sequence});
    EXPECT_EQ(std::regex_replace(g.print(), std::regex("#[0-9a-f]{16}\\b"), "#<hash>"), R"(graph small {
  input x: f32[batch, 3, ?]
  input labels: unsupported(string)
  initializer big: i8[3, 4] #<hash>
  initializer w: f32[3] {1, -2.5, 0}
  value s: f32[1]
  (s) = Add@13(x, w)  # add
  (y) = Relu@13(s)  # relu
  (r, _) = com.example.Custom@13(y, _, 'odd name') {f=1.0, fs=[0.5, 1e+30], is=[-1, 2], s='it\'s', t=u64[1] {18446744073709551615}}  # /block.0/custom
  (q) = If@13(y) {k=2}  # if
    then_branch = graph _ {
      (n) = Neg@13(x)  # neg
      output n: ?[...]
    }
  output y: f32[]
  output q: sequence(f32[?])
}
)");
}

TEST(GraphPrint, HashFollowsEveryByteOfATensor) {
    Graph g;
    Tensor t(DType::U8, {19});
    g.initializers.emplace("t", t);
    const std::string zeros = g.print();
    for (int64_t i = 0; i < t.count(); ++i) {
        Tensor changed(DType::U8, {19});
        changed.set(i, 1);
        g.initializers["t"] = changed;
        EXPECT_NE(g.print(), zeros) << i;
    }
}

}  // namespace
}  // namespace tilewright
