#include "base/dtype.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace tilewright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr std::array<DType, 23> kAll{
    DType::F32,  DType::F64,      DType::F16,        DType::BF16,   DType::I8,         DType::I16,
    DType::I32,  DType::I64,      DType::U8,         DType::U16,    DType::U32,        DType::U64,
    DType::Bool, DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0,
    DType::I4,   DType::U4,       DType::F4E2M1,     DType::I2,     DType::U2};

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }
float below(float f) { return std::nextafter(f, -kInfinity); }
float above(float f) { return std::nextafter(f, kInfinity); }

TEST(DType, NamesAreDistinctAndReadBack) {
    std::set<std::string_view> names;
    for (const DType t : kAll) {
        EXPECT_EQ(dtype_from_string(to_string(t)), t);
        names.insert(to_string(t));
    }
    EXPECT_EQ(names.size(), kAll.size());
    EXPECT_EQ(to_string(DType::BF16), "bf16");
    EXPECT_EQ(dtype_from_string("float"), std::nullopt);
    EXPECT_EQ(dtype_from_string(""), std::nullopt);
}

TEST(DType, SizesAreThoseOfUnpackedStorage) {
    for (const DType t : kAll) {
        const std::string name(to_string(t));
        size_t expected = 1;  // 8 bits and fewer, and booleans
        if (name.ends_with("16")) expected = 2;
        if (name.ends_with("32")) expected = 4;
        if (name.ends_with("64")) expected = 8;
        EXPECT_EQ(byte_size(t), expected) << name;
    }
}

TEST(DType, KindsAreDisjointAndFollowTheNames) {
    for (const DType t : kAll) {
        const std::string name(to_string(t));
        EXPECT_EQ(is_float(t), name.front() == 'f' || name == "bf16") << name;
        EXPECT_EQ(is_integer(t), name.front() == 'i' || name.front() == 'u') << name;
        EXPECT_EQ(is_signed(t), is_float(t) || name.front() == 'i') << name;
    }
}

TEST(DType, ComputeTypes) {
    const std::map<DType, DType> other{
        {DType::F16, DType::F32},        {DType::BF16, DType::F32},   {DType::F8E4M3FN, DType::F32},
        {DType::F8E4M3FNUZ, DType::F32}, {DType::F8E5M2, DType::F32}, {DType::F8E5M2FNUZ, DType::F32},
        {DType::F8E8M0, DType::F32},     {DType::F4E2M1, DType::F32}, {DType::I4, DType::I8},
        {DType::I2, DType::I8},          {DType::U4, DType::U8},      {DType::U2, DType::U8}};
    for (const DType t : kAll) EXPECT_EQ(compute_type(t), other.contains(t) ? other.at(t) : t) << to_string(t);
}

/// The value of a float code by the definition: (-1)^s * 1.m * 2^(e - bias), or 0.m * 2^(1 - bias).
double by_definition(int code, int exponent_bits, int mantissa_bits, int bias) {
    const int exponent = (code >> mantissa_bits) % (1 << exponent_bits);
    const int mantissa = code % (1 << mantissa_bits);
    const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
    const double magnitude =
        exponent == 0 ? fraction * std::pow(2.0, 1 - bias) : (1 + fraction) * std::pow(2.0, exponent - bias);
    return (code >> (exponent_bits + mantissa_bits)) % 2 != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryCodeDecodesByDefinition) {
    for (int code = 0; code < 65536; ++code) {
        const float f = half_to_float(static_cast<uint16_t>(code));
        if (((code >> 10) & 31) == 31) {
            if ((code & 1023) != 0)
                EXPECT_TRUE(std::isnan(f)) << code;
            else
                EXPECT_EQ(f, code < 32768 ? kInfinity : -kInfinity) << code;
        } else {
            ASSERT_EQ(f, by_definition(code, 5, 10, 15)) << code;
            ASSERT_EQ(std::signbit(f), code >= 32768) << code;
        }
    }
}

TEST(Half, EveryCodeRoundTrips) {
    for (int code = 0; code < 65536; ++code) {
        const auto back = float_to_half(half_to_float(static_cast<uint16_t>(code)));
        const bool nan = (code & 0x7C00) == 0x7C00 && (code & 0x3FF) != 0;
        ASSERT_EQ(back, nan ? code | 0x200 : code) << code;  // a NaN keeps sign and payload and becomes quiet
    }
}

