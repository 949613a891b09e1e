// Machine code with dynamic dimensions: sessions refuse invalid sizes, and agree with the interpreter on valid ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/pipeline.h"
#include "ops/dynamic_shapes_test.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using test::floats;
using test::graph;
using test::model;
using test::node;
using test::open_inputs;
using test::OpenCase;
using test::OpenDraw;
using test::whole;
using testing::HasSubstr;

PipelineOptions options() {
    PipelineOptions o;
    o.compile.threads = 1;
    o.passes.verify_each = true;
    return o;
}

std::string outcome(Session& session, const std::vector<Tensor>& inputs, std::vector<Tensor>* outputs = nullptr) {
    try {
        std::vector<Tensor> out = session.run(inputs);
        if (outputs != nullptr) *outputs = std::move(out);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "accepted";
}

TEST(OpenShapes, SessionsRefuseInvalidSizes) {
    for (const OpenCase& c : test::open_cases()) {
        const Compilation compiled = compile_model(c.model(), options());
        Session session(compiled.model, 1);
        const std::vector<Tensor> fitting = open_inputs(c.inputs, c.fitting);
        for (int round = 0; round < 2; ++round) {
            EXPECT_THAT(outcome(session, open_inputs(c.inputs, c.misfit)), HasSubstr(c.says)) << c.name;
            EXPECT_THAT(outcome(session, open_inputs(c.inputs, c.misfit)), HasSubstr(c.says)) << c.name << ", again";
            std::vector<Tensor> outputs;
            ASSERT_EQ(outcome(session, fitting, &outputs), "accepted") << c.name;
            EXPECT_LE(largest_difference(interpret(compiled.program, fitting), outputs), 1e-5) << c.name;
        }
    }
}

TEST(OpenShapes, ErrorsNameTheInputsOfTheDimensions) {
    const OpenCase c = test::open_cases().front();
    const Compilation compiled = compile_model(c.model(), options());
    Session session(compiled.model, 1);
    try {
        session.run(open_inputs(c.inputs, c.misfit));
        FAIL() << "not refused";
    } catch (const ModelError& e) {
        EXPECT_STREQ(e.what(), "node 'MatMul0' (MatMul, opset 17): dimensions K = 3 and L = 4 differ");
        EXPECT_EQ(e.hint(), "give inputs whose sizes fit: K is dimension 1 of 'a', L is dimension 0 of 'b'");
    }
}

/// Winograd's results are tiles of pixels, and images end inside of one.
TEST(OpenShapes, ConvolutionsOfEverySizeAreRight) {
    constexpr int64_t kChannels = 32;
    Tensor weights(DType::F32, {kChannels, kChannels, 3, 3});
    for (int64_t i = 0; i < weights.count(); ++i) weights.set(i, static_cast<double>(i % 13 - 6) / 64);
    const auto convolution = [](const char* from, const char* to) {
        return node("Conv", {from, "w"}, {to}, {{"pads", test::ints({1, 1, 1, 1})}});
    };
    PipelineOptions on = options();
    // Vectors of 64 bytes make these direct convolutions.
    if (host_target().isa == VectorIsa::avx512) on.compile.machine = generic_target(VectorIsa::avx2);
    const Compilation c =
        compile_model(model(graph({{"x", DType::F32, {"n", int64_t{kChannels}, "h", "w"}}},
                                  {convolution("x", "a"), node("Relu", {"a"}, {"b"}), convolution("b", "c"),
                                   node("Add", {"c", "x"}, {"d"}), node("GlobalAveragePool", {"d"}, {"e"})},
                                  {"d", "e"}, {{"w", weights}})),
                      on);
    const auto& kernels = c.model->kernels();
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [](const TileProgram& k) {
        return print(k).find("weigh(") != std::string::npos;
    })) << "no kernel is a Winograd transform";
    Session session(c.model, 1);
    for (int64_t h = 1; h <= 17; ++h) {
        const int64_t w = (h * 5) % 17 + 1;
        Tensor x(DType::F32, {2, kChannels, h, w});
        for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>((i * 7) % 23 - 11) / 16);
        EXPECT_LE(largest_difference(interpret(c.program, {x}), session.run({x})), 1e-4) << h << " x " << w;
    }
}

