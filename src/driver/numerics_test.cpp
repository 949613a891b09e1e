// The guarantees of the three numerics settings: dependences of outputs on inputs, error, and independence of threads.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compile/pipeline.h"
#include "ops/rule_test.h"

namespace tilewright {
namespace {

constexpr int64_t kChannels = 16, kFilters = 32, kSize = 28;

Tensor random_tensor(Shape shape, uint64_t seed, double low, double high) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> number(low, high);
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, number(random));
    return t;
}

/// A convolution of 3x3 taps and a ReLU, which maps negative infinity to 0.
Model convolution() {
    return test::model(test::graph({{"x", DType::F32, {1, kChannels, kSize, kSize}}},
                                   {test::node("Conv", {"x", "w"}, {"c"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}),
                                    test::node("Relu", {"c"}, {"y"})},
                                   {"y"}, {{"w", random_tensor({kFilters, kChannels, 3, 3}, 1, -0.1, 0.1)}}));
}

Compilation compiled(const Model& model, Numerics numerics, int threads = 1) {
    PipelineOptions options;
    options.compile.numerics = numerics;
    options.compile.threads = threads;
    return compile_model(model, options);
}

Tensor with_pixel(double value) {
    Tensor x = random_tensor({1, kChannels, kSize, kSize}, 2, 0, 1);
    x.set(5 * kSize + 5, value);
    return x;
}

bool reads_pixel(int64_t i) {
    const int64_t row = i / kSize % kSize, column = i % kSize;
    return std::abs(row - 5) <= 1 && std::abs(column - 5) <= 1;
}

class NumericsOf : public testing::TestWithParam<Numerics> {};

TEST_P(NumericsOf, ConfinesNonFiniteValuesToTheirWindow) {
    const Compilation c = compiled(convolution(), GetParam());
    if (GetParam() == Numerics::Default) {
        ASSERT_FALSE(c.model->plan().program.requirements.empty()) << "no Winograd here: the test shows nothing";
    }
    Session session(c.model, 1);
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 3e38, 1.0, -HUGE_VAL, 0.5}) {
        const Tensor x = with_pixel(value);
        const Tensor expected = interpret(c.program, {x})[0], found = session.run({x})[0];
        for (int64_t i = 0; i < expected.count(); ++i) {
            if (GetParam() == Numerics::Fast && !(std::fabs(value) <= 1)) continue;
            const double e = expected.get(i), f = found.get(i);
            const bool same = std::isnan(e)   ? std::isnan(f)
                              : std::isinf(e) ? e == f
                                              : std::fabs(e - f) <= 1e-5 * (1 + std::fabs(e));
            ASSERT_TRUE(same) << value << " at " << i << ": " << f << ", expected " << e;
        }
    }
}

TEST_P(NumericsOf, HasErrorsProportionalToTheInputsRead) {
    const Compilation c = compiled(convolution(), GetParam());
    Session session(c.model, 1);
    for (const double value : {1.0, 1e3, 1e4, 1e5, 1e6, 1e8}) {
        const Tensor x = with_pixel(value);
        const Tensor expected = interpret(c.program, {x})[0], found = session.run({x})[0];
        double near = 0, far = 0;  // of outputs that read the pixel, and of all others
        for (int64_t i = 0; i < expected.count(); ++i) {
            double& worst = reads_pixel(i) ? near : far;
            worst = std::max(worst, std::fabs(expected.get(i) - found.get(i)));
        }
        EXPECT_LE(near, 1e-6 * value + 1e-5) << value;
        // Winograd's tiles spread the error of the pixel to other outputs; the default allows that only up to 2^20.
        const bool own = GetParam() == Numerics::Strict || (GetParam() == Numerics::Default && value > 0x1p20);
        EXPECT_LE(far, own ? 1e-5 : 1e-6 * value + 1e-5) << value;
    }
}

INSTANTIATE_TEST_SUITE_P(All, NumericsOf, testing::Values(Numerics::Strict, Numerics::Default, Numerics::Fast),
                         [](const testing::TestParamInfo<Numerics>& n) { return std::string(to_string(n.param)); });

/// Long sums with few results, for which split-K is used when threads would be idle otherwise.
Model reductions() {
    return test::model(test::graph({{"x", DType::F32, {4, 3000}}},
                                   {test::node("MatMul", {"x", "w"}, {"p"}),
                                    test::node("ReduceMean", {"x"}, {"s"}, {{"axes", std::vector<int64_t>{1}}}),
                                    test::node("Add", {"p", "s"}, {"y"})},
                                   {"y"}, {{"w", random_tensor({3000, 20}, 3, -1, 1)}}));
}

TEST(Numerics, StrictGivesEqualBitsForEveryNumberOfThreads) {
    for (const bool picture : {true, false}) {
        const Model m = picture ? convolution() : reductions();
        const std::vector<Tensor> x = {picture ? with_pixel(0.5) : random_tensor({4, 3000}, 4, -1, 1)};
        const Tensor expected = Session(compiled(m, Numerics::Strict, 1).model, 1).run(x)[0];
        for (const int threads : {2, 3, 8, 16}) {
            Session session(compiled(m, Numerics::Strict, threads).model, threads);
            EXPECT_EQ(session.run(x)[0], expected) << threads;
        }
    }
}

}  // namespace
}  // namespace tilewright
