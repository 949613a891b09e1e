#pragma once
// Targets of round sizes for tests, which must not depend on the host.

#include <string>

#include "cost/host_probe.h"
#include "cost/target.h"

namespace tilewright::test {

struct TargetSizes {
    int lanes = 16;  ///< f32
    int vector_registers = 32;
    int workers = 1;
    int64_t l2_bytes = int64_t{1} << 20;
    int64_t last_cache_bytes = int64_t{32} << 20;
};

inline Target target_with(const TargetSizes& sizes = {}) {
    Target target = generic_target(sizes.lanes == 16 ? VectorIsa::avx512 : VectorIsa::avx2);
    target.vector_bits = 32 * sizes.lanes;
    target.vector_registers = sizes.vector_registers;
    target.workers = sizes.workers;
    target.caches.at(1).bytes = sizes.l2_bytes;
    target.caches.at(2).bytes = sizes.last_cache_bytes;
    return target;
}

/// With tile registers of bf16, 16 times as fast as multiply-adds of f32.
inline Target target_with_tiles(VectorIsa isa = VectorIsa::avx512) {
    Target target = generic_target(isa);
    target.native = true;
    target.features = {"amx-bf16", "amx-tile"};
    target.tile_gflops_1.value = 16 * target.fma_gflops_1.value;
    return target;
}

/// With multiply-adds of f16, twice as fast as those of f32.
inline Target target_with_f16(VectorIsa isa = VectorIsa::avx2) {
    Target target = generic_target(isa);
    target.native = true;
    target.features = {"avx512fp16"};
    assume_unit_rates(target);
    return target;
}

/// The host's CPU with a GPU.
inline Target on_gpu(const GpuTarget& gpu) { return with_gpu(generic_target(VectorIsa::avx2), gpu); }

}  // namespace tilewright::test
