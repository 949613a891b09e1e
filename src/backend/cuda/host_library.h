#pragma once
// C++ texts compiled to a shared library by the system's compiler, as a process of its own, and loaded.

#include <memory>
#include <string>
#include <vector>

namespace tilewright::cuda {

struct LockstepOptions {
    std::string compiler = "c++";  ///< g++ or clang++, a path or a name
    std::vector<std::string> flags = {"-O1"};
};

class HostLibrary {
  public:
    /// Throws RuntimeError with the compiler's first error.
    HostLibrary(const std::string& text, const LockstepOptions& options);

    /// The address of a function or variable of that name; InternalError where there is none.
    void* find(const std::string& name) const;

  private:
    std::shared_ptr<void> handle_;
};

/// The text behind the preprocessor.
std::string preprocessed(const std::string& text, const LockstepOptions& options);

}  // namespace tilewright::cuda
