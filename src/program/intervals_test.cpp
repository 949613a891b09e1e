#include "program/intervals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/random_program.h"

namespace tilewright {
namespace {

/// The interval of the last primitive, for inputs in [-2, 3].
RealInterval last_of(std::string_view text) {
    const Program p = parse_program(text);
    std::map<ValueId, RealInterval> known;
    for (const ValueId v : p.inputs) known[v] = {-2, 3};
    for (const auto& [v, t] : p.constants) known[v] = interval_of(t);
    RealInterval last;
    for (const Primitive& q : p.primitives)
        last = known[q.outputs[0]] = interval_of(p, *q.expr(), [&](ValueId v) { return known[v]; });
    return last;
}

RealInterval of_map(const std::string& body) {
    return last_of("program p {\n  input x: f32[4]\n  y: f32[4] = [4] " + body +
                   " where @0 = x[i0]  ; y \"\"\n  output y\n}\n");
}

TEST(Intervals, OfScalarOperations) {
    const std::vector<std::pair<std::string, RealInterval>> cases = {
        {"add(@0, 1.0)", {-1, 4}},
        {"sub(1.0, @0)", {-2, 3}},
        {"mul(@0, -2.0)", {-6, 4}},
        {"mul(@0, @0)", {0, 9}},
        {"max(@0, 0.0)", {0, 3}},
        {"min(max(@0, 0.0), 1.5)", {0, 1.5}},
        {"neg(@0)", {-3, 2}},
        {"abs(@0)", {0, 3}},
        {"tanh(@0)", {-1, 1}},
        {"div(1.0, add(@0, 3.0))", {1.0 / 6, 1}},
        {"div(1.0, @0)", RealInterval{}},
        {"sqrt(@0)", RealInterval{}},
        {"log(@0)", RealInterval{}},
        {"exp(mul(@0, 1000.0))", RealInterval{}},
        {"div(1.0, add(1.0, exp(neg(@0))))", {1 / (1 + std::exp(2.0)), 1}},
    };
    for (const auto& [body, expected] : cases) {
        const RealInterval found = of_map(body);
        EXPECT_NEAR(found.low == expected.low ? 0 : found.low - expected.low, 0, 1e-12) << body;
        EXPECT_NEAR(found.high == expected.high ? 0 : found.high - expected.high, 0, 1e-12) << body;
    }
}

TEST(Intervals, OfSumsUseTheLargestRowOfWeights) {
    EXPECT_EQ(last_of(R"(program p {
  input x: f32[3]
  const w: f32[2, 3] = {1, -2, 1, 0, 1, 0}
  y: f32[2] = [2] sum(i1 < 3) mul(@0, @1) where @0 = w[i0, i1], @1 = x[i1]  ; y ""
  output y
}
)"),
              (RealInterval{-12, 12}));
    EXPECT_EQ(last_of(R"(program p {
  input x: f32[3]
  y: f32[] = [] sum(i0 < 3) @0 where @0 = x[i0]  ; y ""
  output y
}
)"),
              (RealInterval{-6, 9}));
    EXPECT_EQ(last_of(R"(program p {
  input x: f32[$n]
  y: f32[] = [] sum(i0 < $n) @0 where @0 = x[i0]  ; y ""
  output y
}
)"),
              RealInterval{});
}

TEST(Intervals, OfANonFiniteConstantAreUnbounded) {
    EXPECT_EQ(interval_of(Tensor::of<float>(DType::F32, {3}, {1, -2, 0})), (RealInterval{-2, 1}));
    EXPECT_EQ(interval_of(Tensor::of<float>(DType::F32, {2}, {1, NAN})), RealInterval{});
    EXPECT_EQ(interval_of(Tensor::of<float>(DType::F32, {2}, {1, INFINITY})), RealInterval{});
    EXPECT_EQ(interval_of(Tensor::of<int64_t>(DType::I64, {2}, {-7, 9})), (RealInterval{-7, 9}));
}

/// All values computed by the interpreter lie in the interval.
TEST(Intervals, ContainTheValuesOfRandomPrograms) {
    int checked = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        RandomProgramOptions options;
        options.other_types = false;  // f16 rounding errors are larger
        const Program p = random_program(seed, 6, options);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        std::map<ValueId, RealInterval> known;
        for (size_t k = 0; k < p.inputs.size(); ++k) known[p.inputs[k]] = interval_of(inputs[k]);
        for (const auto& [v, t] : p.constants) known[v] = interval_of(t);
        for (const Primitive& q : p.primitives)
            for (const ValueId v : q.outputs)
                known[v] = q.expr() == nullptr ? RealInterval{}
                                               : interval_of(p, *q.expr(), [&](ValueId o) { return known[o]; });
        const std::vector<Tensor> outputs = interpret(p, inputs);
        for (size_t k = 0; k < outputs.size(); ++k) {
            const RealInterval interval = known[p.outputs[k]];
            if (!interval.is_bounded() || outputs[k].count() == 0) continue;
            const RealInterval found = interval_of(outputs[k]);
            const double slack = 1e-5 * interval.magnitude();
            EXPECT_GE(found.low, interval.low - slack) << seed << "\n" << print(p);
            EXPECT_LE(found.high, interval.high + slack) << seed << "\n" << print(p);
            ++checked;
        }
    }
    EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace tilewright
