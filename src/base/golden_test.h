#pragma once
// Files that hold an input and the output that is expected of it, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

namespace tilewright::test {

/// An input, a line "----", the expected output.
struct Golden {
    std::string path, name;  ///< `name`: that of the file, without its ending
    std::string input, expected;
};

inline void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.name; }

inline const std::string kGoldenLine = "----\n";

/// The .txt files of a folder of the sources, sorted by name.
inline std::vector<Golden> golden_files(const std::string& folder) {
    std::vector<Golden> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".txt") continue;
        std::ifstream file(entry.path());
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const size_t at = text.find("\n" + kGoldenLine);
        Golden g{entry.path().string(), entry.path().stem().string(), text, ""};
        if (at != std::string::npos) {
            g.input = text.substr(0, at + 1);
            g.expected = text.substr(at + 1 + kGoldenLine.size());
        }
        out.push_back(std::move(g));
    }
    std::sort(out.begin(), out.end(), [](const Golden& a, const Golden& b) { return a.name < b.name; });
    return out;
}

/// Compares with the file. With TILEWRIGHT_UPDATE_GOLDEN=1 (`make golden-update`) the output is written into it
/// instead.
inline void expect_golden(const Golden& golden, const std::string& output) {
    const char* update = std::getenv("TILEWRIGHT_UPDATE_GOLDEN");
    if (update == nullptr || std::string(update) != "1") {
        EXPECT_EQ(output, golden.expected) << golden.path << " is updated by `make golden-update`";
        return;
    }
    if (output != golden.expected) std::ofstream(golden.path) << golden.input << kGoldenLine << output;
}

/// What stands behind "# key: " in the input, "" if there is no such line.
inline std::string golden_setting(const Golden& golden, const std::string& key) {
    const std::string text = "\n" + golden.input, begin = "\n# " + key + ": ";
    const size_t at = text.find(begin);
    if (at == std::string::npos) return "";
    const size_t from = at + begin.size();
    return text.substr(from, text.find('\n', from) - from);
}

}  // namespace tilewright::test
