#include "runtime/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace tilewright {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    size_t begin = 0;
    for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator, begin)) {
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    parts.push_back(text.substr(begin));
    return parts;
}

std::string_view trim(std::string_view s) {
    constexpr std::string_view kBlank = " \t\r\n";
    const size_t first = s.find_first_not_of(kBlank);
    return first == std::string_view::npos ? std::string_view()
                                           : s.substr(first, s.find_last_not_of(kBlank) - first + 1);
}

namespace {

bool lists(std::string_view comma_separated, std::string_view word) {
    const auto parts = split(comma_separated, ',');
    return std::find(parts.begin(), parts.end(), word) != parts.end();
}

/// The process's group in one hierarchy, in the format of /proc/self/cgroup: "4:cpu,cpuacct:/a/b" or "0::/a/b".
std::optional<std::string> group_path(std::string_view cgroup_text, std::string_view controller, bool version2) {
    for (std::string_view line : split(cgroup_text, '\n')) {
        const size_t first = line.find(':');
        const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
        if (second == std::string_view::npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        if (version2 ? line.substr(0, first) == "0" && controllers.empty() : lists(controllers, controller))
            return std::string(line.substr(second + 1));
    }
    return std::nullopt;
}

struct Mount {
    std::string root, point;
};

/// The mount point of that hierarchy. A line of /proc/self/mountinfo is
/// "ID PARENT DEVICE ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS".
std::optional<Mount> hierarchy_mount(std::string_view mountinfo_text, std::string_view controller, bool version2) {
    for (std::string_view line : split(mountinfo_text, '\n')) {
        const auto fields = split(line, ' ');
        const auto dash = std::find(fields.begin(), fields.end(), "-");
        if (fields.size() < 6 || fields.end() - dash < 4) continue;
        if (version2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && lists(dash[3], controller))
            return Mount{std::string(fields[3]), std::string(fields[4])};
    }
    return std::nullopt;
}

}  // namespace

std::vector<std::string> group_directories(const FileReader& read, std::string_view controller, bool version2) {
    const auto groups = read("/proc/self/cgroup"), mounts = read("/proc/self/mountinfo");
    if (!groups || !mounts) return {};
    const auto group = group_path(*groups, controller, version2);
    const auto mount = hierarchy_mount(*mounts, controller, version2);
    if (!group || !mount) return {};
    const std::string root = mount->root == "/" ? "" : mount->root;
    std::string below;
    if (group->compare(0, root.size(), root) == 0) below = group->substr(root.size());
    if (!below.empty() && below.front() != '/') below.clear();  // root "/a", group "/ab": not below it
    while (!below.empty() && below.back() == '/') below.pop_back();
    if (below.compare(0, 3, "/..") == 0) below.clear();  // outside of this process's namespace

    std::vector<std::string> directories;
    for (;; below.erase(below.rfind('/'))) {
        directories.push_back(mount->point + below);
        if (below.empty()) return directories;
    }
}

std::optional<std::string> read_text_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace tilewright
