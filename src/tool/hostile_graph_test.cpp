// Hostile graphs: well-formed files whose sizes, numbers and nesting are chosen to overflow, recurse or exhaust. The
// tool ends in time, within its memory, with one error line that names the node; or it runs them, where they are legal
// after all.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <climits>

#include "onnx/onnx_pb.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::HasSubstr;

constexpr int kFloat = 1, kInt64 = 7, kBool = 9;

void add_ints(onnx::GraphProto& g, const std::string& name, const std::vector<int64_t>& dims,
              const std::vector<int64_t>& values) {
    onnx::TensorProto& t = *g.add_initializer();
    t.set_name(name);
    t.set_data_type(kInt64);
    for (const int64_t d : dims) t.add_dims(d);
    for (const int64_t v : values) t.add_int64_data(v);
}

void set_ints(onnx::NodeProto& n, const std::string& name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_type(onnx::AttributeProto::INTS);
    for (const int64_t v : values) a.add_ints(v);
}

void set_int(onnx::NodeProto& n, const std::string& name, int64_t value) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(value);
}

void set_text(onnx::NodeProto& n, const std::string& name, const std::string& value) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_type(onnx::AttributeProto::STRING);
    a.set_s(value);
}

onnx::GraphProto& set_graph(onnx::NodeProto& n, const std::string& name) {
    onnx::AttributeProto& a = add_attribute(n, name);
    a.set_type(onnx::AttributeProto::GRAPH);
    a.mutable_g()->set_name(name);
    return *a.mutable_g();
}

/// A model of one node "n" that gives "y"; the rest is added to it.
struct OneNode {
    OneNode(const std::string& op, const Names& inputs, int64_t opset = 18, int result = kFloat)
        : model(new_model(opset)), graph(*model.mutable_graph()), node(add_node(graph, op, inputs, {"y"}, "n")) {
        add_output(graph, "y", {}, result);
        graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    }
    onnx::ModelProto model;
    onnx::GraphProto& graph;
    onnx::NodeProto& node;
};

class HostileGraph : public testing::Test {
  protected:
    Result run(const onnx::ModelProto& model, const std::vector<std::string>& more = {},
               const Limits& limits = {60}) const {
        std::vector<std::string> arguments = {"run", place.write("model.onnx", model)};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return place.run(arguments, limits);
    }
    /// Either is right: a result, or an error. Nothing else is.
    static testing::AssertionResult runs_or_is_refused(const Result& r) {
        return r.status == 0 ? testing::AssertionSuccess() : refused(r);
    }
    Workplace place;
};

// --- numbers that overflow or divide by zero

TEST_F(HostileGraph, IntegerDivisionNeverTraps) {
    for (const char* op : {"Div", "Mod"})
        for (const auto& [a, b] : {std::pair(INT64_MIN, int64_t{-1}), std::pair(int64_t{5}, int64_t{0})}) {
            SCOPED_TRACE(fmt::format("{} {} {}", op, a, b));
            OneNode folded(op, {"a", "b"}, 18, kInt64);
            add_ints(folded.graph, "a", {1}, {a});
            add_ints(folded.graph, "b", {1}, {b});
            EXPECT_TRUE(runs_or_is_refused(run(folded.model)));
            OneNode computed(op, {"s", "b"}, 18, kInt64);  // s = a + x
            add_input(computed.graph, "x", {1}, kInt64);
            add_ints(computed.graph, "a", {1}, {a});
            add_ints(computed.graph, "b", {1}, {b});
            add_node(computed.graph, "Mul", {"x", "zero"}, {"z"});
            add_ints(computed.graph, "zero", {1}, {0});
            add_node(computed.graph, "Add", {"a", "z"}, {"s"});
            EXPECT_TRUE(runs_or_is_refused(run(computed.model)));
        }
}

