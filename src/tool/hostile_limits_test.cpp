// Small models that once crashed the tool, ran for minutes or exhausted memory: unsupported element types, tens of
// thousands of operands, windows and sample counts of 2^40, data-dependent sizes. Each ends with a result or one error
// line. With TILEWRIGHT_LONG_TESTS the sizes are those of the original reports.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <climits>

#include "driver/npz.h"
#include "onnx/onnx_pb.h"
#include "tool/hostile_models_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::HasSubstr;
using testing::Not;
using HostileLimits = HostileGraph;

constexpr int kInt32 = 6, kFloat16 = 10, kDouble = 11, kBfloat16 = 16;
constexpr double kLongSeconds = 300;

// --- element types that reached code generation

TEST_F(HostileLimits, TypesThatCrashedCodeGenerationAreRefused) {
    struct Input {
        std::vector<int64_t> shape;
        int type;
    };
    struct Attack {
        std::string op;
        int64_t opset;
        std::vector<Input> inputs;
    };
    std::vector<Attack> attacks;
    for (const int type : {kFloat16, kFloat, kDouble})
        attacks.push_back({"ReverseSequence", 10, {{{4, 4}, kFloat}, {{4}, type}}});
    for (const char* op : {"And", "Or", "Xor"}) attacks.push_back({op, 13, {{{6}, kFloat}, {{}, kFloat}}});
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
        attacks.push_back({op, 18, {{{6}, kFloat}, {{6}, kFloat}}});
    attacks.push_back({"BitwiseNot", 18, {{{3, 4, 5}, kFloat}}});
    attacks.push_back({"BitShift", 11, {{{3}, kBfloat16}, {{3}, kBfloat16}}});
    for (const int type : {kInt32, kInt64, kUint8})
        attacks.push_back({"InstanceNormalization", 22, {{{1, 2, 1, 3}, type}, {{2}, type}, {{2}, type}}});
    const Input head = {{1, 2, 2, 8}, kInt32};
    attacks.push_back({"Attention", 24, {head, head, head, {{2, 2}, kBool}}});
    const std::pair<const char*, int64_t> recurrent[] = {{"LSTM", 28}, {"GRU", 21}, {"RNN", 7}};
    for (const auto& [op, gates] : recurrent)
        attacks.push_back({op, 22, {{{3, 1, 2}, kInt32}, {{1, gates, 2}, kInt32}, {{1, gates, 7}, kInt32}}});
    for (const Attack& a : attacks) {
        Names names;
        for (size_t k = 0; k < a.inputs.size(); ++k) names.push_back(fmt::format("x{}", k));
        OneNode m(a.op, names, a.opset);
        for (size_t k = 0; k < a.inputs.size(); ++k) add_input(m.graph, names[k], a.inputs[k].shape, a.inputs[k].type);
        if (a.op == "BitShift") set_text(m.node, "direction", "LEFT");
        if (a.op == "LSTM" || a.op == "GRU" || a.op == "RNN") set_int(m.node, "hidden_size", 7);
        for (const char* command : {"run", "check"})
            EXPECT_TRUE(refused(place.run({command, place.write("model.onnx", m.model)}))) << command << " " << a.op;
    }
}

// --- large numbers of operands, outputs and nodes

TEST_F(HostileLimits, OneOperandManyTimes) {
    const size_t many = long_tests() ? 60'000 : 10'000;
    for (const char* op : {"Sum", "Max", "Mean", "Concat", "Einsum"}) {
        SCOPED_TRACE(op);
        OneNode m(op, Names(many, "x"));
        add_input(m.graph, "x", {4});
        if (std::string(op) == "Concat") set_int(m.node, "axis", 0);
        std::string equation = "a";
        for (size_t i = 1; i < many; ++i) equation += ",a";
        if (std::string(op) == "Einsum") set_text(m.node, "equation", equation + "->a");
        Limits small;
        small.seconds = kLongSeconds;
        small.stack_bytes = 256 << 10;  // as `ulimit -s 256`
        EXPECT_TRUE(runs_or_is_refused(run(m.model, {"--threads", "1"}, small)));
    }
}

TEST_F(HostileLimits, ManyDifferentOperands) {
    const size_t many = long_tests() ? 20'000 : 2'000;
    Names names;
    for (size_t i = 0; i < many; ++i) names.push_back(fmt::format("x{}", i));
    OneNode m("Sum", names);
    for (const std::string& name : names) add_input(m.graph, name, {4});
    EXPECT_TRUE(runs_or_is_refused(run(m.model, {"--threads", "1"}, {kLongSeconds})));
}

