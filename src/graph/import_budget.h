#pragma once
// What one import may still spend. Every count a file declares passes here before memory is asked for.

#include <cstdint>
#include <functional>
#include <string>

#include "graph/import.h"

namespace tilewright::import_detail {

class Budget {
  public:
    explicit Budget(const ImportLimits& limits);

    const ImportLimits& limits() const { return limits_; }

    /// One node converted, or one function call expanded.
    void charge_node();
    /// A tensor of `bytes`; `describe` names it in messages. Throws ModelError past the limits, and RuntimeError when
    /// the model's tensors together exceed the machine's memory.
    void charge_tensor(uint64_t bytes, const std::function<std::string()>& describe);
    /// Bytes that the file does not hold itself: copies of function bodies, sparse tensors made dense.
    void charge_expansion(uint64_t bytes);

  private:
    ImportLimits limits_;
    int64_t nodes_ = 0;
    uint64_t tensor_bytes_ = 0;
    uint64_t expanded_bytes_ = 0;
    uint64_t physical_memory_ = UINT64_MAX;
};

}  // namespace tilewright::import_detail
