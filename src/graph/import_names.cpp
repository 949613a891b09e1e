#include "graph/import_names.h"

#include <fmt/format.h>

namespace tilewright::import_detail {

std::string NameTable::claim(const std::string& name) { return given_.insert(name).second ? name : make(name); }

std::string NameTable::make(std::string base) {
    constexpr size_t kLongest = 200;
    if (base.size() > kLongest) base.resize(kLongest);
    std::string name = base;
    const auto taken = [&] { return reserved_.count(name) != 0 || given_.count(name) != 0; };
    if (taken()) {
        int64_t& suffix = next_suffix_.emplace(base, 2).first->second;
        do {
            name = fmt::format("{}_{}", base, suffix++);
        } while (taken());
    }
    given_.insert(name);
    return name;
}

}  // namespace tilewright::import_detail
