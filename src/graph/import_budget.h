#pragma once
// The resource budget of one import. Every count that a file declares is charged here before memory is allocated.

#include <cstdint>
#include <functional>
#include <string>

#include "graph/import.h"

namespace tilewright::import_detail {

class Budget {
  public:
    explicit Budget(const ImportLimits& limits);

    const ImportLimits& limits() const { return limits_; }

    /// Charges one converted node, or one expanded function call.
    void charge_node();
    /// Charges a tensor of `bytes`; `describe` names it in messages. Throws ModelError above the limits, and
    /// RuntimeError if the model's tensors together exceed the machine's memory.
    void charge_tensor(uint64_t bytes, const std::function<std::string()>& describe);
    /// Charges bytes that are not in the file: copies of function bodies, expanded sparse tensors.
    void charge_expansion(uint64_t bytes);

  private:
    ImportLimits limits_;
    int64_t nodes_ = 0;
    uint64_t tensor_bytes_ = 0;
    uint64_t expanded_bytes_ = 0;
    uint64_t physical_memory_ = UINT64_MAX;
};

}  // namespace tilewright::import_detail
