// Recorded runs, by the C interface and its C++ header.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver/zoo/zoo.h"
#include "tilewright/tilewright.hpp"

namespace {

using Json = nlohmann::json;

const tw::Model& model() {
    static const tw::Model made = [] {
        const tilewright::ZooModel zoo = tilewright::build_zoo_model("mlp", 0, {{"batch", 0}});
        return tw::Model::from_memory(zoo.bytes.data(), zoo.bytes.size());
    }();
    return made;
}

std::map<std::string, int> names_of(const std::string& trace) {
    std::map<std::string, int> counts;
    const Json parsed = Json::parse(trace);
    for (const Json& event : parsed.at("traceEvents")) ++counts[event.at("name").get<std::string>()];
    return counts;
}

class ApiTrace : public testing::Test {
  protected:
    void run(int64_t batch) {
        const int64_t width = model_.inputs().at(0).dims.at(1);
        const std::vector<float> x(static_cast<size_t>(batch * width));
        session_.run({tw::tensor(x, {batch, width})});
    }
    tw::Model model_ = model();
    tw::Session session_{model_, 1};
};

TEST_F(ApiTrace, HasRunsWhileTheyAreRecorded) {
    run(1);
    session_.record(true);
    run(2);
    run(3);
    session_.record(false);
    run(4);
    const std::map<std::string, int> names = names_of(session_.trace());
    EXPECT_EQ(names.at("run"), 2);
    EXPECT_GT(names.size(), 1U);
    for (const auto& [name, count] : names) EXPECT_EQ(count % 2, 0) << name;
    const Json parsed = Json::parse(session_.trace());
    const Json& first = parsed.at("traceEvents").at(0);
    EXPECT_EQ(first.at("ph"), "X");
    EXPECT_EQ(first.at("args").at("inputs"), "f32[2, " + std::to_string(model_.inputs()[0].dims[1]) + "]");
}

TEST_F(ApiTrace, BeginsAnew) {
    session_.record(true);
    run(1);
    session_.record(true);
    EXPECT_EQ(names_of(session_.trace()).size(), 0U);
    run(1);
    EXPECT_EQ(names_of(session_.trace()).at("run"), 1);
}

TEST_F(ApiTrace, HasRunsThatFail) {
    session_.record(true);
    tw::RunOptions cancelled;
    cancelled.cancelled = [] { return true; };
    const std::vector<float> x(static_cast<size_t>(model_.inputs()[0].dims[1]));
    EXPECT_THROW(session_.run({tw::tensor(x, {1, model_.inputs()[0].dims[1]})}, cancelled), tw::Error);
    EXPECT_EQ(names_of(session_.trace()), (std::map<std::string, int>{{"run", 1}}));
}

TEST_F(ApiTrace, IsRefusedWithoutARecording) {
    try {
        session_.trace();
        FAIL() << "accepted";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_INVALID_ARGUMENT);
        EXPECT_STREQ(e.what(), "nothing was recorded: call tilewright_session_record before the runs");
    }
    EXPECT_EQ(tilewright_session_record(nullptr, 1, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(tilewright_session_trace(nullptr, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
}

}  // namespace
