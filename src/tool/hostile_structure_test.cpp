// Hostile structure: nests, functions, loops, constants and names that recurse, expand or exhaust memory. The tool
// either refuses such a model in time, within its memory, with one error line, or runs it if it is legal.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <climits>

#include "onnx/onnx_pb.h"
#include "tool/hostile_models_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::HasSubstr;
using HostileStructure = HostileGraph;

// --- nesting and control flow

TEST_F(HostileStructure, DeepNestsAreRefused) {
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

TEST_F(HostileStructure, FunctionsThatDoubleEachTimeAreRefused) {
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

TEST_F(HostileStructure, FunctionsThatCallThemselvesAreRefused) {
    onnx::ModelProto m = new_model();
    onnx::OperatorSetIdProto& import = *m.add_opset_import();
    import.set_domain("l");
    import.set_version(1);
    for (const auto& [name, callee] : {std::pair("F", "G"), std::pair("G", "F")})
        add_node(add_function(m, "l", name, {"x"}, {"y"}), callee, {"x"}, {"y"}).set_domain("l");
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1});
    add_node(g, "F", {"x"}, {"y"}).set_domain("l");
    add_output(g, "y", {1});
    EXPECT_TRUE(refused(run(m)));
}

TEST_F(HostileStructure, DeepTypesAreRefused) {
    onnx::ModelProto m = relu_model();
    onnx::TypeProto* t = m.mutable_graph()->mutable_input(0)->mutable_type();
    t->Clear();
    for (int i = 0; i < 5000; ++i)
        t = i % 2 == 0 ? t->mutable_sequence_type()->mutable_elem_type()
                       : t->mutable_optional_type()->mutable_elem_type();
    t->mutable_tensor_type()->set_elem_type(kFloat);
    EXPECT_TRUE(refused(run(m)));
}

/// y = the last of `count` nodes in sequence, each created by `node` from the previous value: "v0", "v1", ...
template <class Write>
onnx::ModelProto row_of_nodes(const Shape& shape, int count, const Write& node) {
    OneNode m("Identity", {fmt::format("v{}", count)});
    add_input(m.graph, "v0", shape);
    for (int i = 0; i < count; ++i) node(m.graph, fmt::format("v{}", i), fmt::format("v{}", i + 1));
    return m.model;
}

TEST_F(HostileStructure, LongSequencesOfNodesAreCompiled) {
    const auto row = [](const std::string& op) {
        return row_of_nodes({4}, 600, [&](onnx::GraphProto& g, const std::string& from, const std::string& to) {
            if (op == "Add")
                add_node(g, op, {from, from}, {to});
            else
                add_node(g, op, {from}, {to});
        });
    };
    for (const char* op : {"Neg", "Add", "Softmax"}) EXPECT_EQ(run(row(op), {}, {120}).status, 0) << op;
}

TEST_F(HostileStructure, HighRanksAndManyOperandsAreBounded) {
    for (const int64_t n : {50, 300}) {
        SCOPED_TRACE(n);
        const auto many = static_cast<size_t>(n);
        for (const char* op : {"Neg", "Transpose", "ReduceSum", "Softmax"}) {
            OneNode rank(op, {"x"});
            add_input(rank.graph, "x", std::vector<int64_t>(many, 1));
            EXPECT_TRUE(runs_or_is_refused(run(rank.model, {}, {60}))) << op;
        }
        for (const char* op : {"Sum", "Max", "Concat"}) {
            OneNode operands(op, Names(many, "x"));
            add_input(operands.graph, "x", {3});
            if (std::string(op) == "Concat") set_int(operands.node, "axis", 0);
            EXPECT_TRUE(runs_or_is_refused(run(operands.model, {}, {60}))) << op;
        }
        OneNode einsum("Einsum", Names(many, "x"));
        add_input(einsum.graph, "x", {2, 2});
        std::string equation;
        for (size_t i = 0; i < many; ++i) equation += i == 0 ? "ab" : ",ab";
        set_text(einsum.node, "equation", equation + "->ab");
        EXPECT_TRUE(runs_or_is_refused(run(einsum.model, {}, {60})));
    }
}

TEST_F(HostileStructure, ManyOperandsAreSummed) {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {4});
    add_node(g, "Sum", std::vector<std::string>(60000, "x"), {"y"});
    add_output(g, "y", {4});
    const Result r = run(m);
    EXPECT_EQ(r.status, 0) << r.err;
}

TEST_F(HostileStructure, IndicesThatGrowWithEveryNodeAreLimited) {
    const auto shuffle = [](const Shape& shape, int count, const std::vector<int64_t>& there,
                            const std::vector<int64_t>& permutation) {
        onnx::ModelProto m =
            row_of_nodes(shape, count, [&](onnx::GraphProto& g, const std::string& from, const std::string& to) {
                add_node(g, "Reshape", {from, "there"}, {from + "r"});
                set_ints(add_node(g, "Transpose", {from + "r"}, {from + "t"}), "perm", permutation);
                add_node(g, "Reshape", {from + "t", "back"}, {to});
            });
        add_ints(*m.mutable_graph(), "there", {static_cast<int64_t>(there.size())}, there);
        std::vector<int64_t> back = shape;
        back[0] = -1;
        add_ints(*m.mutable_graph(), "back", {static_cast<int64_t>(shape.size())}, back);
        return m;
    };
    EXPECT_EQ(run(shuffle({2, 3, 4}, 24, {2, 3, 4}, {1, 2, 0}), {}, {60}).status, 0);
    onnx::ModelProto open = shuffle({1, 12}, 24, {-1, 5}, {1, 0});
    open_dimension(*open.mutable_graph(), 0, "n");
    EXPECT_EQ(run(open, {"--dim", "n=5"}, {60}).status, 0);
}

