#pragma once
// Files that are written completely or not at all.

#include <string>
#include <string_view>

namespace tilewright {

/// Writes a temporary neighbour and renames it: readers see the old file or the new one, never a part. Missing folders
/// are created (make_private_folders). Throws RuntimeError that names the path.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace tilewright
