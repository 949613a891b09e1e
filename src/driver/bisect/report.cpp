#include "driver/bisect/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/graph.h"

namespace tilewright::bisect {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kListed = 8;  // tensors and nodes in the text

/// "error 0.31 of the largest magnitude, 1.2e-4 allowed: element [0, 3] is 1, expected 2 (4 of 8 elements differ)"
std::string text_of(const Comparison& c) {
    const double scale = c.max_magnitude > 0 ? c.max_magnitude : 1;
    std::string text = fmt::format("largest difference {:.3g}, {:.2g} of the largest magnitude", c.max_difference,
                                   c.max_difference / scale);
    if (!c.ok) text += "; " + (c.reason.starts_with(": ") ? c.reason.substr(2) : c.reason);
    return text;
}

std::string listed(const std::vector<std::string>& names) {
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kListed)));
    return fmt::format("{}{}", fmt::join(shown, ", "),
                       names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "");
}

std::string allowed(const Tolerance& t) {
    if (t.max_relative > 0) return fmt::format("{:.2g} of the largest magnitude", t.max_relative);
    return fmt::format("{:.2g} of the element plus {:.2g}", t.relative, t.absolute);
}

/// "each element loses all but about 8 bits": what a type of less precision leaves.
std::string bits(double error) {
    if (!(error > 0) || error >= 0.25) return "";
    return fmt::format(" (about {:.0f} bits are right)", std::floor(-std::log2(error)));
}

std::string verdict(const Finding& f, const Options& o) {
    switch (f.fault) {
        case Fault::None:
            return fmt::format("the outputs agree with {}", o.reference_name);
        case Fault::Operator:
            return fmt::format("operator: the definitions of the operators part from {} before any pass runs",
                               o.reference_name);
        case Fault::Pass:
            return fmt::format("pass: the program is right after `{}`, and wrong after `{}`", f.right_after,
                               f.wrong_after);
        case Fault::Kernel:
            return fmt::format("kernel: every pass is right, and kernel {} is wrong", f.kernel->kernel);
        case Fault::Numerics:
            return f.wrong_after.empty()
                       ? std::string(
                             "numerics: every pass and kernel is right, and rounding errors pass what is allowed")
                       : fmt::format(
                             "numerics: every pass is right in exact arithmetic; rounding errors pass what is "
                             "allowed from `{}` on (`{}` is the last pass before it)",
                             f.wrong_after, f.right_after);
        case Fault::Session:
            break;
    }
    return "session: every pass and kernel is right, and so are the kernels one after the other";
}

std::string kernel_text(const Finding& f) {
    const KernelFault& k = *f.kernel;
    std::string s = fmt::format("kernel {}: {}\n", k.kernel, quoted_name(k.at.call->name));
    s += "  wrong     " + k.where + "\n";
    s += fmt::format("  result    {}: {}\n", quoted_name(k.at.plan->program.values[k.value].name), k.reason);
    s += fmt::format("  error     {:.2g} of the largest magnitude{}", k.error, bits(k.error));
    s += k.allowed > 0 ? fmt::format("; its bound is {:.2g}\n", k.allowed) : "\n";
    s += "  nodes     " + listed(f.kernel_nodes) + "\n";
    std::vector<std::string> primitives;
    for (const PrimitiveId p : k.at.call->primitives) primitives.push_back(k.at.plan->program.primitives[p].name);
    s += "  computes  " + listed(primitives) + "\n";
    s += "  schedule  " + f.tiling + "\n";
    return s;
}

}  // namespace

