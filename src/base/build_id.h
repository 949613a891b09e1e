#pragma once
// The id of this build of the compiler. Cached decisions of one build are not valid for another.

#include <string>

namespace tilewright {

/// The linker's build id of the executable or shared library that contains this function, in hexadecimal digits.
/// Different code has a different id. Empty if the linker wrote none.
const std::string& build_id();

}  // namespace tilewright
