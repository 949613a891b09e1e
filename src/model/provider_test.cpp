// Models some of whose kernels a library computes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "backend/cpu/onednn.h"
#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "model/session.h"
#include "orchestrate/plan.h"
#include "program/random_program.h"
#include "tune/database.h"

namespace tilewright {
namespace {

class Library : public testing::Test {
  protected:
    void SetUp() override {
        try {
            library_ = std::make_shared<const cpu::OneDnn>();
        } catch (const RuntimeError& e) {
            GTEST_SKIP() << e.what();
        }
        options_.threads = 1;
        options_.orchestrator = Orchestrator::Optimal;
        options_.optimal.profile = Profile::Full;
        options_.provider = library_;
    }

    /// Changes the database: every correct kernel of the library takes no time.
    void let_it_win(const std::string& database) const {
        TuningDatabase db(database);
        for (Measurement m : db.measurements()) {
            if (m.verdict != Verdict::measured || !m.key.schedule.starts_with("provider ")) continue;
            m.seconds.value = 1e-9;
            db.insert(m);
        }
    }

    static size_t provided(const CompiledModel& model) {
        size_t n = 0;
        for (const Step& step : model.plan().steps)
            if (const auto* call = std::get_if<KernelCall>(&step.what)) n += call->provider.empty() ? 0 : 1;
        return n;
    }

    static Program layers() {
        Program p = parse_program(R"(program t {
  input x: f32[40, 48]
  input w0: f32[48, 32]
  input b0: f32[32]
  input w1: f32[32, 80]
  q: f32[40, 32] = [40, 32] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  r: f32[40, 32] = [40, 32] max(add(@0, @1), 0.0) where @0 = q[i0, i1], @1 = b0[i1]
  s: f32[40, 80] = [40, 80] sum(i2 < 32) mul(@0, @1) where @0 = r[i0, i2], @1 = w1[i2, i1]
  y: f32[40, 40] = [40, 40] sum(i2 < 80) mul(@0, @1) where @0 = s[i0, i2], @1 = s[i1, i2]
  output y
})");
        const std::vector<Tensor> given = random_inputs(p, 5);
        for (const size_t k : {3, 2, 1}) {
            p.constants.emplace(p.inputs[k], given[k]);
            p.inputs.erase(p.inputs.begin() + static_cast<std::ptrdiff_t>(k));
        }
        return p;
    }

    TemporaryFolder folder_;
    std::shared_ptr<const cpu::OneDnn> library_;
    CompileOptions options_;
};

TEST_F(Library, computes_the_kernels_that_it_wins) {
    const Program p = layers();
    const std::vector<Tensor> inputs = random_inputs(p, 3), expected = interpret(p, inputs);
    options_.database = folder_ / "tuning.db";
    const auto first = compile_program(p, options_);
    const ProviderReport& report = given(first->plan().optimal).provider.value();
    EXPECT_EQ(report.name, library_->name());
    EXPECT_GE(report.measured, 3u) << report.print();
    let_it_win(options_.database);
    const auto model = compile_program(p, options_);
    EXPECT_EQ(provided(*model), 3u) << model->plan().print();
    // On as many threads as the session has, in several sessions at a time.
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
            Session session(model, 1 + i % 2);
            for (int again = 0; again < 5; ++again)
                EXPECT_LE(largest_difference(expected, session.run(inputs)), 1e-4) << i;
        });
    for (std::thread& t : threads) t.join();
    // Weights are kept once, in the library's layout.
    int64_t bytes = 0;
    for (const auto& [v, t] : p.constants) bytes += static_cast<int64_t>(t.bytes());
    EXPECT_LE(model->stats().weight_bytes, 2 * bytes);
}

TEST_F(Library, is_not_chosen_where_it_is_not_there_any_more) {
    const Program p = layers();
    options_.database = folder_ / "tuning.db";
    compile_program(p, options_);
    let_it_win(options_.database);
    options_.provider = nullptr;
    const auto model = compile_program(p, options_);
    EXPECT_EQ(provided(*model), 0u);
    EXPECT_FALSE(given(model->plan().optimal).provider.has_value());
    const std::vector<Tensor> inputs = random_inputs(p, 3);
    EXPECT_LE(largest_difference(interpret(p, inputs), Session(model, 1).run(inputs)), 1e-4);
}

TEST_F(Library, is_not_asked_where_nothing_is_measured_or_the_rule_is_greedy) {
    const Program p = layers();
    options_.optimal.profile = Profile::None;
    EXPECT_EQ(provided(*compile_program(p, options_)), 0u);
    options_.orchestrator = Orchestrator::Greedy;
    EXPECT_EQ(provided(*compile_program(p, options_)), 0u);
}

}  // namespace
}  // namespace tilewright