TEST_F(HostileGraph, ShapesThatNothingCanHoldAreRefused) {
    const int64_t big = int64_t{1} << 40, most = INT64_MAX;
    for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
             {big}, {big, big}, {most}, {most, most}, {1 << 20, 1 << 20, 1 << 20, 1 << 20}, {-1}, {INT64_MIN}}) {
        SCOPED_TRACE(testing::PrintToString(dims));
        const auto n = static_cast<int64_t>(dims.size());
        OneNode fill("ConstantOfShape", {"s"});
        add_ints(fill.graph, "s", {n}, dims);
        EXPECT_TRUE(refused(run(fill.model)));
        OneNode expand("Expand", {"x", "s"});
        add_input(expand.graph, "x", {1});
        add_ints(expand.graph, "s", {n}, dims);
        EXPECT_TRUE(refused(run(expand.model)));
        OneNode random("RandomNormal", {});
        set_ints(random.node, "shape", dims);
        EXPECT_TRUE(refused(run(random.model)));
    }
    OneNode tile("Tile", {"x", "r"});
    add_input(tile.graph, "x", {4, 4});
    add_ints(tile.graph, "r", {2}, {big, big});
    EXPECT_TRUE(refused(run(tile.model)));
    OneNode pad("Pad", {"x", "p"});
    add_input(pad.graph, "x", {4});
    add_ints(pad.graph, "p", {2}, {INT64_MAX, INT64_MAX});
    EXPECT_TRUE(refused(run(pad.model)));
    OneNode hot("OneHot", {"x", "d", "v"});
    add_input(hot.graph, "x", {4}, kInt64);
    add_ints(hot.graph, "d", {1}, {big});
    add_initializer(hot.graph, "v", {2}, {0, 1});
    EXPECT_TRUE(refused(run(hot.model)));
    OneNode range("Range", {"a", "b", "c"}, 18, kInt64);
    add_ints(range.graph, "a", {}, {INT64_MIN});
    add_ints(range.graph, "b", {}, {INT64_MAX});
    add_ints(range.graph, "c", {}, {1});
    EXPECT_TRUE(refused(run(range.model)));
}

TEST_F(HostileGraph, InputsThatNothingCanHoldAreRefused) {
    for (const int64_t d : {int64_t{1} << 40, INT64_MAX}) {
        OneNode m("Neg", {"x"});
        add_input(m.graph, "x", {d});
        const Result r = run(m.model);
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'x'"));
    }
    OneNode m("Neg", {"x"});
    add_input(m.graph, "x", {1});
    m.graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
        "n");
    EXPECT_TRUE(refused(run(m.model, {"--dim", "n=1099511627776"})));
    EXPECT_EQ(run(m.model, {"--dim", "n=99999999999999999999"}).status, 2);
}

TEST_F(HostileGraph, ShapesThatTheInputsDecideAreCheckedWhenTheyAreKnown) {
    OneNode m("Expand", {"x", "s"});  // s = 2^40 * k
    add_input(m.graph, "x", {1});
    add_input(m.graph, "k", {2}, kInt64);
    add_ints(m.graph, "b", {1}, {int64_t{1} << 40});
    add_node(m.graph, "Add", {"k", "b"}, {"s"});
    EXPECT_TRUE(refused(run(m.model)));
}

