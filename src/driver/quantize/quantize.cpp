#include "driver/quantize/quantize.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/session.h"

namespace tilewright::quantize {

namespace {

constexpr int64_t kOnnxRuntimeOpset = 10;  // its optimiser makes QLinearConv of the pairs

using Samples = std::vector<std::vector<Tensor>>;

class Quantizer {
  public:
    explicit Quantizer(const Options& o) : o_(o) { result_.model.path = o.model.path; }

    Result run() {
        note_opset();
        layers_ = choose_layers(o_.model.graph, o_.excluded, o_.per_channel);
        keep_float_layers();
        if (layers_.layers.empty())
            throw ModelError("the model has no product with constant weights of float32 that could be quantised",
                             layers_.left_out.empty() ? "" : layers_.left_out.front());
        calibrate();
        choose_ranges();
        if (o_.sensitivity || best_.error > o_.max_error) measure_sensitivity();
        if (best_.error > o_.max_error) keep_in_f32();
        return finished();
    }

  private:
    /// A model with all its layers quantised but for `kept`, and its outputs beside the original's.
    struct Candidate {
        Model model;
        std::vector<OutputAccuracy> outputs;
        double error = 0;
    };

    void step(const std::string& text) const {
        if (o_.progress) o_.progress(text);
    }

    void note_opset() {
        if (has_axes(o_.model)) return;
        const auto it = o_.model.opsets.find("");
        const int64_t opset = it == o_.model.opsets.end() ? 0 : it->second;
        result_.notes.push_back(fmt::format(
            "operator set {} has no scales along an axis: the model gets QuantizeLinear of com.microsoft, which {}; "
            "onnx.version_converter makes it a model of operator set 13",
            opset,
            opset < kOnnxRuntimeOpset ? "ONNX Runtime runs from operator set 10 on" : "ONNX Runtime runs as well"));
    }

    /// Types of operands, as lowering finds them.
    void keep_float_layers() {
        const Observed all = observed();
        const Program program = lower_model(all.model, o_.pipeline);
        std::map<std::string, DType> types;
        for (const auto& [name, output] : all.outputs) types[name] = program.values[program.outputs[output]].dtype;
        layers_ = with_types(std::move(layers_), o_.model.graph, types);
    }

    /// The model with the tensors that are quantised as further outputs, and their positions.
    struct Observed {
        Model model;
        std::map<std::string, size_t> outputs;
    };
    Observed observed() const {
        Observed all = {o_.model, {}};
        std::vector<GraphInput>& outputs = all.model.graph.outputs;
        for (size_t k = 0; k < outputs.size(); ++k) all.outputs.emplace(outputs[k].name, k);
        std::map<std::string, size_t> wanted;
        for (const std::string& name : layers_.tensors(o_.model.graph)) {
            const auto [it, fresh] = all.outputs.emplace(name, outputs.size());
            if (fresh) outputs.push_back({name, {}});
            wanted.emplace(name, it->second);
        }
        all.outputs = std::move(wanted);
        return all;
    }

    void calibrate() {
        const Observed observed = this->observed();
        step(fmt::format("compiling with {} tensors as outputs", observed.outputs.size()));
        const Compilation c = compile_model(observed.model, o_.pipeline);
        samples_ = o_.samples(c.model->inputs());
        TW_CHECK(!samples_.empty());
        for (const GraphInput& output : o_.model.graph.outputs) output_names_.push_back(output.name);
        Session session(c.model, o_.threads);
        for (size_t s = 0; s < samples_.size(); ++s) {
            step(fmt::format("ranges: sample {} of {}", s + 1, samples_.size()));
            std::vector<Tensor> all = session.run(samples_[s]);
            for (const auto& [name, output] : observed.outputs) histograms_[name].add(all[output].as<float>());
            all.resize(output_names_.size());
            originals_.push_back(std::move(all));
        }
        for (const auto& [name, h] : histograms_)
            if (h.not_finite() > 0)
                result_.notes.push_back(fmt::format("{} of the elements of {} are NaN or infinite: they are left out",
                                                    h.not_finite(), quoted_name(name)));
    }

    std::map<std::string, Range> ranges(Calibration calibration) const {
        std::map<std::string, Range> all;
        for (const auto& [name, h] : histograms_) all[name] = range_of(h, calibration, o_.percentile);
        return all;
    }

    void choose_ranges() {
        std::vector<Calibration> wanted = {Calibration::MinMax, Calibration::Percentile, Calibration::Entropy};
        if (o_.calibration) wanted = {*o_.calibration};
        for (const Calibration calibration : wanted) {
            step(fmt::format("quantising, ranges by {}", to_string(calibration)));
            std::map<std::string, Range> found = ranges(calibration);
            Candidate c = candidate(layers_, found);
            result_.tried.emplace_back(calibration, c.error);
            if (result_.tried.size() > 1 && !(c.error < best_.error)) continue;
            best_ = std::move(c);
            ranges_ = std::move(found);
            result_.calibration = calibration;
        }
    }

