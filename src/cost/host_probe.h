#pragma once
// How a Linux machine describes itself, as functions of the texts it does that in.

#include <string>
#include <string_view>
#include <vector>

#include "cost/target.h"
#include "runtime/thread_count.h"

namespace tilewright {

/// Sets cpu, cpu_id, arch, features and isa (with vector_bits and vector_registers) from the text of /proc/cpuinfo,
/// whose first processor counts. `arch` is what the program was compiled for. Leaves alone what the text does not say.
void describe_cpu(std::string_view cpuinfo, std::string_view arch, Target& target);

/// Data and unified caches of one CPU from /sys/devices/system/cpu/cpuN/cache/index*; empty where nothing can be read.
std::vector<CacheLevel> read_caches(int cpu, const FileReader& read);

/// The highest clock in GHz: what /sys allows the CPU; else the nominal one in `cpuinfo`, but at least a usual one.
double read_ghz(int cpu, std::string_view cpuinfo, const FileReader& read);

/// How many of these CPUs are separate physical cores. At least 1, at most the number of CPUs.
int count_cores(const std::vector<int>& cpus, const FileReader& read);

/// CPUs in a list as Linux writes it: "0-3,8" -> 5. 0 if it cannot be understood.
int count_cpu_list(std::string_view list);

/// Sets every rate to an assumption from the isa, ghz, cores and caches, unless it has been measured.
void assume_rates(Target& target);
/// Sets the rates of matrix instructions that the target has and that nothing has set, from its other rates.
void assume_unit_rates(Target& target);

}  // namespace tilewright
