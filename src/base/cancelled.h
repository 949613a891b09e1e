#pragma once

#include <stdexcept>

namespace tilewright {

/// A compilation or a run that its caller cancelled.
class Cancelled : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace tilewright
