// Pools against their definition, and edge cases: padding, ceilings, positions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

struct PoolAxis {
    int64_t in, kernel, stride, dilation, before, after;
    bool ceil;

    int64_t reach() const { return (kernel - 1) * dilation + 1; }
    int64_t out() const {
        const int64_t room = in + before + after - reach();
        int64_t n = (ceil ? (room + stride - 1) / stride : room / stride) + 1;
        if ((n - 1) * stride >= in + before) --n;  // a window that would start in the end padding
        return n;
    }
};

PoolAxis random_pool_axis(bool ceil) {
    PoolAxis a{};
    a.kernel = *rc::gen::inRange<int64_t>(1, 4);
    a.stride = *rc::gen::inRange<int64_t>(1, 4);
    a.dilation = *rc::gen::inRange<int64_t>(1, 3);
    a.before = *rc::gen::inRange<int64_t>(0, a.kernel);
    a.after = *rc::gen::inRange<int64_t>(0, a.kernel);
    a.ceil = ceil;
    a.in = std::max<int64_t>(1, a.reach()) + *rc::gen::inRange<int64_t>(0, 6);
    return a;
}

/// One window of one image: the elements inside, by position.
template <class F>
void each_inside(const PoolAxis& h, const PoolAxis& w, int64_t oy, int64_t ox, const F& f) {
    for (int64_t ky = 0; ky < h.kernel; ++ky)
        for (int64_t kx = 0; kx < w.kernel; ++kx) {
            const int64_t y = oy * h.stride + ky * h.dilation - h.before,
                          x = ox * w.stride + kx * w.dilation - w.before;
            f(y, x, y >= 0 && y < h.in && x >= 0 && x < w.in,
              y >= -h.before && y < h.in + h.after && x >= -w.before && x < w.in + w.after);
        }
}

std::map<std::string, Attribute> attributes(const PoolAxis& h, const PoolAxis& w) {
    return {{"kernel_shape", ints({h.kernel, w.kernel})},
            {"strides", ints({h.stride, w.stride})},
            {"dilations", ints({h.dilation, w.dilation})},
            {"pads", ints({h.before, w.before, h.after, w.after})},
            {"ceil_mode", int64_t{h.ceil ? 1 : 0}}};
}

Tensor noise(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    std::mt19937 random(7);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(static_cast<int64_t>(random() % 41) - 20));
    return t;
}

RC_GTEST_PROP(MaxPool, returns_each_window_maximum_and_its_first_position, ()) {
    const bool ceil = *rc::gen::arbitrary<bool>(), columns = *rc::gen::arbitrary<bool>();
    const PoolAxis h = random_pool_axis(ceil), w = random_pool_axis(ceil);
    const Tensor x = noise({2, 2, h.in, w.in});
    auto attrs = attributes(h, w);
    attrs["storage_order"] = int64_t{columns ? 1 : 0};
    const std::vector<Tensor> out = run("MaxPool", {x}, attrs, 12, {}, 2);
    RC_ASSERT(out[0].shape() == (Shape{2, 2, h.out(), w.out()}));
    for (int64_t at = 0; at < out[0].count(); ++at) {
        const int64_t image = at / (h.out() * w.out()), oy = at / w.out() % h.out(), ox = at % w.out();
        double largest = -INFINITY;
        int64_t position = -1;
        each_inside(h, w, oy, ox, [&](int64_t y, int64_t xx, bool inside, bool) {
            if (!inside) return;
            const double v = x.get((image * h.in + y) * w.in + xx);
            if (v <= largest) return;
            largest = v;
            position = image * h.in * w.in + (columns ? y + xx * h.in : y * w.in + xx);
        });
        RC_PRE(position >= 0);  // a dilated window can lie entirely in the padding
        RC_ASSERT(out[0].get(at) == largest);
        RC_ASSERT(out[1].get_int(at) == position);
    }
}

