#pragma once
// The memory space of each value in a block: registers of its threads, shared memory, or global memory. The CUDA
// generator and the estimate of a schedule's shared memory (MCFuser's rule 4) both use it.
//
// Registers.
// The accumulators of a contraction are updated in every step of the loop over k; in shared memory each step would read
// and write them. A value stays in registers when its readers access its elements in the threads that hold them: a
// Store, an elementwise stage, and, for the result of matrix instructions, the row reduction of that result and the
// left operand of another matrix product. These readers adopt the partition of the producer:
//
//     for k { load A; load B; compute C }; store C      C: registers, in the tile of C's Compute
//     for n { ...; compute E online }; compute O = E/s  E: registers; O runs in E's tile
//     for n { compute C; compute R = max C online; compute P = exp(C - R); compute S = sum P; compute E += P V }
//         all in registers: the columns of C are those of P and the reduction axis of E; each of the four threads that
//         share a row holds R and S of that row

#include <map>
#include <set>

#include "tile/gpu_partition.h"
#include "tile/walk.h"

namespace tilewright {

/// Most threads of a block that kernels are generated with.
inline constexpr int kGpuBlockThreads = 256;

}  // namespace tilewright

namespace tilewright::gpu {

/// What a block may have.
struct BlockLimits {
    int threads = kGpuBlockThreads;
    int64_t shared_bytes = 0;
    friend bool operator==(const BlockLimits&, const BlockLimits&) = default;
};

struct RegisterValues {
    std::map<ValueId, Partition> values;      ///< partition of the stage that computes the value
    std::map<PrimitiveId, Partition> stages;  ///< partition that stages which read such values adopt

    std::set<ValueId> all() const {
        std::set<ValueId> out;
        for (const auto& [v, share] : values) out.insert(v);
        return out;
    }
};

RegisterValues register_values(const TileProgram& program, int threads);

struct BlockMemory {
    int threads = 32;  ///< of the block, whole warps (whole warpgroups with WGMMA)
    RegisterValues registers;
    std::set<ValueId> in_memory;  ///< values moved to global memory so that the other buffers fit
    BufferPlan plan;              ///< of the other buffers, from byte 0 of shared memory on
    int64_t exchange_bytes = 0;   ///< threads of several warps combine sums in shared memory from byte `room` on
    int64_t room = 0;
    int64_t arrivals_at = 0;       ///< byte offset of the mbarriers (8 bytes each) of swizzled copies
    std::vector<size_t> arrivals;  ///< per buffer of the plan: its first mbarrier; one mbarrier per copy
    int arrival_count = 0;
    int64_t shared_bytes = 0;  ///< all of the above
};
/// `most_threads` limits the block, `capacity` is the shared memory in bytes. Copies made by Loads always lie in shared
/// memory, so `shared_bytes` can exceed the capacity. Throws InternalError where a buffer has no constant bound.
BlockMemory block_memory(const TileProgram& program, int most_threads, int64_t capacity);

}  // namespace tilewright::gpu
