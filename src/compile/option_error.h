#pragma once
// Options that do not fit the model.

#include <string>
#include <vector>

#include "base/option_error.h"

namespace tilewright {

/// Throws OptionError unless `name` is one of `names`, the model's named dimensions. `setting` is the user's text.
void require_dimension(const std::string& name, const std::string& setting, const std::vector<std::string>& names);

}  // namespace tilewright
