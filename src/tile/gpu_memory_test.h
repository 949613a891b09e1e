#pragma once

#include <string>
#include <vector>

#include "tile/gpu_memory.h"

namespace tilewright::gpu::test {

/// Names of the values in registers.
inline std::vector<std::string> in_registers(const TileProgram& p, int threads = 256) {
    std::vector<std::string> out;
    for (const auto& [v, s] : register_values(p, threads).values) out.push_back(p.stages.values[v].name);
    return out;
}

}  // namespace tilewright::gpu::test
