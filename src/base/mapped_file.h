#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewright {

/// A file's bytes, mapped.
class MappedFile {
  public:
    /// Throws RuntimeError for a file that is not regular, is empty or cannot be read.
    explicit MappedFile(const std::string& path);
    /// Of an open file, which may be closed afterwards. `name` stands for it in messages.
    MappedFile(int file, const std::string& name);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  private:
    void map(int file, const std::string& name);
    void* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace tilewright
