#pragma once
// Post-training quantisation to 8 bits: float32 model and samples of its inputs -> QDQ model.
//
//     layers       products with constant weights, and what lies between them            layers.h
//     ranges       of their operands, over the samples; three ways                       histogram.h
//     model        with the ranges whose outputs are nearest to the original's           insert.h
//     sensitivity  the error with one layer quantised at a time, by one model with a switch for each layer
//     kept layers  the most sensitive ones stay in f32 until the error is within its limit

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "driver/quantize/accuracy.h"
#include "driver/quantize/insert.h"

namespace tilewright::quantize {

struct Options {
    Model model;
    PipelineOptions pipeline;
    int threads = 0;
    /// Inputs of one run each, at least one.
    std::function<std::vector<std::vector<Tensor>>(const std::vector<ModelIo>&)> samples;
    std::optional<Calibration> calibration;  ///< none: the one with the smallest error
    double percentile = 99.99;
    ActivationType type = ActivationType::U8;
    bool per_channel = true;  ///< scales of weights
    std::set<std::string> excluded;
    double max_error = 0.1;    ///< Accuracy::error
    bool sensitivity = false;  ///< measure it even if no layer has to stay in f32
    std::function<void(const std::string&)> progress = {};
};

struct LayerReport {
    std::string node;       ///< "node 'conv1' (Conv, opset 13)"
    bool quantised = true;  ///< false: it stays in f32 for its error
    bool product = true;
    double error = 0;  ///< with this layer alone quantised, over at most kSensitivitySamples samples
};

constexpr size_t kSensitivitySamples = 8;

struct Result {
    Model model;
    std::vector<LayerReport> layers;
    bool sensitivity = false;           ///< LayerReport::error is set
    std::vector<std::string> left_out;  ///< Layers::left_out
    Calibration calibration = Calibration::MinMax;
    std::vector<std::pair<Calibration, double>> tried;  ///< errors with all layers quantised
    std::vector<OutputAccuracy> outputs;                ///< of `model`, over all samples
    double error = 0;                                   ///< likewise
    size_t samples = 0;
    std::vector<std::string> notes;
};

/// Throws ModelError if no layer can be quantised, or none within the error, and what compiling and running throw.
Result quantize(const Options& options);

}  // namespace tilewright::quantize
