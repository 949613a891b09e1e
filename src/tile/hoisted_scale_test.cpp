#include "tile/hoisted_scale.h"

#include <gtest/gtest.h>

#include "tile/quantised_cases_test.h"

namespace tilewright {
namespace {

Program product() {
    return parse_program(
        schedule_cases::quantised_product("5", 32, 8, schedule_cases::number_of_word(schedule_cases::kEven16, 4)));
}

TEST(HoistedScale, isAFactorThatInnerLoopsRepeat) {
    const Program p = product();
    const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
    Micro micro;
    micro.registers = {1, 32, 1, 1, 8};
    const std::vector<size_t> loops = {2, 3, 4};  // blocks, words, numbers of a word
    const auto found = hoisted_scale(e, micro, loops);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->factor, 1u);
    EXPECT_EQ(found->first_loop, 1u);
    EXPECT_EQ(e.body[found->scale].op, ScalarOp::Access);
    EXPECT_EQ(e.body[found->number].op, ScalarOp::Table);
}

TEST(HoistedScale, needsALoopOverBlocksOutside) {
    const Program p = product();
    const TensorExpr& e = *p.primitives[PrimitiveId(0)].expr();
    Micro micro;
    micro.registers = {1, 32, 1, 1, 8};
    EXPECT_FALSE(hoisted_scale(e, micro, std::vector<size_t>{3, 4, 2}));  // blocks innermost
    EXPECT_FALSE(hoisted_scale(e, micro, std::vector<size_t>{3, 4}));     // a scale for the whole sum
    micro.registers[2] = 2;                                               // two blocks unrolled
    EXPECT_FALSE(hoisted_scale(e, micro, std::vector<size_t>{2, 3, 4}));
}

TEST(HoistedScale, isNotInAPlainProduct) {
    const Program p = parse_program(R"TW(program plain {
  input x: f32[20, 64]
  input w: f32[64, 64]
  y: f32[20, 64] = [20, 64] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
})TW");
    Micro micro;
    micro.registers = {1, 16, 1};
    EXPECT_FALSE(hoisted_scale(*p.primitives[PrimitiveId(0)].expr(), micro, std::vector<size_t>{2}));
}

}  // namespace
}  // namespace tilewright