TEST_F(HostileStructure, DimensionsThatGrowWithEveryNodeAreLimited) {
    // d <- d * d, d <- d * d + n, d <- (d / 3) * (d % 3) + n; then a tensor of that size
    for (const std::string step : {"square", "polynomial", "digits"}) {
        SCOPED_TRACE(step);
        OneNode m("ConstantOfShape", {"d24"});
        add_input(m.graph, "x", {1});
        open_dimension(m.graph, 0, "n");
        add_node(m.graph, "Shape", {"x"}, {"n"});
        add_node(m.graph, "Identity", {"n"}, {"d0"});
        add_ints(m.graph, "three", {1}, {3});
        for (int i = 0; i < 24; ++i) {
            const std::string d = fmt::format("d{}", i), next = fmt::format("d{}", i + 1);
            if (step == "square") {
                add_node(m.graph, "Mul", {d, d}, {next});
                continue;
            }
            add_node(m.graph, step == "digits" ? "Div" : "Identity", step == "digits" ? Names{d, "three"} : Names{d},
                     {d + "a"});
            add_node(m.graph, step == "digits" ? "Mod" : "Identity", step == "digits" ? Names{d, "three"} : Names{d},
                     {d + "b"});
            add_node(m.graph, "Mul", {d + "a", d + "b"}, {d + "c"});
            add_node(m.graph, "Add", {d + "c", "n"}, {next});
        }
        EXPECT_TRUE(runs_or_is_refused(run(m.model, {"--dim", "n=1"}, {60})));
    }
}

TEST_F(HostileStructure, ProductsOfSumsOfDimensionsAreLimited) {
    // A tensor of (a0 + a1 + ...) by (b0 + b1 + ...) by ..., reshaped to one row: its length has a million terms.
    constexpr int kRank = 6, kParts = 10;
    OneNode m("Reshape", {"all", "flat"});
    Names sides;
    for (int axis = 0; axis < kRank; ++axis) {
        Names parts;
        for (int k = 0; k < kParts; ++k) {
            parts.push_back(fmt::format("{}{}", static_cast<char>('a' + axis), k));
            add_input(m.graph, parts.back(), std::vector<int64_t>(kRank, 1));
            open_dimension(m.graph, axis, parts.back());
        }
        sides.push_back(fmt::format("side{}", axis));
        set_int(add_node(m.graph, "Concat", parts, {sides.back()}), "axis", axis);
    }
    add_node(m.graph, "Sum", sides, {"all"});
    add_ints(m.graph, "flat", {1}, {-1});
    EXPECT_TRUE(runs_or_is_refused(run(m.model, {}, {60})));
}

/// y = Loop(trips): carries a number, and produces a scan output of `slice` elements in each iteration.
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

TEST_F(HostileStructure, LoopsWithoutAnEndAreRefused) {
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

TEST_F(HostileStructure, BodiesThatDoNotFitTheirOperatorAreRefused) {
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
        if (count != 3) continue;
        for (onnx::AttributeProto& a : *scan.node.mutable_attribute())
            if (a.name() == "num_scan_inputs") a.set_i(1);
        EXPECT_EQ(run(scan.model).status, 0);
        add_initializer(step, "b", {7}, std::vector<float>(7, 1));  // also an input of the body, of another shape
        EXPECT_TRUE(runs_or_is_refused(run(scan.model)));
    }
}

// --- work and memory at load time

TEST_F(HostileStructure, ConstantsAreFoldedWithinABudget) {
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

TEST_F(HostileStructure, DeclaredWeightsMustBePresent) {
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

TEST_F(HostileStructure, PackedTypesOfOddLengthAreUnpackedInBounds) {
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

TEST_F(HostileStructure, PackedTypesShareMemoryWithOthers) {
    // Odd counts of 4-bit elements between tensors of bytes and floats: each buffer is reused by the next value.
    OneNode m("Sum", {"f0", "f1", "f2", "f3", "f4", "f5"}, 21);
    add_input(m.graph, "x", {3, 5});
    add_initializer(m.graph, "scale", {}, {0.5f});
    std::string from = "x";
    for (int i = 0; i < 6; ++i) {
        const std::string q = fmt::format("q{}", i), f = fmt::format("f{}", i);
        const bool narrow = i % 2 == 0;
        onnx::TensorProto& zero = *m.graph.add_initializer();
        zero.set_name(q + "zero");
        zero.set_data_type(narrow ? kInt4 : kUint8);
        zero.set_raw_data(std::string(1, '\1'));
        add_node(m.graph, "QuantizeLinear", {from, "scale", q + "zero"}, {q});
        add_node(m.graph, "DequantizeLinear", {q, "scale", q + "zero"}, {f});
        from = f + "n";
        add_node(m.graph, "Neg", {f}, {from});
    }
    const Result r = place.run({"verify", place.write("model.onnx", m.model)});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
}

// --- messages

TEST_F(HostileStructure, LongAndUnprintableNamesAreTruncatedAndEscaped) {
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
