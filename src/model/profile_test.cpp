// Kernels of optimal plans measured on this machine, through the tuning database.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "model/session.h"
#include "program/random_program.h"
#include "tune/database.h"

namespace tilewright {
namespace {

/// A product, its softmax, another product: enough to choose from. Symbolic rows: their number is dynamic.
Program attention_of(const std::string& rows) {
    return parse_program(fmt::format(R"(program t {{
  input x: f32[{0}, 32]
  input k: f32[32, 48]
  input v: f32[48, 16]
  c: f32[{0}, 48] = [{0}, 48] sum(i2 < 32) mul(@0, @1) where @0 = x[i0, i2], @1 = k[i2, i1]
  t: f32[{0}, 48] = [{0}, 48] mul(@0, 0.25) where @0 = c[i0, i1]
  m: f32[{0}, 1] = [{0}, 1] max(i2 < 48) @0 where @0 = t[i0, i2]
  d: f32[{0}, 48] = [{0}, 48] sub(@0, @1) where @0 = t[i0, i1], @1 = m[i0, 0]
  e: f32[{0}, 48] = [{0}, 48] exp(@0) where @0 = d[i0, i1]
  s: f32[{0}, 1] = [{0}, 1] sum(i2 < 48) @0 where @0 = e[i0, i2]
  w: f32[{0}, 48] = [{0}, 48] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]
  y: f32[{0}, 16] = [{0}, 16] sum(i2 < 48) mul(@0, @1) where @0 = w[i0, i2], @1 = v[i2, i1]
  output y
}})",
                                     rows));
}

CompileOptions measured(const std::string& database, Profile profile = Profile::Lazy) {
    CompileOptions o;
    o.threads = 1;
    o.scheduler = SchedulerKind::Default;  // as a chain it would be one kernel, and nothing to choose
    o.orchestrator = Orchestrator::Optimal;
    o.optimal.profile = profile;
    o.optimal.most_measured = 1;
    o.database = database;
    return o;
}

OrchestrationReport report_of(const Program& p, const CompileOptions& o) {
    return given(compile_program(p, o)->plan().optimal);
}

TEST(Profile, measures_what_decides_and_remembers_it) {
    const TemporaryFolder folder;
    const Program p = attention_of("64");
    const CompileOptions options = measured(folder / "tuning.db");
    const OrchestrationReport first = report_of(p, options);
    EXPECT_GT(first.measured, 0u);
    EXPECT_EQ(first.remembered, 0u);
    EXPECT_LT(first.measured, first.candidates());
    for (const KernelReport& k : first.kernels) EXPECT_GT(given(k.measured), 0) << "every kernel of the plan";
    const OrchestrationReport again = report_of(p, options);
    EXPECT_EQ(again.measured, first.measured);
    EXPECT_EQ(again.remembered, again.measured) << "nothing is run a second time";
    EXPECT_EQ(again.seconds(), first.seconds());
    EXPECT_LE(first.seconds(), first.greedy_seconds()) << "no slower than the greedy rule's kernels, as measured";
}

TEST(Profile, that_is_interrupted_goes_on_where_it_was) {
    struct Interrupted {};
    const TemporaryFolder folder;
    const Program p = attention_of("64");
    CompileOptions options = measured(folder / "tuning.db", Profile::Full);
    size_t before = 0;
    options.watch = [&](const OrchestrationProgress& at) {
        if (at.done == 2) throw Interrupted();
        before = at.done + 1;
    };
    EXPECT_THROW(compile_program(p, options), Interrupted);
    ASSERT_EQ(before, 2u);
    EXPECT_EQ(TuningDatabase(options.database).measurements().size(), 2u);
    options.watch = {};
    const OrchestrationReport rest = report_of(p, options);
    EXPECT_EQ(rest.remembered, 2u);
    EXPECT_EQ(TuningDatabase(options.database).measurements().size(), rest.measured);
}

/// Whatever the machine measures: the choice among all is no better than the one that measured what it needed, by the
/// same measurements.
TEST(Profile, lazily_finds_what_measuring_everything_finds_unless_something_undercuts_its_estimate) {
    const TemporaryFolder folder;
    const Program p = attention_of("64");
    const OrchestrationReport full = report_of(p, measured(folder / "tuning.db", Profile::Full));
    const OrchestrationReport lazy = report_of(p, measured(folder / "tuning.db"));
    EXPECT_EQ(lazy.remembered, lazy.measured);
    EXPECT_LE(lazy.measured, full.measured);
    EXPECT_GE(lazy.seconds(), full.seconds() * (1 - 1e-9));
    // Only full profiling finds estimates that were too high; without such, the plans cost the same.
    if (full.undercut == 0) {
        EXPECT_NEAR(lazy.seconds(), full.seconds(), 1e-6 * full.seconds());
    }
}

/// Whole plans are run where there are inputs to run them on; the second time nothing is.
TEST(Profile, compares_whole_plans_and_remembers_what_came_of_it) {
    const TemporaryFolder folder;
    const Program p = attention_of("64");
    CompileOptions options = measured(folder / "tuning.db");
    size_t asked = 0;
    options.inputs = [&](const std::vector<ModelIo>& declared) {
        ++asked;
        std::vector<Tensor> inputs;
        for (const ModelIo& io : declared) inputs.emplace_back(io.dtype, evaluate(io.shape, Bindings()));
        return inputs;
    };
    const OrchestrationReport first = report_of(p, options);
    const size_t before = asked;
    const OrchestrationReport again = report_of(p, options);
    EXPECT_EQ(asked, before);
    EXPECT_EQ(again.in_model.has_value(), first.in_model.has_value());
    ASSERT_EQ(again.kernels.size(), first.kernels.size());
    for (size_t k = 0; k < first.kernels.size(); ++k) EXPECT_EQ(again.kernels[k].writes, first.kernels[k].writes);
    if (first.in_model) {
        EXPECT_LE(first.in_model->seconds, first.in_model->greedy_seconds);
        EXPECT_EQ(again.in_model->greedy, first.in_model->greedy);
    }
}

TEST(Profile, of_sizes_that_only_the_run_knows_takes_those_that_the_model_assumes) {
    const TemporaryFolder folder;
    const Program p = attention_of("$n");
    const auto model = compile_program(p, measured(folder / "tuning.db"));
    EXPECT_GT(given(model->plan().optimal).measured, 0u);
    Session session(model, 1);
    const std::vector<Tensor> inputs = {Tensor(DType::F32, {3, 32}), Tensor(DType::F32, {32, 48}),
                                        Tensor(DType::F32, {48, 16})};
    EXPECT_EQ(session.run(inputs)[0].shape(), (Shape{3, 16}));
}

TEST(Profile, stops_at_its_share_of_the_candidates) {
    const TemporaryFolder folder;
    CompileOptions options = measured(folder / "tuning.db");
    options.optimal.most_measured = 0;
    const OrchestrationReport report = report_of(attention_of("64"), options);
    EXPECT_LE(report.seconds(), report.greedy_seconds() * (1 + 1e-9));
    for (const KernelReport& k : report.kernels) EXPECT_TRUE(k.measured);
}

}  // namespace
}  // namespace tilewright
