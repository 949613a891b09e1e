// Reductions, positions of extrema, running sums, softmax.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;
using namespace test;

const std::vector<std::string> kReductions = {"ReduceSum",       "ReduceProd",     "ReduceMax", "ReduceMin",
                                              "ReduceMean",      "ReduceL1",       "ReduceL2",  "ReduceLogSum",
                                              "ReduceSumSquare", "ReduceLogSumExp"};

RC_GTEST_PROP(Reduce, with_dynamic_axes_equals_constant_axes, ()) {
    const std::string op = *rc::gen::elementOf(kReductions);
    const DType t = *rc::gen::element(DType::F32, DType::F64, DType::I32, DType::I64);
    std::vector<int64_t> axes = *rc::gen::element(std::vector<int64_t>{1}, std::vector<int64_t>{-1, 0},
                                                  std::vector<int64_t>{}, std::vector<int64_t>{0, 1, 2});
    Tensor x(t, {2, 3, 2});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, *rc::gen::inRange<int64_t>(1, 9));
    const std::map<std::string, Attribute> attrs = {
        {"keepdims", *rc::gen::element(int64_t{0}, int64_t{1})},
        {"noop_with_empty_axes", *rc::gen::element(int64_t{0}, int64_t{1})}};
    RC_PRE(!axes.empty() || std::get<int64_t>(attrs.at("keepdims")) == 1);
    const Tensor known = run(op, {x, Tensor::of_i64(axes)}, attrs, 18, {1}).front();
    const Tensor free = run(op, {x, Tensor::of_i64(axes)}, attrs, 18).front();
    RC_ASSERT(known.shape() == free.shape());
    RC_ASSERT(known.dtype() == t);
    for (int64_t i = 0; i < known.count(); ++i)
        RC_ASSERT(std::fabs(known.get(i) - free.get(i)) <= 1e-5 * std::fabs(free.get(i)));
}

TEST(Reduce, without_axes_takes_all_or_none) {
    const Tensor x = floats({2, 2}, {1, 2, 3, 4});
    const auto sum = [&](int64_t none) {
        return run("ReduceSumSquare", {x, Tensor::of_i64({})}, {{"noop_with_empty_axes", none}}, 18, {1}).front();
    };
    EXPECT_THAT(numbers(sum(0)), ElementsAre(30));
    EXPECT_EQ(sum(0).shape(), (Shape{1, 1}));
    EXPECT_THAT(numbers(sum(1)), ElementsAre(1, 4, 9, 16));
    EXPECT_THAT(numbers(run("ReduceSum", {x}, {{"axes", ints({0})}, {"keepdims", int64_t{0}}}, 11).front()),
                ElementsAre(4, 6));
}

TEST(Reduce, of_an_empty_tensor_returns_the_identity) {
    const Tensor none(DType::F32, {2, 0});
    const auto of = [&](const std::string& op) { return numbers(run(op, {none}, {{"axes", ints({1})}}, 13).front()); };
    EXPECT_THAT(numbers(run("ReduceSum", {none}, {{"axes", ints({1})}}, 11).front()), Each(0));
    EXPECT_THAT(of("ReduceProd"), Each(1));
    EXPECT_THAT(of("ReduceMax"), Each(-INFINITY));
    EXPECT_THAT(of("ReduceMin"), Each(INFINITY));
    EXPECT_THAT(of("ReduceLogSumExp"), Each(-INFINITY));
}

TEST(ReduceLogSumExp, neither_overflows_nor_loses_infinities) {
    const auto of = [](const std::vector<float>& v) {
        return run("ReduceLogSumExp", {floats({static_cast<int64_t>(v.size())}, v)}).front().get(0);
    };
    EXPECT_NEAR(of({1000, 1000}), 1000 + std::log(2.0), 1e-3);
    EXPECT_EQ(of({-kInf, -kInf}), -INFINITY);
    EXPECT_EQ(of({0, kInf}), INFINITY);
    EXPECT_THAT(of({0, NAN}), IsNan());
}

TEST(ArgMax, returns_the_first_or_last_of_ties_and_treats_nan_as_largest) {
    const Tensor x = floats({2, 4}, {1, 5, 5, 0, 2, NAN, 9, NAN});
    const auto at = [&](const std::string& op, int64_t last) {
        return numbers(
            run(op, {x}, {{"axis", int64_t{-1}}, {"select_last_index", last}, {"keepdims", int64_t{0}}}).front());
    };
    EXPECT_THAT(at("ArgMax", 0), ElementsAre(1, 1));
    EXPECT_THAT(at("ArgMax", 1), ElementsAre(2, 3));
    EXPECT_THAT(at("ArgMin", 0), ElementsAre(3, 1));
}

TEST(CumSum, supports_reverse_and_exclusive) {
    const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
    const auto of = [&](int64_t exclusive, int64_t reverse) {
        return numbers(run("CumSum", {x, whole({}, {1})}, {{"exclusive", exclusive}, {"reverse", reverse}}).front());
    };
    EXPECT_THAT(of(0, 0), ElementsAre(1, 3, 6, 4, 9, 15));
    EXPECT_THAT(of(1, 0), ElementsAre(0, 1, 3, 0, 4, 9));
    EXPECT_THAT(of(0, 1), ElementsAre(6, 5, 3, 15, 11, 6));
    EXPECT_THAT(of(1, 1), ElementsAre(5, 3, 0, 11, 6, 0));
    EXPECT_THROW(run("CumSum", {x, whole({}, {2})}), ModelError);
}

// --- softmax

TEST(Softmax, is_four_primitives) {
    const Program p = lower(model(graph({{"x", DType::F32, {"n", 8}}}, {node("Softmax", {"x"}, {"y"})}, {"y"})));
    EXPECT_THAT(primitives(p), testing::AllOf(HasSubstr("max(i2 < 8) @0"), HasSubstr("sub(@0, @1)"),
                                              HasSubstr("exp(@0)"), HasSubstr("div(@0, @1)")))
        << primitives(p);
}

TEST(Softmax, before_opset_13_runs_over_all_dimensions_from_its_axis_on) {
    const Tensor x = floats({1, 2, 2}, {0, 0, 0, 0});
    EXPECT_THAT(numbers(run("Softmax", {x}, {}, 11).front()), Each(0.25));
    EXPECT_THAT(numbers(run("Softmax", {x}, {}, 13).front()), Each(0.5));
    EXPECT_THAT(numbers(run("Hardmax", {x}, {}, 11).front()), ElementsAre(1, 0, 0, 0));
    EXPECT_THAT(numbers(run("Hardmax", {x}, {}, 13).front()), ElementsAre(1, 0, 1, 0));
    EXPECT_NEAR(run("LogSoftmax", {x}, {}, 11).front().get(0), -std::log(4.0), 1e-6);
}

TEST(Softmax, does_not_overflow_and_returns_nan_for_a_row_without_finite_numbers) {
    EXPECT_THAT(numbers(run("Softmax", {floats({2}, {1000, 1000})}).front()), Each(0.5));
    EXPECT_THAT(numbers(run("Softmax", {floats({2}, {-kInf, 0})}).front()), ElementsAre(0, 1));
    EXPECT_THAT(numbers(run("Softmax", {floats({2}, {-kInf, -kInf})}).front()), Each(IsNan()));
}

}  // namespace
}  // namespace tilewright
