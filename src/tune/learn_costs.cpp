#include "tune/learn_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "base/error.h"
#include "cost/sampling.h"
#include "tune/canonical.h"
#include "tune/measure.h"

namespace tilewright {

namespace {

/// How a kernel was measured, of a record's settings.
struct Setting {
    int64_t threads = 0;
    bool cold = false;        ///< weights came from memory
    std::string weights;      ///< per input: '1' for a weight
    Bindings sizes;           ///< of the canonical text's symbols
    bool restricted = false;  ///< to other instructions than all of the machine
};

std::optional<int64_t> number_in(std::string_view text) {
    int64_t n = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
    return n;
}

/// "threads=1 warmth=cold-weights s0=128 weights=011". Nothing if the text has another form.
std::optional<Setting> setting_in(std::string_view text) {
    Setting out;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        const size_t equals = word.find('=');
        if (equals == std::string_view::npos) return std::nullopt;
        const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
        if (name == "warmth") {
            out.cold = value == to_string(Warmth::cold_weights);
        } else if (name == "weights") {
            out.weights = value;
        } else if (name == "isa") {
            out.restricted = true;
        } else if (const auto n = number_in(value); !n) {
            return std::nullopt;
        } else if (name == "threads") {
            out.threads = *n;
        } else {
            out.sizes[named_symbol(name).as_var().value()] = *n;
        }
    }
    return out;
}

std::optional<LearningRow> row_of(const Measurement& m, const Setting& how, const Target& target) {
    try {
        TileProgram kernel = with_schedule(parse_program(m.key.stages), m.key.schedule);
        const std::vector<ValueId>& inputs = kernel.stages.inputs;
        for (size_t k = 0; how.cold && k < std::min(inputs.size(), how.weights.size()); ++k)
            if (how.weights[k] == '1') kernel.stages.far[inputs[k]] = Residence::Memory;
        const StageModels models = stage_models(kernel.stages, how.sizes);
        const Estimate e = estimate(kernel, target, models, how.sizes);
        if (!(e.seconds > 0) || !(m.seconds.value > 0)) return std::nullopt;
        return LearningRow{m.key.stages, residual_features(kernel, models, e, target),
                           std::log(m.seconds.value / e.seconds)};
    } catch (const ModelError&) {
        return std::nullopt;
    }
}

}  // namespace

LearningRows learning_rows(const TuningDatabase& database, const Target& target) {
    LearningRows out;
    const std::string machine = target_key(target);
    for (const Measurement& m : database.measurements()) {
        if (m.verdict != Verdict::measured || m.key.generator != kGeneratorVersion || m.key.target != machine) continue;
        const auto how = setting_in(m.key.settings);
        if (how && (how->threads != target.workers || how->restricted)) continue;
        std::optional<LearningRow> row;
        if (how) row = row_of(m, *how, target);
        if (row)
            out.rows.push_back(std::move(*row));
        else
            ++out.unreadable;
    }
    return out;
}

