#pragma once
// Options that do not fit the model.

#include <string>
#include <vector>

#include "base/error.h"

namespace tilewright {

/// An option does not fit the model, or names something that does not exist.
class OptionError : public ModelError {
  public:
    using ModelError::ModelError;
};

/// Throws OptionError unless `name` is one of `names`, the model's named dimensions. `setting` is the user's text.
void require_dimension(const std::string& name, const std::string& setting, const std::vector<std::string>& names);

}  // namespace tilewright
