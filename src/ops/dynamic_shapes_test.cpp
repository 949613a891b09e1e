// Dynamic dimensions: a mismatch is rejected before any read, with the names and numbers of the dimensions.

#include "ops/dynamic_shapes_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright {
namespace {

using test::floats;
using test::graph;
using test::In;
using test::model;
using test::node;
using test::open;
using test::open_inputs;
using test::OpenCase;
using test::OpenDraw;
using test::whole;
using testing::HasSubstr;
using testing::IsEmpty;

std::string outcome(const Program& p, const std::vector<Tensor>& inputs) {
    try {
        interpret(p, inputs);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "accepted";
}

TEST(DynamicShapes, MismatchesAreRejectedWithNameAndNumber) {
    for (const OpenCase& c : test::open_cases()) {
        const Program p = lower(c.model());
        EXPECT_THAT(verify(p), IsEmpty()) << c.name;
        EXPECT_THAT(outcome(p, open_inputs(c.inputs, c.misfit)), HasSubstr(c.says)) << c.name;
        EXPECT_EQ(outcome(p, open_inputs(c.inputs, c.fitting)), "accepted") << c.name;
        EXPECT_EQ(print(parse_program(print(p))), print(p)) << c.name;
    }
}

TEST(DynamicShapes, ConstantDimensionsNeedNoRequirements) {
    for (OpenCase c : test::open_cases()) {
        for (size_t k = 0; k < c.inputs.size(); ++k) c.inputs[k].shape.assign(c.fitting[k].begin(), c.fitting[k].end());
        EXPECT_THAT(lower(c.model()).requirements, IsEmpty()) << c.name;
        for (size_t k = 0; k < c.inputs.size(); ++k) c.inputs[k].shape.assign(c.misfit[k].begin(), c.misfit[k].end());
        EXPECT_THROW(lower(c.model()), ModelError) << c.name;
    }
}

TEST(DynamicShapes, ScalarsAreCheckedWhenRead) {
    // a[?n] + b: the number of elements of a is data-dependent.
    const Program p = lower(model(graph({{"a", DType::F32, {"N"}}, {"n", DType::I64, {1}}, {"b", DType::F32, {"M"}}},
                                        {node("Constant", {}, {"z"}, {{"value", whole({1}, {0})}}),
                                         node("Slice", {"a", "z", "n"}, {"s"}), node("Add", {"s", "b"}, {"y"})},
                                        {"y"})));
    EXPECT_THAT(verify(p), IsEmpty());
    const auto with = [&](int64_t n) {
        return outcome(p, {floats({4}, {1, 2, 3, 4}), whole({1}, {n}), floats({2}, {1, 1})});
    };
    EXPECT_EQ(with(2), "accepted");
    EXPECT_EQ(with(1), "accepted");
    EXPECT_THAT(with(3), HasSubstr("= 3 and M = 2 do not broadcast"));
}

TEST(DynamicShapes, NegativeAndOverflowingNumbersAreRejected) {
    for (const test::SaidCase& c : test::said_cases()) {
        const Program p = lower(c.model());
        EXPECT_THAT(verify(p), IsEmpty()) << c.op;
        EXPECT_THAT(outcome(p, c.with(c.misfit)), HasSubstr(c.says))
            << c.op << " " << fmt::format("{}", fmt::join(c.misfit, ", "));
        EXPECT_EQ(outcome(p, c.with(c.fitting)), "accepted")
            << c.op << " " << fmt::format("{}", fmt::join(c.fitting, ", "));
    }
}

TEST(DynamicShapes, BordersWiderThanATensorRepeat) {
    // numpy.pad(range(n), (3, 4), mode)
    const auto padded = [](const std::string& mode, int64_t n) {
        const Program p = lower(model(graph({{"x", DType::F32, {"N"}}},
                                            {node("Constant", {}, {"pads"}, {{"value", whole({2}, {3, 4})}}),
                                             node("Pad", {"x", "pads"}, {"y"}, {{"mode", mode}})},
                                            {"y"}),
                                      19));
        EXPECT_THAT(verify(p), IsEmpty());
        Tensor x(DType::F32, {n});
        for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i));
        return test::numbers(interpret(p, {x}).front());
    };
    EXPECT_EQ(padded("reflect", 5), (std::vector<double>{3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1, 0}));
    EXPECT_EQ(padded("reflect", 2), (std::vector<double>{1, 0, 1, 0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(padded("wrap", 2), (std::vector<double>{1, 0, 1, 0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(padded("wrap", 3), (std::vector<double>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0}));
}

TEST(DynamicShapes, ThousandOperandsWithDimensionsOfTheirOwn) {  // takes seconds per step if every step tests all names
    std::vector<In> inputs;
    std::vector<std::string> names;
    std::vector<Tensor> given;
    for (int k = 0; k < 1000; ++k) {
        names.push_back("a" + std::to_string(k));
        inputs.push_back(open(names.back(), {"D" + std::to_string(k)}));
        given.push_back(floats({1}, {1}));
    }
    const Program p = lower(model(graph(inputs, {node("Sum", names, {"y"})}, {"y"})));
    EXPECT_EQ(p.requirements.size(), 999u);
    given[3] = given[700] = floats({2}, {10, 20});
    EXPECT_EQ(test::numbers(interpret(p, given).front()), (std::vector<double>{1018, 1038}));
    given[999] = Tensor(DType::F32, {3});
    EXPECT_THAT(outcome(p, given), HasSubstr("dimensions 2 and 3 do not broadcast"));
}

TEST(DynamicShapes, EachIterationOfALoopChecksItsInputs) {
    // h = Concat(h, h), and then h + b where b has M elements.
    Graph body =
        graph({{"i", DType::I64, {}}, {"c", DType::Bool, {}}, {"h", DType::F32, {"H"}}},
              {node("Add", {"h", "b"}, {"sum"}), node("Concat", {"sum", "sum"}, {"h_out"}, {{"axis", int64_t{0}}}),
               node("Identity", {"c"}, {"c_out"})},
              {"c_out", "h_out"});
    const Program p = lower(
        model(graph({{"n", DType::I64, {}}, {"a", DType::F32, {"N"}}, {"b", DType::F32, {"M"}}},
                    {node("Loop", {"n", "", "a"}, {"y"}, {{"body", std::make_shared<const Graph>(body)}})}, {"y"})));
    const auto with = [&](int64_t trips, int64_t n, int64_t m) {
        return outcome(p, {whole({}, {trips}), Tensor(DType::F32, {n}), Tensor(DType::F32, {m})});
    };
    EXPECT_EQ(with(3, 2, 1), "accepted");
    EXPECT_EQ(with(1, 3, 3), "accepted");
    EXPECT_THAT(with(2, 3, 3), HasSubstr(" = 6 and M = 3 do not broadcast")) << "the second iteration has 6";
    EXPECT_EQ(with(0, 2, 3), "accepted") << "nothing is added";
}

TEST(DynamicShapes, ScansTakeSequencesOfOneLength) {
    Graph body = graph({{"s", DType::F32, {}}, {"p", DType::F32, {}}, {"q", DType::F32, {}}},
                       {node("Mul", {"p", "q"}, {"m"}), node("Add", {"s", "m"}, {"t"})}, {"t"});
    const Program p =
        lower(model(graph({{"s", DType::F32, {}}, {"p", DType::F32, {"P"}}, {"q", DType::F32, {"Q"}}},
                          {node("Scan", {"s", "p", "q"}, {"y"},
                                {{"body", std::make_shared<const Graph>(body)}, {"num_scan_inputs", int64_t{2}}})},
                          {"y"})));
    const auto with = [&](int64_t n, int64_t m) {
        return outcome(p, {Tensor(DType::F32, {}), Tensor(DType::F32, {n}), Tensor(DType::F32, {m})});
    };
    EXPECT_EQ(with(3, 3), "accepted");
    EXPECT_THAT(with(3, 2), HasSubstr("slices P = 3 and Q = 2 differ"));
}

/// Random operators with random sizes: some run and some are rejected. None reads out of bounds, which the interpreter
/// would report as an InternalError.
TEST(DynamicShapes, AcceptedProgramsReadInBounds) {
    int ran = 0, refused = 0, never = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
        const OpenDraw draw(seed);
        Program p;
        try {
            p = lower(draw.model());
        } catch (const ModelError&) {
            ++never;  // constant dimensions that do not fit, or a missing axis
            continue;
        }
        EXPECT_THAT(verify(p), IsEmpty()) << seed << ": " << draw.describe();
        try {
            interpret(p, open_inputs(draw.inputs, draw.shapes));
            ++ran;
        } catch (const ModelError&) {
            ++refused;
        } catch (const std::exception& e) {
            ADD_FAILURE() << seed << ": " << draw.describe() << ": " << e.what() << "\n" << print(p);
        }
    }
    EXPECT_GT(ran, 500);
    EXPECT_GT(refused, 500);
    EXPECT_LT(never, 750);
}

}  // namespace
}  // namespace tilewright