namespace {

/// A number for each different kernel, and the kernel of each row.
struct Kernels {
    std::vector<size_t> of_row;
    size_t count = 0;
};
Kernels kernels_of(const std::vector<LearningRow>& rows) {
    Kernels out;
    std::map<std::string_view, size_t> numbers;
    for (const LearningRow& r : rows) out.of_row.push_back(numbers.try_emplace(r.stages, numbers.size()).first->second);
    out.count = numbers.size();
    return out;
}

/// One ensemble for each bootstrap sample of the kernels: with all rows of a kernel or none.
std::vector<TreeEnsemble> trained(const std::vector<LearningRow>& rows, const std::vector<size_t>& use,
                                  const Kernels& kernels, const LearningOptions& o) {
    std::map<size_t, std::vector<size_t>> by_kernel;
    for (const size_t r : use) by_kernel[kernels.of_row[r]].push_back(r);
    std::vector<const std::vector<size_t>*> all;
    for (const auto& [k, of] : by_kernel) all.push_back(&of);
    std::vector<TreeEnsemble> out;
    std::mt19937_64 rng(o.seed);
    for (size_t e = 0; e < o.ensembles; ++e) {
        std::vector<ResidualFeatures> features;
        std::vector<float> labels;
        for (size_t k = 0; k < all.size(); ++k)
            for (const size_t r : *all[rng() % all.size()]) {
                features.push_back(rows[r].features);
                labels.push_back(static_cast<float>(rows[r].log_ratio));
            }
        BoostingOptions boosting = o.boosting;
        boosting.seed = o.seed + e;
        out.push_back(boosted_trees(features, labels, boosting));
    }
    return out;
}

/// log of the nanoseconds that were estimated.
double log_estimate(const LearningRow& r) { return r.features[0] * std::log(2.0); }

/// The rows of schedules that are nearly as fast as the fastest of their kernel.
std::vector<LearningRow> near_best(const std::vector<LearningRow>& rows) {
    const auto measured = [](const LearningRow& r) { return log_estimate(r) + r.log_ratio; };
    std::map<std::string_view, double> best;
    for (const LearningRow& r : rows) {
        const auto it = best.try_emplace(r.stages, measured(r)).first;
        it->second = std::min(it->second, measured(r));
    }
    std::vector<LearningRow> out;
    for (const LearningRow& r : rows)
        if (measured(r) <= best.at(r.stages) + std::log(kNearBest)) out.push_back(r);
    return out;
}

/// The standard deviation.
double deviation(const std::vector<double>& x) {
    const auto n = static_cast<double>(x.size());
    double sum = 0, squares = 0;
    for (const double v : x) sum += v;
    for (const double v : x) squares += (v - sum / n) * (v - sum / n);
    return std::sqrt(squares / n);
}

double geometric(const std::vector<double>& logs) {
    double sum = 0;
    for (const double x : logs) sum += std::abs(x);
    return std::exp(sum / static_cast<double>(logs.size()));
}

}  // namespace

LearnedCosts learn_costs(const std::vector<LearningRow>& all, const LearningOptions& o) {
    const std::vector<LearningRow> rows = near_best(all);
    if (rows.size() < kLeastRows)
        throw RuntimeError(
            fmt::format("{} measurements of this machine, and {} are the least to learn from; "
                        "`tilewright tune MODEL` measures more",
                        rows.size(), kLeastRows));
    const Kernels kernels = kernels_of(rows);
    if (kernels.count < o.folds)
        throw RuntimeError(
            fmt::format("measurements of {} kernels, and {} are the least to learn from; tune other models",
                        kernels.count, o.folds));
    std::vector<size_t> order(kernels.count);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 rng(o.seed);
    std::shuffle(order.begin(), order.end(), rng);
    std::vector<size_t> fold(kernels.count);
    for (size_t k = 0; k < order.size(); ++k) fold[order[k]] = k % o.folds;

    std::vector<double> before(rows.size()), after(rows.size()), measured(rows.size()), plain(rows.size()),
        corrected(rows.size()), spreads(rows.size());
    for (size_t f = 0; f < o.folds; ++f) {
        std::vector<size_t> use;
        for (size_t r = 0; r < rows.size(); ++r)
            if (fold[kernels.of_row[r]] != f) use.push_back(r);
        const ResidualModel model(trained(rows, use, kernels, o), {}, use.size());
        for (size_t r = 0; r < rows.size(); ++r) {
            if (fold[kernels.of_row[r]] != f) continue;
            const ResidualModel::Prediction p = model.at(rows[r].features);
            before[r] = rows[r].log_ratio;
            after[r] = rows[r].log_ratio - p.log_ratio;
            spreads[r] = p.spread;
            plain[r] = log_estimate(rows[r]);
            measured[r] = plain[r] + before[r];
            corrected[r] = plain[r] + p.log_ratio;
        }
    }
    const ResidualModel::Errors errors{deviation(before), deviation(after)};
    size_t within = 0;
    for (size_t r = 0; r < rows.size(); ++r)
        within += std::abs(after[r]) <= std::hypot(spreads[r], errors.noise) ? 1 : 0;

    std::vector<size_t> every(rows.size());
    std::iota(every.begin(), every.end(), 0);
    return {ResidualModel(trained(rows, every, kernels, o), errors, rows.size()),
            kernels.count,
            geometric(before),
            geometric(after),
            correlation(plain, measured),
            correlation(corrected, measured),
            static_cast<double>(within) / static_cast<double>(rows.size())};
}

}  // namespace tilewright
