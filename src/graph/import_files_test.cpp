// Loads every available model: the ONNX project's conformance cases, and whole models, from a folder beside the
// repository. Without that folder these tests check nothing.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "graph/import.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

/// Paths below `folder` of files with this extension; none if there is no such folder.
std::vector<std::string> files_below(const fs::path& folder, const std::string& extension) {
    std::vector<std::string> paths;
    if (!fs::is_directory(folder)) return paths;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() == extension) paths.push_back(entry.path().string());
    return paths;
}

fs::path shared(const char* name) { return fs::path(TW_SOURCE_DIR).parent_path() / "shared" / name; }

void expect_all_load(const std::vector<std::string>& paths) {
    if (paths.empty()) GTEST_SKIP() << "no models there";
    for (const std::string& path : paths) {
        try {
            const Model m = load_model(path);
            for (const std::string& problem : m.graph.verify()) ADD_FAILURE() << path << ": " << problem;
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
    }
}

TEST(ImportFiles, ConformanceCasesLoad) { expect_all_load(files_below(shared("conformance"), ".onnx")); }

TEST(ImportFiles, RealModelsLoad) { expect_all_load(files_below(shared("models/real"), ".onnx")); }

/// Large models, from the folder TILEWRIGHT_MODELS if it is set.
TEST(ImportFiles, LargeModelsLoad) {
    const char* folder = std::getenv("TILEWRIGHT_MODELS");
    expect_all_load(folder != nullptr ? files_below(folder, ".onnx") : std::vector<std::string>());
}

TEST(ImportFiles, TensorsOfTheConformanceCasesLoad) {
    const std::vector<std::string> paths = files_below(shared("conformance"), ".pb");
    if (paths.empty()) GTEST_SKIP() << "no tensors there";
    for (const std::string& path : paths) {
        try {
            EXPECT_TRUE(load_tensor_pb(path).value.defined()) << path;
        } catch (const std::exception& e) {
            ADD_FAILURE() << e.what();
        }
    }
}

}  // namespace
}  // namespace tilewright
