#pragma once
// The interface of a family of models to the zoo.

#include <functional>
#include <string>
#include <vector>

#include "driver/zoo/builder.h"
#include "driver/zoo/zoo.h"

namespace tilewright::nets {

/// How a model is built. The settings passed to `build` contain every option of `options`, and "opset".
struct Recipe {
    std::string name;
    std::string description;
    std::vector<ZooOption> options;
    std::function<void(GraphBuilder&, const ZooSettings&)> build;
};

void add_micro_models(std::vector<Recipe>& recipes);
void add_image_classifiers(std::vector<Recipe>& recipes);
void add_mobile_classifiers(std::vector<Recipe>& recipes);
void add_language_models(std::vector<Recipe>& recipes);
void add_vision_transformers(std::vector<Recipe>& recipes);
void add_swin_transformers(std::vector<Recipe>& recipes);
void add_efficientvit(std::vector<Recipe>& recipes);
void add_image_to_image_models(std::vector<Recipe>& recipes);
void add_detectors(std::vector<Recipe>& recipes);
void add_sequence_taggers(std::vector<Recipe>& recipes);
void add_audio_and_video_models(std::vector<Recipe>& recipes);

// Options that many models share.
ZooOption batch_option(int64_t fallback = 1);             ///< 0 = symbolic
ZooOption seq_option(int64_t fallback, int64_t highest);  ///< 0 = symbolic
ZooOption size_option(int64_t fallback, int64_t lowest, int64_t highest);
ZooOption norm_option();  ///< batch_norm: 1 keeps BatchNormalization nodes
ZooOption number_option(const std::string& name, int64_t fallback, int64_t highest, const std::string& help);

/// The extent of option `name`: symbolic if it is 0, with the assumed size `nominal`.
Extent extent(const ZooSettings& settings, const std::string& name, int64_t nominal);
Extent batch_extent(const ZooSettings& settings);  ///< assumed 1 if symbolic
Extent seq_extent(const ZooSettings& settings);    ///< assumed 128 if symbolic
/// "input": [batch, channels, size, size].
Value image_input(GraphBuilder& b, const ZooSettings& settings, int64_t channels = 3);

}  // namespace tilewright::nets
