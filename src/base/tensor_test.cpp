#include "base/tensor.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace tilewright {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// The value of `v` after it is stored in an element of type `t` and read back.
int64_t kept(DType t, int64_t v) {
    Tensor x(t, {1});
    x.set(0, v);
    return x.get_int(0);
}

double kept(DType t, double v) {
    Tensor x(t, {1});
    x.set(0, v);
    return x.get(0);
}

TEST(Shapes, CountTheirElements) {
    EXPECT_EQ(element_count(Shape{}), 1);
    EXPECT_EQ(element_count(Shape{2, 3, 4}), 24);
    EXPECT_EQ(element_count(Shape{2, 0, 4}), 0);
    EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
    EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shapes, InvalidOnesAreModelErrors) {
    EXPECT_THROW(element_count(Shape{2, -1}), ModelError);
    EXPECT_THROW(element_count(Shape{int64_t{1} << 40, int64_t{1} << 40}), ModelError);
}

TEST(Tensor, StartsZeroedAndAligned) {
    const Tensor t(DType::F64, {3, 5});
    EXPECT_EQ(t.rank(), 2);
    EXPECT_EQ(t.count(), 15);
    EXPECT_EQ(t.bytes(), 120U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0U);
    for (const double v : t.as<double>()) EXPECT_EQ(v, 0);
}

TEST(Tensor, CopiesShareTheirBytes) {
    const Tensor a = Tensor::of(DType::F32, {2}, std::vector<float>{1, 2});
    const Tensor b = a;  // NOLINT(performance-unnecessary-copy-initialization)
    EXPECT_EQ(a.data(), b.data());
}

TEST(Tensor, AViewKeepsItsOwnerAlive) {
    auto owner = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{7, 8, 9});
    const std::weak_ptr<std::vector<int32_t>> watch = owner;
    {
        const Tensor view(DType::I32, {3}, owner->data(), owner);
        owner.reset();
        EXPECT_FALSE(watch.expired());
        EXPECT_EQ(view.to_ints(), (std::vector<int64_t>{7, 8, 9}));
    }
    EXPECT_TRUE(watch.expired());
}

TEST(Tensor, TooLargeIsARuntimeError) {
    EXPECT_THROW(Tensor(DType::F64, {int64_t{1} << 60}), RuntimeError);
    EXPECT_THROW(Tensor(DType::F64, {int64_t{1} << 62}), RuntimeError);  // the bytes would not fit 64 bits
}

TEST(Tensor, MemoryIsReusedWhileThatIsWanted) {
    const Shape shape = {int64_t{4} << 20};
    const auto filled = [&] {
        Tensor t(DType::U8, shape, false);
        std::memset(t.mutable_data(), 7, t.bytes());
        return t.data();
    };
    {
        const ReuseTensorMemory reuse;
        const void* const first = filled();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        EXPECT_EQ(Tensor(DType::U8, shape, false).data(), first);
        EXPECT_NE(Tensor(DType::U8, {int64_t{5} << 20}, false).data(), first) << "another size";
#endif
        const Tensor zeros(DType::U8, shape);
        EXPECT_EQ(zeros.get_int(1000), 0) << "a tensor of zeros has none of the old bytes, like " << first;
    }
    filled();
    EXPECT_EQ(Tensor(DType::U8, shape, false).get_int(1000), 0) << "new pages";
}

TEST(Tensor, LargeOnesHaveHugePagesOfTheirOwn) {
    EXPECT_FALSE(has_huge_pages(Tensor(DType::F32, {512, 1024}))) << "2 MiB";
    EXPECT_FALSE(has_huge_pages(Tensor(DType::F32, {1472, 1024}))) << "5.75 MiB, of which 1.75 are in small pages";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_TRUE(has_huge_pages(Tensor(DType::F32, {1024, 1024})));
    EXPECT_TRUE(has_huge_pages(Tensor(DType::F32, {4096, 1024 + 64})));
#endif
}

TEST(Tensor, IntegersWrapAsACastWould) {
    EXPECT_EQ(kept(DType::I8, int64_t{200}), -56);
    EXPECT_EQ(kept(DType::U8, int64_t{-1}), 255);
    EXPECT_EQ(kept(DType::I16, int64_t{40000}), -25536);
    EXPECT_EQ(kept(DType::U16, int64_t{65536 + 5}), 5);
    EXPECT_EQ(kept(DType::I32, int64_t{1} << 31), -(int64_t{1} << 31));
    EXPECT_EQ(kept(DType::U32, int64_t{-1}), 4294967295);
    EXPECT_EQ(kept(DType::I4, int64_t{8}), -8);
    EXPECT_EQ(kept(DType::I4, int64_t{-9}), 7);
    EXPECT_EQ(kept(DType::U4, int64_t{17}), 1);
    EXPECT_EQ(kept(DType::I2, int64_t{2}), -2);
    EXPECT_EQ(kept(DType::U2, int64_t{7}), 3);
}

