#include "backend/cuda/ulp_error_test.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace tilewright::cuda::test {

namespace {

double mean_magnitude(const Tensor& t) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < t.count(); ++i)
        if (const double x = std::fabs(t.get(i)); std::isfinite(x)) {
            sum += x;
            ++count;
        }
    return count == 0 ? 0 : sum / static_cast<double>(count);
}

/// In ulp of f32; infinite where one is a number and the other is none.
double ulps(double expected, double got, double mean) {
    if (expected == got || (std::isnan(expected) && std::isnan(got))) return 0;
    if (!std::isfinite(expected) || !std::isfinite(got)) return std::numeric_limits<double>::infinity();
    const double scale = std::max({std::fabs(expected), mean, double{std::numeric_limits<float>::min()}});
    return std::fabs(expected - got) / (0x1p-23 * scale);
}

size_t kind_of(double error) {
    const auto* found = std::find_if(std::begin(kErrorKinds), std::end(kErrorKinds),
                                     [&](const ErrorKind& k) { return error <= k.ulps; });
    return static_cast<size_t>(found - kErrorKinds);
}

/// Of integers and Bool: the first element that differs.
std::string integer_text(size_t result, const Tensor& expected, const Tensor& got) {
    for (int64_t i = 0; i < expected.count(); ++i)
        if (expected.get_int(i) != got.get_int(i))
            return fmt::format("element {} of result {} is {} in place of {}", i, result, got.get_int(i),
                               expected.get_int(i));
    return "";
}

}  // namespace

std::string error_text(const std::vector<Tensor>& expected, const std::vector<Tensor>& got) {
    if (expected.size() != got.size()) return fmt::format("{} results in place of {}", got.size(), expected.size());
    double largest = 0;
    size_t result = 0;
    int64_t element = 0;
    for (size_t k = 0; k < expected.size(); ++k) {
        if (expected[k].dtype() != got[k].dtype() || expected[k].shape() != got[k].shape())
            return fmt::format("result {} has another type or shape", k);
        if (!is_float(expected[k].dtype())) {
            if (std::string text = integer_text(k, expected[k], got[k]); !text.empty()) return text;
            continue;
        }
        const double mean = mean_magnitude(expected[k]);
        for (int64_t i = 0; i < expected[k].count(); ++i)
            if (const double error = ulps(expected[k].get(i), got[k].get(i), mean); error > largest) {
                largest = error;
                result = k;
                element = i;
            }
    }
    if (largest == 0) return "";
    const Tensor &e = expected[result], &g = got[result];
    const double mean = mean_magnitude(e);
    const bool finite = std::isfinite(largest);
    const size_t kind = kind_of(largest);
    int64_t as_large = 0;
    for (int64_t i = 0; i < e.count(); ++i) {
        const double error = ulps(e.get(i), g.get(i), mean);
        if (error > 0 && std::isfinite(error) == finite && kind_of(error) == kind) ++as_large;
    }
    const char* what = !finite ? kNoNumber : kind < std::size(kErrorKinds) ? kErrorKinds[kind].what : kOtherElements;
    return fmt::format(
        "largest error {:.3g} ulp, {}, at element {} of result {}: {} in place of {}; {} of {} elements "
        "have errors of that kind",
        largest, what, element, result, g.get(element), e.get(element), as_large, e.count());
}

namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRows = 8, kColumns = 16, kSum = 512;

/// f32 with its last bits off.
float truncated(float x, int bits) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~((uint32_t{1} << (24 - bits)) - 1));
}

/// A product of random matrices, as `add` adds each term to a sum.
Tensor product(const std::function<float(float sum, float a, float b)>& add, int64_t shift = 0) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(0.5F, 1.5F);
    std::vector<float> a(kRows * kSum), b(kSum * kColumns);
    for (float& x : a) x = uniform(random);
    for (float& x : b) x = uniform(random);
    Tensor out(DType::F32, {kRows, kColumns});
    for (int64_t i = 0; i < kRows; ++i)
        for (int64_t j = 0; j < kColumns; ++j) {
            float sum = 0;
            for (int64_t k = 0; k < kSum; ++k)
                sum = add(sum, a[static_cast<size_t>(i * kSum + k)], b[static_cast<size_t>(k * kColumns + j)]);
            out.set((i * kColumns + j + shift) % out.count(), static_cast<double>(sum));
        }
    return out;
}
Tensor with_operands_of(int bits) {
    return product(
        [bits](float sum, float a, float b) { return std::fma(truncated(a, bits), truncated(b, bits), sum); });
}
/// Every multiplication is rounded before it is added.
Tensor uncontracted() {
    return product([](float sum, float a, float b) {
        const volatile float rounded = a * b;
        return sum + rounded;
    });
}
std::string text_of(const Tensor& got) { return error_text({with_operands_of(24)}, {got}); }

TEST(UlpError, OfContractionIsAFewUlp) {
    EXPECT_EQ(text_of(with_operands_of(24)), "");
    EXPECT_THAT(text_of(uncontracted()), HasSubstr(kErrorKinds[0].what));
}

TEST(UlpError, OfTruncatedOperandsLiesBetweenContractionAndOtherElements) {
    EXPECT_THAT(text_of(with_operands_of(11)), AllOf(HasSubstr(kErrorKinds[1].what), HasSubstr("of 128 elements")));
    EXPECT_THAT(text_of(with_operands_of(8)), HasSubstr(kErrorKinds[2].what));
}

TEST(UlpError, OfAWrongLayoutIsNoRounding) {
    const auto add = [](float sum, float a, float b) { return std::fma(a, b, sum); };
    EXPECT_THAT(text_of(product(add, 1)), HasSubstr(kOtherElements)) << "columns are shifted by one";
    // Whole terms are missing: one in eight.
    int term = 0;
    EXPECT_THAT(
        text_of(product([&](float sum, float a, float b) { return term++ % 8 == 0 ? sum : std::fma(a, b, sum); })),
        HasSubstr(kOtherElements));
}

TEST(UlpError, IsMeasuredAtTheScaleOfTheTensor) {
    // A sum whose terms cancel: 1e-6 in a tensor of ones is not known to 24 bits of its own.
    const Tensor expected = Tensor::of<float>(DType::F32, {4}, {1, -1, 1, 0});
    EXPECT_THAT(error_text({expected}, {Tensor::of<float>(DType::F32, {4}, {1, -1, 1, 1e-6F})}),
                AllOf(HasSubstr("largest error 11.2 ulp, as of contraction"), HasSubstr("at element 3 of result 0: ")));
}

TEST(UlpError, OfWhatWasNeverWrittenIsNamed) {
    const Tensor expected = Tensor::of<float>(DType::F32, {3}, {1, 2, 3});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(error_text({expected}, {Tensor::of<float>(DType::F32, {3}, {1, nan, nan})}),
                AllOf(HasSubstr(kNoNumber), HasSubstr("element 1 of result 0: nan in place of 2; 2 of 3 elements")));
    const Tensor whole = Tensor::of<int64_t>(DType::I64, {2}, {4, 5});
    EXPECT_EQ(error_text({whole}, {Tensor::of<int64_t>(DType::I64, {2}, {4, 6})}),
              "element 1 of result 0 is 6 in place of 5");
    EXPECT_EQ(error_text({expected}, {whole}), "result 0 has another type or shape");
}

}  // namespace

}  // namespace tilewright::cuda::test
