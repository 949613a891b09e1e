#include "driver/precision_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/quoted_name.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;
using Product = PrecisionChoice::Product;

std::string unavailable(Precision precision) {
    return fmt::format("the target has no products of {} that are faster than those of f32 ({})", to_string(precision),
                       precision == Precision::F16 ? "AVX512_FP16" : "AMX, AVX512_BF16");
}

Json optional(const std::optional<double>& x) { return x ? Json(*x) : Json(); }

/// "'conv1 (Conv), relu1 (Relu)'"
std::string text_of(const std::vector<std::string>& nodes, const std::string& result) {
    constexpr size_t kMost = 80;
    return quoted_name(nodes.empty() ? result : fmt::format("{}", fmt::join(nodes, ", ")), kMost);
}

std::string why(const Product& p, Precision precision) {
    switch (p.reason) {
        case PrecisionReason::Rounded:
            break;
        case PrecisionReason::Named:
            return "--keep-f32";
        case PrecisionReason::Slower:
            return fmt::format("slower in {}", to_string(precision));
        case PrecisionReason::Error:
            return p.alone ? fmt::format("error {:.2g} if it alone is rounded", *p.alone) : "not measured";
    }
    return "rounded";
}

}  // namespace

std::string print(const PrecisionChoice& choice, size_t most) {
    if (!choice.note.empty() || !choice.available)
        return fmt::format("precision f32: {}\n", choice.note.empty() ? unavailable(choice.precision) : choice.note);
    std::string s = fmt::format("precision {}: {} of {} products rounded", to_string(choice.precision),
                                choice.rounded(), choice.products.size());
    if (choice.error && choice.error_of_all)
        s += fmt::format("; largest error on sample inputs {:.2g} ({:.2g} with all), at most {:.2g}", *choice.error,
                         *choice.error_of_all, choice.max_error);
    if (choice.seconds && choice.f32_seconds)
        s += fmt::format("; estimated {:.3g} ms, {:.3g} ms in f32", *choice.seconds * 1e3, *choice.f32_seconds * 1e3);
    s += '\n';
    std::vector<const Product*> exact;
    for (const Product& p : choice.products)
        if (p.reason != PrecisionReason::Rounded) exact.push_back(&p);
    std::stable_sort(exact.begin(), exact.end(),
                     [](const Product* a, const Product* b) { return a->alone.value_or(0) > b->alone.value_or(0); });
    for (size_t k = 0; k < std::min(most, exact.size()); ++k)
        s += fmt::format("  f32: {}: {}\n", text_of(exact[k]->nodes, exact[k]->result),
                         why(*exact[k], choice.precision));
    if (exact.size() > most) s += fmt::format("  and {} more\n", exact.size() - most);
    return s;
}

std::string to_json(const PrecisionChoice& choice) {
    Json j = {{"precision", choice.available && choice.note.empty() ? to_string(choice.precision) : "f32"},
              {"note", choice.available ? choice.note : unavailable(choice.precision)},
              {"products", choice.products.size()},
              {"rounded", choice.note.empty() ? choice.rounded() : 0},
              {"max_error", choice.max_error > 0 ? Json(choice.max_error) : Json()},
              {"error", optional(choice.error)},
              {"error_of_all", optional(choice.error_of_all)}};
    const auto ms = [](const std::optional<double>& seconds) { return seconds ? Json(*seconds * 1e3) : Json(); };
    j["estimate_ms"] = ms(choice.seconds);
    j["f32_estimate_ms"] = ms(choice.f32_seconds);
    j["in_f32"] = Json::array();
    for (const Product& p : choice.products)
        if (p.reason != PrecisionReason::Rounded)
            j["in_f32"].push_back({{"tensor", p.result},
                                   {"nodes", p.nodes},
                                   {"reason", to_string(p.reason)},
                                   {"error_alone", optional(p.alone)}});
    return j.dump();
}

WatchValues ProductErrors::reference(const Program& program) {
    std::map<std::string, bool> wanted;
    for (const Product& p : choice_.products) wanted[p.result] = true;
    return [this, &program, wanted](ValueId v, const Tensor& contents) {
        const std::string& name = program.values[v].name;
        if (wanted.count(name) != 0) expected_[name] = contents;
    };
}

std::vector<ProductError> ProductErrors::of(const Program& narrowed, const std::vector<Tensor>& inputs) const {
    std::map<std::string, const Product*> products;
    for (const Product& p : choice_.products) products[p.result] = &p;
    std::vector<ProductError> out;
    interpret(narrowed, inputs, {}, [&](ValueId v, const Tensor& contents) {
        const std::string& name = narrowed.values[v].name;
        const auto expected = expected_.find(name);
        const auto product = products.find(name);
        if (expected == expected_.end() || product == products.end()) return;
        if (contents.shape() != expected->second.shape()) return;
        double magnitude = 0, difference = 0;
        for (int64_t i = 0; i < contents.count(); ++i) {
            const double x = expected->second.get(i);
            if (!std::isfinite(x)) continue;
            magnitude = std::max(magnitude, std::fabs(x));
            difference = std::max(difference, std::fabs(x - contents.get(i)));
        }
        out.push_back({name, product->second->nodes, magnitude > 0 ? difference / magnitude : 0,
                       product->second->reason == PrecisionReason::Rounded});
    });
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.error > b.error; });
    return out;
}

std::string print(const std::vector<ProductError>& errors, size_t most) {
    if (errors.empty()) return "";
    std::string s =
        fmt::format("largest errors of {} products' results against float64, of their magnitude\n", errors.size());
    for (size_t k = 0; k < std::min(most, errors.size()); ++k)
        s += fmt::format("  {:<8.2g} {} of {}{}\n", errors[k].error, quoted_name(errors[k].tensor),
                         text_of(errors[k].nodes, errors[k].tensor), errors[k].rounded ? "" : " (f32)");
    return s;
}

std::string to_json(const std::vector<ProductError>& errors) {
    Json list = Json::array();
    for (const ProductError& e : errors)
        list.push_back({{"tensor", e.tensor}, {"nodes", e.nodes}, {"error", e.error}, {"rounded", e.rounded}});
    return list.dump();
}

}  // namespace tilewright
