#include "orchestrate/operators.h"

#include "orchestrate/fuse.h"

namespace tilewright {

Program fuse_within_operators(const Program& program) {
    FusionLimits limits;
    limits.may_share = [](const Primitive& a, const Primitive& b) { return a.origin.nodes == b.origin.nodes; };
    return fuse_greedily(program, limits);
}

OperatorUnits::OperatorUnits(const Program& fused) {
    std::set<std::vector<uint32_t>> seen;
    for (const Primitive& p : fused.primitives)
        if (!p.origin.nodes.empty() && !seen.insert(p.origin.nodes).second) several_.insert(p.origin.nodes);
}

bool OperatorUnits::may_share(const Primitive& a, const Primitive& b) const {
    if (a.origin.nodes == b.origin.nodes) return true;
    return several_.count(a.origin.nodes) == 0 && several_.count(b.origin.nodes) == 0;
}

}  // namespace tilewright
