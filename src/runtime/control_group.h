#pragma once
// The control groups (cgroups) that limit this process.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// The whole text of a small file, or nullopt if it cannot be read. Functions take a reader so that tests can replace
/// the machine's files.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// Reads the machine's own files.
std::optional<std::string> read_text_file(const std::string& path);

/// The parts of `text` between separators, including empty ones.
std::vector<std::string_view> split(std::string_view text, char separator);
/// `s` without leading and trailing blanks and line ends.
std::string_view trim(std::string_view s);

/// The directories of the process's group and of all its ancestors. Inside a container the mount may show the
/// container's own group as its root: root "/docker/7", group "/docker/7/job", point "/sys/fs/cgroup" -> .../job, then
/// the point. Supports version 2, and version 1's hierarchy of `controller` ("cpu", "memory"). Reads /proc/self/cgroup
/// and /proc/self/mountinfo; empty if there is none.
std::vector<std::string> group_directories(const FileReader& read, std::string_view controller, bool version2);

}  // namespace tilewright
