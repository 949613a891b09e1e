#include "provider/order.h"

#include <set>
#include <utility>

namespace tilewright::provider {

std::vector<size_t> topological_order(const std::vector<std::vector<size_t>>& producers,
                                      const std::vector<size_t>& ids) {
    std::vector<std::vector<size_t>> readers(producers.size());
    std::vector<size_t> missing(producers.size());  // by node: reads of nodes that are not placed yet
    std::set<std::pair<size_t, size_t>> ready;      // id and position
    for (size_t i = 0; i < producers.size(); ++i) {
        for (const size_t p : producers[i]) readers[p].push_back(i);
        missing[i] = producers[i].size();
        if (missing[i] == 0) ready.emplace(ids[i], i);
    }
    std::vector<size_t> out;
    while (!ready.empty()) {
        const size_t i = ready.begin()->second;
        ready.erase(ready.begin());
        out.push_back(i);
        for (const size_t r : readers[i])
            if (--missing[r] == 0) ready.emplace(ids[r], r);
    }
    return out;
}

}  // namespace tilewright::provider
