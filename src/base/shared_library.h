#pragma once
// Optional shared libraries: loaded when first used and called through declarations of this project, so that one binary
// serves machines with and without them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewright {

class SharedLibrary {
  public:
    /// The first of these that can be loaded. Otherwise throws a RuntimeError that `what` is missing, with the loader's
    /// reason and `hint`.
    SharedLibrary(const std::string& what, const std::vector<std::string>& names, const std::string& hint);
    /// A library of functions in this process, by name; null for missing functions. Used by test doubles.
    SharedLibrary(const std::string& what, std::function<void*(const std::string&)> functions);

    /// Throws RuntimeError if the library has no such function.
    template <class F>
    void find(F*& function, const char* symbol) const {
        function = reinterpret_cast<F*>(address(symbol));
    }

    /// Null if neither the library nor a dependency of it has the function.
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
