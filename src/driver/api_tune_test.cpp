// Tuning by the C interface and its C++ header.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder_test.h"
#include "driver/zoo/zoo.h"
#include "tilewright/tilewright.hpp"

namespace {

using testing::AllOf;
using testing::HasSubstr;

class ApiTune : public testing::Test {
  protected:
    ApiTune() {
        tilewright::write_zoo_model("mlp", path_, 0, {{"batch", 0}});
        options_.threads = 1;
        options_.cache = true;
        options_.cache_folder = folder_.path();
        options_.sample_sizes = {{"batch", 4}};
        options_.log = [this](tilewright_severity, const std::string& text) { log_ += text + "\n"; };
    }
    std::string refusal(const std::string& budget = "10") const {
        try {
            tw::Tuning::of_file(path_, budget, options_);
        } catch (const tw::Error& e) {
            EXPECT_EQ(e.status(), TILEWRIGHT_INVALID_ARGUMENT) << e.what();
            return e.what();
        }
        return "no error";
    }

    tilewright::TemporaryFolder folder_;
    std::string path_ = folder_ / "mlp.onnx", log_;
    tw::Options options_;
};

TEST_F(ApiTune, KeepsWhatItMeasuresInTheCacheFolder) {
    const tw::Tuning first = tw::Tuning::of_file(path_, "12", options_);
    const auto report = nlohmann::json::parse(first.json);
    EXPECT_EQ(report["threads"], 1);
    EXPECT_EQ(report["assumed_dims"].size(), 0u);
    ASSERT_GT(report["kernels"].size(), 0u);
    EXPECT_GT(report["candidates"], 0);
    EXPECT_EQ(report["wrong"], 0);
    EXPECT_EQ(first.kept, report["kept"].get<bool>());
    EXPECT_THAT(first.text, AllOf(HasSubstr(path_), HasSubstr("default us")));
    EXPECT_THAT(log_, HasSubstr("candidates"));
    // The second one recalls all that the first one measured.
    const auto again = nlohmann::json::parse(tw::Tuning::of_file(path_, "12", options_).json);
    EXPECT_EQ(again["recalled"], report["candidates"]);
}

TEST_F(ApiTune, ATunedModelComputesTheSame) {
    tw::Tuning::of_file(path_, "20", options_);
    const tw::Model by_default = tw::Model::from_file(path_, options_);
    options_.tuned = true;
    const tw::Model tuned = tw::Model::from_file(path_, options_);
    tw::Session a(by_default, 1), b(tuned, 1);
    const tw::Io input = by_default.inputs().at(0);
    const std::vector<float> x(static_cast<size_t>(4 * input.dims.at(1)), 0.25F);
    const tw::Tensor y = a.run({tw::tensor(x, {4, input.dims.at(1)})}).at(0),
                     z = b.run({tw::tensor(x, {4, input.dims.at(1)})}).at(0);
    ASSERT_EQ(y.count(), z.count());
    for (size_t i = 0; i < y.count(); ++i) EXPECT_NEAR(y.as<float>()[i], z.as<float>()[i], 1e-5);
}

TEST_F(ApiTune, SaysWhereNoPlanIsKept) {
    options_.tuned = true;
    tw::Model::from_file(path_, options_);
    EXPECT_THAT(log_, HasSubstr("no tuned plan"));
}

TEST_F(ApiTune, EndsWithWhatItFoundWhenCancelled) {
    bool seen = false;
    options_.log = [&](tilewright_severity, const std::string& text) {
        seen = seen || text.find("candidates") != std::string::npos;
    };
    options_.cancelled = [&] { return seen; };
    const auto report = nlohmann::json::parse(tw::Tuning::of_file(path_, "10m", options_).json);
    EXPECT_LT(report["seconds"], 60);
    EXPECT_THAT(report["ended"].get<std::string>(), HasSubstr("interrupt"));
}

TEST_F(ApiTune, RefusesWhatItCannotDo) {
    EXPECT_THAT(refusal("soon"), HasSubstr("soon"));
    options_.measure = true;
    EXPECT_THAT(refusal(), HasSubstr("options->measure"));
    options_.measure = false;
    options_.tuned = true;
    EXPECT_THAT(refusal(), HasSubstr("options->tuned"));
    options_.tuned = false;
    options_.orchestrator = TILEWRIGHT_OPTIMAL;
    EXPECT_THAT(refusal(), HasSubstr("TILEWRIGHT_OPTIMAL"));
}

TEST_F(ApiTune, LayoutsAreAnOption) {
    options_.layouts = TILEWRIGHT_JOINT_LAYOUTS;
    EXPECT_NO_THROW(tw::Model::from_file(path_, options_));
    options_.layouts = TILEWRIGHT_ROW_MAJOR;
    EXPECT_NO_THROW(tw::Model::from_file(path_, options_));
    options_.layouts = static_cast<tilewright_layouts>(7);
    EXPECT_THROW(tw::Model::from_file(path_, options_), tw::Error);
}

}  // namespace
