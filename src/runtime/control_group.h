#pragma once
// The control groups (cgroups) that limit this process.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// The whole text of a small file, or nullopt when it cannot be read. Functions take one, so that tests can put a map
/// from path to text in place of the machine.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// The machine's own files.
std::optional<std::string> read_text_file(const std::string& path);

/// The parts of `text` between separators, empty ones too.
std::vector<std::string_view> split(std::string_view text, char separator);
/// Without blanks and line ends around it.
std::string_view trim(std::string_view s);

/// The directories of the process's group and of all above it. Inside a container the mount may show the container's
/// own group as its root: root "/docker/7", group "/docker/7/job", point "/sys/fs/cgroup" -> .../job, then the point.
/// Of version 2, or of version 1's hierarchy of that controller ("cpu", "memory"). Reads /proc/self/cgroup and
/// /proc/self/mountinfo; empty where there is none.
std::vector<std::string> group_directories(const FileReader& read, std::string_view controller, bool version2);

}  // namespace tilewright
