#pragma once
// Which products are in bf16, and how far that moves the tensors of a model, as text and JSON.

#include <map>
#include <string>
#include <vector>

#include "compile/precision_choice.h"
#include "program/watch.h"

namespace tilewright {

/// "precision bf16: 52 of 54 products rounded; largest error on sample inputs 0.0093 (0.021 with all), at most 0.01",
/// and a line for each of the `most` products in f32 whose errors are largest.
std::string print(const PrecisionChoice& choice, size_t most = 10);
/// As JSON, likewise below.
std::string to_json(const PrecisionChoice& choice);

/// The result of a product, compared with the reference.
struct ProductError {
    std::string tensor;
    std::vector<std::string> nodes;  ///< of the product
    double error = 0;                ///< the largest difference, relative to the largest magnitude
    bool rounded = true;             ///< the product's operands are
};

/// Compares results of products by name.
class ProductErrors {
  public:
    explicit ProductErrors(const PrecisionChoice& choice) : choice_(choice) {}
    /// Keeps the results of an interpretation of this program, the reference.
    WatchValues reference(const Program& program);
    /// Interprets the program that narrow_operands left, whose roundings are explicit. Results that the reference does
    /// not have, since rewrites made them, are left out. The largest errors come first.
    std::vector<ProductError> of(const Program& narrowed, const std::vector<Tensor>& inputs) const;

  private:
    const PrecisionChoice& choice_;
    std::map<std::string, Tensor> expected_;
};

std::string print(const std::vector<ProductError>& errors, size_t most = 10);
std::string to_json(const std::vector<ProductError>& errors);

}  // namespace tilewright
