#pragma once
// Shared libraries that may be missing: the CUDA driver and NVRTC are looked for when somebody asks for a GPU. One
// binary serves machines with and without one, and is built without CUDA's headers: what is called is declared here.

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewright::cuda {

class Library {
  public:
    /// The first of these that can be loaded. Throws RuntimeError: `what` is missing, with the loader's reason and
    /// `hint`.
    Library(const std::string& what, const std::vector<std::string>& names, const std::string& hint);
    /// Functions that are here already, by name; null for what there is not. Tests pretend to be a driver so.
    Library(const std::string& what, std::function<void*(const std::string&)> functions);

    /// Throws RuntimeError where the library has no such function.
    template <class F>
    void find(F*& function, const char* symbol) const {
        function = reinterpret_cast<F*>(address(symbol));
    }

    /// Null where it has none.
    template <class F>
    void find_if_there(F*& function, const char* symbol) const {
        function = reinterpret_cast<F*>(lookup_(symbol));
    }

  private:
    void* address(const char* symbol) const;

    std::string what_, name_;
    std::function<void*(const std::string&)> lookup_;
};

}  // namespace tilewright::cuda
