#pragma once
// Writes quantisation into a model, as pairs of QuantizeLinear and DequantizeLinear (QDQ).

#include <map>
#include <string>
#include <vector>

#include "driver/quantize/histogram.h"
#include "driver/quantize/layers.h"

namespace tilewright::quantize {

enum class ActivationType : uint8_t {
    U8,  ///< with a zero point: [least, most] becomes [0, 255]
    S8   ///< symmetric: [-limit, limit] becomes [-127, 127]
};

struct ElementScale {
    float scale = 1;
    int64_t zero_point = 0;
};
ElementScale scale_of(Range range, ActivationType type);

/// Weights of int8, symmetric, with a scale for each index of `axis`, or one.
struct QuantisedWeights {
    Tensor elements;  ///< int8
    Tensor scales;    ///< f32: [channels], or a scalar
};
QuantisedWeights quantise_weights(const Tensor& weights, std::optional<int64_t> axis);

/// Whether the model's operator set has DequantizeLinear with a scale for each index of an axis.
bool has_axes(const Model& model);

struct InsertOptions {
    ActivationType type = ActivationType::U8;
    /// Instead of constants alone, the model gets an input of type bool for each layer, after its own: the layer
    /// computes on quantised operands where it is true, and on those of the original model elsewhere.
    bool switches = false;
};
/// The model with the layers' operands quantised. `ranges`: of every tensor of Layers::tensors. Weights, and biases
/// with the scale of their products (int32), are stored quantised; initialisers that nothing reads any more are
/// removed. Each initialiser is quantised once for all layers that read it along the same axis.
///     Conv(x, w, b) -> Conv(DQ(Q(x)), DQ(w8), DQ(b32))
/// In models of operator sets without axes of scales, the operators are those of com.microsoft.
Model insert_quantisation(const Model& model, const Layers& layers, const std::map<std::string, Range>& ranges,
                          const InsertOptions& options);

}  // namespace tilewright::quantize
