#pragma once

#include "base/error.h"

namespace tilewright {

/// What the caller asked for does not fit the model, or names nothing that there is.
class OptionError : public ModelError {
  public:
    using ModelError::ModelError;
};

}  // namespace tilewright
