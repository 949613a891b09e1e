// The values of a program in Winograd's form that are guarded at run time.

#include "program/rewrite/guards.h"

#include <gtest/gtest.h>

#include <limits>

#include "program/random_program.h"
#include "program/rewrite/rewrite.h"
#include "program/rewrite/rewrite_test.h"
#include "program/transform/fold.h"

namespace tilewright {
namespace {

struct Guarded {
    Program original, guarded;
    size_t checks() const { return guarded.requirements.size(); }
};

/// Rewrites every convolution to Winograd's form.
Guarded guarded(Program p) {
    Guarded out{p, {}};
    for (;;) {
        const std::vector<Patch> found = find_all(RewriteContext(p), *rewrite_rule("winograd"));
        if (found.empty()) break;
        p = fold_constants(apply(std::move(p), found.back()));
    }
    out.guarded = guard_winograd(std::move(p), out.original);
    return out;
}

/// A chain of `layers` convolutions of 3x3 taps over 3 channels and 8x8 positions.
Program convolutions(int layers) {
    PatternWriter w(3);
    ValueId x = w.input({1, 3, 8, 8});
    for (int k = 0; k < layers; ++k) x = w.convolution(x, w.weights({3, 3, 3, 3}), {{1, 1, 1}, {1, 1, 1}});
    w.outputs = {x};
    return w.take();
}

std::vector<Tensor> with_pixel(const Program& p, float value) {
    Tensor x(DType::F32, evaluate(p.values[p.inputs.at(0)].shape, {}));
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 7) - 3);
    x.set(9, static_cast<double>(value));
    return {x};
}

TEST(WinogradGuards, CoverUnboundedInputsOfTransforms) {
    EXPECT_EQ(guarded(convolutions(0)).checks(), 0u);
    EXPECT_EQ(guarded(convolutions(1)).checks(), 1u);
    // The first convolution grows magnitudes by a factor of at most a few hundred.
    const Guarded two = guarded(convolutions(2));
    EXPECT_EQ(two.checks(), 1u);
    EXPECT_EQ(verify(two.guarded), std::vector<std::string>());
    EXPECT_EQ(print(parse_program(print(two.guarded))), print(two.guarded));
}

TEST(WinogradGuards, AreRepeatedWhenBoundsGrowTooLarge) {
    const size_t many = guarded(convolutions(20)).checks();
    EXPECT_GE(many, 2u);
    EXPECT_LE(many, 10u);
}

TEST(WinogradGuards, RejectRunsWithLargeNumbers) {
    const Guarded g = guarded(convolutions(1));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const float large : {1048576.0F, -1048576.0F})
        EXPECT_NO_THROW(interpret(g.guarded, with_pixel(g.guarded, large)));
    for (const float fine : {0.0F, -5.0F})
        EXPECT_LT(largest_difference(interpret(g.original, with_pixel(g.original, fine)),
                                     interpret(g.guarded, with_pixel(g.guarded, fine))),
                  1e-3);
    for (const float wrong : {1048577.0F, -2e6F, 3e38F, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
        EXPECT_THROW(interpret(g.guarded, with_pixel(g.guarded, wrong)), NeedsFallback) << wrong;
}

TEST(WinogradGuards, HoldForValuesWithoutElements) {
    PatternWriter w(3);
    w.outputs = {w.convolution(w.input({symbol("n"), 3, 8, 8}), w.weights({3, 3, 3, 3}), {{1, 1, 1}, {1, 1, 1}})};
    const Guarded g = guarded(w.take());
    ASSERT_EQ(g.checks(), 1u);
    EXPECT_NO_THROW(interpret(g.guarded, {Tensor(DType::F32, {0, 3, 8, 8})}));
}

}  // namespace
}  // namespace tilewright