TEST_F(HostileLimits, AValueUsedTwiceByEachNode) {
    OneNode doubling("Identity", {"v300"});  // v -> v * v + v
    add_input(doubling.graph, "v0", {4});
    for (int i = 0; i < 300; ++i) {
        const std::string v = fmt::format("v{}", i), m = fmt::format("m{}", i);
        add_node(doubling.graph, "Mul", {v, v}, {m});
        add_node(doubling.graph, "Add", {m, v}, {fmt::format("v{}", i + 1)});
    }
    EXPECT_EQ(run(doubling.model, {}, {kLongSeconds}).status, 0);
    const int choices = long_tests() ? 3'000 : 500;
    OneNode where("Identity", {fmt::format("v{}", choices)});
    add_input(where.graph, "v0", {4});
    add_input(where.graph, "c", {4}, kBool);
    for (int i = 0; i < choices; ++i)
        add_node(where.graph, "Where", {"c", fmt::format("v{}", i), "v0"}, {fmt::format("v{}", i + 1)});
    EXPECT_TRUE(runs_or_is_refused(run(where.model, {}, {kLongSeconds})));
}

TEST_F(HostileLimits, ManyOutputs) {
    const int64_t many = long_tests() ? 5'000 : 500;
    onnx::ModelProto m = new_model(18);
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {many});
    Names outputs;
    for (int64_t i = 0; i < many; ++i) outputs.push_back(fmt::format("y{}", i));
    onnx::NodeProto& split = add_node(g, "Split", {"x"}, outputs);
    set_int(split, "axis", 0);
    set_int(split, "num_outputs", many);
    for (const std::string& name : outputs) add_output(g, name, {1});
    EXPECT_EQ(run(m, {}, {kLongSeconds}).status, 0);
}

TEST_F(HostileLimits, LongChainsOnASmallStack) {
    const int many = long_tests() ? 100'000 : 3'000;
    OneNode m("Identity", {fmt::format("v{}", many)});
    add_input(m.graph, "v0", {4});
    for (int i = 0; i < many; ++i) add_node(m.graph, "Neg", {fmt::format("v{}", i)}, {fmt::format("v{}", i + 1)});
    Limits small;
    small.seconds = kLongSeconds;
    small.stack_bytes = 256 << 10;
    EXPECT_TRUE(runs_or_is_refused(run(m.model, {}, small)));
}

// --- huge windows, samples and sums

TEST_F(HostileLimits, WindowsOfMissingChannels) {
    for (const int64_t size : {int64_t{1} << 40, (int64_t{1} << 40) + 1, INT64_MAX}) {
        OneNode m("LRN", {"x"});
        add_input(m.graph, "x", {1, 1, 4, 4});
        set_int(m.node, "size", size);
        EXPECT_TRUE(runs_or_is_refused(run(m.model))) << size;
    }
}

TEST_F(HostileLimits, TooManySamples) {
    OneNode m("RoiAlign", {"x", "r", "b"});
    add_input(m.graph, "x", {1, 1, 4, 4});
    add_input(m.graph, "r", {1, 4});
    add_input(m.graph, "b", {1}, kInt64);
    set_int(m.node, "output_height", 1);
    set_int(m.node, "output_width", 1);
    set_int(m.node, "sampling_ratio", int64_t{1} << 30);
    EXPECT_TRUE(refused(run(m.model)));
}

TEST_F(HostileLimits, ASumOfMoreTermsThanFitInMemory) {
    const int64_t side = long_tests() ? 1 << 20 : 1 << 15;  // squared: number of terms, never in memory at once
    OneNode m("ReduceSum", {"e"});
    add_input(m.graph, "x", {1});
    add_input(m.graph, "s", {2}, kInt64);
    add_node(m.graph, "Expand", {"x", "s"}, {"e"});
    save_npz(place / "in.npz", {{"x", Tensor::of<float>(DType::F32, {1}, {1})},
                                {"s", Tensor::of<int64_t>(DType::I64, {2}, {side, side})}});
    EXPECT_TRUE(runs_or_is_refused(run(m.model, {"--input", "in.npz"}, {kLongSeconds})));
}

// --- memory for sizes given at run time or by constants

