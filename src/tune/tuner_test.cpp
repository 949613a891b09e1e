#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "tile/examples_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

class Tuning : public testing::Test {
  protected:
    Tuning() {
        settings_.measure.seconds = 1e-3;
        settings_.compile = [this](const TileProgram& p, const cpu::CodegenOptions& o) {
            ++compiled_;
            return cpu::compile(p, o);
        };
    }
    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates) {
        return tune_schedules(candidates, target_, settings_, &db_);
    }

    TemporaryFolder folder_;
    TuningDatabase db_{folder_ / "tuning.db"};
    Target target_ = host_target();
    TuneSettings settings_;
    int compiled_ = 0;
    TileProgram gemm_ = parse_tile_program(kGemm);
    TileProgram wide_ = parse_tile_program(changed(kGemm, "parallel n by 3", "parallel n by 8"));
};

TEST_F(Tuning, measures_once_and_stores) {
    EXPECT_EQ(remembered_schedule(gemm_, target_, settings_, db_), std::nullopt);
    const auto first = tune({gemm_, wide_});
    EXPECT_EQ(compiled_, 2);
    for (const TunedKernel& t : first) {
        EXPECT_FALSE(t.remembered);
        EXPECT_EQ(t.measurement.verdict, Verdict::measured) << t.measurement.reason;
        EXPECT_GT(t.measurement.seconds.value, 0);
        EXPECT_TRUE(t.measurement.seconds.measured());
    }
    const auto second = tune({wide_, gemm_});
    EXPECT_EQ(compiled_, 2);
    EXPECT_TRUE(second[0].remembered && second[1].remembered);
    EXPECT_EQ(second[0].measurement.seconds, first[1].measurement.seconds);
    EXPECT_EQ(remembered_schedule(gemm_, target_, settings_, db_), second[1].measurement);
    EXPECT_EQ(second[1].measurement.seconds, first[0].measurement.seconds);
}

TEST_F(Tuning, names_of_a_kernel_do_not_matter) {
    tune({gemm_});
    TileProgram other = gemm_;
    other.name = other.stages.name = "elsewhere";
    for (Value& v : other.stages.values) v.name += "_2";
    EXPECT_TRUE(tune({other})[0].remembered);
}

TEST_F(Tuning, equal_candidates_are_measured_once) {
    const auto tuned = tune({gemm_, gemm_, wide_, gemm_});
    EXPECT_EQ(compiled_, 2);
    EXPECT_EQ(tuned[3].measurement.seconds, tuned[0].measurement.seconds);
    EXPECT_EQ(db_.measurements().size(), 2u);
}

