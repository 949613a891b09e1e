#include "graph/import_budget.h"

#include <unistd.h>

#include "base/error.h"
#include "graph/graph.h"

namespace tilewright::import_detail {

Budget::Budget(const ImportLimits& limits) : limits_(limits) {
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page_size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_size > 0) physical_memory_ = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_size);
}

void Budget::charge_node() {
    if (++nodes_ > limits_.max_nodes)
        model_error("the model has more than {} nodes after its functions are expanded", limits_.max_nodes);
}

void Budget::charge_tensor(uint64_t bytes, const std::function<std::string()>& describe) {
    if (bytes > static_cast<uint64_t>(limits_.max_tensor_bytes))
        model_error("{} has {} bytes, and the limit for one tensor is {}", describe(), bytes, limits_.max_tensor_bytes);
    tensor_bytes_ += bytes;  // no overflow: max_tensor_bytes bounds the term, max_total_bytes the sum before it
    if (tensor_bytes_ > static_cast<uint64_t>(limits_.max_total_bytes))
        model_error("with {} the model's tensors pass the limit of {} bytes", describe(), limits_.max_total_bytes);
    if (tensor_bytes_ > physical_memory_)
        throw RuntimeError(
            fmt::format("not enough memory: the model's tensors up to {} need {} bytes, this machine has {}",
                        describe(), tensor_bytes_, physical_memory_));
}

void Budget::charge_expansion(uint64_t bytes) {
    expanded_bytes_ = bytes > UINT64_MAX - expanded_bytes_ ? UINT64_MAX : expanded_bytes_ + bytes;
    if (expanded_bytes_ > static_cast<uint64_t>(limits_.max_expanded_bytes))
        model_error("expanding functions and sparse tensors makes the model more than {} bytes larger than its file",
                    limits_.max_expanded_bytes);
}

}  // namespace tilewright::import_detail
