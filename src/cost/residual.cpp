#include "cost/residual.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/private_folder.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr std::array<std::string_view, kResidualFeatures> kNames = {
    "log2 estimated ns",
    "log2 compute share",
    "log2 memory share",
    "log2 tasks",
    "log2 scratch bytes",
    "log2 operations",
    "log2 tensor bytes",
    "stages",
    "products",
    "reductions",
    "transforms",
    "body instructions",
    "epilogue instructions",
    "operands",
    "operands not contiguous along the vector",
    "data-dependent operands",
    "operands from memory",
    "log2 register tile",
    "log2 lanes",
    "vectors along the sum",
    "log2 terms of the sum",
    "loops",
};

float log_of(double x) { return static_cast<float>(std::log2(std::max(x, 1e-6))); }

/// Sums and extremes over the stages of a kernel.
struct Totals {
    double operations = 0, bytes = 0, body = 0, epilogue = 0, terms = 1;
    int products = 0, reductions = 0, transforms = 0, operands = 0, irregular = 0, from_memory = 0;

    void add(const StageModel& s) {
        operations += s.flops();
        products += s.product ? 1 : 0;
        reductions += s.reduces && !s.product ? 1 : 0;
        transforms += s.map ? 1 : 0;
        body = std::max(body, s.body_operations);
        epilogue += s.epilogue_operations;
        double sum = 1;
        for (size_t a = s.spatial; a < s.extents.size(); ++a) sum *= static_cast<double>(s.extents[a]);
        terms = std::max(terms, sum);
        for (const OperandModel& o : s.operands) {
            ++operands;
            bytes += o.bytes(s.extents);
            irregular += o.irregular ? 1 : 0;
            from_memory += o.residence == Residence::Memory ? 1 : 0;
        }
    }
};

/// Of the micro-kernel with the most operations.
struct Tile {
    double points = 1, lanes = 1;
    int strided = 0;
    bool along_sum = false;
};

Tile tile_of(const StageModel& s, const Micro& m) {
    Tile out;
    out.lanes = static_cast<double>(m.lanes);
    for (const int64_t r : m.registers) out.points *= static_cast<double>(std::max<int64_t>(1, r));
    if (!m.vector_axis) return out;
    out.along_sum = *m.vector_axis >= s.spatial;
    for (const OperandModel& o : s.operands) out.strided += std::abs(o.strides[*m.vector_axis]) > 1 ? 1 : 0;
    return out;
}

}  // namespace

std::span<const std::string_view> residual_feature_names() { return kNames; }

ResidualFeatures residual_features(const TileProgram& kernel, const StageModels& models, const Estimate& estimate,
                                   const Target& target) {
    Totals all;
    for (const StageModel& s : models) all.add(s);
    const Walk tree = walk(kernel);
    Tile tile;
    double most = -1;
    for (const auto& [path, compute] : tree.computes) {
        const StageModel& s = models[compute->stage];
        if (s.flops() <= most) continue;
        most = s.flops();
        tile = tile_of(s, compute->micro);
    }
    const double seconds = std::max(estimate.seconds, 1e-9);
    const auto number = [](auto x) { return static_cast<float>(x); };
    return {log_of(seconds * 1e9),
            log_of(estimate.compute_seconds / seconds),
            log_of(estimate.memory_seconds / seconds),
            log_of(estimate.tasks / std::max(1, target.workers)),
            log_of(estimate.scratch_bytes + 1),
            log_of(all.operations),
            log_of(all.bytes),
            number(models.size()),
            number(all.products),
            number(all.reductions),
            number(all.transforms),
            number(all.body),
            number(all.epilogue),
            number(all.operands),
            number(tile.strided),
            number(all.irregular),
            number(all.from_memory),
            log_of(tile.points),
            log_of(tile.lanes),
            number(tile.along_sum ? 1 : 0),
            log_of(all.terms),
            number(tree.loops.size())};
}

float RegressionTree::at(const ResidualFeatures& features) const {
    size_t n = 0;
    while (nodes[n].feature >= 0) {
        const Node& node = nodes[n];
        n = node.children[features[static_cast<size_t>(node.feature)] < node.threshold ? 0 : 1];
    }
    return nodes[n].value;
}

ResidualModel::ResidualModel(std::vector<TreeEnsemble> ensembles, Errors errors, size_t measurements)
    : ensembles_(std::move(ensembles)), errors_(errors), measurements_(measurements) {
    TW_CHECK(!ensembles_.empty(), "a residual model without trees");
    uint64_t hash = hash_combine(ensembles_.size(), measurements_);
    for (const double error : {errors_.before, errors_.noise})
        hash = hash_combine(hash, std::bit_cast<uint64_t>(error));
    for (const TreeEnsemble& e : ensembles_)
        for (const RegressionTree& t : e)
            for (const RegressionTree::Node& n : t.nodes) {
                hash = hash_combine(hash, static_cast<uint64_t>(n.feature));
                hash = hash_combine(hash, std::bit_cast<uint32_t>(n.threshold));
                hash = hash_combine(hash, std::bit_cast<uint32_t>(n.value));
            }
    id_ = fmt::format("{:016x}", hash);
}

