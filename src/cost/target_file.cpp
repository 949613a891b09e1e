// Targets as JSON, and the file that one machine's calibration is kept in.

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/private_folder.h"
#include "base/whole_file.h"
#include "cost/host_probe.h"
#include "cost/target.h"

namespace tilewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int kFormat = 1;  // of the JSON; raise it when the meaning of a field changes

Json json_of(const Measure& m) { return {{"value", m.value}, {"spread", m.spread}, {"samples", m.samples}}; }

Measure measure_of(const Json& json) {
    return {json.at("value").get<double>(), json.at("spread").get<double>(), json.at("samples").get<int>()};
}

Json json_of(const CacheLevel& c) {
    return {{"level", c.level},
            {"bytes", c.bytes},
            {"measured_bytes", c.measured_bytes},
            {"line_bytes", c.line_bytes},
            {"shared_by", c.shared_by},
            {"ways", c.ways},
            {"load_gbps", json_of(c.load_gbps)},
            {"latency_ns", json_of(c.latency_ns)}};
}

CacheLevel cache_of(const Json& json) {
    CacheLevel c;
    c.level = json.at("level").get<int>();
    c.bytes = json.at("bytes").get<int64_t>();
    c.measured_bytes = json.at("measured_bytes").get<int64_t>();
    c.line_bytes = json.at("line_bytes").get<int>();
    c.shared_by = json.at("shared_by").get<int>();
    c.ways = json.value("ways", 0);
    c.load_gbps = measure_of(json.at("load_gbps"));
    c.latency_ns = measure_of(json.at("latency_ns"));
    return c;
}

struct RateField {
    const char* name;
    Measure Target::*member;
};
constexpr RateField kRates[] = {
    {"ghz", &Target::ghz},
    {"memory_latency_ns", &Target::memory_latency_ns},
    {"memory_gbps_1", &Target::memory_gbps_1},
    {"memory_gbps_all", &Target::memory_gbps_all},
    {"copy_gbps_1", &Target::copy_gbps_1},
    {"copy_gbps_all", &Target::copy_gbps_all},
    {"fma_gflops_1", &Target::fma_gflops_1},
    {"fma_gflops_all", &Target::fma_gflops_all},
    {"dispatch_us", &Target::dispatch_us},
};
/// Of units that not every CPU has: absent where the rate is 0.
constexpr RateField kUnitRates[] = {
    {"tile_gflops_1", &Target::tile_gflops_1}, {"tile_gflops_all", &Target::tile_gflops_all},
    {"dot_gflops_1", &Target::dot_gflops_1},   {"dot_gflops_all", &Target::dot_gflops_all},
    {"f16_gflops_1", &Target::f16_gflops_1},   {"f16_gflops_all", &Target::f16_gflops_all},
};

Target target_of(const Json& json) {
    const int format = json.at("format").get<int>();
    if (format != kFormat) throw RuntimeError(fmt::format("format {}, expected {}", format, kFormat));
    Target t;
    t.cpu = json.at("cpu").get<std::string>();
    t.cpu_id = json.at("cpu_id").get<std::string>();
    t.arch = json.at("arch").get<std::string>();
    t.features = json.at("features").get<std::vector<std::string>>();
    const auto isa = json.at("isa").get<std::string>();
    const auto known = vector_isa_from_string(isa);
    if (!known) throw RuntimeError(fmt::format("unknown vector instructions '{}'", isa));
    t.isa = *known;
    t.vector_bits = json.at("vector_bits").get<int>();
    t.vector_registers = json.at("vector_registers").get<int>();
    t.cores = json.at("cores").get<int>();
    t.threads = t.workers = json.at("threads").get<int>();
    for (const auto& [name, member] : kRates) t.*member = measure_of(json.at(name));
    for (const auto& [name, member] : kUnitRates)
        if (json.contains(name)) t.*member = measure_of(json.at(name));
    for (const Json& cache : json.at("caches")) t.caches.push_back(cache_of(cache));
    t.calibrated = json.at("calibrated").get<bool>();
    t.quick = json.value("quick", false);
    return t;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

std::string to_json(const Target& t) {
    Json json = {{"format", kFormat},
                 {"cpu", t.cpu},
                 {"cpu_id", t.cpu_id},
                 {"arch", t.arch},
                 {"features", t.features},
                 {"isa", std::string(to_string(t.isa))},
                 {"vector_bits", t.vector_bits},
                 {"vector_registers", t.vector_registers},
                 {"cores", t.cores},
                 {"threads", t.threads}};
    for (const auto& [name, member] : kRates) json[name] = json_of(t.*member);
    for (const auto& [name, member] : kUnitRates)
        if ((t.*member).value != 0) json[name] = json_of(t.*member);
    json["caches"] = Json::array();
    for (const CacheLevel& c : t.caches) json["caches"].push_back(json_of(c));
    json["calibrated"] = t.calibrated;
    if (t.quick) json["quick"] = true;
    // A CPU's name is the machine's to choose; bytes that are not UTF-8 must not keep us from writing it down.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Target target_from_json(std::string_view text) {
    Target target;
    try {
        target = target_of(Json::parse(text));
    } catch (const nlohmann::json::exception& error) {
        throw RuntimeError(fmt::format("not a target description: {}", error.what()));
    }
    const std::string problem = verify(target);
    if (!problem.empty()) throw RuntimeError("not a target description: " + problem);
    return target;
}

std::optional<std::string> cache_folder() {
    // Relative paths in these variables mean nothing, says the XDG base directory specification.
    const std::string xdg = environment("XDG_CACHE_HOME");
    if (xdg.starts_with('/')) return xdg + "/tilewright";
    const std::string home = environment("HOME");
    if (home.starts_with('/')) return home + "/.cache/tilewright";
    return std::nullopt;
}

std::string kept_folder() {
    auto folder = cache_folder();
    if (!folder) throw RuntimeError("no cache folder: neither XDG_CACHE_HOME nor HOME names one");
    std::error_code error;
    if (std::filesystem::exists(*folder, error)) require_kept_entries(*folder);
    return *std::move(folder);
}

std::string target_path(const Target& target) {
    const auto folder = cache_folder();
    if (!folder) throw RuntimeError("no cache folder: neither XDG_CACHE_HOME nor HOME names one");
    return fmt::format("{}/target-{}.json", *folder, target_key(target));
}

std::optional<Target> load_target(const std::string& path, const Target& host, std::string* why) {
    const auto refuse = [&](const std::string& reason) {
        if (why != nullptr) *why = fmt::format("{}: {}", path, reason);
        return std::nullopt;
    };
    try {
        const auto text = read_trusted_file(path, kMostBytes);
        if (!text) return refuse("no such file");
        Target target = target_from_json(*text);
        if (target_key(target) != target_key(host)) return refuse("describes another machine");
        target.native = host.native;
        assume_unit_rates(target);  // of a calibration that did not measure them
        return target;
    } catch (const RuntimeError& error) {
        return refuse(error.what());
    }
}

std::optional<Target> load_target(std::string* why) {
    try {
        kept_folder();
    } catch (const RuntimeError& e) {
        if (why != nullptr) *why = e.what();
        return std::nullopt;
    }
    const Target host = host_target();
    return load_target(target_path(host), host, why);
}

void save_target(const Target& target, const std::string& path) { write_whole_file(path, to_json(target)); }

std::string save_target(const Target& target) {
    std::string path = target_path(target);
    save_target(target, path);
    return path;
}

Target current_target() {
    auto target = load_target();
    return target ? std::move(*target) : host_target();
}

}  // namespace tilewright
