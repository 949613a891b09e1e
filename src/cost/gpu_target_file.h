#pragma once
// GPUs as JSON, and the file that keeps the rates which bench_probe has measured on one.

#include <map>
#include <string>
#include <string_view>

#include "cost/gpu_target.h"

namespace tilewright {

/// Figures of bench_probe, by name.
using GpuProbes = std::map<std::string, double>;

/// The rates that the figures say, for the GPU that they were measured on. A figure of instructions that it does not
/// have is not needed. Throws RuntimeError that names a figure which is missing, or a rate that no such GPU has.
GpuRates rates_of(const GpuProbes& probes, const GpuTarget& gpu);

/// All of the description, indented. `probes`: for the record; nothing reads them.
std::string to_json(const GpuTarget& gpu, const GpuProbes& probes = {});
/// The inverse of to_json. Throws RuntimeError that says what is wrong with the text, or what verify() says.
GpuTarget gpu_target_from_json(std::string_view json);

/// The device as 16 hexadecimal digits: its name, compute capability and SMs, and the version of its driver.
std::string target_key(const GpuTarget& gpu);
/// <cache_folder>/gpu-<target_key>.json; throws RuntimeError where there is no cache folder.
std::string target_path(const GpuTarget& gpu);

/// Writes the description for with_kept_rates to find. Returns the path. Throws RuntimeError that names the path.
std::string save_target(const GpuTarget& gpu, const GpuProbes& probes);
/// The device with the rates of its file; without a file, as it is. A file that is damaged or describes another device
/// is not used, and `why` says so with its path.
GpuTarget with_kept_rates(GpuTarget device, std::string* why = nullptr);

}  // namespace tilewright