TEST_F(HostileGraph, BlocksGroupsStridesAndKernelsMustMakeSense) {
    for (const int64_t block : {int64_t{0}, int64_t{-2}, int64_t{1} << 32, INT64_MIN, INT64_MAX})
        for (const char* op : {"DepthToSpace", "SpaceToDepth"}) {
            SCOPED_TRACE(fmt::format("{} {}", op, block));
            OneNode m(op, {"x"});
            add_input(m.graph, "x", {1, 4, 2, 2});
            set_int(m.node, "blocksize", block);
            EXPECT_TRUE(refused(run(m.model)));
        }
    for (const char* attribute : {"strides", "dilations", "kernel_shape", "pads"})
        for (const int64_t v : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
            if (std::string(attribute) == "pads" && (v == 0 || v == -1)) continue;  // nothing, and a crop
            SCOPED_TRACE(fmt::format("{} {}", attribute, v));
            const std::vector<int64_t> values(std::string(attribute) == "pads" ? 4 : 2, v);
            OneNode conv("Conv", {"x", "w"});
            add_input(conv.graph, "x", {1, 1, 5, 5});
            add_initializer(conv.graph, "w", {1, 1, 1, 1}, {1});
            set_ints(conv.node, attribute, values);
            if (std::string(attribute) == "dilations" || (std::string(attribute) == "strides" && v > 0))
                EXPECT_TRUE(runs_or_is_refused(run(conv.model)));  // a kernel of one has no use for them
            else
                EXPECT_TRUE(refused(run(conv.model)));
            OneNode pool("MaxPool", {"x"});
            add_input(pool.graph, "x", {1, 1, 5, 5});
            if (std::string(attribute) != "kernel_shape") set_ints(pool.node, "kernel_shape", {2, 2});
            set_ints(pool.node, attribute, values);
            if (std::string(attribute) == "strides" && v > 0)
                EXPECT_TRUE(runs_or_is_refused(run(pool.model)));
            else
                EXPECT_TRUE(refused(run(pool.model)));
        }
    for (const int64_t group : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
        OneNode conv("Conv", {"x", "w"});
        add_input(conv.graph, "x", {1, 2, 5, 5});
        add_initializer(conv.graph, "w", {2, 1, 1, 1}, {1, 1});
        set_int(conv.node, "group", group);
        EXPECT_TRUE(refused(run(conv.model))) << group;
    }
}

TEST_F(HostileGraph, StepsAndBoundsOfSlicesMayBeAnything) {
    for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{-1}, INT64_MIN, INT64_MAX})
        for (const int64_t start : {INT64_MIN, int64_t{0}, INT64_MAX}) {
            SCOPED_TRACE(fmt::format("{} {}", start, step));
            OneNode m("Slice", {"x", "b", "e", "a", "s"});
            add_input(m.graph, "x", {5});
            add_ints(m.graph, "b", {1}, {start});
            add_ints(m.graph, "e", {1}, {-1 - start});
            add_ints(m.graph, "a", {1}, {0});
            add_ints(m.graph, "s", {1}, {step});
            EXPECT_TRUE(step == 0 ? refused(run(m.model)) : runs_or_is_refused(run(m.model)));
        }
}

TEST_F(HostileGraph, IndicesOutsideTheirTensorReadNothing) {
    for (const int64_t at : {int64_t{5}, int64_t{-6}, INT64_MAX, INT64_MIN}) {
        SCOPED_TRACE(at);
        OneNode gather("Gather", {"x", "i"});
        add_input(gather.graph, "x", {5});
        add_ints(gather.graph, "i", {1}, {at});
        EXPECT_TRUE(runs_or_is_refused(run(gather.model)));
        OneNode scatter("ScatterND", {"x", "i", "u"});
        add_input(scatter.graph, "x", {5});
        add_ints(scatter.graph, "i", {1, 1}, {at});
        add_initializer(scatter.graph, "u", {1}, {1});
        EXPECT_TRUE(runs_or_is_refused(run(scatter.model)));
        OneNode given("GatherElements", {"x", "j"});  // j is known only when the model runs
        add_input(given.graph, "x", {5});
        add_input(given.graph, "k", {5}, kInt64);
        add_ints(given.graph, "i", {1}, {at});
        add_node(given.graph, "Sub", {"i", "k"}, {"j"});
        EXPECT_TRUE(runs_or_is_refused(run(given.model)));
    }
}

// --- ranks, attributes and inputs that do not fit the operator

