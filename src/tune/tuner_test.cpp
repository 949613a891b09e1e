#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "schedule/default_schedule.h"
#include "tile/examples_test.h"
#include "tune/fake_library_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

class Tuning : public testing::Test {
  protected:
    Tuning() {
        settings_.measure.seconds = 1e-3;
        target_.workers = 1;
        settings_.compile = [this](const TileProgram& p, const Target& target) {
            ++compiled_;
            return cpu::compile(p, target);
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

TEST_F(Tuning, kernels_of_different_stages_compete) {
    const TileProgram twice = default_schedule(parse_program(R"(program twice {
  input x: f32[64, 64]
  y: f32[64, 64] = [64, 64] mul(@0, 2.0) where @0 = x[i0, i1]
  output y
})"),
                                               target_);
    const auto tuned =
        tune_alternatives({{gemm_, {}, {}}, {twice, {true}, {}}, {gemm_, {}, {}}}, target_, settings_, &db_);
    EXPECT_EQ(compiled_, 2);
    for (const TunedKernel& t : tuned) {
        EXPECT_FALSE(t.remembered);
        EXPECT_EQ(t.measurement.verdict, Verdict::measured) << t.measurement.reason;
    }
    EXPECT_EQ(tuned[2].measurement.seconds, tuned[0].measurement.seconds);
    // Either is known to other calls by its own stages and weights.
    EXPECT_TRUE(tune({gemm_})[0].remembered);
    EXPECT_TRUE(tune_alternatives({{twice, {true}, {}}}, target_, settings_, &db_)[0].remembered);
    EXPECT_EQ(compiled_, 2);
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
            warnings += text.find("measurements are not stored: tuning database " + db.path()) == 0 ? 1 : 100;
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
    settings_.compile = [](const TileProgram& p, const Target& target) -> cpu::CompiledKernel {
        if (print(p).find("parallel n by 8") != std::string::npos) throw InternalError("no such tile");
        cpu::CompiledKernel k = cpu::compile(p, target);
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

TEST_F(Tuning, operands_that_do_not_fit_in_memory_are_a_failure) {
    const TileProgram twice = default_schedule(parse_program(R"(program twice {
  input x: f32[$n, 1024]
  y: f32[$n, 1024] = [$n, 1024] mul(@0, 2.0) where @0 = x[i0, i1]
  output y
})"),
                                               target_);
    settings_.sizes = {{*symbol("n").as_var(), int64_t{1} << 40}};
    const auto tuned = tune({twice});
    EXPECT_EQ(tuned[0].measurement.verdict, Verdict::failed);
    EXPECT_THAT(tuned[0].measurement.reason, HasSubstr("9007199255 MB"));
    EXPECT_EQ(compiled_, 0);
}

TEST_F(Tuning, an_endless_candidate_is_stopped) {
    settings_.first_run_seconds = 0.3;
    settings_.compile = [](const TileProgram& p, const Target& target) {
        cpu::CompiledKernel k = cpu::compile(p, target);
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
    target_.workers = 2;
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    settings_.warmth = Warmth::cold_weights;
    settings_.weights = {false, true, false};
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    settings_.weights = {false, true, true};
    EXPECT_FALSE(tune({gemm_})[0].remembered);
    EXPECT_TRUE(tune({gemm_})[0].remembered);
    target_ = restricted(target_, VectorIsa::avx2);
    EXPECT_NE(measurement_key(gemm_, target_, settings_).settings.find(" isa=x86-64-v3/256"), std::string::npos);
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

using test::FakeLibrary;

class TuningLibrary : public Tuning {
  protected:
    TuningLibrary() { settings_.weights = {false, true, false}; }

    /// Measures the kernels of a library twice: the second time everything comes from the database.
    std::vector<TunedLibraryKernel> tune(const FakeLibrary::Kernels& kernels) {
        const FakeLibrary library(kernels);
        EXPECT_FALSE(remembered_library(library, gemm_, target_, settings_, db_));
        const auto first = tune_library(library, gemm_, target_, settings_, &db_);
        const auto second = tune_library(library, gemm_, target_, settings_, &db_);
        EXPECT_EQ(library.made(), static_cast<int>(kernels.size()));
        EXPECT_EQ(library.listed(), 1);
        EXPECT_EQ(compiled_, 0);
        EXPECT_EQ(first.size(), second.size());
        for (size_t k = 0; k < first.size() && k < second.size(); ++k) {
            EXPECT_FALSE(first[k].tuned.remembered);
            EXPECT_TRUE(second[k].tuned.remembered);
            EXPECT_EQ(second[k].name, first[k].name);
            EXPECT_EQ(second[k].tuned.measurement.verdict, first[k].tuned.measurement.verdict);
            EXPECT_EQ(second[k].tuned.measurement.reason, first[k].tuned.measurement.reason);
            EXPECT_EQ(second[k].tuned.measurement.seconds, first[k].tuned.measurement.seconds);
        }
        return first;
    }
};

TEST_F(TuningLibrary, measures_each_kernel_and_stores_it_by_its_name) {
    const auto all = tune({{"slow", FakeLibrary::Does::Slow}, {"fast", FakeLibrary::Does::Right}});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].name, "fake 1.0, slow");
    EXPECT_EQ(all[1].name, "fake 1.0, fast");
    for (const TunedLibraryKernel& k : all) {
        EXPECT_EQ(k.tuned.measurement.verdict, Verdict::measured) << k.tuned.measurement.reason;
        EXPECT_THAT(k.tuned.measurement.key.schedule, HasSubstr(k.name));
    }
    EXPECT_GT(all[0].tuned.measurement.seconds.value, 2 * all[1].tuned.measurement.seconds.value);
    const FakeLibrary library({{"fast", FakeLibrary::Does::Right}});
    settings_.weights = {false, false, false};  // computed weights are a different setting
    EXPECT_FALSE(remembered_library(library, gemm_, target_, settings_, db_));
    EXPECT_EQ(remembered_schedule(gemm_, target_, settings_, db_), std::nullopt);
}

TEST_F(TuningLibrary, a_wrong_result_is_never_measured) {
    const auto all = tune({{"wrong", FakeLibrary::Does::Wrong}, {"right", FakeLibrary::Does::Right}});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].tuned.measurement.verdict, Verdict::wrong);
    EXPECT_THAT(all[0].tuned.measurement.reason, HasSubstr("expected"));
    EXPECT_EQ(all[1].tuned.measurement.verdict, Verdict::measured);
}

TEST_F(TuningLibrary, a_kernel_that_fails_has_its_reason) {
    const auto all = tune({{"none", FakeLibrary::Does::FailsToMake},
                           {"fails", FakeLibrary::Does::FailsToRun},
                           {"right", FakeLibrary::Does::Right}});
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].tuned.measurement.verdict, Verdict::failed);
    EXPECT_EQ(all[0].tuned.measurement.reason, "has no such primitive");
    EXPECT_EQ(all[1].tuned.measurement.verdict, Verdict::failed);
    EXPECT_EQ(all[1].tuned.measurement.reason, "fell over");
    EXPECT_EQ(all[2].tuned.measurement.verdict, Verdict::measured);
}

