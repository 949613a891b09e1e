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
            const std::shared_ptr<void> owner(handle, [](void* h) { dlclose(h); });
            lookup_ = [owner](const std::string& symbol) { return dlsym(owner.get(), symbol.c_str()); };
            return;
        }
        if (reason.empty()) reason = dlerror();
    }
    throw RuntimeError(fmt::format("no {}: {}; {}", what, reason, hint));
}

Library::Library(const std::string& what, std::function<void*(const std::string&)> functions)
    : what_(what), name_("in this process"), lookup_(std::move(functions)) {}

void* Library::address(const char* symbol) const {
    void* found = lookup_(symbol);
    if (found == nullptr)
        throw RuntimeError(fmt::format("{} ({}) has no function {}: it is too old", what_, name_, symbol));
    return found;
}

}  // namespace tilewright::cuda
