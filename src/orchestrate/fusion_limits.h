#pragma once
// What may be fused, and why two neighbours are not.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Why two expressions do not share a kernel; the subject is the reader.
struct FusionRefusal {
    const char* reason = "";
};

/// Refusals of the fusion passes, by what the producer and its reader were made of (Origin::parts). A later pass
/// overwrites the refusal of an earlier one.
class Refusals {
  public:
    using Parts = std::vector<uint32_t>;
    void add(const Parts& producer, const Parts& reader, FusionRefusal refusal) {
        last_[{producer, reader}] = {refusal, n_++};
    }
    /// The last refusal between a part of `producer` and a part of `reader`; null where there is none.
    const char* reason(const Parts& producer, const Parts& reader) const;
    bool empty() const { return last_.empty(); }

  private:
    std::map<std::pair<Parts, Parts>, std::pair<FusionRefusal, size_t>> last_;
    size_t n_ = 0;
};

/// What may be fused.
struct FusionLimits {
    bool recompute = true;  ///< a value with several readers may be computed in each of them
    /// Whether two primitives may be parts of one kernel; empty: any may.
    std::function<bool(const Primitive&, const Primitive&)> may_share = {};  // NOLINT: required by g++
    std::shared_ptr<Refusals> refusals = nullptr;  ///< where refusals are recorded; null: nowhere

    void refuse(const Primitive& producer, const Primitive& reader, FusionRefusal refusal) const {
        if (refusals) refusals->add(producer.origin.parts, reader.origin.parts, refusal);
    }
};

}  // namespace tilewright
