#pragma once

namespace tilewright {

/// type_constraints.txt.
extern const char* const kTypeConstraints;

}  // namespace tilewright