TEST_F(TuningLibrary, a_kernel_that_writes_outside_its_memory_is_never_measured) {
    const auto all = tune({{"prepares", FakeLibrary::Does::PreparesTooMuch},
                           {"runs", FakeLibrary::Does::UsesTooMuchScratch},
                           {"right", FakeLibrary::Does::Right}});
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].tuned.measurement.verdict, Verdict::failed);
    EXPECT_EQ(all[0].tuned.measurement.reason, "it writes outside the memory of its prepared input 1");
    EXPECT_EQ(all[1].tuned.measurement.verdict, Verdict::wrong);
    EXPECT_EQ(all[1].tuned.measurement.reason, "memory after its scratch memory was overwritten");
    EXPECT_EQ(all[2].tuned.measurement.verdict, Verdict::measured);
}

TEST_F(TuningLibrary, a_library_without_a_kernel_has_one_reason) {
    const auto all = tune(FakeLibrary::Kernels{});
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].name, "");
    EXPECT_EQ(all[0].tuned.measurement.verdict, Verdict::failed);
    EXPECT_EQ(all[0].tuned.measurement.reason, "has no such primitive");
}

TEST_F(TuningLibrary, measures_no_more_kernels_than_its_limit) {
    FakeLibrary::Kernels kernels;
    for (size_t k = 0; k < cpu::kMostLibraryKernels + 1; ++k)
        kernels.emplace_back("kernel " + std::to_string(k), FakeLibrary::Does::Right);
    EXPECT_EQ(tune_library(FakeLibrary(kernels), gemm_, target_, settings_, &db_).size(), cpu::kMostLibraryKernels);
}

}  // namespace
}  // namespace tilewright