TEST_F(HostileGraph, AttributesOfTheWrongLengthAreRefused) {
    for (const size_t length : {size_t{1}, size_t{3}, size_t{100'000}}) {  // none at all is as absent
        SCOPED_TRACE(length);
        const std::vector<int64_t> ones(length, 1);
        OneNode conv("Conv", {"x", "w"});
        add_input(conv.graph, "x", {1, 1, 5, 5});
        add_initializer(conv.graph, "w", {1, 1, 1, 1}, {1});
        set_ints(conv.node, "strides", ones);
        EXPECT_TRUE(refused(run(conv.model)));
        OneNode transpose("Transpose", {"x"});
        add_input(transpose.graph, "x", {2, 3});
        set_ints(transpose.node, "perm", ones);
        EXPECT_TRUE(refused(run(transpose.model)));
        OneNode pool("AveragePool", {"x"});
        add_input(pool.graph, "x", {1, 1, 5, 5});
        set_ints(pool.node, "kernel_shape", ones);
        EXPECT_TRUE(refused(run(pool.model)));
    }
    OneNode twice("Transpose", {"x"});
    add_input(twice.graph, "x", {2, 3});
    set_ints(twice.node, "perm", {1, 1});
    EXPECT_TRUE(refused(run(twice.model)));
    OneNode kind("Transpose", {"x"});
    add_input(kind.graph, "x", {2, 3});
    set_text(kind.node, "perm", "01");
    EXPECT_TRUE(refused(run(kind.model)));
}

TEST_F(HostileGraph, MissingInputsAndWrongRanksAreRefused) {
    const auto one = [&](const std::string& op, const Names& inputs, const std::vector<int64_t>& shape) {
        SCOPED_TRACE(op + " " + testing::PrintToString(shape));
        OneNode m(op, inputs);
        add_input(m.graph, "x", shape);
        const Result r = run(m.model);
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'n'"));
    };
    one("MatMul", {"x"}, {2, 2});
    one("MatMul", {"x", ""}, {2, 2});
    one("MatMul", {"x", "x"}, {});
    one("MatMul", {"x", "x"}, {2, 3});
    one("Conv", {"x"}, {1, 1, 5, 5});
    one("Conv", {"x", "x"}, {2});
    one("Conv", {"x", "x"}, {});
    one("Gemm", {"x", "x"}, {2, 2, 2});
    one("BatchNormalization", {"x", "x", "x", "x", "x"}, {2, 3});
    one("LSTM", {"x", "x", "x"}, {2, 2});
    one("GlobalAveragePool", {"x"}, {2});
    one("Concat", {"x"}, {2});
    one("Gather", {"x", "x"}, {2});
    one("Resize", {"x"}, {1, 1, 2, 2});
    one("Add", {}, {2});
}

TEST_F(HostileGraph, NumbersThatDecideShapesMustBeIntegersAndThere) {
    const auto given = [&](const std::string& op, const Names& inputs, const std::vector<int64_t>& shape, int type) {
        SCOPED_TRACE(op);
        OneNode m(op, inputs);
        add_input(m.graph, "x", {4, 4});
        add_input(m.graph, "s", shape, type);
        const Result r = run(m.model);
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'n'"));
    };
    for (const std::vector<int64_t>& none : {std::vector<int64_t>{0}, std::vector<int64_t>{2}}) {
        given("Trilu", {"x", "s"}, none, kInt64);
        given("OneHot", {"x", "s", "x"}, none, kInt64);
        given("Range", {"s", "s", "s"}, none, kInt64);
        given("TopK", {"x", "s"}, none, kInt64);
        given("HannWindow", {"s"}, none, kInt64);
        given("DFT", {"x", "s"}, none, kInt64);
    }
    given("Reshape", {"x", "s"}, {2}, kFloat);
    given("Slice", {"x", "s", "s"}, {1}, kFloat);
    given("ConstantOfShape", {"s"}, {1}, kFloat);
    given("Unsqueeze", {"x", "s"}, {1}, kFloat);
}

TEST_F(HostileGraph, ElementsOfTypesThatTheOperatorDoesNotTakeAreRefused) {
    for (const char* op : {"Softmax", "LogSoftmax", "Exp", "Sigmoid", "LpNormalization"}) {
        OneNode m(op, {"x"});
        add_input(m.graph, "x", {2, 4}, kInt64);
        EXPECT_TRUE(refused(run(m.model))) << op;
    }
    OneNode quantise("QuantizeLinear", {"x", "one", "one"}, 19);
    add_input(quantise.graph, "x", {4});
    add_initializer(quantise.graph, "one", {}, {1});
    EXPECT_TRUE(refused(run(quantise.model))) << "to f32";
    OneNode prelu("PRelu", {"x", "slope"});
    add_input(prelu.graph, "x", {4}, kInt64);
    add_initializer(prelu.graph, "slope", {1}, {1});
    EXPECT_TRUE(refused(run(prelu.model))) << "slopes of another type";
    OneNode loop("Loop", {"", "x", "x"});
    add_input(loop.graph, "x", {1});
    onnx::GraphProto& body = set_graph(loop.node, "body");
    add_input(body, "i", {}, kInt64);
    add_input(body, "go", {}, kBool);
    add_input(body, "v", {1});
    add_output(body, "go", {}, kBool);
    add_output(body, "v", {1});
    EXPECT_TRUE(refused(run(loop.model))) << "a condition of floats";
    OneNode attention("LinearAttention", {"x", "x", "x", "", "flat", "flat"}, 27);
    add_input(attention.graph, "x", {2, 4, 8});
    add_input(attention.graph, "flat", {2, 4});
    set_int(attention.node, "q_num_heads", 2);
    set_int(attention.node, "kv_num_heads", 2);
    EXPECT_TRUE(refused(run(attention.model))) << "a decay of rank 2";
}

// --- nesting and control flow

TEST_F(HostileGraph, DeepNestsAreRefused) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto* g = m.mutable_graph();
    add_input(*g, "c", {}, kBool);
    for (int i = 0; i < 1000; ++i) {
        onnx::NodeProto& n = add_node(*g, "If", {"c"}, {fmt::format("y{}", i)});
        add_output(*g, fmt::format("y{}", i));
        g = &set_graph(n, "then_branch");
    }
    add_node(*g, "Neg", {"c"}, {"leaf"});
    add_output(*g, "leaf");
    const Result r = run(m);
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("nests subgraphs more than 32 deep"));
}

