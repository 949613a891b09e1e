// Invalid data values are rejected at run time, or at compile time if they are constant.

#include "ops/checked_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"
#include "program/transform/dead_code.h"

namespace tilewright {
namespace {

using test::graph;
using test::In;
using test::model;
using test::node;
using test::whole;
using testing::HasSubstr;

/// One node with run-time inputs, and values of the last one.
struct Case {
    std::string op;
    std::vector<Tensor> inputs;
    Tensor wrong, right;
    std::string message;
    std::map<std::string, Attribute> attributes = {};
    int64_t opset = 18;
};

Tensor numbered(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i));
    return t;
}

std::vector<Case> cases() {
    const Tensor box = numbered({2, 3, 4}), line = numbered({3}), table = numbered({5, 32});
    return {
        {"Expand", {line}, whole({1}, {4}), whole({1}, {3}), "3 do not broadcast"},
        {"Squeeze", {numbered({1, 3, 1})}, whole({1}, {1}), whole({1}, {2}), "squeezed dimensions"},
        {"Squeeze", {numbered({1, 3, 1})}, whole({1}, {3}), whole({1}, {-1}), "highest axis and axis 2 and"},
        {"Unsqueeze", {box}, whole({1}, {99}), whole({1}, {3}), "highest axis and axis 3 and"},
        {"Unsqueeze", {box}, whole({2}, {0, 0}), whole({2}, {0, 4}), "distance of two axes"},
        {"Slice", {box, whole({1}, {0}), whole({1}, {2})}, whole({1}, {8}), whole({1}, {2}), "highest axis and axis 2"},
        {"Slice",
         {box, whole({1}, {0}), whole({1}, {2}), whole({1}, {1})},
         whole({1}, {0}),
         whole({1}, {1}),
         "step max("},
        {"Range", {whole({}, {0}), whole({}, {5})}, whole({}, {0}), whole({}, {2}), "delta max("},
        {"Gather", {table}, whole({2}, {1, 5}), whole({2}, {-5, 4}), "index 5, element 1, is outside [-5, 4]"},
        {"Gather", {table}, whole({2}, {-6, 0}), whole({2}, {-5, 4}), "index -6, element 0, is outside [-5, 4]"},
        {"GatherND", {table}, whole({2, 1}, {1, 5}), whole({2, 1}, {1, 4}), "index 5, element 1, is outside [-5, 4]"},
        {"ReverseSequence",
         {box},
         whole({3}, {0, 2, 3}),
         whole({3}, {0, 1, 2}),
         "length 3, element 2, is outside [0, 2]"},
    };
}

Program program_of(const Case& c, const Tensor& last, bool known, bool check_values = false) {
    std::vector<Tensor> inputs = c.inputs;
    inputs.push_back(last);
    std::vector<In> declared;
    std::vector<std::string> names;
    std::map<std::string, Tensor> initializers;
    for (size_t k = 0; k < inputs.size(); ++k) {
        names.push_back("x" + std::to_string(k));
        if (known && k + 1 == inputs.size())
            initializers[names.back()] = last;
        else
            declared.push_back({names.back(), inputs[k].dtype(), {inputs[k].shape().begin(), inputs[k].shape().end()}});
    }
    LowerOptions options;
    options.check_values = check_values;
    return eliminate_dead_code(
        lower(model(graph(declared, {node(c.op, names, {"y"}, c.attributes)}, {"y"}, std::move(initializers)), c.opset),
              options));
}

std::string outcome(const std::function<void()>& work) {
    try {
        work();
    } catch (const ModelError& e) {
        return e.what();
    }
    return "accepted";
}

TEST(CheckedValues, FromARunAreRejectedWithNodeAndNumber) {
    for (const Case& c : cases()) {
        const Program p = program_of(c, c.wrong, false);
        const auto with = [&](const Tensor& last) {
            std::vector<Tensor> inputs = c.inputs;
            inputs.push_back(last);
            return outcome([&] { interpret(p, inputs); });
        };
        EXPECT_THAT(with(c.wrong), HasSubstr(c.message)) << c.op;
        EXPECT_THAT(with(c.wrong), HasSubstr("(" + c.op + ", opset 18)")) << c.op;
        EXPECT_EQ(with(c.right), "accepted") << c.op;
        EXPECT_EQ(print(parse_program(print(p),
                                      [&](std::string_view) {
                                          for (const Primitive& q : p.primitives)
                                              if (const auto* o = std::get_if<Opaque>(&q.kind)) return o->op;
                                          return std::shared_ptr<const OpaqueOp>();
                                      })),
                  print(p))
            << c.op;
    }
}

