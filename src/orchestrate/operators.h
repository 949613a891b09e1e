#pragma once
// The model's operators as units of fusion, as in a compiler without primitives.

#include <map>
#include <set>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Fuses primitives of the same nodes of the model as far as possible.
Program fuse_within_operators(const Program& program);

/// Which stages of such a program may share a kernel: stages of one operator, and operators of one stage each.
class OperatorUnits {
  public:
    explicit OperatorUnits(const Program& fused);
    bool may_share(const Primitive& a, const Primitive& b) const;

  private:
    std::set<std::vector<uint32_t>> several_;  ///< operators of several stages, by their nodes
};

}  // namespace tilewright
