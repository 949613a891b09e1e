#include "provider/settings.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/option_error.h"
#include "base/suggest.h"
#include "driver/api_options.h"
#include "program/sizes.h"
#include "runtime/thread_count.h"

namespace tilewright::provider {

namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view value, std::string_view expected) {
    throw OptionError(
        fmt::format("option '{}' of TilewrightExecutionProvider is '{}': expected {}", name, value, expected));
}

/// "a;b" -> a, b. Empty parts are left out.
std::vector<std::string> parts_of(std::string_view text) {
    std::vector<std::string> out;
    while (!text.empty()) {
        const size_t end = std::min(text.find(';'), text.size());
        if (end > 0) out.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

void set_threads(Settings& s, const std::string& value) {
    const std::optional<int64_t> n = number(value);
    if (!n || *n < 0 || *n > kMaxThreads) refuse("threads", value, fmt::format("a number from 0 to {}", kMaxThreads));
    s.threads = static_cast<int>(*n);
    s.pipeline.compile.threads = default_thread_count(s.threads);
}

void set_numerics(Settings& s, const std::string& value) {
    const std::optional<Numerics> n = numerics_from_string(value);
    if (!n) refuse("numerics", value, "default, strict or fast");
    s.pipeline.compile.numerics = *n;
}

void set_precision(Settings& s, const std::string& value) {
    if (value != "f32" && value != "f32-fast" && value != "bf16" && value != "f16")
        refuse("precision", value, "f32, f32-fast, bf16 or f16");
    s.pipeline.compile.precision = value == "bf16" ? Precision::BF16 : value == "f16" ? Precision::F16 : Precision::F32;
    s.pipeline.compile.fast_f32 = value == "f32-fast";
}

void set_isa_name(Settings& s, const std::string& value) {
    const std::vector<std::string> names = selectable_isas();
    if (std::find(names.begin(), names.end(), value) == names.end())
        refuse("isa", value, fmt::format("{}", fmt::join(names, " or ")));
    s.pipeline.compile.isa = value;
}

void set_orchestrator(Settings& s, const std::string& value) {
    if (value != "greedy" && value != "optimal") refuse("orchestrator", value, "greedy or optimal");
    s.pipeline.compile.orchestrator = value == "optimal" ? Orchestrator::Optimal : Orchestrator::Greedy;
}

void set_dims(Settings& s, const std::string& value) {
    for (const std::string& part : parts_of(value)) {
        const size_t at = part.find('=');
        if (at == std::string::npos || at == 0) refuse("dims", value, "NAME=SIZE or NAME=RANGE, separated by ';'");
        const std::string name = part.substr(0, at), size = part.substr(at + 1);
        if (is_dim_range(size)) {
            s.pipeline.compile.ranges[name] = parse_dim_range(size);
            continue;
        }
        const std::optional<int64_t> n = number(size);
        if (!n || *n < 0) refuse("dims", value, fmt::format("a size of at least 0 or a range for '{}'", name));
        s.pipeline.compile.dims[name] = *n;
    }
}

void set_keep_subnormals(Settings& s, const std::string& value) {
    if (value != "0" && value != "1") refuse("keep_subnormals", value, "0 or 1");
    s.pipeline.compile.keep_subnormals = value == "1";
}

void set_cache_folder(Settings& s, const std::string& value) {
    CompileOptions& c = s.pipeline.compile;
    c.calibrate = value != "none";
    c.code_folder = value == "none" ? "" : api::code_folder(value);
}

using Set = void (*)(Settings&, const std::string&);
const std::map<std::string, Set>& all_options() {
    static const std::map<std::string, Set> all = {
        {"threads", set_threads},
        {"numerics", set_numerics},
        {"precision", set_precision},
        {"isa", set_isa_name},
        {"orchestrator", set_orchestrator},
        {"dims", set_dims},
        {"cache_folder", set_cache_folder},
        {"keep_f32", [](Settings& s, const std::string& value) { s.pipeline.compile.keep_f32 = parts_of(value); }},
        {"keep_subnormals", set_keep_subnormals},
        {"exclude", [](Settings& s, const std::string& value) { s.excluded = parts_of(value); }},
    };
    return all;
}

}  // namespace

Settings settings_of(const std::map<std::string, std::string>& options) {
    Settings s;
    s.pipeline.reference = false;
    set_threads(s, "0");
    set_cache_folder(s, "");
    for (const auto& [name, value] : options) {
        const auto found = all_options().find(name);
        if (found == all_options().end()) {
            std::vector<std::string> names;
            for (const auto& [known, set] : all_options()) names.push_back(known);
            throw OptionError(fmt::format("TilewrightExecutionProvider has no option '{}': did you mean {}?", name,
                                          fmt::join(closest_names(name, names), ", ")));
        }
        found->second(s, value);
    }
    return s;
}

}  // namespace tilewright::provider
