#pragma once

#include "base/error.h"

namespace tilewright {

/// An option does not fit the model, or names something that does not exist.
class OptionError : public ModelError {
  public:
    using ModelError::ModelError;
};

}  // namespace tilewright
