#pragma once
// Tensor data in files beside the model.
//
// This is the only place that opens a path found inside a model. The paths are untrusted: the published attacks use
// "..", absolute paths, symbolic and hard links, pipes and devices, and offsets past the end.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace tilewright::import_detail {

/// The location of a tensor's bytes, as declared in the file.
struct ExternalRange {
    std::string location;
    uint64_t offset = 0;
    std::optional<uint64_t> length;  ///< if the file declares one
};

/// Parses and checks TensorProto.external_data; `what` names the tensor in messages. Unknown keys are ignored.
ExternalRange parse_external_range(const std::vector<std::pair<std::string, std::string>>& entries,
                                   const std::string& what);

/// "./a//b" -> {"a", "b"}. Throws ModelError for an empty or absolute path, "..", a backslash, a drive letter, and
/// control characters.
std::vector<std::string> split_relative_path(const std::string& path, const std::string& what);

/// An owned file descriptor.
class FileHandle {
  public:
    explicit FileHandle(int fd = -1) : fd_(fd) {}
    FileHandle(FileHandle&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    FileHandle& operator=(FileHandle&& other) noexcept;
    ~FileHandle();
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

  private:
    int fd_;
};

/// Two ways to keep a path below a folder: one system call if the kernel has it (Linux 5.6), or component by component.
enum class Beneath : uint8_t { Automatic, OneCall, ComponentWise };

/// Opens a file below `folder_fd` for reading without following any symbolic link; -1 and errno of openat() on failure
/// (ELOOP for a link anywhere in the path).
FileHandle open_beneath(int folder_fd, const std::vector<std::string>& components, Beneath how = Beneath::Automatic);

/// A model's folder, held open.
class ModelFolder {
  public:
    /// Throws RuntimeError.
    explicit ModelFolder(const std::string& path);
    /// A regular file there or below, opened for reading; `bytes`: its size. `what` names its user in messages. Throws
    /// ModelError for a path that leaves the folder or does not exist, and for files that are reached through a link
    /// or have several names.
    FileHandle open(const std::string& location, const std::string& what, uint64_t& bytes) const;

  private:
    std::string path_;
    FileHandle fd_;
};

/// The data files of one model. The last one stays open.
class ExternalFiles {
  public:
    /// With an empty `folder` every read is a ModelError.
    explicit ExternalFiles(std::string folder) : folder_path_(std::move(folder)) {}

    /// The `bytes` bytes of `range` as a tensor of U8. All checks precede the allocation.
    Tensor read(const ExternalRange& range, uint64_t bytes, const std::string& what);
    bool used() const { return !open_location_.empty(); }  ///< by read()

  private:
    void open(const std::string& location, const std::string& what);

    std::string folder_path_;
    std::optional<ModelFolder> folder_;
    std::string open_location_;
    FileHandle file_;
    uint64_t file_size_ = 0;
};

}  // namespace tilewright::import_detail
