#pragma once
// How far the outputs of a quantised model are from those of its original.

#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright::quantize {

/// Over all samples of one output.
struct OutputAccuracy {
    std::string name;
    uint64_t elements = 0;
    /// Root mean square of the differences, relative to the standard deviation of the original's elements; relative to
    /// their root mean square if all are equal. Of integers and booleans: the share of elements that differ.
    double error = 0;
    double largest_difference = 0;
    uint64_t rows = 0;        ///< along the last axis, if it has more than one element; else 0
    uint64_t rows_agree = 0;  ///< of them, those whose largest element is at the same index
};

/// Adds up over samples.
class Accuracy {
  public:
    explicit Accuracy(std::vector<std::string> names) : names_(std::move(names)), sums_(names_.size()) {}
    /// The outputs of one run of each. Elements where the original is not finite are left out.
    void add(const std::vector<Tensor>& original, const std::vector<Tensor>& quantised);
    std::vector<OutputAccuracy> outputs() const;
    /// The largest error of all outputs.
    double error() const;

  private:
    struct Sums {
        double n = 0, sum = 0, squares = 0, differences = 0, largest = 0;
        uint64_t differing = 0, rows = 0, rows_agree = 0;
        bool integers = false;
    };
    std::vector<std::string> names_;
    std::vector<Sums> sums_;
};

}  // namespace tilewright::quantize
