#pragma once
// Shared libraries that may be missing: looked for when somebody asks for what they do, and called through declarations
// of our own, so that one binary serves machines with and without them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewright {

class SharedLibrary {
  public:
    /// The first of these that can be loaded. Throws RuntimeError: `what` is missing, with the loader's reason and
    /// `hint`.
    SharedLibrary(const std::string& what, const std::vector<std::string>& names, const std::string& hint);
    /// Functions that are here already, by name; null for what there is not. Tests pretend to be a library so.
    SharedLibrary(const std::string& what, std::function<void*(const std::string&)> functions);

    /// Throws RuntimeError where the library has no such function.
    template <class F>
    void find(F*& function, const char* symbol) const {
        function = reinterpret_cast<F*>(address(symbol));
    }

    /// Null where neither it nor a library that it needs has one.
    template <class F>
    void find_if_there(F*& function, const char* symbol) const {
        function = reinterpret_cast<F*>(lookup_(symbol));
    }

  private:
    void* address(const char* symbol) const;

    std::string what_, name_;
    std::function<void*(const std::string&)> lookup_;
};

}  // namespace tilewright
