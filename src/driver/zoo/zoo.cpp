#include "driver/zoo/zoo.h"
#include "base/suggest.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "driver/zoo/builder.h"
#include "driver/zoo/families.h"

namespace tilewright {

namespace nets {

ZooOption batch_option(int64_t fallback) { return {"batch", fallback, 0, 65536, "batch size; 0 = symbolic"}; }

ZooOption seq_option(int64_t fallback, int64_t highest) {
    return {"seq", fallback, 0, highest, "tokens; 0 = symbolic"};
}

ZooOption size_option(int64_t fallback, int64_t lowest, int64_t highest) {
    return {"size", fallback, lowest, highest, "height and width of the image"};
}

ZooOption norm_option() {
    return {"batch_norm", 0, 0, 1, "1 = BatchNormalization nodes, 0 = folded into convolutions"};
}

ZooOption number_option(const std::string& name, int64_t fallback, int64_t highest, const std::string& help) {
    return {name, fallback, 1, highest, help};
}

Extent extent(const ZooSettings& settings, const std::string& name, int64_t nominal) {
    const int64_t n = settings.at(name);
    return n == 0 ? Extent(nominal, name) : Extent(n);
}

Extent batch_extent(const ZooSettings& settings) { return extent(settings, "batch", 1); }

Extent seq_extent(const ZooSettings& settings) { return extent(settings, "seq", 128); }

Value image_input(GraphBuilder& b, const ZooSettings& settings, int64_t channels) {
    const int64_t size = settings.at("size");
    return b.input("input", DType::F32, {batch_extent(settings), channels, size, size});
}

namespace {

const std::vector<Recipe>& recipes() {
    static const std::vector<Recipe> all = [] {
        std::vector<Recipe> out;
        add_micro_models(out);
        add_image_classifiers(out);
        add_mobile_classifiers(out);
        add_language_models(out);
        add_vision_transformers(out);
        add_swin_transformers(out);
        add_efficientvit(out);
        add_image_to_image_models(out);
        add_detectors(out);
        add_sequence_taggers(out);
        add_audio_and_video_models(out);
        for (Recipe& r : out) r.options.push_back({"opset", 17, 13, 17, "version of the ONNX operators"});
        return out;
    }();
    return all;
}

/// A hint: the names that contain `wanted`, else those with the smallest edit distance, else all.
std::string nearest(std::string_view wanted, const std::vector<std::string>& names) {
    const std::vector<std::string> near = closest_names(wanted, names);
    if (near.empty()) return fmt::format("choose from {}", fmt::join(names, ", "));
    return fmt::format("did you mean {}?", fmt::join(near, ", "));
}

template <class List>
std::vector<std::string> names_of(const List& list) {
    std::vector<std::string> out;
    for (const auto& item : list) out.push_back(item.name);
    return out;
}

const Recipe& find(std::string_view name) {
    for (const Recipe& r : recipes()) {
        if (r.name == name) return r;
    }
    throw ModelError(fmt::format("the zoo has no model '{}'", name), nearest(name, names_of(recipes())));
}

/// The recipe's options, with the user's checked settings.
ZooSettings complete(const Recipe& recipe, const ZooSettings& settings) {
    ZooSettings out;
    for (const ZooOption& option : recipe.options) out[option.name] = option.fallback;
    for (const auto& setting : settings) {
        const std::string& name = setting.first;
        const int64_t value = setting.second;
        const auto& options = recipe.options;
        const auto option =
            std::find_if(options.begin(), options.end(), [&](const ZooOption& o) { return o.name == name; });
        if (option == options.end()) {
            throw ModelError(fmt::format("zoo model '{}' has no setting '{}'", recipe.name, name),
                             nearest(name, names_of(options)));
        }
        if (value < option->lowest || value > option->highest) {
            model_error("zoo model '{}': setting '{}' takes {} to {}, found {}", recipe.name, name, option->lowest,
                        option->highest, value);
        }
        out[name] = value;
    }
    return out;
}

/// Passes the finished builder to `use`.
template <class Use>
auto build(const Recipe& recipe, uint64_t seed, const ZooSettings& settings, bool with_data, Use use) {
    const ZooSettings all = complete(recipe, settings);
    BuildOptions options;
    options.seed = seed;
    options.opset = all.at("opset");
    options.with_data = with_data;
    const auto norm = all.find("batch_norm");
    options.keep_batch_norm = norm != all.end() && norm->second != 0;
    GraphBuilder builder(recipe.name, options);
    recipe.build(builder, all);
    return use(builder);
}

}  // namespace
}  // namespace nets

const std::vector<ZooEntry>& zoo() {
    static const std::vector<ZooEntry> entries = [] {
        std::vector<ZooEntry> out;
        for (const nets::Recipe& recipe : nets::recipes()) {
            const ZooModel m =
                nets::build(recipe, 0, {}, false, [](const nets::GraphBuilder& b) { return b.summary(); });
            out.push_back({recipe.name, recipe.description, recipe.options, m.inputs, m.outputs, m.parameters, m.macs});
        }
        return out;
    }();
    return entries;
}

ZooModel build_zoo_model(std::string_view name, uint64_t seed, const ZooSettings& settings) {
    return nets::build(nets::find(name), seed, settings, true, [](const nets::GraphBuilder& b) {
        ZooModel out = b.summary();
        out.bytes = b.serialize();
        return out;
    });
}

void write_zoo_model(std::string_view name, const std::string& path, uint64_t seed, const ZooSettings& settings) {
    nets::build(nets::find(name), seed, settings, true, [&](const nets::GraphBuilder& b) { b.write(path); });
}

}  // namespace tilewright
