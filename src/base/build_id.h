#pragma once
// Which build of the compiler this is: what one build has chosen says nothing of what another would.

#include <string>

namespace tilewright {

/// The linker's number of the executable or shared library that holds this function, in hexadecimal digits: other code
/// has another one. Empty where the linker wrote none.
const std::string& build_id();

}  // namespace tilewright
