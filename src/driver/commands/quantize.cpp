// quantize: a float32 model and samples of its inputs become a model that computes on 8 bits.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "artifact/model_file.h"
#include "base/error.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "driver/quantize/quantize.h"
#include "driver/quantize/samples.h"
#include "graph/export.h"
#include "graph/import.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;
using quantize::Calibration;

struct QuantizeCommand {
    ModelOptions model;
    std::string data, output, calibration = "auto", activations = "u8", json;
    std::vector<std::string> excluded;
    double percentile = quantize::Options().percentile, max_error = quantize::Options().max_error;
    size_t samples = 128;
    bool per_tensor = false, sensitivity = false;
};

std::optional<Calibration> calibration_of(const std::string& text) {
    for (const Calibration c : {Calibration::MinMax, Calibration::Percentile, Calibration::Entropy})
        if (text == to_string(c)) return c;
    return std::nullopt;
}

Json json_of(const quantize::Result& r, const QuantizeCommand& o) {
    Json j = {{"model", o.model.model}, {"output", o.output}, {"samples", r.samples}, {"error", r.error}};
    j["calibration"] = to_string(r.calibration);
    for (const auto& [calibration, error] : r.tried) j["tried"][std::string(to_string(calibration))] = error;
    j["outputs"] = Json::array();
    for (const quantize::OutputAccuracy& a : r.outputs)
        j["outputs"].push_back({{"name", a.name},
                                {"error", a.error},
                                {"largest_difference", a.largest_difference},
                                {"rows", a.rows},
                                {"rows_agree", a.rows_agree}});
    j["layers"] = Json::array();
    for (const quantize::LayerReport& layer : r.layers) {
        Json entry = {{"node", layer.node}, {"quantised", layer.quantised}, {"product", layer.product}};
        entry["error"] = r.sensitivity ? Json(layer.error) : Json();
        j["layers"].push_back(std::move(entry));
    }
    j["left_out"] = r.left_out;
    j["notes"] = r.notes;
    return j;
}

/// The layers of the largest errors, and all that stay in f32.
void print_layers(const quantize::Result& r) {
    if (!r.sensitivity) return;
    std::vector<const quantize::LayerReport*> layers;
    for (const quantize::LayerReport& layer : r.layers) layers.push_back(&layer);
    std::stable_sort(layers.begin(), layers.end(), [](const auto* a, const auto* b) { return a->error > b->error; });
    constexpr size_t kPrinted = 10;
    std::printf("error of single layers:\n");
    for (size_t k = 0; k < layers.size(); ++k)
        if (k < kPrinted || !layers[k]->quantised)
            std::printf("  %-9.3g %s%s\n", layers[k]->error, layers[k]->node.c_str(),
                        layers[k]->quantised ? "" : ": stays in f32");
}

void print_result(const quantize::Result& r, const QuantizeCommand& o, size_t bytes) {
    size_t products = 0, quantised = 0, others = 0;
    for (const quantize::LayerReport& layer : r.layers) {
        if (layer.product) ++products;
        if (layer.quantised) ++(layer.product ? quantised : others);
    }
    products += r.left_out.size();
    std::error_code error;
    const auto before = static_cast<double>(std::filesystem::file_size(o.model.model, error));
    std::printf("%s -> %s: %zu of %zu products and %zu nodes between them on 8 bits; %.1f of %.1f MB\n",
                o.model.model.c_str(), o.output.c_str(), quantised, products, others, static_cast<double>(bytes) * 1e-6,
                before * 1e-6);
    std::string tried;
    for (const auto& [calibration, e] : r.tried)
        tried += fmt::format("{}{} {:.3g}", tried.empty() ? "" : ", ", to_string(calibration), e);
    std::printf("ranges by %s, %zu samples (errors with all layers: %s)\n",
                std::string(to_string(r.calibration)).c_str(), r.samples, tried.c_str());
    for (const quantize::OutputAccuracy& a : r.outputs) {
        std::string line = fmt::format("output {}: error {:.3g} of the standard deviation, largest difference {:.3g}",
                                       quoted_name(a.name), a.error, a.largest_difference);
        if (a.rows > 0) line += fmt::format(", same largest element in {} of {} rows", a.rows_agree, a.rows);
        std::printf("%s\n", line.c_str());
    }
    print_layers(r);
    for (const std::string& note : r.notes) std::printf("note: %s\n", note.c_str());
}