std::string text_of(const Finding& f, const Options& o) {
    std::string s;
    for (const OutputResult& r : f.outputs)
        s += fmt::format("output {} {}: {}\n", quoted_name(r.name), r.comparison.ok ? "agrees" : "parts",
                         text_of(r.comparison));
    s += fmt::format("allowed: {}\n\n{}\n", allowed(o.tolerance), verdict(f, o));
    if (!f.first.empty()) s += "\nfirst tensors that part, all that they depend on in agreement:\n";
    for (size_t k = 0; k < std::min(f.first.size(), kListed); ++k) {
        const PartedTensor& t = f.first[k];
        s += fmt::format("  {}: {}\n", quoted_name(t.name), text_of(t.comparison));
        if (!t.nodes.empty()) s += "    nodes   " + listed(t.nodes) + "\n";
        if (!t.expression.empty()) s += "    is      " + t.expression + "\n";
    }
    if (f.first.size() > kListed) s += fmt::format("  and {} more\n", f.first.size() - kListed);
    if (f.kernel) s += "\n" + kernel_text(f);
    if (!f.notes.empty()) s += '\n';
    for (const std::string& note : f.notes) s += "note: " + note + "\n";
    return s;
}

std::string json_of(const Finding& f, const Options& o) {
    Json j = {{"model", o.model.path}, {"against", o.reference_name}, {"fault", to_string(f.fault)}};
    const auto numbers = [](const Comparison& c) {
        return Json{{"ok", c.ok},
                    {"reason", c.reason.starts_with(": ") ? c.reason.substr(2) : c.reason},
                    {"max_difference", c.max_difference},
                    {"max_magnitude", c.max_magnitude}};
    };
    j["outputs"] = Json::array();
    for (const OutputResult& r : f.outputs) {
        Json entry = numbers(r.comparison);
        entry["name"] = r.name;
        j["outputs"].push_back(std::move(entry));
    }
    if (!f.wrong_after.empty()) {
        j["right_after"] = f.right_after;
        j["wrong_after"] = f.wrong_after;
    }
    j["first"] = Json::array();
    for (const PartedTensor& t : f.first) {
        Json entry = numbers(t.comparison);
        entry["name"] = t.name;
        entry["nodes"] = t.nodes;
        entry["expression"] = t.expression;
        j["first"].push_back(std::move(entry));
    }
    if (f.kernel)
        j["kernel"] = {{"number", f.kernel->kernel},  {"name", f.kernel->at.call->name}, {"wrong", f.kernel->where},
                       {"reason", f.kernel->reason},  {"error", f.kernel->error},        {"bound", f.kernel->allowed},
                       {"results", f.kernel_results}, {"nodes", f.kernel_nodes},         {"schedule", f.tiling}};
    j["notes"] = f.notes;
    // Names from the file may be arbitrary bytes: invalid UTF-8 is replaced.
    return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

void write_folder(const Finding& f, const Options& o, const std::string& folder) {
    Evidence e = f.evidence;
    std::string readme =
        fmt::format("tilewright bisect {} --against {}\n\n{}\nFiles\n", o.model.path, o.reference_name, text_of(f, o));
    if (f.fault == Fault::Pass)
        readme +=
            "  before.txt, after.txt    the program before and after the pass, from the nearest tensors that agree to "
            "the first that parts\n"
            "  before/, after/          input_K.npy: inputs of each, in the order of its text; result.npy: what the "
            "interpreter computes\n";
    if (f.fault == Fault::Kernel)
        readme +=
            "  kernel.txt               the tile program\n"
            "  input_K.npy              its inputs\n"
            "  expected_K, found_K      its outputs: as the interpreter computes them, as the kernel does\n"
            "  bound_K.npy              the largest error that is allowed, element by element, where it was computed\n";
    if (f.fault == Fault::Operator)
        readme +=
            "  program.txt, input_K, expected, found   the primitives, their inputs, the reference's result, ours\n";
    if (e.onnx)
        readme += fmt::format(
            "  model.onnx               the ONNX nodes ({} of them), with a test data set: {}\n"
            "                           tilewright verify model.onnx --data test_data_set_0\n",
            e.onnx->model.graph.nodes.size(),
            e.onnx->shows ? "compiled by itself it shows the fault"
                          : "compiled by itself it gives the expected outputs, as the fault depends on the rest");
    e.texts.emplace_back("README.txt", readme);
    e.texts.emplace_back("report.json", json_of(f, o) + "\n");
    write_evidence(e, folder);
}

}  // namespace tilewright::bisect
