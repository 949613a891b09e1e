#pragma once
// Where a block of a GPU keeps its values: in the registers of its threads, in shared memory, or in memory. The
// generator and the estimate of what a schedule needs (rule 4 of MCFuser) both ask here.
//
// Registers.
// The sums of a product are added to in every step of the loop over k: in shared memory they would be read and written
// once a step. A value stays where it was computed when its readers go through its elements as they are
// distributed: a Store, an elementwise stage, and, of what matrix instructions leave in a warp, the reduction of its
// rows and the left operand of another such product. These adopt the share of the threads:
//
//     for k { load A; load B; compute C }; store C      C: registers, in the tile of C's Compute
//     for n { ...; compute E online }; compute O = E/s  E: registers; O runs in E's tile
//     for n { compute C; compute R = max C online; compute P = exp(C - R); compute S = sum P; compute E += P V }
//         all of them: C's columns are P's, which are the sum of E; R and S have an element for each row in all four
//         threads that share it

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
    std::map<ValueId, Partition> values;      ///< the share of the stage that computes it
    std::map<PrimitiveId, Partition> stages;  ///< of the stages that read such values: what they adopt

    std::set<ValueId> all() const {
        std::set<ValueId> out;
        for (const auto& [v, share] : values) out.insert(v);
        return out;
    }
};

RegisterValues register_values(const TileProgram& program, int threads);

struct BlockMemory {
    int threads = 32;  ///< of the block, whole warps (four at a time where four multiply together)
    RegisterValues registers;
    std::set<ValueId> in_memory;  ///< values without which the other buffers fit the shared memory
    BufferPlan plan;              ///< of the rest, from byte 0 of shared memory on
    bool exchanges = false;       ///< groups of several warps combine sums, in shared memory from byte `room` on
    int64_t room = 0;
    int64_t arrivals_at = 0;       ///< byte from which on copies that are swizzled have 8 bytes each to wait at
    std::vector<size_t> arrivals;  ///< of each buffer of the plan the first of them; as many as it has copies
    int arrival_count = 0;
    int64_t shared_bytes = 0;  ///< of all that
};
/// `most_threads` of a block, `capacity` of shared memory in bytes. What Loads copy is in shared memory in any case:
/// `shared_bytes` may be more than the capacity. InternalError where a buffer has no constant bound.
BlockMemory block_memory(const TileProgram& program, int most_threads, int64_t capacity);

}  // namespace tilewright::gpu