RC_GTEST_PROP(AveragePool, divides_by_the_count_with_or_without_padding, ()) {
    const bool ceil = *rc::gen::arbitrary<bool>(), padding = *rc::gen::arbitrary<bool>();
    const PoolAxis h = random_pool_axis(ceil), w = random_pool_axis(ceil);
    const Tensor x = noise({1, 2, h.in, w.in});
    auto attrs = attributes(h, w);
    attrs["count_include_pad"] = int64_t{padding ? 1 : 0};
    const Tensor y = run("AveragePool", {x}, attrs, 19).front();
    RC_ASSERT(y.shape() == (Shape{1, 2, h.out(), w.out()}));
    for (int64_t at = 0; at < y.count(); ++at) {
        const int64_t image = at / (h.out() * w.out()), oy = at / w.out() % h.out(), ox = at % w.out();
        double sum = 0;
        int64_t count = 0;
        each_inside(h, w, oy, ox, [&](int64_t row, int64_t column, bool inside, bool padded) {
            if (inside) sum += x.get((image * h.in + row) * w.in + column);
            if (padding ? padded : inside) ++count;
        });
        RC_PRE(count > 0);
        RC_ASSERT(std::fabs(y.get(at) - sum / static_cast<double>(count)) <= 1e-5);
    }
}

TEST(MaxPool, of_integers_is_padded_with_the_least_of_them) {
    const Tensor x = tensor<int>(DType::I8, {1, 1, 2}, {-100, -128});
    EXPECT_THAT(numbers(run("MaxPool", {x}, {{"kernel_shape", ints({2})}, {"pads", ints({1, 1})}}, 12).front()),
                ElementsAre(-100, -100, -128));
}

TEST(MaxPool, finds_the_position_if_all_elements_are_minus_infinity) {
    const float inf = INFINITY;
    const auto out = run("MaxPool", {floats({1, 1, 2}, {-inf, -inf})},
                         {{"kernel_shape", ints({2})}, {"pads", ints({1, 1})}}, 12, {}, 2);
    EXPECT_THAT(numbers(out[1]), ElementsAre(0, 0, 1));
}

TEST(AveragePool, without_padding_divides_by_a_number) {
    const Program p = lower(model(
        graph({{"x", DType::F32, {1, 1, "h"}}},
              {node("AveragePool", {"x"}, {"y"}, {{"kernel_shape", ints({2})}, {"strides", ints({2})}})}, {"y"})));
    EXPECT_THAT(primitives(p), HasSubstr("div(@0, 2.0)"));
}

TEST(LpPool, takes_the_root_of_the_sum_of_powers) {
    const Tensor x = floats({1, 1, 3}, {3, -4, 0});
    const auto norm = [&](int64_t p) {
        return numbers(run("LpPool", {x}, {{"kernel_shape", ints({2})}, {"p", p}}, 18).front());
    };
    EXPECT_THAT(norm(1), ElementsAre(7, 4));
    EXPECT_THAT(norm(2), ElementsAre(5, 4));
    EXPECT_NEAR(norm(3)[0], std::cbrt(27.0 + 64.0), 1e-5);
    EXPECT_THAT(numbers(run("GlobalLpPool", {x}, {}, 2).front()), ElementsAre(5));
}

TEST(MaxUnpool, inverts_max_pool) {
    const Tensor x = noise({1, 2, 4, 6});
    const std::map<std::string, Attribute> attrs = {{"kernel_shape", ints({2, 2})}, {"strides", ints({2, 2})}};
    const auto pooled = run("MaxPool", {x}, attrs, 12, {}, 2);
    const Tensor y = run("MaxUnpool", pooled, attrs, 11).front();
    ASSERT_EQ(y.shape(), x.shape());
    for (int64_t i = 0; i < y.count(); ++i) EXPECT_TRUE(y.get(i) == 0 || y.get(i) == x.get(i));
    const auto again = run("MaxPool", {y}, attrs, 12);
    for (int64_t i = 0; i < again[0].count(); ++i) EXPECT_EQ(again[0].get(i), std::max(0.0, pooled[0].get(i)));
}

TEST(MaxUnpool, rejects_positions_outside_its_output) {
    EXPECT_THROW(run("MaxUnpool", {floats({1, 1, 1}, {1}), whole({1, 1, 1}, {9})}, {{"kernel_shape", ints({2})}}, 11),
                 ModelError);
}

}  // namespace
}  // namespace tilewright
