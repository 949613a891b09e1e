#include "driver/rounding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "program/text.h"

namespace tilewright {
namespace {

Tensor floats(const std::vector<double>& x) {
    Tensor t(DType::F32, {static_cast<int64_t>(x.size())});
    for (size_t i = 0; i < x.size(); ++i) t.set(static_cast<int64_t>(i), x[i]);
    return t;
}

// y is quantised with a scale of a half; z is not.
Program quantising() {
    return parse_program(R"TW(program quantising {
  input x: f32[3]
  q: u8[3] = [3] u8(round(div(@0, 0.5))) where @0 = x[i0]  ; q ""
  y: f32[3] = [3] mul(f32(@0), 0.5) where @0 = q[i0]  ; y ""
  z: f32[3] = [3] mul(@0, 0.5) where @0 = x[i0]  ; z ""
  output y
  output z
})TW");
}

TEST(Rounding, IsMovedByAPartOfAQuantum) {
    const Program up = shift_roundings(quantising(), 0.25);
    EXPECT_EQ(interpret(up, {floats({1, 1.1, 1.2})})[0].get(1), 1) << "2.2 + 0.25";
    EXPECT_EQ(interpret(up, {floats({1, 1.15, 1.2})})[0].get(1), 1.5) << "2.3 + 0.25";
    EXPECT_EQ(interpret(up, {floats({1, 1.15, 1.2})})[1].get(1),
              interpret(quantising(), {floats({1, 1.15, 1.2})})[1].get(1));
}

TEST(Rounding, MattersForNumbersNearAHalfAlone) {
    const auto sensitivity = [](const std::vector<double>& x) {
        const std::vector<Tensor> inputs{floats(x)};
        return rounding_sensitivity(quantising(), inputs, interpret(quantising(), inputs));
    };
    EXPECT_EQ(sensitivity({1, 2, 3.1}), (std::vector<Sensitivity>(2)));
    EXPECT_EQ(sensitivity({1, 2, 3.25001}),
              (std::vector<Sensitivity>{{0.5, std::sqrt(0.25 / 3)}, {}}));  // 6.50002 of a quantum
    EXPECT_EQ(sensitivity({1, 2, 3.251}), (std::vector<Sensitivity>(2)));
}

TEST(Rounding, AllowsThreeTimesTheSensitivityAndNoMore) {
    const Tensor expected = floats({0, 0, 0, 0});
    const auto why = [&](const std::vector<double>& x, const Sensitivity& s) {
        return compare_rounded(floats(x), expected, s, "output").reason;
    };
    EXPECT_EQ(why({2.5, 0, 0, 0}, {1, 0.5}), "") << "root mean square 1.25";
    EXPECT_NE(why({3.5, 0, 0, 0}, {1, 1}), "") << "one element is too far";
    EXPECT_EQ(why({2.5, 2.5, 2.5, 2.5}, {1, 0.5}), "output: the root mean square difference is 2.5");
}

TEST(Rounding, IsNotAskedForWhereNothingIsRounded) {
    const Program p = parse_program(R"TW(program plain {
  input x: f32[3]
  z: f32[3] = [3] mul(@0, 0.5) where @0 = x[i0]  ; z ""
  output z
})TW");
    const std::vector<Tensor> inputs{floats({1, 2, 3})};
    EXPECT_EQ(rounding_sensitivity(p, inputs, interpret(p, inputs)), std::vector<Sensitivity>(1));
}

}  // namespace
}  // namespace tilewright
