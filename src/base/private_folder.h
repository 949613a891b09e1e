#pragma once
// Folders and files that only this user can have written: their contents may be executed.

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// An open file or folder, closed with the object.
class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Descriptor& operator=(Descriptor&& other) noexcept;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

  private:
    int fd_;
};

/// A folder that belongs to this user and is not writable by others, held open. The two folders above it protect their
/// entries: each belongs to this user or root, and is sticky if others may write to it. Neither the folder nor its
/// parent is a link. All of that is checked on descriptors, and files are accessed relative to the folder's descriptor
/// only, so that exchanging a folder after the check has no effect.
class PrivateFolder {
  public:
    /// Throws a RuntimeError with the folder, the problem and the remedy. Nothing if the folder does not exist and
    /// `make` is false; otherwise missing folders above it are created too, all with mode 0700.
    static std::optional<PrivateFolder> open(const std::string& path, bool make);

    /// The bytes of a regular file that belongs to this user, is not accessible to others, has one name and at most
    /// `most` bytes. Nothing for any other file. Follows no link and never blocks on a pipe.
    std::optional<std::string> read(const std::string& name, int64_t most) const;
    /// Such a file, opened for reading. `bytes`: its size.
    Descriptor open_file(const std::string& name, int64_t most, int64_t& bytes) const;
    /// Creates a file of mode 0600 atomically. `temporary` is its name until it is complete. Throws RuntimeError.
    void write(const std::string& name, const std::string& temporary, std::span<const std::string_view> parts) const;
    void write(const std::string& name, const std::string& temporary,
               std::initializer_list<std::string_view> parts) const {
        write(name, temporary, std::span(parts.begin(), parts.size()));
    }
    /// As write, but keeps an existing file.
    void write_new(const std::string& name, const std::string& temporary,
                   std::initializer_list<std::string_view> parts) const;
    void touch(const std::string& name) const;   ///< sets the time of the last use
    void remove(const std::string& name) const;  ///< removes a file or link without following it

    struct File {
        std::string name;
        int64_t bytes = 0;
        timespec used{};
    };
    /// The regular files that belong to this user.
    std::vector<File> files() const;
    const std::string& path() const { return path_; }

  private:
    PrivateFolder(std::string path, Descriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
    void write_temporary(const std::string& temporary, std::span<const std::string_view> parts) const;
    [[noreturn]] void cannot_write(int error) const;

    std::string path_;
    Descriptor folder_;
};

/// The bytes of a regular file that belongs to this user or root, is not writable by others and has at most `most`
/// bytes. A link is followed. Throws a RuntimeError with the reason for a refusal; nothing if the file does not exist.
std::optional<std::string> read_trusted_file(const std::string& path, int64_t most);

/// Creates the missing folders of the path with mode 0700 whatever the umask. Throws RuntimeError.
void make_private_folders(const std::string& path);

/// Throws RuntimeError if other users may exchange the folder's entries (the check of PrivateFolder on parent folders).
void require_kept_entries(const std::string& folder);

}  // namespace tilewright
