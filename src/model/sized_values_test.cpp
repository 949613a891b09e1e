// What depends on sizes alone is computed once for a combination of sizes, and is right for each.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compile/pipeline.h"
#include "model/session.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

/// Scores with a bias by relative position, as T5's: `bias` follows from $n and the table.
Program relative_positions() {
    return parse_program(R"(program t {
  input x: f32[$b, $n, 8]
  const table: f32[4] = {0.5, -1, 2, 4}
  distance: i64[$n, $n] = [$n, $n] index(min((i0 + 7*i1) % ($n + 2), 3))  ; distance Sub
  bias: f32[$n, $n] = [$n, $n] exp(@1) where @0 = distance[i0, i1], @1 = table[max(0, min(@0, 3))]  ; bias Gather
  scores: f32[$b, $n, $n] = [$b, $n, $n] sum(i3 < 8) mul(@0, @1) where @0 = x[i0, i1, i3], @1 = x[i0, i2, i3]  ; scores MatMul
  y: f32[$b, $n, $n] = [$b, $n, $n] add(@0, @1) where @0 = scores[i0, i1, i2], @1 = bias[i1, i2]  ; sum Add
  output y
})");
}

struct Runs {
    Program program = relative_positions();
    std::shared_ptr<const CompiledModel> model = compile_program(program, {});
    Session session{model, 1};

    /// The names of the steps of a run, which must give the interpreter's results.
    std::vector<std::string> steps_of_run(int64_t batch, int64_t n) {
        std::vector<Tensor> inputs = {Tensor(DType::F32, {batch, n, 8})};
        for (int64_t i = 0; i < inputs[0].count(); ++i) inputs[0].set(i, static_cast<double>(i % 13) / 8 - 0.5);
        std::vector<StepTime> profile;
        session.set_profile(&profile);
        const std::vector<Tensor> got = session.run(inputs);
        session.set_profile(nullptr);
        EXPECT_LE(largest_difference(interpret(program, inputs), got), 1e-5) << batch << " x " << n;
        std::vector<std::string> names;
        for (const StepTime& s : profile) names.push_back(s.name);
        return names;
    }
    bool computes_bias(int64_t batch, int64_t n) {
        const std::vector<std::string> names = steps_of_run(batch, n);
        return std::any_of(names.begin(), names.end(),
                           [](const std::string& name) { return name.find("bias") != std::string::npos; });
    }
};

TEST(SizedValues, AreComputedOnceForEachCombinationOfSizes) {
    Runs r;
    EXPECT_TRUE(r.computes_bias(2, 5));
    EXPECT_FALSE(r.computes_bias(2, 5));
    EXPECT_TRUE(r.computes_bias(2, 6));
    EXPECT_FALSE(r.computes_bias(2, 6));
    EXPECT_FALSE(r.computes_bias(2, 5)) << "the earlier combination is remembered";
}

TEST(SizedValues, AreSharedWhereTheirSizesStay) {
    Runs r;
    EXPECT_TRUE(r.computes_bias(1, 5));
    EXPECT_FALSE(r.computes_bias(3, 5)) << "another batch, the same positions";
    EXPECT_FALSE(r.computes_bias(1, 5));
}

TEST(SizedValues, AreForgottenWithTheirSizes) {
    Runs r;
    EXPECT_TRUE(r.computes_bias(1, 40));
    for (int64_t n = 1; n <= 16; ++n) r.steps_of_run(1, n);
    EXPECT_TRUE(r.computes_bias(1, 40)) << "sixteen combinations are remembered";
}

TEST(SizedValues, ThatAreLargeAreComputedInEachRun) {
    Runs r;
    EXPECT_TRUE(r.computes_bias(1, 2100));  // 17.6 MB
    EXPECT_TRUE(r.computes_bias(1, 2100));
    EXPECT_TRUE(r.computes_bias(1, 7));
    EXPECT_FALSE(r.computes_bias(1, 7));
}

}  // namespace
}  // namespace tilewright
