#pragma once
// Elementwise fusion: expressions join their producers and readers.

#include "orchestrate/fusion_limits.h"
#include "program/program.h"

namespace tilewright {

class Fusions;

/// Moves elementwise consumers into the reductions that feed them, and cheap elementwise, broadcast and layout
/// primitives into their readers (src/program/transform/inline.h). `known` caches fused expressions for a caller that
/// fuses many programs made of the same primitives; null: a new cache.
Program fuse_greedily(const Program& program, const FusionLimits& limits = {}, Fusions* known = nullptr);

}  // namespace tilewright