TEST(CheckedValues, ThatAreConstantAreRejectedAtCompileTime) {
    for (const Case& c : cases()) {
        EXPECT_THAT(outcome([&] { program_of(c, c.wrong, true); }), HasSubstr("(" + c.op + ", opset 18)")) << c.op;
        EXPECT_EQ(outcome([&] { program_of(c, c.right, true); }), "accepted") << c.op;
    }
}

TEST(CheckedValues, ThatSelectSingleElementsAreCheckedOnRequest) {
    std::vector<int64_t> indices(300, 0);
    indices[1] = 5;
    const Case c = {"GatherElements", {numbered({5, 300})}, whole({1, 300}, indices), {}, "index 5"};
    const std::vector<Tensor> inputs = {c.inputs[0], c.wrong};
    EXPECT_EQ(outcome([&] { interpret(program_of(c, c.wrong, false), inputs); }), "accepted");
    EXPECT_THAT(outcome([&] { interpret(program_of(c, c.wrong, false, true), inputs); }),
                HasSubstr("index 5, element 1, is outside [-5, 4]"));
}

/// A shape computed from data that the result's own shape does not depend on.
TEST(CheckedValues, UsedOnlyByACheckAreComputedOnRequest) {
    const auto program = [](bool check) {
        LowerOptions options;
        options.check_values = check;
        return eliminate_dead_code(
            lower(model(graph({{"x", DType::F32, {3}}, {"n", DType::I64, {1}}},
                              {node("Mul", {"n", "n"}, {"s"}), node("Expand", {"x", "s"}, {"y"})}, {"y"})),
                  options));
    };
    const std::vector<Tensor> inputs = {numbered({3}), whole({1}, {2})};
    EXPECT_EQ(outcome([&] { interpret(program(false), inputs); }), "accepted");
    EXPECT_THAT(outcome([&] { interpret(program(true), inputs); }), HasSubstr("do not broadcast"));
}

TEST(CheckedValues, NearTheEndsOf64BitsDoNotOverflow) {
    constexpr int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
    const Tensor square = numbered({3, 3});
    EXPECT_EQ(test::numbers(test::run("Trilu", {square, whole({}, {kMost})})[0]), std::vector<double>(9, 0));
    EXPECT_EQ(test::numbers(test::run("Trilu", {square, whole({}, {kLeast})})[0]), test::numbers(square));
    const auto range = [](int64_t start, int64_t limit, int64_t delta) {
        return outcome([&] { test::run("Range", {whole({}, {start}), whole({}, {limit}), whole({}, {delta})}); });
    };
    EXPECT_EQ(range(0, -5, -kMost), "accepted");
    EXPECT_THAT(range(0, -5, kLeast), HasSubstr("overflows 64 bits"));
    EXPECT_THAT(range(0, kLeast, -1), HasSubstr("start or limit"));
}

TEST(CheckedValues, AttributesThatContradictShapesAreRejected) {
    const auto lstm = [](int64_t hidden) {
        return outcome([&] {
            test::run("LSTM", {numbered({3, 1, 2}), numbered({1, 8, 2}), numbered({1, 8, 2})},
                      {{"hidden_size", hidden}});
        });
    };
    EXPECT_EQ(lstm(2), "accepted");
    for (const int64_t hidden : {int64_t{-1}, int64_t{0}, int64_t{3}, int64_t{1} << 40})
        EXPECT_THAT(lstm(hidden), HasSubstr("attribute 'hidden_size' should be 2"));
    EXPECT_THAT(outcome([&] {
                    test::run("Split", {numbered({6})}, {{"num_outputs", int64_t{3}}}, 18, {}, 2);
                }),
                HasSubstr("'num_outputs' should be the number of outputs, 2, and is 3"));
}

}  // namespace
}  // namespace tilewright
