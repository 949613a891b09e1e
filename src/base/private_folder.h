#pragma once
// Folders and files that nobody but this user can have written: what is found there may be run.

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <optional>
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

/// A folder of this user's that others may not write to, held open. The two folders above it keep their entries: each
/// is this user's or root's, and where others may write to it, it is sticky. Neither the folder nor the one above it is
/// a link. All of that is checked on descriptors, and files are reached from the folder's descriptor alone, so that
/// nothing is gained by exchanging a folder once it has been looked at.
class PrivateFolder {
  public:
    /// Throws RuntimeError naming the folder, what is wrong with it and what to do. Nothing where there is no such
    /// folder, unless it is to be made: then missing folders above it are made too, all of mode 0700.
    static std::optional<PrivateFolder> open(const std::string& path, bool make);

    /// The bytes of a regular file of this user's that nobody else may read or write, has one name and at most `most`
    /// bytes. Nothing for anything else. Follows no link and waits for no pipe.
    std::optional<std::string> read(const std::string& name, int64_t most) const;
    /// A file of mode 0600, whole or not at all. `temporary` is its name until it is complete. Throws RuntimeError.
    void write(const std::string& name, const std::string& temporary,
               std::initializer_list<std::string_view> parts) const;
    /// The same where there is no such file yet; otherwise the old one stays.
    void write_new(const std::string& name, const std::string& temporary,
                   std::initializer_list<std::string_view> parts) const;
    void touch(const std::string& name) const;   ///< sets the time of the last use
    void remove(const std::string& name) const;  ///< of a file or link, which is not followed

    struct File {
        std::string name;
        int64_t bytes = 0;
        timespec used{};
    };
    /// The regular files of this user's.
    std::vector<File> files() const;
    const std::string& path() const { return path_; }

  private:
    PrivateFolder(std::string path, Descriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
    void write_temporary(const std::string& temporary, std::initializer_list<std::string_view> parts) const;
    [[noreturn]] void cannot_write(int error) const;

    std::string path_;
    Descriptor folder_;
};

/// The bytes of a regular file of this user's or root's that nobody else may write to, of at most `most` bytes. A link
/// is followed. Throws RuntimeError that says why not; nothing where there is no file.
std::optional<std::string> read_trusted_file(const std::string& path, int64_t most);

/// Makes the folders of the path that are not there, of mode 0700 whatever the umask. Throws RuntimeError.
void make_private_folders(const std::string& path);

/// Throws RuntimeError where others may exchange what lies in the folder, as PrivateFolder asks of the folders above.
void require_kept_entries(const std::string& folder);

}  // namespace tilewright
