#include "base/shared_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace tilewright {

SharedLibrary::SharedLibrary(const std::string& what, const std::vector<std::string>& names, const std::string& hint)
    : what_(what) {
    std::string reason;
    for (const std::string& name : names) {
        if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); handle != nullptr) {
            name_ = name;  // never unloaded: threads of the library may outlive this object
            lookup_ = [handle](const std::string& symbol) { return dlsym(handle, symbol.c_str()); };
            return;
        }
        if (reason.empty()) reason = dlerror();
    }
    throw RuntimeError(fmt::format("no {}: {}; {}", what, reason, hint));
}

SharedLibrary::SharedLibrary(const std::string& what, std::function<void*(const std::string&)> functions)
    : what_(what), name_("in this process"), lookup_(std::move(functions)) {}

void* SharedLibrary::address(const char* symbol) const {
    void* found = lookup_(symbol);
    if (found == nullptr)
        throw RuntimeError(fmt::format("{} ({}) has no function {}: it is too old", what_, name_, symbol));
    return found;
}

}  // namespace tilewright
