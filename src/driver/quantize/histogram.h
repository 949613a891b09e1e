#pragma once
// The distribution of a tensor's elements over many runs, and the range of them that 8 bits represent.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tilewright::quantize {

/// Counts of finite elements in equal bins over [-limit, limit]. The limit is a power of two: larger elements double
/// it, and each pair of bins becomes one.
///     limit 2, elements -1.5, 0.5; then 3 comes: limit 4
class Histogram {
  public:
    static constexpr size_t kBins = 4096;
    void add(std::span<const float> elements);

    uint64_t count() const { return count_; }            ///< finite elements
    uint64_t zeros() const { return zeros_; }            ///< of them, elements that are 0; bins do not count them
    uint64_t not_finite() const { return not_finite_; }  ///< NaN and infinities
    double least() const { return least_; }              ///< 0 if there are no elements
    double most() const { return most_; }
    double limit() const { return limit_; }
    /// Bin b counts [(b - kBins / 2) * width, (b + 1 - kBins / 2) * width).
    std::span<const uint64_t> bins() const { return bins_; }
    double width() const { return 2 * limit_ / static_cast<double>(kBins); }

  private:
    void widen(double magnitude);
    std::vector<uint64_t> bins_ = std::vector<uint64_t>(kBins);
    uint64_t count_ = 0, zeros_ = 0, not_finite_ = 0;
    double limit_ = 0, least_ = 0, most_ = 0;
};

/// How a range is chosen.
enum class Calibration : uint8_t {
    MinMax,      ///< all elements that were seen
    Percentile,  ///< all but a share of the outermost ones
    Entropy      ///< the least relative entropy of the distribution and its quantised form (S. Migacz, "8-bit Inference
                 ///< with TensorRT", 2017)
};
std::string_view to_string(Calibration calibration);

struct Range {
    double least = 0, most = 0;
};

/// The range that is quantised; it contains 0. `percentile`, of Percentile, in per cent: 99.99 leaves out one element
/// of 10,000, half of them at each end where there are elements of both signs.
Range range_of(const Histogram& histogram, Calibration calibration, double percentile);

}  // namespace tilewright::quantize