ResidualModel::Prediction ResidualModel::at(const ResidualFeatures& features) const {
    double sum = 0, squares = 0;
    for (const TreeEnsemble& e : ensembles_) {
        double x = 0;
        for (const RegressionTree& t : e) x += t.at(features);
        sum += x;
        squares += x * x;
    }
    const auto n = static_cast<double>(ensembles_.size());
    const double mean = sum / n, variance = std::max(0.0, squares / n - mean * mean);
    return {mean, std::hypot(std::sqrt(variance), errors_.noise)};
}

double ResidualModel::corrected(const TileProgram& kernel, const StageModels& models, const Estimate& estimate,
                                const Target& target) const {
    constexpr double kMost = 1.3862943611198906;  // log 4: more is far from all that was measured
    const double log_ratio = at(residual_features(kernel, models, estimate, target)).log_ratio;
    return estimate.seconds * std::exp(std::clamp(log_ratio, -kMost, kMost));
}

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;  // of the file, and of the features
constexpr int64_t kMostBytes = 64 << 20;

Json json_of(const RegressionTree& tree) {
    Json nodes = Json::array();
    for (const RegressionTree::Node& n : tree.nodes)
        nodes.push_back(n.feature < 0 ? Json::array({n.value})
                                      : Json::array({n.feature, n.threshold, n.children[0], n.children[1]}));
    return nodes;
}

[[noreturn]] void bad(const char* why) { throw RuntimeError(fmt::format("no residual model: {}", why)); }

RegressionTree tree_from(const Json& json) {
    RegressionTree tree;
    for (const Json& j : json) {
        RegressionTree::Node n;
        if (j.size() == 1) {
            n.value = j[0].get<float>();
        } else if (j.size() == 4) {
            n.feature = j[0].get<int>();
            n.threshold = j[1].get<float>();
            n.children = {j[2].get<uint32_t>(), j[3].get<uint32_t>()};
            if (n.feature < 0 || n.feature >= static_cast<int>(kResidualFeatures)) bad("an unknown feature");
            // Children follow their parent, so that every path ends.
            for (const uint32_t c : n.children)
                if (c <= tree.nodes.size() || c >= json.size()) bad("a node with a wrong child");
        } else {
            bad("a node that is neither a leaf nor a split");
        }
        if (!std::isfinite(n.value) || !std::isfinite(n.threshold)) bad("a number that is not finite");
        tree.nodes.push_back(n);
    }
    if (tree.nodes.empty()) bad("an empty tree");
    return tree;
}

}  // namespace

std::string ResidualModel::to_json() const {
    Json all = Json::array();
    for (const TreeEnsemble& e : ensembles_) {
        Json trees = Json::array();
        for (const RegressionTree& t : e) trees.push_back(json_of(t));
        all.push_back(std::move(trees));
    }
    const Json errors{{"before", errors_.before}, {"noise", errors_.noise}};
    return Json{{"version", kVersion}, {"measurements", measurements_}, {"errors", errors}, {"ensembles", all}}.dump() +
           "\n";
}

ResidualModel ResidualModel::from_json(std::string_view text) {
    try {
        const Json json = Json::parse(text);
        if (json.at("version").get<int>() != kVersion) bad("another version's file");
        std::vector<TreeEnsemble> ensembles;
        for (const Json& e : json.at("ensembles")) {
            TreeEnsemble& trees = ensembles.emplace_back();
            for (const Json& t : e) trees.push_back(tree_from(t));
        }
        if (ensembles.empty()) bad("it has no trees");
        const Json& given = json.at("errors");
        const Errors errors{given.at("before").get<double>(), given.at("noise").get<double>()};
        for (const double error : {errors.before, errors.noise})
            if (!std::isfinite(error) || error < 0) bad("its errors are no numbers");
        return {std::move(ensembles), errors, json.at("measurements").get<size_t>()};
    } catch (const Json::exception& e) {
        bad(e.what());
    }
}

double margin(double usual, const ResidualModel* learned) {
    if (learned == nullptr || !(learned->errors().before > 0)) return usual;
    return 1 - std::pow(1 - usual, std::min(1.0, learned->errors().noise / learned->errors().before));
}

double corrected_seconds(const TileProgram& kernel, const Target& target, const StageModels& models,
                         const Bindings& bindings, const ResidualModel* residual) {
    const Estimate e = estimate(kernel, target, models, bindings);
    return residual == nullptr ? e.seconds : residual->corrected(kernel, models, e, target);
}

std::string residual_path(const Target& target) {
    return fmt::format("{}/residual-{}-{}.json", kept_folder(), target_key(target), target.workers);
}

std::optional<ResidualModel> load_residual(const Target& target, std::string* why) {
    std::string path;
    try {
        path = residual_path(target);
    } catch (const RuntimeError&) {
        return std::nullopt;  // no folder, and nothing in it
    }
    try {
        std::error_code none;
        if (!std::filesystem::exists(path, none)) return std::nullopt;
        const auto text = read_trusted_file(path, kMostBytes);
        if (!text) throw RuntimeError(fmt::format("{} cannot be read", path));
        return ResidualModel::from_json(*text);
    } catch (const RuntimeError& e) {
        if (why != nullptr) *why = e.what();
        return std::nullopt;
    }
}

}  // namespace tilewright
