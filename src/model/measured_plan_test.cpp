// CompileOptions::measure: the plan without measurements stays where whole runs of the measured one are not faster.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "model/session.h"
#include "program/random_program.h"
#include "tune/database.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

/// softmax(x k) v, where the softmax has one pass for its maximum and one for its sum.
Program attention_of_many_rows() {
    return parse_program(R"(program t {
  input x: f32[512, 64]
  input k: f32[64, 512]
  input v: f32[512, 64]
  c: f32[512, 512] = [512, 512] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = k[i2, i1]
  m: f32[512, 1] = [512, 1] max(i2 < 512) @0 where @0 = c[i0, i2]
  d: f32[512, 512] = [512, 512] sub(@0, @1) where @0 = c[i0, i1], @1 = m[i0, 0]
  e: f32[512, 512] = [512, 512] exp(@0) where @0 = d[i0, i1]
  s: f32[512, 1] = [512, 1] sum(i2 < 512) @0 where @0 = e[i0, i2]
  w: f32[512, 512] = [512, 512] div(@0, @1) where @0 = e[i0, i1], @1 = s[i0, 0]
  y: f32[512, 64] = [512, 64] sum(i2 < 512) mul(@0, @1) where @0 = w[i0, i2], @1 = v[i2, i1]
  output y
})");
}

CompileOptions with_measurements(const std::string& database) {
    CompileOptions o;
    o.threads = 1;
    o.measure = true;
    o.database = database;
    o.inputs = [](const std::vector<ModelIo>&) { return random_inputs(attention_of_many_rows(), 1); };
    return o;
}

std::string plan_text(const CompileOptions& o) {
    const auto model = compile_program(attention_of_many_rows(), o);
    return model->dump("plan") + model->dump("tiles");
}

std::string plan_text_without_measurements() {
    CompileOptions o;
    o.threads = 1;
    return plan_text(o);
}

void copy_measurements(const std::string& from, const std::string& to) {
    TuningDatabase copy(to);
    for (const Measurement& m : TuningDatabase(from).measurements()) copy.insert(m);
}

/// A database at `to` with the measurements of the one at `from`, the order of the kernels by time reversed.
void reverse_measurements(const std::string& from, const std::string& to) {
    TuningDatabase wrong(to);
    for (Measurement m : TuningDatabase(from).measurements()) {
        if (m.verdict == Verdict::measured) m.seconds.value = 1e-6 / m.seconds.value;
        wrong.insert(m);
    }
}

/// A database whose measurements lead to another plan than the estimates do: the machine's own, or those reversed.
std::string database_of_another_plan(const TemporaryFolder& folder) {
    const CompileOptions honest = with_measurements(folder / "honest.db");
    compile_program(attention_of_many_rows(), honest);
    if (!TuningDatabase(honest.database).choices().empty()) return honest.database;
    std::string reversed = folder / "reversed.db";
    reverse_measurements(honest.database, reversed);
    return reversed;
}

TEST(MeasuredPlan, WithoutInputsThePlanIsTheDefaultOne) {
    const TemporaryFolder folder;
    CompileOptions o = with_measurements(database_of_another_plan(folder));
    o.inputs = nullptr;
    std::string warning;
    o.warn = [&](const std::string& text) { warning += text; };
    EXPECT_EQ(plan_text(o), plan_text_without_measurements());
    EXPECT_THAT(warning, HasSubstr("whole runs could not be compared"));
    EXPECT_FALSE(TuningDatabase(o.database).measurements().empty());
}

TEST(MeasuredPlan, WholeRunsDecideWhateverWasMeasuredOfKernels) {
    const TemporaryFolder folder;
    const CompileOptions o = with_measurements(database_of_another_plan(folder));
    const std::string kept = plan_text(o), plain = plan_text_without_measurements();
    const std::vector<Choice> choices = TuningDatabase(o.database).choices();
    ASSERT_EQ(choices.size(), 1u) << "the measured plan was another one";
    EXPECT_EQ(kept == plain, choices[0].schedule == "default");
    for (const std::string chosen : {"default", "measured"}) {
        const CompileOptions told = with_measurements(folder / (chosen + ".db"));
        copy_measurements(o.database, told.database);
        Choice choice = choices[0];
        choice.schedule = chosen;
        TuningDatabase(told.database).insert(choice);
        EXPECT_EQ(plan_text(told) == plain, chosen == "default");
    }
}

TEST(MeasuredPlan, AChoiceIsRemembered) {
    const TemporaryFolder folder;
    const CompileOptions o = with_measurements(folder / "tuning.db");
    const std::string first = plan_text(o);
    const std::vector<Choice> choices = TuningDatabase(o.database).choices();
    EXPECT_EQ(plan_text(o), first);
    EXPECT_EQ(TuningDatabase(o.database).choices(), choices);
}

TEST(MeasuredPlan, NothingIsMeasuredOnceTheTimeIsSpent) {
    const TemporaryFolder folder;
    CompileOptions o = with_measurements(folder / "tuning.db");
    o.measure_seconds = 0;
    EXPECT_EQ(plan_text(o), plan_text_without_measurements());
    EXPECT_TRUE(TuningDatabase(o.database).measurements().empty());
}

TEST(MeasuredPlan, SaysWhatItMeasures) {
    const TemporaryFolder folder;
    CompileOptions o = with_measurements(folder / "tuning.db");
    std::string said;
    o.watch = [&](const OrchestrationProgress& at) { said += at.what + "\n"; };
    compile_program(attention_of_many_rows(), o);
    EXPECT_THAT(said, HasSubstr("of a kernel of"));
}

}  // namespace
}  // namespace tilewright
