#include "backend/cuda/library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace tilewright::cuda {

Library::Library(const std::string& what, const std::vector<std::string>& names, const std::string& hint)
    : what_(what) {
    std::string reason;
    for (const std::string& name : names) {
        if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
            name_ = name;
            handle_ = std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
            return;
        }
        if (reason.empty()) reason = dlerror();
    }
    throw RuntimeError(fmt::format("no {}: {}; {}", what, reason, hint));
}

void* Library::address(const char* symbol) const {
    void* found = dlsym(handle_.get(), symbol);
    if (found == nullptr)
        throw RuntimeError(fmt::format("{} ({}) has no function {}: it is too old", what_, name_, symbol));
    return found;
}

}  // namespace tilewright::cuda
