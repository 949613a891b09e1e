#include "tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(Tuning, measures_once_and_remembers) {
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

TEST_F(Tuning, a_kernel_of_other_names_is_the_same_kernel) {
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

TEST_F(Tuning, what_fails_is_remembered_with_its_reason) {
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

TEST_F(Tuning, sizes_of_open_dimensions_count) {
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

}  // namespace
}  // namespace tilewright
