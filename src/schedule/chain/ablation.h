#pragma once
// Variants of the search over GEMM chains that lack a part of MCFuser, which show what the part gains.

#include <cstdint>

namespace tilewright::chain {

/// Of chains on a CPU. A GPU's copies into shared memory are placed by its own rules (schedule/gpu).
enum class Ablation : uint8_t {
    None,
    DeepOnly,   ///< no flat tiling expressions (§III-A)
    Unhoisted,  ///< copies stay in the rightmost loop over one of their axes, counting loops of one step (§III-B)
    Chimera,    ///< both: MCFuser-Chimera (§VI-A)
};
inline bool flat(Ablation a) { return a == Ablation::None || a == Ablation::Unhoisted; }
inline bool hoists(Ablation a) { return a == Ablation::None || a == Ablation::DeepOnly; }

}  // namespace tilewright::chain
