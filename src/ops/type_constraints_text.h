#pragma once

namespace tilewright {

/// type_constraints.txt.
extern const char* const kTypeConstraints;
/// contrib_type_constraints.txt.
extern const char* const kContribTypeConstraints;

}  // namespace tilewright
