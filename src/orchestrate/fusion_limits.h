#pragma once
// Limits of fusion, and the reasons why two neighbours are not fused.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The reason why two expressions do not share a kernel. Its subject is the reader.
struct FusionRefusal {
    const char* reason = "";
};

/// Refusals of the fusion passes, keyed by the primitives that producer and reader were fused from (Origin::parts). A
/// later pass overwrites the refusal of an earlier one.
class Refusals {
  public:
    using Parts = std::vector<uint32_t>;
    void add(const Parts& producer, const Parts& reader, FusionRefusal refusal) {
        last_[{producer, reader}] = {refusal, n_++};
    }
    /// The last refusal between a part of `producer` and a part of `reader`; null if there is none.
    const char* reason(const Parts& producer, const Parts& reader) const;
    bool empty() const { return last_.empty(); }

  private:
    std::map<std::pair<Parts, Parts>, std::pair<FusionRefusal, size_t>> last_;
    size_t n_ = 0;
};

/// Limits of fusion.
struct FusionLimits {
    bool recompute = true;  ///< a value with several readers may be computed in each of them
    /// Whether two primitives may be parts of one kernel; empty: always.
    std::function<bool(const Primitive&, const Primitive&)> may_share = {};  // NOLINT: required by g++
    /// What depends on sizes alone (program/analysis/sized.h) shares no kernel with what does not: a session runs its
    /// kernels once for all runs of equal sizes.
    bool sizes_apart = false;
    std::shared_ptr<Refusals> refusals = nullptr;  ///< null: refusals are not recorded

    void refuse(const Primitive& producer, const Primitive& reader, FusionRefusal refusal) const {
        if (refusals) refusals->add(producer.origin.parts, reader.origin.parts, refusal);
    }
};

}  // namespace tilewright
