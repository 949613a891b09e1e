#include "tune/local_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tune/boosted_trees.h"

namespace tilewright {

namespace {

using dynamic::MicroKernelFeatures;

constexpr size_t kEnsembles = 3, kFewest = 8;  // with fewer measurements, the mean alone

ResidualFeatures row_of(const MicroKernelFeatures& features) {
    static_assert(dynamic::kMicroKernelFeatures <= kResidualFeatures);
    ResidualFeatures out{};
    std::copy(features.begin(), features.end(), out.begin());
    return out;
}

double value_of(const TreeEnsemble& trees, const ResidualFeatures& row) {
    double sum = 0;
    for (const RegressionTree& t : trees) sum += t.at(row);
    return sum;
}

class BoostedModel final : public dynamic::LocalModel {
  public:
    void learn(const std::vector<MicroKernelFeatures>& features, const std::vector<float>& labels) override {
        mean_.learn(features, labels);
        ensembles_.clear();
        if (features.size() < kFewest) return;
        // Trees learn what differs from the mean: boosting begins with a constant of its own.
        const double mean = mean_.at({}).log_ratio;
        double squares = 0;
        std::mt19937_64 rng(features.size());
        for (size_t e = 0; e < kEnsembles; ++e) {
            std::vector<ResidualFeatures> rows;
            std::vector<float> own;
            std::vector<bool> drawn(features.size(), false);
            for (size_t k = 0; k < features.size(); ++k) {
                const size_t at = rng() % features.size();
                drawn[at] = true;
                rows.push_back(row_of(features[at]));
                own.push_back(static_cast<float>(labels[at] - mean));
            }
            BoostingOptions options;
            options.seed = e + 1;
            ensembles_.push_back(boosted_trees(rows, own, options));
            double error = 0;
            size_t count = 0;
            for (size_t k = 0; k < features.size(); ++k) {
                if (drawn[k]) continue;
                const double off = labels[k] - mean - value_of(ensembles_.back(), row_of(features[k]));
                error += off * off;
                ++count;
            }
            squares += count == 0 ? 0 : error / static_cast<double>(count);
        }
        noise_ = std::sqrt(squares / kEnsembles);
    }

    Prediction at(const MicroKernelFeatures& features) const override {
        const Prediction mean = mean_.at(features);
        if (ensembles_.empty()) return mean;
        double sum = 0;
        const ResidualFeatures row = row_of(features);
        for (const TreeEnsemble& trees : ensembles_) sum += value_of(trees, row);
        return {mean.log_ratio + sum / kEnsembles, noise_};
    }

  private:
    dynamic::MeanModel mean_;
    std::vector<TreeEnsemble> ensembles_;
    double noise_ = 0;  ///< of the measurements that an ensemble was not given
};

}  // namespace

std::unique_ptr<dynamic::LocalModel> make_local_model() {
    if (has_boosted_trees()) return std::make_unique<BoostedModel>();
    return std::make_unique<dynamic::MeanModel>();
}

}  // namespace tilewright
