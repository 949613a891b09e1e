// Hostile numbers: well-formed files with sizes, attributes and indices that overflow, divide by zero or are out of
// range. The tool either refuses such a model in time, within its memory, with one error line that names the node, or
// runs it if it is legal.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <climits>

#include "onnx/onnx_pb.h"
#include "tool/hostile_models_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::HasSubstr;

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

TEST_F(HostileGraph, ShapesThatOverflowAreRefused) {
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

TEST_F(HostileGraph, InputsThatOverflowAreRefused) {
    for (const int64_t d : {int64_t{1} << 40, INT64_MAX}) {
        OneNode m("Neg", {"x"});
        add_input(m.graph, "x", {d});
        const Result r = run(m.model);
        EXPECT_TRUE(refused(r));
        EXPECT_THAT(r.err, HasSubstr("'x'"));
    }
    OneNode m("Neg", {"x"});
    add_input(m.graph, "x", {1});
    open_dimension(m.graph, 0, "n");
    EXPECT_TRUE(refused(run(m.model, {"--dim", "n=1099511627776"})));
    EXPECT_EQ(run(m.model, {"--dim", "n=99999999999999999999"}).status, 2);
}

TEST_F(HostileGraph, DataDependentShapesAreCheckedAtRunTime) {
    OneNode m("Expand", {"x", "s"});  // s = 2^40 * k
    add_input(m.graph, "x", {1});
    add_input(m.graph, "k", {2}, kInt64);
    add_ints(m.graph, "b", {1}, {int64_t{1} << 40});
    add_node(m.graph, "Add", {"k", "b"}, {"s"});
    EXPECT_TRUE(refused(run(m.model)));
}

TEST_F(HostileGraph, BlocksGroupsStridesAndKernelsMustBeValid) {
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
            if (std::string(attribute) == "pads" && (v == 0 || v == -1)) continue;  // a no-op, and a crop
            SCOPED_TRACE(fmt::format("{} {}", attribute, v));
            const std::vector<int64_t> values(std::string(attribute) == "pads" ? 4 : 2, v);
            OneNode conv("Conv", {"x", "w"});
            add_input(conv.graph, "x", {1, 1, 5, 5});
            add_initializer(conv.graph, "w", {1, 1, 1, 1}, {1});
            set_ints(conv.node, attribute, values);
            if (std::string(attribute) == "dilations" || (std::string(attribute) == "strides" && v > 0))
                EXPECT_TRUE(runs_or_is_refused(run(conv.model)));  // a kernel of one element does not use them
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
        OneNode given("GatherElements", {"x", "j"});  // j is known only at run time
        add_input(given.graph, "x", {5});
        add_input(given.graph, "k", {5}, kInt64);
        add_ints(given.graph, "i", {1}, {at});
        add_node(given.graph, "Sub", {"i", "k"}, {"j"});
        EXPECT_TRUE(runs_or_is_refused(run(given.model)));
    }
}

// --- ranks, attributes and inputs that do not fit the operator

TEST_F(HostileGraph, AttributesOfTheWrongLengthAreRefused) {
    for (const size_t length : {size_t{1}, size_t{3}, size_t{100'000}}) {  // an empty list counts as absent
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

TEST_F(HostileGraph, NumbersThatDecideShapesMustBePresentIntegers) {
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

TEST_F(HostileGraph, UnsupportedElementTypesAreRefused) {
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

}  // namespace
}  // namespace tilewright::tool_test
