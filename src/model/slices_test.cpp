// Kernels that run slice by slice give what they give one after the other, on any number of threads.

#include <gtest/gtest.h>

#include <algorithm>

#include "compile/pipeline.h"
#include "model/session.h"
#include "model/sliced_convolution_test.h"
#include "orchestrate/plan.h"

namespace tilewright {
namespace {

using test::sliced_convolution;

CompileOptions for_two_threads() {
    CompileOptions options;
    options.threads = 2;
    return options;
}

TEST(RunsOfSlices, are_what_the_interpreter_says_on_any_number_of_threads) {
    const Program p = sliced_convolution();
    const auto model = compile_program(p, for_two_threads());
    ASSERT_EQ(model->plan().slices.size(), 1u) << model->plan().print();
    const std::vector<Tensor> inputs = random_inputs(p, 5), others = random_inputs(p, 6);
    const std::vector<Tensor> expected = interpret(p, inputs);
    const std::vector<Tensor> first = Session(model, 1).run(inputs);
    EXPECT_LE(largest_difference(expected, first), 1e-4);
    for (const int threads : {1, 2, 3}) {
        Session session(model, threads);
        session.run(others);
        for (int again = 0; again < 3; ++again) EXPECT_EQ(session.run(inputs), first) << threads << " threads";
    }
}

TEST(RunsOfSlices, take_memory_for_a_slice_a_thread) {
    const Program p = sliced_convolution();
    const auto model = compile_program(p, for_two_threads());
    const Slices& s = model->plan().slices.at(0);
    const auto bytes = [&](ValueId v) { return 4 * product(model->plan().program.values[v].shape).constant(); };
    int64_t slices = 0, others = 65536;
    for (const ValueId v : s.kept) slices += bytes(v) / s.slices;
    for (const Step& step : model->plan().steps)
        for (const ValueId v : std::get<KernelCall>(step.what).tensors)
            if (std::find(s.kept.begin(), s.kept.end(), v) == s.kept.end()) others += bytes(v);
    for (const int threads : {1, 2}) {
        Session session(model, threads);
        session.run(random_inputs(p, 5));
        EXPECT_LT(session.arena_bytes(), others + threads * slices) << threads << " threads";
    }
}

TEST(RunsOfSlices, are_profiled_kernel_by_kernel) {
    const Program p = sliced_convolution();
    const auto model = compile_program(p, for_two_threads());
    Session session(model, 2);
    std::vector<StepTime> profile;
    session.set_profile(&profile);
    session.run(random_inputs(p, 5));
    ASSERT_EQ(profile.size(), model->plan().steps.size());
    const auto steps = static_cast<size_t>(model->plan().slices.at(0).first);
    for (size_t k = steps; k < steps + 3; ++k) {
        EXPECT_GT(profile[k].duration_us, 0) << profile[k].name;
        EXPECT_EQ(profile[k].name, std::get<KernelCall>(model->plan().steps[k].what).name);
    }
    EXPECT_DOUBLE_EQ(
        profile[steps + 1].flops,
        2.0 * 32 * product(model->plan().program.values[model->plan().slices[0].kept[1]].shape).constant());
}

}  // namespace
}  // namespace tilewright