TEST_F(HostileGraph, FunctionsThatDoubleEachTimeAreRefused) {
    onnx::ModelProto m = new_model();
    onnx::OperatorSetIdProto& import = *m.add_opset_import();
    import.set_domain("l");
    import.set_version(1);
    for (int i = 0; i < 30; ++i) {
        onnx::FunctionProto& f = add_function(m, "l", fmt::format("F{}", i), {"x"}, {"y"});
        const std::string callee = i == 0 ? "Neg" : fmt::format("F{}", i - 1);
        add_node(f, callee, {"x"}, {"t"}).set_domain(i == 0 ? "" : "l");
        add_node(f, callee, {"t"}, {"y"}).set_domain(i == 0 ? "" : "l");
    }
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_node(g, "F29", {"x"}, {"y"}).set_domain("l");
    add_output(g, "y", {1});
    const Result r = run(m);
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("after its functions are expanded"));
}

/// y = Loop(trips): carries a number, and gives one of `slice` elements each time.
onnx::ModelProto counting_loop(int64_t trips, int64_t slice, bool scan, bool from_input) {
    OneNode m("Loop", {"t", "", "v"});
    if (from_input) {
        add_input(m.graph, "k", {1}, kInt64);
        add_ints(m.graph, "b", {1}, {trips});
        add_node(m.graph, "Add", {"k", "b"}, {"t"});
    } else {
        add_ints(m.graph, "t", {1}, {trips});
    }
    add_input(m.graph, "v", {1});
    onnx::GraphProto& body = set_graph(m.node, "body");
    add_input(body, "i", {}, kInt64);
    add_input(body, "go", {}, kBool);
    add_input(body, "u", {1});
    add_node(body, "Identity", {"go"}, {"go_on"});
    add_node(body, "Neg", {"u"}, {"w"});
    add_output(body, "go_on", {}, kBool);
    add_output(body, "w", {1});
    if (scan) {
        add_ints(body, "s", {1}, {slice});
        add_node(body, "Expand", {"w", "s"}, {"row"});
        add_output(body, "row", {slice});
        m.node.add_output("rows");
        add_output(m.graph, "rows");
        m.graph.mutable_output(1)->mutable_type()->mutable_tensor_type()->clear_shape();
    }
    return m.model;
}

