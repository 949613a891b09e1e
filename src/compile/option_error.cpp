#include "compile/option_error.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/suggest.h"
#include "graph/graph.h"

namespace tilewright {

void require_dimension(const std::string& name, const std::string& setting, const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    std::string hint = "all its dimensions are fixed";
    if (!names.empty()) {
        std::vector<std::string> near = closest_names(name, names);
        for (std::string& n : near) n = quoted_name(n);
        hint = fmt::format("its named dimensions: {}", fmt::join(names, ", "));
        if (!near.empty()) hint += fmt::format("; did you mean {}?", fmt::join(near, " or "));
    }
    throw OptionError(fmt::format("{}: no input of the model has a dimension {}", setting, quoted_name(name)), hint);
}

}  // namespace tilewright
