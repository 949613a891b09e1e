#pragma once
// What DietCode learns from measurements: f_local, the part of a micro-kernel's speed that does not depend on sizes
// (§5.3, equation 3).

#include <array>
#include <vector>

namespace tilewright::dynamic {

/// What f_local is learned from: properties of a micro-kernel's tiles. No size of the workload is among them, so that
/// what was learned at one size holds for all.
inline constexpr size_t kMicroKernelFeatures = 16;
using MicroKernelFeatures = std::array<float, kMicroKernelFeatures>;

class LocalModel {
  public:
    virtual ~LocalModel() = default;
    /// Replaces what was learned. `labels`: as many as features; log(measured / predicted seconds).
    virtual void learn(const std::vector<MicroKernelFeatures>& features, const std::vector<float>& labels) = 0;
    struct Prediction {
        double log_ratio = 0;  ///< log(measured / predicted seconds); 0 before learn()
        double spread = 0;     ///< its standard deviation
    };
    virtual Prediction at(const MicroKernelFeatures& features) const = 0;
};

/// Learns the mean alone.
class MeanModel final : public LocalModel {
  public:
    void learn(const std::vector<MicroKernelFeatures>& features, const std::vector<float>& labels) override;
    Prediction at(const MicroKernelFeatures&) const override { return {mean_, spread_}; }

  private:
    double mean_ = 0, spread_ = 0;
};

}  // namespace tilewright::dynamic
