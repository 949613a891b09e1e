#include "cost/gpu_target_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/private_folder.h"
#include "base/whole_file.h"
#include "cost/target.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int kFormat = 1;  // of the JSON; raise it when the meaning of a field changes

template <class T>
struct Field {
    const char* name;
    T GpuTarget::*member;
};
constexpr Field<int> kCounts[] = {
    {"major", &GpuTarget::major},
    {"minor", &GpuTarget::minor},
    {"driver", &GpuTarget::driver},
    {"multiprocessors", &GpuTarget::multiprocessors},
    {"warp", &GpuTarget::warp},
    {"block_threads", &GpuTarget::block_threads},
    {"sm_threads", &GpuTarget::sm_threads},
    {"sm_blocks", &GpuTarget::sm_blocks},
    {"thread_registers", &GpuTarget::thread_registers},
};
constexpr Field<int64_t> kSizes[] = {
    {"sm_registers", &GpuTarget::sm_registers},       {"block_shared_bytes", &GpuTarget::block_shared_bytes},
    {"sm_shared_bytes", &GpuTarget::sm_shared_bytes}, {"l2_bytes", &GpuTarget::l2_bytes},
    {"memory_bytes", &GpuTarget::memory_bytes},
};
constexpr Field<double> kPeaks[] = {
    {"ghz", &GpuTarget::ghz},
    {"memory_gbps", &GpuTarget::memory_gbps},
    {"f32_gflops", &GpuTarget::f32_gflops},
    {"f64_gflops", &GpuTarget::f64_gflops},
    {"tf32_gflops", &GpuTarget::tf32_gflops},
    {"f16_gflops", &GpuTarget::f16_gflops},
    {"f8_gflops", &GpuTarget::f8_gflops},
};

GpuTarget gpu_of(const Json& json) {
    const int format = json.at("format").get<int>();
    if (format != kFormat) throw RuntimeError(fmt::format("format {}, expected {}", format, kFormat));
    GpuTarget t;
    t.name = json.at("gpu").get<std::string>();
    for (const auto& [name, member] : kCounts) t.*member = json.at(name).get<int>();
    for (const auto& [name, member] : kSizes) t.*member = json.at(name).get<int64_t>();
    for (const auto& [name, member] : kPeaks) t.*member = json.at(name).get<double>();
    for (const GpuRateField& f : gpu_rate_fields()) t.rates.*f.member = json.at("rates").at(f.name).get<double>();
    t.measured = json.at("measured").get<bool>();
    return t;
}

/// "'NVIDIA H100 80GB HBM3' (sm_90, 132 SMs, driver of CUDA 13.0)"
std::string text_of(const GpuTarget& t) {
    return fmt::format("'{}' (sm_{}, {} SMs, driver of CUDA {}.{})", t.name, t.capability(), t.multiprocessors,
                       t.driver / 1000, t.driver % 1000 / 10);
}

}  // namespace

GpuRates rates_of(const GpuProbes& probes, const GpuTarget& gpu) {
    const auto figure = [&](const std::string& name) {
        const auto it = probes.find(name);
        if (it == probes.end()) throw RuntimeError(fmt::format("no figure '{}'", name));
        return it->second;
    };
    GpuTarget out = gpu;
    assume_rates(out);
    GpuRates& r = out.rates;
    const double clock_us = 1e-3 / gpu.ghz;
    r.launch_us = figure("launch_graph_1");
    r.memory_gbps = figure("memory_read");
    r.cache_bytes = figure("l2_read_16_mib") / (gpu.multiprocessors * gpu.ghz);
    r.shared_bytes = figure("shared_read");
    r.shared_clocks = figure("shared_latency");
    double copy_clocks = figure("memory_latency");
    r.f32_gflops = 1e3 * figure("f32");
    r.warp_f16_gflops = 1e3 * figure("warp_f16");
    r.warp_tf32_gflops = 1e3 * figure("warp_tf32");
    if (gpu.has_tma()) {
        // Boxes of 8 KiB from the L2: one at a time, and as many as there is room for on every SM.
        copy_clocks += std::max(0.0, figure("box_1") - figure("l2_latency"));
        r.cache_bytes = 8192 / figure("box_16_all");
    }
    r.copy_us = copy_clocks * clock_us;
    if (gpu.has_wgmma()) {
        constexpr double kStep = 4, kNoise = 8;  // instructions of a step; clocks
        r.group_f16_gflops = 1e3 * figure("group_f16_256_2_rate");
        r.group_tf32_gflops = 1e3 * figure("group_tf32_256_2_rate");
        const double longer = figure("group_f16_256_2_drained") - figure("group_f16_256_2");
        r.drain_us = std::max(kNoise, kStep * longer) * clock_us;
    }
    if (const std::string problem = verify(out); !problem.empty()) throw RuntimeError(problem);
    return r;
}

std::string to_json(const GpuTarget& t, const GpuProbes& probes) {
    Json json = {{"format", kFormat}, {"gpu", t.name}};
    for (const auto& [name, member] : kCounts) json[name] = t.*member;
    for (const auto& [name, member] : kSizes) json[name] = t.*member;
    for (const auto& [name, member] : kPeaks) json[name] = t.*member;
    json["measured"] = t.measured;
    for (const GpuRateField& f : gpu_rate_fields()) json["rates"][f.name] = t.rates.*f.member;
    if (!probes.empty()) json["probes"] = probes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

GpuTarget gpu_target_from_json(std::string_view text) {
    GpuTarget gpu;
    try {
        gpu = gpu_of(Json::parse(text));
    } catch (const nlohmann::json::exception& error) {
        throw RuntimeError(fmt::format("not a description of a GPU: {}", error.what()));
    }
    const std::string problem = verify(gpu);
    if (!problem.empty()) throw RuntimeError("not a description of a GPU: " + problem);
    return gpu;
}

std::string target_key(const GpuTarget& t) {
    return fmt::format("{:016x}",
                       hash_text(fmt::format("{}|{}|{}|{}", t.name, t.capability(), t.multiprocessors, t.driver)));
}

std::string target_path(const GpuTarget& gpu) {
    const auto folder = cache_folder();
    if (!folder) throw RuntimeError("no cache folder: neither XDG_CACHE_HOME nor HOME names one");
    return fmt::format("{}/gpu-{}.json", *folder, target_key(gpu));
}

std::string save_target(const GpuTarget& gpu, const GpuProbes& probes) {
    std::string path = target_path(gpu);
    write_whole_file(path, to_json(gpu, probes));
    return path;
}

GpuTarget with_kept_rates(GpuTarget device, std::string* why) {
    std::string path;
    const auto refuse = [&](const std::string& reason) {
        if (why != nullptr) *why = path.empty() ? reason : fmt::format("{}: {}", path, reason);
        return device;
    };
    try {
        kept_folder();
        path = target_path(device);
        const auto text = read_trusted_file(path, kMostBytes);
        if (!text) return device;
        const GpuTarget kept = gpu_target_from_json(*text);
        if (target_key(kept) != target_key(device))
            return refuse(fmt::format("describes {}, and this is {}", text_of(kept), text_of(device)));
        device.rates = kept.rates;
        device.measured = kept.measured;
        return device;
    } catch (const RuntimeError& e) {
        return refuse(e.what());
    }
}

}  // namespace tilewright