TEST_F(HostileGraph, LoopsWithoutAnEndAreRefused) {
    EXPECT_EQ(run(counting_loop(3, 2, true, false)).status, 0);
    for (const bool scan : {false, true}) {
        SCOPED_TRACE(scan);
        EXPECT_TRUE(refused(run(counting_loop(int64_t{1} << 62, 4, scan, false))));
        EXPECT_TRUE(refused(run(counting_loop(INT64_MAX, 4, scan, false))));
    }
    EXPECT_TRUE(refused(run(counting_loop(2, int64_t{1} << 40, true, false))));
    EXPECT_TRUE(refused(run(counting_loop(int64_t{1} << 35, int64_t{1} << 35, true, false))));
    EXPECT_EQ(run(counting_loop(-5, 4, false, false)).status, 0) << "no iteration";
}

TEST_F(HostileGraph, BodiesThatDoNotFitTheirOperatorAreRefused) {
    onnx::ModelProto m = counting_loop(3, 2, false, false);
    const auto body = [](onnx::ModelProto& model) -> onnx::GraphProto& {
        for (onnx::NodeProto& n : *model.mutable_graph()->mutable_node())
            if (n.op_type() == "Loop") return *n.mutable_attribute(0)->mutable_g();
        throw std::logic_error("no loop");
    };
    onnx::ModelProto initialised = m;
    add_initializer(body(initialised), "u", {1}, {3});  // also an input of the body
    EXPECT_TRUE(runs_or_is_refused(run(initialised)));
    onnx::ModelProto none = m;
    body(none).clear_input();
    EXPECT_TRUE(refused(run(none)));
    onnx::ModelProto outputs = m;
    body(outputs).clear_output();
    EXPECT_TRUE(refused(run(outputs)));
    onnx::ModelProto empty = m;
    body(empty).Clear();
    EXPECT_TRUE(refused(run(empty)));
    onnx::ModelProto wide = m;
    for (int i = 0; i < 50; ++i) add_input(body(wide), fmt::format("more{}", i), {1});
    EXPECT_TRUE(refused(run(wide)));
    OneNode branch("If", {"c"});
    add_input(branch.graph, "c", {}, kBool);
    add_output(set_graph(branch.node, "then_branch"), "c", {}, kBool);
    EXPECT_TRUE(refused(run(branch.model))) << "no else_branch";
    for (const int64_t count : {int64_t{0}, int64_t{-1}, int64_t{3}, INT64_MAX}) {
        OneNode scan("Scan", {"v", "x"});
        add_input(scan.graph, "v", {1});
        add_input(scan.graph, "x", {3, 1});
        set_int(scan.node, "num_scan_inputs", count);
        onnx::GraphProto& step = set_graph(scan.node, "body");
        add_input(step, "a", {1});
        add_input(step, "b", {1});
        add_node(step, "Add", {"a", "b"}, {"c"});
        add_output(step, "c", {1});
        EXPECT_TRUE(refused(run(scan.model))) << count;
    }
}

// --- work and memory at load