int command_quantize(const QuantizeCommand& o) {
    if (artifact::is_model_file(o.model.model))
        throw CLI::ValidationError("quantize", "a compiled model cannot be changed: give the ONNX file");
    if (!(o.percentile > 50 && o.percentile <= 100))
        throw CLI::ValidationError("--percentile", "it is a percentage above 50 and at most 100");
    if (!(o.max_error >= 0)) throw CLI::ValidationError("--max-error", "it is at least 0");
    if (o.samples == 0) throw CLI::ValidationError("--samples", "at least one sample is needed");
    check_writable(o.output);
    quantize::Options q;
    q.model = load_model(o.model);
    q.pipeline = pipeline_options(o.model);
    q.pipeline.reference = false;
    q.pipeline.rewrite.reset();  // of many models, each run on a few samples
    q.threads = o.model.threads;
    q.samples = [&](const std::vector<ModelIo>& declared) {
        return quantize::load_samples(declared, o.data, o.samples);
    };
    q.calibration = calibration_of(o.calibration);
    q.percentile = o.percentile;
    q.type = o.activations == "u8" ? quantize::ActivationType::U8 : quantize::ActivationType::S8;
    q.per_channel = !o.per_tensor;
    q.excluded = {o.excluded.begin(), o.excluded.end()};
    q.max_error = o.max_error;
    q.sensitivity = o.sensitivity;
    Progress progress("quantising " + o.model.model, o.model.progress);
    q.progress = [&](const std::string& step) { progress.step(step); };
    quantize::Result r = quantize::quantize(q);
    r.model.producer = "tilewright";
    const std::string bytes = model_to_bytes(r.model);
    write_file(o.output, {bytes});
    print_result(r, o, bytes.size());
    write_json(o.json, json_of(r, o).dump(2));
    return 0;
}

}  // namespace

void add_quantize_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("quantize", "make a model that computes on 8 bits, from samples of its inputs");
    auto o = std::make_shared<QuantizeCommand>();
    add_model_options(*c, o->model);
    c->add_option("-o,--output", o->output, "the ONNX file to write")->required();
    c->add_option("--data", o->data,
                  "folder of samples: .npz files with the inputs by name, or ONNX test data sets; or one data set")
        ->required();
    c->add_option("--samples", o->samples, fmt::format("at most so many samples ({})", o->samples));
    c->add_option("--calibration", o->calibration,
                  "ranges of tensors: minmax, percentile, entropy, or auto (default): the one with the smallest error")
        ->check(CLI::IsMember({"auto", "minmax", "percentile", "entropy"}));
    c->add_option("--percentile", o->percentile,
                  fmt::format("per cent of a tensor's elements within its range ({})", o->percentile));
    c->add_option("--activations", o->activations, "u8 with a zero point (default), or s8, symmetric")
        ->check(CLI::IsMember({"u8", "s8"}));
    c->add_flag("--per-tensor", o->per_tensor, "one scale for all of a product's weights, instead of one a channel");
    c->add_option("--exclude", o->excluded, "a node that stays in f32, by name; may be repeated")
        ->allow_extra_args(false);
    c->add_option(
        "--max-error", o->max_error,
        fmt::format("largest error of an output; layers with the largest errors stay in f32 until it is met ({})",
                    o->max_error));
    c->add_flag("--sensitivity", o->sensitivity, "measure and print the error of each layer alone in any case");
    add_json_option(*c, o->json);
    c->footer(
        "Products with constant weights (Conv, ConvTranspose, Gemm, MatMul), and additions, pooling and concatenation\n"
        "between them, get operands of 8 bits as QuantizeLinear and DequantizeLinear (QDQ): ONNX's from operator set\n"
        "13 on, com.microsoft's before it. Weights are int8, symmetric. An output's error is the root mean square of\n"
        "its differences from the original's, relative to its standard deviation, over all samples.\n\n"
        "JSON: samples, error, calibration, tried, outputs, layers (error alone; null if not measured), left_out.\n\n"
        "Examples:\n"
        "  tilewright quantize model.onnx --data samples -o model_int8.onnx\n"
        "  tilewright quantize model.onnx --data samples -o model_int8.onnx --max-error 0.02 --sensitivity\n"
        "  tilewright quantize model.onnx --data test_data_set_0 -o model_int8.onnx --exclude /head/MatMul\n"
        "  tilewright verify model_int8.onnx");
    c->callback([o, &status] { status = command_quantize(*o); });
}

}  // namespace tilewright