TEST(Half, RoundsToNearestEvenBetweenEveryTwoNeighbours) {
    for (uint16_t code = 0; code < 0x7BFF; ++code) {
        const uint16_t next = code + 1;
        const float middle = (half_to_float(code) + half_to_float(next)) / 2;  // exact: 12 significant bits
        ASSERT_EQ(float_to_half(below(middle)), code);
        ASSERT_EQ(float_to_half(above(middle)), next);
        ASSERT_EQ(float_to_half(middle), code % 2 == 0 ? code : next);
        ASSERT_EQ(float_to_half(-middle), (code % 2 == 0 ? code : next) | 0x8000);
    }
}

TEST(Half, OverflowsToInfinityAndUnderflowsToSignedZero) {
    EXPECT_EQ(float_to_half(65519.99F), 0x7BFF);
    EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
    EXPECT_EQ(float_to_half(-65520.0F), 0xFC00);
    EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7C00);
    EXPECT_EQ(float_to_half(-kInfinity), 0xFC00);
    EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);  // halfway to the smallest: to even
    EXPECT_EQ(float_to_half(above(0x1p-25F)), 0x0001);
    EXPECT_EQ(float_to_half(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(BFloat16, EveryCodeRoundTripsAsTheUpperHalfOfAFloat) {
    for (uint32_t code = 0; code < 65536; ++code) {
        const float f = bfloat16_to_float(static_cast<uint16_t>(code));
        ASSERT_EQ(bits(f), code << 16);
        ASSERT_EQ(float_to_bfloat16(f), std::isnan(f) ? code | 0x40 : code);
    }
}

TEST(BFloat16, RoundsToNearestEvenBetweenEveryTwoNeighbours) {
    for (uint32_t code = 0; code < 0x7F80; ++code) {  // the last one's upper neighbour is infinity
        const uint32_t middle = code << 16 | 0x8000;
        ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle - 1)), code);
        ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle + 1)), code + 1);
        ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(middle)), code + code % 2);
        ASSERT_EQ(float_to_bfloat16(-std::bit_cast<float>(middle)), (code + code % 2) | 0x8000);
    }
}

TEST(BFloat16, ANaNWhosePayloadIsCutOffStaysANaN) {
    EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
    EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0xFFFFFFFFU)), 0xFFFF);
}

/// A small float as its standard describes it (OCP 8-bit and MX formats; the *UZ types as ONNX defines them).
struct Format {
    DType type;
    int exponent_bits, mantissa_bits, bias;
    float largest;                // finite
    std::vector<int> nans;        // codes
    int infinity;                 // code; -1 without
    uint8_t overflow, underflow;  // codes of +1e30 and -1e-30, not saturating
};

std::vector<Format> formats() {
    return {
        {DType::F8E4M3FN, 4, 3, 7, 448, {0x7F, 0xFF}, -1, 0x7F, 0x80},
        {DType::F8E4M3FNUZ, 4, 3, 8, 240, {0x80}, -1, 0x80, 0x00},
        {DType::F8E5M2, 5, 2, 15, 57344, {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}, 0x7C, 0x7C, 0x80},
        {DType::F8E5M2FNUZ, 5, 2, 16, 57344, {0x80}, -1, 0x80, 0x00},
        {DType::F4E2M1, 2, 1, 1, 6, {}, -1, 0x07, 0x08},
    };
}

class SmallFloats : public testing::TestWithParam<Format> {
  protected:
    int codes() const { return 2 << (GetParam().exponent_bits + GetParam().mantissa_bits); }
    float decode(int code) const { return small_float_to_float(GetParam().type, static_cast<uint8_t>(code)); }
    int encode(float f, bool saturate = false) const { return float_to_small_float(GetParam().type, f, saturate); }
    bool finite(int code) const { return std::isfinite(decode(code)); }
};

TEST_P(SmallFloats, EveryCodeDecodesByDefinition) {
    const Format& f = GetParam();
    float largest = 0;
    for (int code = 0; code < codes(); ++code) {
        const float v = decode(code);
        if (std::find(f.nans.begin(), f.nans.end(), code) != f.nans.end()) {
            EXPECT_TRUE(std::isnan(v)) << code;
        } else if (f.infinity >= 0 && code % (codes() / 2) == f.infinity) {
            EXPECT_EQ(v, code < codes() / 2 ? kInfinity : -kInfinity) << code;
        } else {
            EXPECT_EQ(v, by_definition(code, f.exponent_bits, f.mantissa_bits, f.bias)) << code;
            EXPECT_EQ(std::signbit(v), code >= codes() / 2) << code;
            largest = std::max(largest, v);
        }
    }
    EXPECT_EQ(largest, f.largest);
}