TEST_F(HostileGraph, ConstantsAreFoldedWithinABudget) {
    OneNode sum("ReduceSum", {"big"});  // of 2^40 ones
    add_ints(sum.graph, "s", {2}, {1 << 20, 1 << 20});
    add_node(sum.graph, "ConstantOfShape", {"s"}, {"big"});
    const Result r = place.run({"dump", place.write("model.onnx", sum.model)}, {20, uint64_t{2} << 30});
    EXPECT_TRUE(runs_or_is_refused(r));

    OneNode chain("Identity", {"m20"});  // m -> m x m, 2048 square, twenty times
    add_ints(chain.graph, "s", {2}, {2048, 2048});
    add_node(chain.graph, "ConstantOfShape", {"s"}, {"m0"});
    for (int i = 0; i < 20; ++i)
        add_node(chain.graph, "MatMul", {fmt::format("m{}", i), fmt::format("m{}", i)}, {fmt::format("m{}", i + 1)});
    EXPECT_TRUE(runs_or_is_refused(place.run({"dump", place.write("model.onnx", chain.model)}, {20})));

    OneNode doubling("Identity", {"d40"});  // a vector that doubles forty times
    add_initializer(doubling.graph, "d0", {1}, {1});
    for (int i = 0; i < 40; ++i)
        add_node(doubling.graph, "Concat", {fmt::format("d{}", i), fmt::format("d{}", i)}, {fmt::format("d{}", i + 1)});
    for (onnx::NodeProto& n : *doubling.graph.mutable_node())
        if (n.op_type() == "Concat") set_int(n, "axis", 0);
    EXPECT_TRUE(refused(run(doubling.model)));
}

TEST_F(HostileGraph, DeclaredWeightsMustBeThere) {
    OneNode m("Neg", {"w"});
    onnx::TensorProto& w = *m.graph.add_initializer();
    w.set_name("w");
    w.set_data_type(kFloat);
    w.add_dims(int64_t{1} << 36);
    EXPECT_TRUE(refused(run(m.model, {}, {5, uint64_t{1} << 30})));
    OneNode sparse("Neg", {"w"});
    onnx::SparseTensorProto& s = *sparse.graph.add_sparse_initializer();
    s.mutable_values()->set_name("w");
    s.mutable_values()->set_data_type(kFloat);
    s.mutable_values()->add_dims(1);
    s.mutable_values()->add_float_data(1);
    s.mutable_indices()->set_data_type(kInt64);
    s.mutable_indices()->add_dims(1);
    s.mutable_indices()->add_int64_data(0);
    s.add_dims(int64_t{1} << 36);
    EXPECT_TRUE(refused(run(sparse.model, {}, {5, uint64_t{1} << 30})));
}

TEST_F(HostileGraph, PackedTypesOfOddLengthAreUnpackedInBounds) {
    for (const int type : {21, 22, 23}) {  // UINT4, INT4, FLOAT4E2M1
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
            OneNode m("Cast", {"w"}, 21);
            set_int(m.node, "to", kFloat);
            onnx::TensorProto& w = *m.graph.add_initializer();
            w.set_name("w");
            w.set_data_type(type);
            w.add_dims(3);
            w.set_raw_data(std::string(bytes, '\x7f'));
            const Result r = run(m.model);
            EXPECT_TRUE(bytes == 2 ? runs_or_is_refused(r) : refused(r)) << type << " " << bytes;
        }
    }
}

// --- messages

TEST_F(HostileGraph, LongAndDirtyNamesMakeShortCleanMessages) {
    OneNode m("x\x1b[2J" + std::string(100'000, 'o'), {"\xff\xfe" + std::string(100'000, 'i')});
    m.node.set_name(std::string("%s%n%d\n\0", 8) + std::string(100'000, 'n'));
    m.graph.mutable_node(0)->set_input(0, "x");
    add_input(m.graph, "x", {1});
    const Result r = run(m.model);
    EXPECT_TRUE(refused(r));
    EXPECT_LT(r.err.size(), 3000u);
    EXPECT_EQ(r.err.find('\x1b'), std::string::npos);
    const Result c = place.run({"check", "model.onnx", "--json", "problems.json"});
    EXPECT_EQ(c.status, 1);
    EXPECT_EQ(c.out.find('\x1b'), std::string::npos);
    EXPECT_THAT(place.read("problems.json"), HasSubstr("\"ok\": false"));
}

}  // namespace
}  // namespace tilewright::tool_test
