#include "program/analysis/rounded.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(RoundedByte, IsASaturatedRoundedNumberWithOrWithoutZeroPoint) {
    ScalarBody b;
    const ScalarId x = b.access(0, DType::F32), r = b.unary(ScalarOp::RoundEven, x), zero = b.constant(DType::F32, 3);
    const ScalarId plain = b.cast(DType::I8, r), moved = b.cast(DType::U8, b.binary(ScalarOp::Add, r, zero));
    ASSERT_TRUE(rounded_byte(b, plain));
    EXPECT_EQ(rounded_byte(b, plain)->real, x);
    EXPECT_FALSE(rounded_byte(b, plain)->zero);
    ASSERT_TRUE(rounded_byte(b, moved));
    EXPECT_EQ(rounded_byte(b, moved)->real, x);
    EXPECT_EQ(rounded_byte(b, moved)->zero, zero);
}

TEST(RoundedByte, IsNotAnythingElse) {
    ScalarBody b;
    const ScalarId x = b.access(0, DType::F32), r = b.unary(ScalarOp::RoundEven, x);
    EXPECT_FALSE(rounded_byte(b, r));
    EXPECT_FALSE(rounded_byte(b, b.cast(DType::I32, r))) << "more than 8 bits";
    EXPECT_FALSE(rounded_byte(b, b.cast(DType::U8, x))) << "truncates";
    EXPECT_FALSE(rounded_byte(b, b.cast(DType::U8, b.binary(ScalarOp::Mul, r, x))));
}

}  // namespace
}  // namespace tilewright
