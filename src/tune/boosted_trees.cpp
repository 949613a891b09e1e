#include "tune/boosted_trees.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/shared_library.h"

namespace tilewright {

namespace {

using Json = nlohmann::json;
using Handle = void*;

/// The functions of xgboost/c_api.h that are used; each returns 0 on success.
struct Library {
    int (*matrix_of)(const float* data, uint64_t rows, uint64_t columns, float missing, Handle* out) = nullptr;
    int (*set_floats)(Handle matrix, const char* field, const float* values, uint64_t count) = nullptr;
    int (*free_matrix)(Handle) = nullptr;
    int (*booster)(const Handle matrices[], uint64_t count, Handle* out) = nullptr;
    int (*set_param)(Handle booster, const char* name, const char* value) = nullptr;
    int (*update)(Handle booster, int iteration, Handle matrix) = nullptr;
    int (*dump)(Handle booster, const char* names, int statistics, const char* format, uint64_t* count,
                const char*** trees) = nullptr;
    int (*free_booster)(Handle) = nullptr;
    const char* (*last_error)() = nullptr;

    Library() {
        const SharedLibrary lib("XGBoost", {"libxgboost.so.0", "libxgboost.so"}, "install the package libxgboost0");
        lib.find(matrix_of, "XGDMatrixCreateFromMat");
        lib.find(set_floats, "XGDMatrixSetFloatInfo");
        lib.find(free_matrix, "XGDMatrixFree");
        lib.find(booster, "XGBoosterCreate");
        lib.find(set_param, "XGBoosterSetParam");
        lib.find(update, "XGBoosterUpdateOneIter");
        lib.find(dump, "XGBoosterDumpModelEx");
        lib.find(free_booster, "XGBoosterFree");
        lib.find(last_error, "XGBGetLastError");
    }

    void check(int status) const {
        if (status != 0) throw RuntimeError(fmt::format("XGBoost: {}", last_error()));
    }
};

const Library& library() {
    static const Library the;
    return the;
}

class Matrix {
  public:
    Matrix(std::span<const ResidualFeatures> features, std::span<const float> labels) {
        const Library& lib = library();
        lib.check(lib.matrix_of(features[0].data(), features.size(), kResidualFeatures,
                                std::numeric_limits<float>::quiet_NaN(), &handle));
        lib.check(lib.set_floats(handle, "label", labels.data(), labels.size()));
    }
    ~Matrix() { library().free_matrix(handle); }
    Matrix(const Matrix&) = delete;
    Matrix& operator=(const Matrix&) = delete;

    Handle handle = nullptr;
};

class Booster {
  public:
    Booster(const Matrix& matrix, const BoostingOptions& options) {
        const Library& lib = library();
        lib.check(lib.booster(&matrix.handle, 1, &handle));
        const std::pair<const char*, std::string> params[] = {
            {"objective", "reg:squarederror"},
            {"base_score", "0"},
            {"tree_method", "exact"},
            {"max_depth", std::to_string(options.depth)},
            {"eta", fmt::format("{}", options.rate)},
            {"min_child_weight", "3"},
            {"subsample", "0.8"},
            {"nthread", "1"},
            {"seed", std::to_string(options.seed)},
            {"verbosity", "0"},
        };
        for (const auto& [name, value] : params) lib.check(lib.set_param(handle, name, value.c_str()));
        for (int k = 0; k < options.trees; ++k) lib.check(lib.update(handle, k, matrix.handle));
    }
    ~Booster() { library().free_booster(handle); }
    Booster(const Booster&) = delete;
    Booster& operator=(const Booster&) = delete;

    Handle handle = nullptr;
};

/// Adds the node of a dumped tree and those below it. Returns its number.
uint32_t add(const Json& json, RegressionTree& tree) {
    const auto at = static_cast<uint32_t>(tree.nodes.size());
    tree.nodes.emplace_back();
    if (const auto leaf = json.find("leaf"); leaf != json.end()) {
        tree.nodes[at].value = leaf->get<float>();
        return at;
    }
    RegressionTree::Node n;
    n.feature = std::stoi(json.at("split").get<std::string>().substr(1));  // "f12"
    n.threshold = json.at("split_condition").get<float>();
    for (const Json& child : json.at("children"))
        n.children[child.at("nodeid") == json.at("yes") ? 0 : 1] = add(child, tree);
    tree.nodes[at] = n;
    return at;
}

}  // namespace

TreeEnsemble boosted_trees(std::span<const ResidualFeatures> features, std::span<const float> labels,
                           const BoostingOptions& options) {
    TW_CHECK(!features.empty() && features.size() == labels.size(), "no rows to learn from");
    const Library& lib = library();
    const Matrix matrix(features, labels);
    const Booster booster(matrix, options);
    uint64_t count = 0;
    const char** trees = nullptr;
    lib.check(lib.dump(booster.handle, "", 0, "json", &count, &trees));
    TreeEnsemble out;
    try {
        for (uint64_t k = 0; k < count; ++k) add(Json::parse(trees[k]), out.emplace_back());
    } catch (const Json::exception& e) {
        throw RuntimeError(fmt::format("XGBoost wrote trees in an unknown form: {}", e.what()));
    }
    return out;
}

bool has_boosted_trees() {
    try {
        library();
        return true;
    } catch (const RuntimeError&) {
        return false;
    }
}

}  // namespace tilewright