TEST_F(Tuning, continues_when_the_disk_is_full) {
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit none{0, 0}, small{1000, 1000};
        ::setrlimit(RLIMIT_CORE, &none);
        TuningDatabase db(folder_ / "full.db");
        ::setrlimit(RLIMIT_FSIZE, &small);
        int warnings = 0;
        settings_.warn = [&](const std::string& text) {
            warnings += text.find("measurements are not kept: tuning database " + db.path()) == 0 ? 1 : 100;
        };
        Tuner tuner(target_, settings_, &db);
        for (const TileProgram& candidate : {gemm_, wide_})
            if (tuner.tune({candidate})[0].measurement.verdict != Verdict::measured) ::_exit(1);
        ::_exit(warnings == 1 ? 0 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "exit status or signal";
}

TEST_F(Tuning, failures_are_stored_with_their_reason) {
    TileProgram illegal = gemm_;
    illegal.body.clear();
    settings_.compile = [](const TileProgram& p, const cpu::CodegenOptions& o) -> cpu::CompiledKernel {
        if (print(p).find("parallel n by 8") != std::string::npos) throw InternalError("no such tile");
        cpu::CompiledKernel k = cpu::compile(p, o);
        k.run = [](void* const*, const int64_t*, int64_t, int64_t, void*) {};  // computes nothing
        return k;
    };
    const auto tuned = tune({illegal, wide_, gemm_});
    EXPECT_EQ(tuned[0].measurement.verdict, Verdict::failed);
    EXPECT_THAT(tuned[0].measurement.reason, HasSubstr("not legal"));
    EXPECT_EQ(tuned[1].measurement.verdict, Verdict::failed);
    EXPECT_THAT(tuned[1].measurement.reason, HasSubstr("no such tile"));
    EXPECT_EQ(tuned[2].measurement.verdict, Verdict::wrong);
    EXPECT_THAT(tuned[2].measurement.reason, HasSubstr("output c"));
    settings_.compile = {};
    for (const TunedKernel& t : tune({illegal, wide_, gemm_})) EXPECT_TRUE(t.remembered);
}

TEST_F(Tuning, an_endless_candidate_is_stopped) {
    settings_.first_run_seconds = 0.3;
    settings_.compile = [](const TileProgram& p, const cpu::CodegenOptions& o) {
        cpu::CompiledKernel k = cpu::compile(p, o);
        if (print(p).find("parallel n by 8") != std::string::npos)
            k.run = [](void* const*, const int64_t*, int64_t, int64_t, void*) {
                volatile bool forever = true;
                while (forever) {
                }
            };
        return k;
    };
    const auto tuned = tune({wide_, gemm_});
    EXPECT_EQ(tuned[0].measurement.verdict, Verdict::failed);
    EXPECT_THAT(tuned[0].measurement.reason, HasSubstr("stopped after 0.3 s"));
    EXPECT_EQ(tuned[1].measurement.verdict, Verdict::measured);
    EXPECT_TRUE(tune({wide_})[0].remembered);
}

TEST_F(Tuning, another_setting_is_another_measurement) {
    tune({gemm_});
    settings_.threads = 2;
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    settings_.warmth = Warmth::cold_weights;
    settings_.weights = {false, true, false};
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    settings_.weights = {false, true, true};
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    EXPECT_TRUE(tune({gemm_})[0].remembered);
    settings_.codegen.isa = cpu::Isa::avx2();
    EXPECT_NE(measurement_key(gemm_, target_, settings_).settings.find("x86-64-v3"), std::string::npos);
}

TEST_F(Tuning, sizes_of_dynamic_dimensions_are_part_of_the_key) {
    const TileProgram softmax = parse_tile_program(kSoftmax);
    const Var rows = *symbol("rows").as_var();
    settings_.sizes = {{rows, 8}};
    const auto eight = tune({softmax});
    EXPECT_EQ(eight[0].measurement.verdict, Verdict::measured) << eight[0].measurement.reason;
    EXPECT_THAT(eight[0].measurement.key.settings, HasSubstr("s0=8"));
    settings_.sizes = {{rows, 9}};
    EXPECT_FALSE(tune({softmax})[0].remembered);
}

TEST_F(Tuning, works_without_a_database) {
    EXPECT_EQ(tune_schedules({gemm_}, target_, settings_, nullptr)[0].measurement.verdict, Verdict::measured);
    EXPECT_TRUE(tune_schedules({}, target_, settings_, nullptr).empty());
}

/// A provider of a fake kernel: writes zeros or ones, or fails.
class FakeProvider : public cpu::KernelProvider {
  public:
    enum class Does : uint8_t { Right, Wrong, Nothing, Fails };
    explicit FakeProvider(Does does) : does_(does) {}
    std::string name() const override { return "fake 1.0"; }
    std::optional<std::string> refusal(const Program&, const std::vector<bool>&) const override { return {}; }
    std::shared_ptr<const cpu::LibraryCall> provide(const Program& stages, const std::vector<bool>&,
                                                    int) const override {
        ++calls_;
        if (does_ == Does::Nothing) throw RuntimeError("has no such primitive");
        return std::make_shared<const Call>(stages, does_);
    }
    int calls() const { return calls_; }

  private:
    class Call : public cpu::LibraryCall {
      public:
        Call(Program stages, Does does) : stages_(std::move(stages)), does_(does) {}
        std::vector<Prepared> prepared() const override { return {{1, bytes(1)}}; }
        /// In reverse.
        void prepare(size_t which, const void* constant, void* to) const override {
            ASSERT_EQ(which, 0u);
            const auto* from = static_cast<const float*>(constant);
            std::reverse_copy(from, from + bytes(1) / 4, static_cast<float*>(to));
        }
        int64_t scratch_bytes(int) const override { return bytes(1); }
        std::unique_ptr<Runs> runs(int) const override { return std::make_unique<Run>(*this); }

      private:
        class Run : public Runs {
          public:
            explicit Run(const Call& call) : call_(call) {}
            void run(void* const* tensors, void* scratch) override {
                if (call_.does_ == Does::Fails) throw RuntimeError("fell over");
                std::vector<Tensor> inputs;
                for (size_t i = 0; i < call_.stages_.inputs.size(); ++i) {
                    const Value& v = call_.stages_.values[call_.stages_.inputs[i]];
                    void* data = tensors[i];
                    if (i == 1) {
                        const auto* from = static_cast<const float*>(data);
                        std::reverse_copy(from, from + call_.bytes(1) / 4, static_cast<float*>(scratch));
                        data = scratch;
                    }
                    inputs.emplace_back(v.dtype, evaluate(v.shape, Bindings{}), data, nullptr);
                }
                const Tensor out = interpret(call_.stages_, inputs)[0];
                auto* to = static_cast<float*>(tensors[inputs.size()]);
                std::memcpy(to, out.data(), out.bytes());
                if (call_.does_ == Does::Wrong) to[out.count() / 2] += 0.01F;
            }

          private:
            const Call& call_;
        };
        int64_t bytes(size_t input) const {
            return 4 * element_count(evaluate(stages_.values[stages_.inputs[input]].shape, Bindings{}));
        }
        Program stages_;
        Does does_;
    };
    Does does_;
    mutable int calls_ = 0;
};

class Providing : public Tuning {
  protected:
    Measurement of(FakeProvider::Does does) {
        const auto provider = std::make_shared<FakeProvider>(does);
        settings_.provider = provider;
        settings_.weights = {false, true, false};
        const TunedKernel first = tune({gemm_})[0], second = tune({gemm_})[0];
        EXPECT_EQ(compiled_, 0);
        EXPECT_FALSE(first.remembered);
        EXPECT_TRUE(second.remembered);
        EXPECT_EQ(second.measurement.verdict, first.measurement.verdict);
        EXPECT_EQ(second.measurement.reason, first.measurement.reason);
        EXPECT_EQ(second.measurement.seconds, first.measurement.seconds);
        EXPECT_EQ(provider->calls(), 1);
        return first.measurement;
    }
};

TEST_F(Providing, a_library_kernel_is_measured_and_stored_with_its_provider) {
    const Measurement m = of(FakeProvider::Does::Right);
    EXPECT_EQ(m.verdict, Verdict::measured) << m.reason;
    EXPECT_THAT(m.key.schedule, HasSubstr("fake 1.0"));
    settings_.weights = {false, false, false};  // computed weights are a different setting
    EXPECT_EQ(remembered_schedule(gemm_, target_, settings_, db_), std::nullopt);
    settings_.provider = nullptr;
    EXPECT_EQ(remembered_schedule(gemm_, target_, settings_, db_), std::nullopt);
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    EXPECT_EQ(compiled_, 1);
}

TEST_F(Providing, a_wrong_result_is_never_measured) {
    const Measurement m = of(FakeProvider::Does::Wrong);
    EXPECT_EQ(m.verdict, Verdict::wrong);
    EXPECT_THAT(m.reason, HasSubstr("expected"));
}

TEST_F(Providing, a_library_that_refuses_or_fails_gives_a_reason) {
    const Measurement none = of(FakeProvider::Does::Nothing);
    EXPECT_EQ(none.verdict, Verdict::failed);
    EXPECT_EQ(none.reason, "has no such primitive");
}

TEST_F(Providing, a_library_that_fails_when_it_runs_is_a_failure) {
    const Measurement m = of(FakeProvider::Does::Fails);
    EXPECT_EQ(m.verdict, Verdict::failed);
    EXPECT_EQ(m.reason, "fell over");
}

}  // namespace
}  // namespace tilewright
