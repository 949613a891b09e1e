// Measured costs: the fastest correct kernel of generated code and a library.

#include "compile/measured_costs.h"

#include <gtest/gtest.h>

#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "cost/target_with_test.h"
#include "model/session.h"
#include "program/random_program.h"
#include "schedule/default_schedule.h"
#include "tune/database.h"
#include "tune/fake_library_test.h"

namespace tilewright {
namespace {

using test::FakeLibrary;

constexpr const char* kOneProduct = R"(program t {
  input x: f32[128, 512]
  input w: f32[512, 128]
  y: f32[128, 128] = [128, 128] sum(i2 < 512) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  output y
})";

class MeasuringLibraries : public testing::Test {
  protected:
    MeasuringLibraries() {
        options_.threads = 1;
        options_.database = folder_ / "tuning.db";
        measuring_.kernels = true;
        measuring_.target = host_target();
        // Scalar code that reads the weights by columns is slower than a copy of the known result.
        const Target scalar = test::target_with({.lanes = 1});
        kernel_ =
            default_schedule(parse_program(kOneProduct), IndexVector<PrimitiveId, std::vector<size_t>>(1), scalar);
    }

    std::shared_ptr<const KernelCosts> costs(const FakeLibrary::Kernels& kernels) {
        options_.provider = std::make_shared<const FakeLibrary>(kernels);
        return measure_on_host(measuring_, options_, EstimatedCosts(std::nullopt)).costs;
    }

    /// The measured kernel when a library has these kernels; the recalled result must equal it.
    MeasuredKernel measured(const FakeLibrary::Kernels& kernels) {
        const auto measures = costs(kernels);
        EXPECT_FALSE(measures->recall(kernel_, kWeights));
        const MeasuredKernel m = given(measures->measure(kernel_, kWeights));
        EXPECT_FALSE(m.remembered);
        EXPECT_EQ(m.library, "fake 1.0");
        const MeasuredKernel again = given(costs(kernels)->recall(kernel_, kWeights));
        EXPECT_TRUE(again.remembered);
        EXPECT_EQ(again.seconds, m.seconds);
        EXPECT_EQ(again.provider, m.provider);
        EXPECT_EQ(again.refused, m.refused);
        return m;
    }

    inline static const std::vector<bool> kWeights = {false, true};
    TemporaryFolder folder_;
    CompileOptions options_;
    MeasuringOptions measuring_;
    TileProgram kernel_;
};

TEST_F(MeasuringLibraries, the_fastest_kernel_of_a_library_is_taken) {
    const MeasuredKernel m = measured({{"slow", FakeLibrary::Does::Slow}, {"fast", FakeLibrary::Does::Right}});
    EXPECT_EQ(m.provider, "fake 1.0, fast");
    EXPECT_EQ(given(m.library_seconds), m.seconds);
    EXPECT_GT(given(m.generated_seconds), m.seconds);
}

TEST_F(MeasuringLibraries, a_wrong_kernel_is_not_taken) {
    const MeasuredKernel m = measured({{"wrong", FakeLibrary::Does::Wrong}, {"right", FakeLibrary::Does::Right}});
    EXPECT_EQ(m.provider, "fake 1.0, right");
    EXPECT_EQ(m.refused, "");
}

TEST_F(MeasuringLibraries, a_kernel_that_fails_is_not_taken) {
    const MeasuredKernel m = measured({{"none", FakeLibrary::Does::FailsToMake},
                                       {"fails", FakeLibrary::Does::FailsToRun},
                                       {"right", FakeLibrary::Does::Right}});
    EXPECT_EQ(m.provider, "fake 1.0, right");
}

TEST_F(MeasuringLibraries, generated_code_is_taken_where_no_kernel_of_the_library_is_right) {
    const MeasuredKernel m = measured({{"wrong", FakeLibrary::Does::Wrong}, {"fails", FakeLibrary::Does::FailsToRun}});
    EXPECT_EQ(m.provider, "");
    EXPECT_FALSE(m.library_seconds);
    EXPECT_GE(m.seconds, 0);
    EXPECT_EQ(m.refused, "its result is wrong");
}

TEST_F(MeasuringLibraries, a_library_without_a_kernel_has_its_reason) {
    const MeasuredKernel m = measured({});
    EXPECT_EQ(m.provider, "");
    EXPECT_EQ(m.refused, "has no such primitive");
}

/// The model runs the measured kernel, which it identifies by its name.
TEST_F(MeasuringLibraries, a_model_runs_the_kernel_that_was_taken) {
    Program p = parse_program(kOneProduct);
    const std::vector<Tensor> all = random_inputs(p, 3), expected = interpret(p, all);
    p.constants.emplace(p.inputs[1], all[1]);
    p.inputs.pop_back();
    options_.orchestrator = Orchestrator::Optimal;
    options_.optimal.profile = Profile::Full;
    options_.provider = std::make_shared<const FakeLibrary>(FakeLibrary::Kernels{
        {"slow", FakeLibrary::Does::Slow}, {"wrong", FakeLibrary::Does::Wrong}, {"fast", FakeLibrary::Does::Right}});
    const auto names = [&] {
        const auto model = compile_program(p, options_);
        EXPECT_LE(largest_difference(expected, Session(model, 1).run({all[0]})), 1e-4);
        std::vector<std::string> out;
        for (const Step& step : model->plan().steps) out.push_back(std::get<KernelCall>(step.what).provider);
        return out;
    };
    names();
    // The database says that the library's kernel is the fastest.
    TuningDatabase db(options_.database);
    for (Measurement m : db.measurements()) {
        if (m.key.schedule != "provider fake 1.0, fast\n") continue;
        m.seconds.value = 1e-9;
        db.insert(m);
    }
    EXPECT_EQ(names(), std::vector<std::string>{"fake 1.0, fast"});
}

}  // namespace
}  // namespace tilewright
