// Runs the minimal models of the attack reports (../shared/reviews/attacks/repro), if they are present: each ends with
// a result or one error line, within the limits of a mutant. tool/hostile_*_test.cpp builds the same attacks.

#include <algorithm>
#include <filesystem>

#include "tool/hostile_models_test.h"

namespace tilewright::tool_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> attack_models() {
    const fs::path folder = fs::path(TW_SOURCE_DIR) / "../shared/reviews/attacks/repro";
    std::vector<fs::path> out;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
        if (entry.path().extension() == ".onnx") out.push_back(fs::canonical(entry.path()));
    std::sort(out.begin(), out.end());
    return out;
}

/// Models that need tens of seconds of work: only run with TILEWRIGHT_LONG_TESTS.
bool is_long(const fs::path& model) {
    const std::string name = model.stem().string();
    return name == "mem_mid_bomb" || name == "split_5k" || name == "sum20000_distinct_oom";
}

using AttackFiles = HostileGraph;

TEST_F(AttackFiles, EndInAResultOrARefusal) {
    const std::vector<fs::path> models = attack_models();
    if (models.empty()) GTEST_SKIP() << "the attack models are not present";
    for (const fs::path& model : models) {
        if (is_long(model) && !long_tests()) continue;
        SCOPED_TRACE(model.filename().string());
        std::vector<std::string> run = {"run", model.string(), "--threads", "1"};
        const fs::path inputs = fs::path(model).replace_extension(".npz");
        if (fs::exists(inputs)) run.insert(run.end(), {"--input", inputs.string()});
        EXPECT_TRUE(runs_or_is_refused(place.run(run, {is_long(model) ? 300.0 : 60.0})));
        // `check` lists unsupported nodes without an `error:` line for each: only its exit is checked.
        const Result checked = place.run({"check", model.string()}, {60});
        EXPECT_FALSE(checked.timed_out);
        EXPECT_LE(checked.status, 1) << checked.err;
        EXPECT_EQ(checked.err.find("internal error"), std::string::npos) << checked.err;
    }
}

}  // namespace
}  // namespace tilewright::tool_test
