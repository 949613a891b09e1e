#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "ops/rule_test.h"

namespace tilewright::test {
namespace {

std::vector<float> noise(int64_t n) {
    std::vector<float> v;
    for (int64_t k = 0; k < n; ++k) v.push_back(static_cast<float>(k * 7919 % 101) / 50 - 1);
    return v;
}

void expect_near(const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    for (int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.get(i), b.get(i), 1e-4) << "element " << i;
}

/// The definition: sums of x[n] * exp(-2 pi i n k / N).
Tensor by_definition(const std::vector<float>& x, int64_t bins) {
    const auto n = static_cast<int64_t>(x.size());
    Tensor y(DType::F32, {1, bins, 2});
    for (int64_t k = 0; k < bins; ++k) {
        double re = 0, im = 0;
        for (int64_t t = 0; t < n; ++t) {
            const double angle = -2 * std::numbers::pi * static_cast<double>(t * k) / static_cast<double>(n);
            re += static_cast<double>(x[static_cast<size_t>(t)]) * std::cos(angle);
            im += static_cast<double>(x[static_cast<size_t>(t)]) * std::sin(angle);
        }
        y.set(2 * k, re);
        y.set(2 * k + 1, im);
    }
    return y;
}

TEST(Dft, MatchesItsDefinitionForConstantAndDynamicLength) {
    for (const int64_t n : {1, 2, 7, 12, 30}) {
        const Tensor x = floats({1, n, 1}, noise(n)), length = whole({}, {n});
        const Tensor want = by_definition(noise(n), n);
        expect_near(run("DFT", {x, length}, {}, 17, {1})[0], want);
        expect_near(run("DFT", {x, length}, {}, 17)[0], want);
        const Tensor half = by_definition(noise(n), n / 2 + 1);
        expect_near(run("DFT", {x, length}, {{"onesided", int64_t{1}}}, 17, {1})[0], half);
        expect_near(run("DFT", {x, length}, {{"onesided", int64_t{1}}}, 17)[0], half);
    }
}

TEST(Dft, InverseRestoresTheSignal) {
    for (const bool known : {true, false})
        for (const int64_t n : {6, 9}) {
            const std::vector<size_t> constant = known ? std::vector<size_t>{1} : std::vector<size_t>{};
            const Tensor x = floats({1, n, 1}, noise(n)), length = whole({}, {n});
            const auto flag = [](const char* name) {
                return std::pair<const std::string, Attribute>(name, int64_t{1});
            };
            const Tensor half = run("DFT", {x, length}, {flag("onesided")}, 20, constant)[0];
            if (!known) expect_near(run("DFT", {x, length, whole({}, {-2})}, {flag("onesided")}, 20)[0], half);
            expect_near(run("DFT", {half, length}, {flag("onesided"), flag("inverse")}, 20, constant)[0], x);
            const Tensor full = run("DFT", {x, length}, {}, 20, constant)[0];
            const Tensor back = run("DFT", {full, length}, {flag("inverse")}, 20, constant)[0];
            for (int64_t k = 0; k < n; ++k) EXPECT_NEAR(back.get(2 * k), x.get(k), 1e-4);
        }
}

TEST(Dft, CutsOrPadsTheSignalToItsLength) {
    for (const bool known : {true, false}) {
        const std::vector<size_t> constant = known ? std::vector<size_t>{1} : std::vector<size_t>{};
        std::vector<float> v = noise(5);
        const Tensor x = floats({1, 5, 1}, v);
        v.resize(3);
        expect_near(run("DFT", {x, whole({}, {3})}, {}, 17, constant)[0], by_definition(v, 3));
        v = noise(5);
        v.resize(8);
        expect_near(run("DFT", {x, whole({}, {8})}, {}, 17, constant)[0], by_definition(v, 8));
    }
}

TEST(Stft, IsTheTransformOfEveryWindowedFrame) {
    const std::vector<float> x = noise(20), window = {0.5F, 1, 2, 1, 0.5F, 0.25F};
    for (const bool known : {true, false}) {
        const std::vector<size_t> constant = known ? std::vector<size_t>{1, 2} : std::vector<size_t>{};
        const Tensor y = run("STFT", {floats({1, 20, 1}, x), whole({}, {4}), floats({6}, window)}, {}, 17, constant)[0];
        ASSERT_EQ(y.shape(), (Shape{1, 4, 4, 2}));
        for (int64_t f = 0; f < 4; ++f) {
            std::vector<float> frame;
            for (size_t n = 0; n < 6; ++n) frame.push_back(x[static_cast<size_t>(4 * f) + n] * window[n]);
            const Tensor want = by_definition(frame, 4);
            for (int64_t k = 0; k < 8; ++k) EXPECT_NEAR(y.get(f * 8 + k), want.get(k), 1e-4);
        }
    }
}

TEST(MelWeightMatrix, HasATriangleForEachBand) {
    const Tensor w = run("MelWeightMatrix",
                         {whole({}, {4}), whole({}, {64}), whole({}, {8000}), floats({}, {0}), floats({}, {4000})})[0];
    ASSERT_EQ(w.shape(), (Shape{33, 4}));
    for (int64_t band = 0; band < 4; ++band) {
        double most = 0;
        for (int64_t k = 0; k < 33; ++k) most = std::max(most, w.get(k * 4 + band));
        EXPECT_EQ(most, 1);
    }
}

TEST(MelWeightMatrix, BeyondMemoryIsRejected) {
    const Program p = lower(model(
        graph({{"n", DType::I64, {}}}, {node("MelWeightMatrix", {"n", "l", "r", "a", "b"}, {"y"})}, {"y"},
              {{"l", whole({}, {16})}, {"r", whole({}, {8000})}, {"a", floats({}, {0})}, {"b", floats({}, {4000})}})));
    EXPECT_THROW(interpret(p, {whole({}, {int64_t{1} << 50})}), std::exception);
}

}  // namespace
}  // namespace tilewright::test
