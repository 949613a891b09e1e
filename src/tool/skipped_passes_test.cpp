// Stored outputs of ONNX's cases hold without each pass that can be skipped.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Of the passes that `tilewright passes` lists: "* " are required, "[...]" run with an option only.
std::vector<std::string> skippable_passes(const Workplace& place) {
    std::vector<std::string> names;
    std::istringstream lines(place.run({"passes"}).out);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("  ", 0) != 0 || line.size() < 3 || line[2] == '[' || line[2] == ' ') continue;
        names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
    return names;
}

/// Every so many cases of the suite, by name.
std::vector<std::string> cases_of(const fs::path& suite, size_t every) {
    std::vector<std::string> all, out;
    for (const auto& entry : fs::directory_iterator(suite))
        if (entry.is_directory()) all.push_back(entry.path().string());
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < all.size(); i += every) out.push_back(all[i]);
    return out;
}

TEST(SkippedPasses, conformance_cases_hold_without_each_of_them) {
    const fs::path suite = fs::path(TW_SOURCE_DIR) / "../shared/conformance/core";
    if (!fs::exists(suite)) GTEST_SKIP() << "no " << suite;
    const std::vector<std::string> cases = cases_of(suite, 75);
    const Workplace place;
    const std::vector<std::string> passes = skippable_passes(place);
    EXPECT_THAT(passes, testing::IsSupersetOf({"dead_code", "rewrite", "fuse", "split_k", "annotate"}));
    for (const std::string& pass : passes) {
        std::vector<std::string> command{"conformance", "--skip", pass, "--verify-each", "--threads", "1"};
        command.insert(command.end(), cases.begin(), cases.end());
        const Result r = place.run(command);
        EXPECT_EQ(r.status, 0) << "without " << pass << ":\n" << r.out << r.err;
        EXPECT_THAT(r.out, HasSubstr(" passed, 0 failed")) << pass;
    }
}

}  // namespace
}  // namespace tilewright::tool_test