    Candidate candidate(const Layers& layers, const std::map<std::string, Range>& found) const {
        Candidate c;
        c.model = insert_quantisation(o_.model, layers, found, {o_.type, false});
        const Compilation compiled = compile_model(c.model, o_.pipeline);
        Session session(compiled.model, o_.threads);
        Accuracy accuracy(output_names_);
        for (size_t s = 0; s < samples_.size(); ++s) accuracy.add(originals_[s], session.run(samples_[s]));
        c.outputs = accuracy.outputs();
        c.error = accuracy.error();
        return c;
    }

    /// The error where the layers of `on` are quantised, over the first samples.
    double switched_error(Session& session, const std::vector<bool>& on) const {
        Accuracy accuracy(output_names_);
        for (size_t s = 0; s < std::min(samples_.size(), kSensitivitySamples); ++s) {
            std::vector<Tensor> inputs = samples_[s];
            for (const bool layer : on)
                inputs.push_back(Tensor::of(DType::Bool, {}, std::vector<int64_t>{layer ? 1 : 0}));
            accuracy.add(originals_[s], session.run(inputs));
        }
        return accuracy.error();
    }

    void measure_sensitivity() {
        step("compiling with a switch for each layer");
        const Model switched = insert_quantisation(o_.model, layers_, ranges_, {o_.type, true});
        const Compilation c = compile_model(switched, o_.pipeline);
        session_.emplace(c.model, o_.threads);
        const size_t n = layers_.layers.size();
        for (size_t k = 0; k < n; ++k) {
            step(fmt::format("sensitivity: layer {} of {}", k + 1, n));
            std::vector<bool> on(n);
            on[k] = true;
            errors_.push_back(switched_error(*session_, on));
        }
    }

    /// The layers of the largest errors stay in f32, as few as suffice: by the model with switches, then confirmed.
    void keep_in_f32() {
        const size_t n = layers_.layers.size();
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return errors_[a] > errors_[b]; });
        const auto error = [&](size_t kept) {
            step(fmt::format("{} of {} layers in f32", kept, n));
            std::vector<bool> on(n, true);
            for (size_t k = 0; k < kept; ++k) on[order[k]] = false;
            return switched_error(*session_, on);
        };
        size_t low = 1, high = n;  // `high` suffices: nothing is quantised
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (error(middle) <= o_.max_error)
                high = middle;
            else
                low = middle + 1;
        }
        for (;; high = std::min(n, high + std::max<size_t>(1, n / 16))) {
            kept_.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(high));
            if (high == n)
                throw ModelError(
                    fmt::format("one quantised layer alone passes an error of {:.3g}: {} has {:.3g}", o_.max_error,
                                o_.model.graph.nodes[layers_.layers[order[n - 1]].node].describe(),
                                errors_[order[n - 1]]),
                    "allow more: --max-error");
            Layers some = layers_;
            some.layers.clear();
            for (size_t k = 0; k < n; ++k)
                if (std::find(kept_.begin(), kept_.end(), k) == kept_.end()) some.layers.push_back(layers_.layers[k]);
            best_ = candidate(some, ranges_);
            if (best_.error <= o_.max_error) return;
        }
    }

    Result finished() {
        for (size_t k = 0; k < layers_.layers.size(); ++k) {
            const Layer& layer = layers_.layers[k];
            LayerReport report;
            report.node = o_.model.graph.nodes[layer.node].describe();
            report.product = layer.weights.has_value();
            report.quantised = std::find(kept_.begin(), kept_.end(), k) == kept_.end();
            if (k < errors_.size()) report.error = errors_[k];
            result_.layers.push_back(std::move(report));
        }
        result_.sensitivity = !errors_.empty();
        result_.left_out = layers_.left_out;
        result_.model = std::move(best_.model);
        result_.outputs = best_.outputs;
        result_.error = best_.error;
        result_.samples = samples_.size();
        return std::move(result_);
    }

    const Options& o_;
    Layers layers_;
    Samples samples_;
    std::vector<std::vector<Tensor>> originals_;  ///< outputs for each sample
    std::vector<std::string> output_names_;
    std::map<std::string, Histogram> histograms_;
    std::map<std::string, Range> ranges_;
    Candidate best_;
    std::optional<Session> session_;  ///< with switches
    std::vector<double> errors_;      ///< by layer
    std::vector<size_t> kept_;        ///< layers in f32
    Result result_;
};

}  // namespace

Result quantize(const Options& options) { return Quantizer(options).run(); }

}  // namespace tilewright::quantize