TEST_F(HostileLimits, EnlargementsGivenAtRunTimeAreChecked) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
        OneNode m("Resize", {"x", "", "s"});
        add_input(m.graph, "x", {1, 1, 4, 4});
        add_input(m.graph, "s", {4});
        set_text(m.node, "mode", mode);
        save_npz(place / "in.npz", {{"x", Tensor(DType::F32, {1, 1, 4, 4})},
                                    {"s", Tensor::of<float>(DType::F32, {4}, {1, 1, 1e9f, 1e9f})}});
        const Result r = run(m.model, {"--input", "in.npz"}, {20, uint64_t{1} << 30});
        EXPECT_TRUE(refused(r)) << mode;
    }
}

TEST_F(HostileLimits, TablesOfTrillionsOfEntriesAreRefused) {
    OneNode m("MelWeightMatrix", {"bins", "length", "rate", "low", "high"}, 17);
    add_ints(m.graph, "bins", {}, {int64_t{1} << 40});
    add_ints(m.graph, "length", {}, {16});
    add_ints(m.graph, "rate", {}, {8000});
    add_initializer(m.graph, "low", {}, {0});
    add_initializer(m.graph, "high", {}, {4000});
    EXPECT_TRUE(refused(run(m.model, {}, {20, uint64_t{1} << 30})));
}

// --- empty tensors and names

/// Broadcasting an empty dimension with one of size 1 gives an empty one. It is refused if both sizes are dynamic.
TEST_F(HostileLimits, EmptyDimensionsBroadcastWithOne) {
    for (const bool both_open : {false, true}) {
        OneNode m("Add", {"a", "b"});
        for (const char* name : {"a", "b"}) {
            add_input(m.graph, name, {1});
            if (both_open || name[0] == 'a') open_dimension(m.graph, 0, name);
        }
        save_npz(place / "in.npz", {{"a", Tensor(DType::F32, {0})}, {"b", Tensor(DType::F32, {1})}});
        const Result r = run(m.model, {"--input", "in.npz", "--output-npz", "out.npz"});
        if (both_open) {
            EXPECT_TRUE(refused(r));
            EXPECT_THAT(r.err, HasSubstr("dimensions a = 0 and b = 1 do not broadcast"));
            continue;
        }
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(load_npz(place / "out.npz").at(0).value.shape(), Shape{0});
    }
}

TEST_F(HostileLimits, AnOutputThatIsAnInputKeepsItsName) {
    onnx::ModelProto m = new_model();
    add_input(*m.mutable_graph(), "x", {4});
    add_output(*m.mutable_graph(), "x", {4});
    const Result r = run(m, {"--output-npz", "out.npz"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(load_npz(place / "out.npz").at(0).name, "x");
}

TEST_F(HostileLimits, UnsupportedNamesOfArchivesAreReported) {
    OneNode m("Neg", {"x"});
    const std::string name(1'000'000, 'y');
    m.node.set_output(0, name);
    m.graph.mutable_output(0)->set_name(name);
    add_input(m.graph, "x", {4});
    const Result r = run(m.model, {"--output-npz", "out.npz"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err,
                testing::AllOf(HasSubstr("has 1000000 bytes, and an archive holds 65535"), Not(HasSubstr("4 GiB"))));
    EXPECT_LT(r.err.size(), 500u);
}

// --- versions of operator sets

TEST_F(HostileLimits, AFutureOperatorSetIsRefusedWithARemedy) {
    OneNode m("Neg", {"x"}, 99);
    add_input(m.graph, "x", {4});
    for (const char* command : {"run", "check"}) {
        const Result r = place.run({command, place.write("model.onnx", m.model)});
        EXPECT_TRUE(refused(r)) << command;
        EXPECT_THAT(r.err, testing::AllOf(HasSubstr("99"), HasSubstr("hint: "))) << command;
    }
}

/// Models optimised by ONNX Runtime keep their old operator set.
TEST_F(HostileLimits, LayerNormalizationRunsInOlderOperatorSets) {
    for (const int64_t opset : {11, 16, 17}) {
        OneNode m("LayerNormalization", {"x", "s", "b"}, opset);
        add_input(m.graph, "x", {2, 3, 8});
        add_input(m.graph, "s", {8});
        add_input(m.graph, "b", {8});
        set_int(m.node, "axis", -1);
        EXPECT_EQ(place.run({"verify", place.write("model.onnx", m.model)}).status, 0) << opset;
        EXPECT_EQ(place.run({"check", "model.onnx"}).status, 0) << opset;
    }
}

}  // namespace
}  // namespace tilewright::tool_test