RC_GTEST_PROP(Tensor, SixtyFourBitIntegersAreExact, (int64_t v)) {
    RC_ASSERT(kept(DType::I64, v) == v);
    RC_ASSERT(kept(DType::U64, v) == v);  // as bits
}

TEST(Tensor, TheEndsOfSixtyFourBitsAreExact) {
    for (const int64_t v : {kLeast, kLeast + 1, kMost - 1, kMost}) EXPECT_EQ(kept(DType::I64, v), v);
    Tensor u(DType::U64, {1});
    u.set(0, int64_t{-1});
    EXPECT_EQ(u.get(0), 18446744073709551616.0);
}

TEST(Tensor, BooleansAreZeroOrOne) {
    EXPECT_EQ(kept(DType::Bool, int64_t{256}), 1);  // not the low byte
    EXPECT_EQ(kept(DType::Bool, 0.25), 1);
    EXPECT_EQ(kept(DType::Bool, -0.0), 0);
    EXPECT_EQ(kept(DType::Bool, std::nan("")), 1);
}

TEST(Tensor, FloatsRoundToTheirType) {
    EXPECT_EQ(kept(DType::F32, 0.1), static_cast<double>(0.1F));
    EXPECT_EQ(kept(DType::F64, 0.1), 0.1);
    EXPECT_EQ(kept(DType::F16, 2049.0), 2048);
    EXPECT_EQ(kept(DType::BF16, 257.0), 256);
    EXPECT_EQ(kept(DType::F8E4M3FN, 1000.0), 448);  // the small ones saturate
    EXPECT_EQ(kept(DType::F8E5M2, 0.3), 0.3125);
    EXPECT_EQ(kept(DType::F4E2M1, -100.0), -6);
    EXPECT_EQ(kept(DType::F8E8M0, 4.0), 4);
    EXPECT_EQ(kept(DType::F16, int64_t{2051}), 2052);
}

TEST(Tensor, FloatsInIntegersTruncateAndNeverTrap) {
    EXPECT_EQ(kept(DType::I32, -2.9), -2);
    EXPECT_EQ(kept(DType::I64, std::nan("")), 0);
    EXPECT_EQ(kept(DType::I64, 1e300), static_cast<double>(kMost));
    EXPECT_EQ(kept(DType::I64, -1e300), static_cast<double>(kLeast));
    EXPECT_EQ(kept(DType::U64, 0x1.8p63), 0x1.8p63);
    EXPECT_EQ(kept(DType::U8, 300.0), 44);
    EXPECT_EQ(Tensor::of(DType::F32, {1}, std::vector<float>{-7.75F}).get_int(0), -7);
}

TEST(Tensor, MadeFromValues) {
    EXPECT_EQ(Tensor::of_i64({3, -4}).to_ints(), (std::vector<int64_t>{3, -4}));
    EXPECT_EQ(Tensor::of_i64({3, -4}).shape(), Shape{2});
    const Tensor b = Tensor::of(DType::Bool, {3}, std::vector<bool>{true, false, true});
    EXPECT_EQ(b.to_ints(), (std::vector<int64_t>{1, 0, 1}));
}

TEST(Tensor, ReshapingKeepsTheBytes) {
    const Tensor a = Tensor::of_i64({1, 2, 3, 4, 5, 6});
    const Tensor b = a.reshaped({2, 3});
    EXPECT_EQ(b.shape(), (Shape{2, 3}));
    EXPECT_EQ(b.data(), a.data());
    EXPECT_EQ(a.shape(), Shape{6});
    EXPECT_THROW(a.reshaped({4}), InternalError);
}

TEST(Tensor, EqualityIsThatOfTypeShapeAndBits) {
    const Tensor a = Tensor::of(DType::F32, {2}, std::vector<float>{0.0F, std::nanf("")});
    EXPECT_EQ(a, Tensor::of(DType::F32, {2}, std::vector<float>{0.0F, std::nanf("")}));
    EXPECT_NE(a, Tensor::of(DType::F32, {2}, std::vector<float>{-0.0F, std::nanf("")}));
    EXPECT_NE(a, a.reshaped({1, 2}));
    EXPECT_NE(Tensor(DType::I32, {1}), Tensor(DType::F32, {1}));
    EXPECT_EQ(Tensor(DType::F32, {0, 3}), Tensor(DType::F32, {0, 3}));
}

}  // namespace
}  // namespace tilewright
