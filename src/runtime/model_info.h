#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tilewright {

/// What a file says about the model.
struct ModelInfo {
    std::string producer, graph_name, domain, description, graph_description;
    int64_t version = 0;
    std::map<std::string, std::string> metadata;
};

}  // namespace tilewright