TEST(OpenShapes, SessionsCheckDataDependentSizes) {
    const Compilation c =
        compile_model(model(graph({{"a", DType::F32, {"N"}}, {"n", DType::I64, {1}}, {"b", DType::F32, {"M"}}},
                                  {node("Constant", {}, {"z"}, {{"value", whole({1}, {0})}}),
                                   node("Slice", {"a", "z", "n"}, {"s"}), node("Add", {"s", "b"}, {"y"})},
                                  {"y"})),
                      options());
    Session session(c.model, 1);
    const auto with = [&](int64_t n) {
        return outcome(session, {floats({4}, {1, 2, 3, 4}), whole({1}, {n}), floats({2}, {1, 1})});
    };
    EXPECT_EQ(with(2), "accepted");
    EXPECT_THAT(with(3), HasSubstr("= 3 and M = 2 do not broadcast"));
    EXPECT_EQ(with(1), "accepted") << "with sizes of the inputs that were refused before";
}

TEST(OpenShapes, SessionsRefuseNumbersBelowZeroAndBeyond64Bits) {
    for (const test::SaidCase& c : test::said_cases()) {
        const Compilation compiled = compile_model(c.model(), options());
        Session session(compiled.model, 1);
        for (int round = 0; round < 2; ++round) {
            EXPECT_THAT(outcome(session, c.with(c.misfit)), HasSubstr(c.says)) << c.op;
            EXPECT_EQ(outcome(session, c.with(c.fitting)), "accepted") << c.op;
        }
    }
}

TEST(OpenShapes, SessionsCheckEachIterationOfALoop) {
    const Graph body =
        graph({{"i", DType::I64, {}}, {"c", DType::Bool, {}}, {"h", DType::F32, {"H"}}},
              {node("Add", {"h", "b"}, {"sum"}), node("Concat", {"sum", "sum"}, {"h_out"}, {{"axis", int64_t{0}}}),
               node("Identity", {"c"}, {"c_out"})},
              {"c_out", "h_out"});
    const Compilation compiled = compile_model(
        model(graph({{"n", DType::I64, {}}, {"a", DType::F32, {"N"}}, {"b", DType::F32, {"M"}}},
                    {node("Loop", {"n", "", "a"}, {"y"}, {{"body", std::make_shared<const Graph>(body)}})}, {"y"})),
        options());
    Session session(compiled.model, 1);
    const auto with = [&](int64_t trips, int64_t n, int64_t m) {
        return outcome(session, {whole({}, {trips}), Tensor(DType::F32, {n}), Tensor(DType::F32, {m})});
    };
    EXPECT_EQ(with(3, 2, 1), "accepted");
    EXPECT_THAT(with(2, 3, 3), HasSubstr(" = 6 and M = 3 do not broadcast")) << "the second iteration has 6";
    EXPECT_EQ(with(1, 3, 3), "accepted");
    EXPECT_EQ(with(0, 2, 3), "accepted") << "nothing is added";
}

/// Sessions refuse exactly what the interpreter refuses; the tests of ops show that accepted programs stay in bounds.
TEST(OpenShapes, SessionsAndTheInterpreterRefuseTheSame) {
    int ran = 0, refused = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        const OpenDraw draw(seed);
        Compilation c;
        try {
            c = compile_model(draw.model(), options());
        } catch (const ModelError&) {
            continue;
        }
        const std::vector<Tensor> inputs = open_inputs(draw.inputs, draw.shapes);
        std::vector<Tensor> expected, actual;
        std::string by_interpreter = "accepted";
        try {
            expected = interpret(c.program, inputs);
        } catch (const ModelError& e) {
            by_interpreter = e.what();
        }
        Session session(c.model, 1);
        const std::string by_session = outcome(session, inputs, &actual);
        EXPECT_EQ(by_session == "accepted", by_interpreter == "accepted")
            << seed << ": " << draw.describe() << ": " << by_session << ", " << by_interpreter;
        if (by_session == "accepted" && by_interpreter == "accepted") {
            EXPECT_LE(largest_difference(expected, actual), 1e-4) << seed << ": " << draw.describe();
        }
        ++(by_session == "accepted" ? ran : refused);
    }
    EXPECT_GT(ran, 30);
    EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace tilewright
