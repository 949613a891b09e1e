#pragma once
// A learned correction of the cost model: log(measured / estimate) of a kernel on one machine, as the mean of several
// ensembles of regression trees, each trained on another draw of the measurements.
//
// Training needs XGBoost (tune/learn_costs.h); predicting does not.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost/estimate.h"

namespace tilewright {

/// The number of features of a kernel.
inline constexpr size_t kResidualFeatures = 22;
using ResidualFeatures = std::array<float, kResidualFeatures>;

/// Their names, for people: "log2 estimated ns", ...
std::span<const std::string_view> residual_feature_names();

/// What the correction of an estimate depends on. None is a name or a position: kernels of models that were never
/// measured have features near those that were.
ResidualFeatures residual_features(const TileProgram& kernel, const StageModels& models, const Estimate& estimate,
                                   const Target& target);

/// A regression tree: from node 0 to children[feature < threshold ? 0 : 1], until a leaf.
struct RegressionTree {
    struct Node {
        int feature = -1;  ///< negative: a leaf
        float threshold = 0;
        std::array<uint32_t, 2> children{};
        float value = 0;  ///< of a leaf
    };
    std::vector<Node> nodes;

    float at(const ResidualFeatures& features) const;
};

/// Trees whose values add up.
using TreeEnsemble = std::vector<RegressionTree>;

class ResidualModel {
  public:
    /// Errors of estimates on kernels that were not measured, as the standard deviation of log(measured / estimate).
    struct Errors {
        double before = 0;  ///< of the estimates as they are
        double noise = 0;   ///< that remains of the corrected ones
    };
    ResidualModel(std::vector<TreeEnsemble> ensembles, Errors errors, size_t measurements);

    struct Prediction {
        double log_ratio = 0;  ///< log(measured / estimate): the mean of the ensembles
        double spread = 0;     ///< its standard deviation: of the ensembles, and the noise
    };
    Prediction at(const ResidualFeatures& features) const;
    /// The estimate of `kernel` times the predicted ratio, which is at least 1/4 and at most 4.
    double corrected(const TileProgram& kernel, const StageModels& models, const Estimate& estimate,
                     const Target& target) const;

    size_t measurements() const { return measurements_; }  ///< trained on
    Errors errors() const { return errors_; }
    /// Changes with every tree: for keys of what was planned with it.
    const std::string& id() const { return id_; }

    std::string to_json() const;
    /// Throws RuntimeError that says what is wrong with the text.
    static ResidualModel from_json(std::string_view json);

  private:
    std::vector<TreeEnsemble> ensembles_;
    Errors errors_;
    size_t measurements_ = 0;
    std::string id_;
};

/// The seconds of estimate(), corrected if there is a residual model.
double corrected_seconds(const TileProgram& kernel, const Target& target, const StageModels& models,
                         const Bindings& bindings, const ResidualModel* residual);

/// The share by which an estimate must be lower than another one for its kernel to replace the other's: `usual` for
/// estimates as they are. Two estimates whose logarithms err independently, by a normal distribution of spread s, are
/// in the right order with the probability phi(log(ratio) / (sqrt(2) s)). The margin of learned estimates is the one
/// with the probability that `usual` has before: its logarithm shrinks as the spread does. It never grows.
///     12 %, errors of 0.26 before and 0.16 learned: 7.6 %
double margin(double usual, const ResidualModel* learned);

/// <cache_folder>/residual-<target_key>-<threads>.json; throws RuntimeError where there is no cache folder.
std::string residual_path(const Target& target);
/// The model that was learned for this machine and Target::workers. nullopt where there is none, or one that cannot be
/// understood; then `why` says so, if given.
std::optional<ResidualModel> load_residual(const Target& target, std::string* why = nullptr);

}  // namespace tilewright