TEST_P(SmallFloats, EveryCodeRoundTrips) {
    for (int code = 0; code < codes(); ++code) {
        const float v = decode(code);
        if (std::isnan(v)) {
            EXPECT_TRUE(std::isnan(decode(encode(v)))) << code;
            EXPECT_TRUE(std::isnan(decode(encode(v, true)))) << code;
        } else {
            EXPECT_EQ(encode(v), code);
            if (std::isfinite(v)) {
                EXPECT_EQ(encode(v, true), code);
            }
        }
    }
}

TEST_P(SmallFloats, RoundToNearestEvenBetweenEveryTwoNeighbours) {
    for (int code = 0; finite(code + 1) && code + 1 < codes() / 2; ++code) {
        const float middle = (decode(code) + decode(code + 1)) / 2;
        EXPECT_EQ(encode(below(middle)), code);
        EXPECT_EQ(encode(above(middle)), code + 1);
        EXPECT_EQ(encode(middle), code + code % 2);
        if (code > 0) {
            EXPECT_EQ(encode(-middle), codes() / 2 + code + code % 2);
        }
    }
}

TEST_P(SmallFloats, SaturateAtTheLargestFiniteNumberOrOverflow) {
    const Format& f = GetParam();
    for (const float v : {1e30F, kInfinity, 2 * f.largest}) {
        EXPECT_EQ(decode(encode(v, true)), f.largest) << v;
        EXPECT_EQ(decode(encode(-v, true)), -f.largest) << v;
        EXPECT_EQ(encode(v, false), f.overflow) << v;
    }
}

TEST_P(SmallFloats, OverflowBeginsHalfAStepPastTheLargest) {
    const Format& f = GetParam();
    const float step = f.largest - decode(encode(f.largest) - 1);
    const float edge = f.largest + step / 2;
    EXPECT_EQ(decode(encode(below(edge))), f.largest);
    EXPECT_EQ(encode(above(edge)), f.overflow);
    // On the edge itself: round to even between the largest code and the code after it, if there were one.
    EXPECT_EQ(encode(edge), encode(f.largest) % 2 == 0 ? encode(f.largest) : f.overflow);
}

TEST_P(SmallFloats, ZerosKeepTheirSignWhereThereIsANegativeZero) {
    EXPECT_EQ(encode(0.0F), 0);
    EXPECT_EQ(encode(1e-30F), 0);
    EXPECT_EQ(encode(-0.0F), GetParam().underflow);
    EXPECT_EQ(encode(-1e-30F), GetParam().underflow);
}

INSTANTIATE_TEST_SUITE_P(All, SmallFloats, testing::ValuesIn(formats()),
                         [](const auto& f) { return std::string(to_string(f.param.type)); });

TEST(F8E8M0, EveryCodeIsAPowerOfTwoAndRoundTrips) {
    for (int code = 0; code < 255; ++code) {
        const float v = small_float_to_float(DType::F8E8M0, static_cast<uint8_t>(code));
        EXPECT_EQ(v, std::pow(2.0, code - 127));
        EXPECT_EQ(float_to_small_float(DType::F8E8M0, v, false), code);
    }
    EXPECT_TRUE(std::isnan(small_float_to_float(DType::F8E8M0, 255)));
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, kNaN, true), 255);
}

TEST(F8E8M0, TakesTheNearerPowerAndStopsAtTheEnds) {
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, 1.4F, false), 127);
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, 1.6F, false), 128);
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, 0.0F, false), 0);
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, kInfinity, true), 254);
    EXPECT_EQ(float_to_small_float(DType::F8E8M0, kInfinity, false), 255);
}

TEST(SmallFloat, OtherTypesAreABug) { EXPECT_THROW(small_float_to_float(DType::F32, 0), InternalError); }

RC_GTEST_PROP(SmallFloat, EncodesTheNearestCode, ()) {
    const std::vector<Format> all = formats();
    const Format& f = all[*rc::gen::inRange<size_t>(0, all.size())];
    const float v = std::ldexp(static_cast<float>(*rc::gen::inRange(-4096, 4096)), *rc::gen::inRange(-30, 6));
    const float got = small_float_to_float(f.type, float_to_small_float(f.type, v, true));
    for (int code = 0; code < 2 << (f.exponent_bits + f.mantissa_bits); ++code) {
        const float other = small_float_to_float(f.type, static_cast<uint8_t>(code));
        if (std::isfinite(other)) RC_ASSERT(std::fabs(got - v) <= std::fabs(other - v));
    }
}

}  // namespace
}  // namespace tilewright
