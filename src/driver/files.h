#pragma once
// Reads and writes whole files, with errors that name them.

#include <initializer_list>
#include <string>
#include <string_view>

namespace tilewright {

/// A regular file's bytes. Throws RuntimeError with the path and the reason. Pipes and devices are refused, because
/// they may never end.
std::string read_file(const std::string& path);
/// Writes the concatenated parts. Throws RuntimeError with the path and the reason.
void write_file(const std::string& path, std::initializer_list<std::string_view> parts);
/// Throws the error that write_file would throw if the folder is missing or not writable, without changing anything:
/// used before long computations.
void check_writable(const std::string& path);
/// A file name for a tensor's name: characters other than letters, digits, '-', '_' and '.' become '_'. Never "", ".",
/// ".." or hidden, and at most 200 bytes.
std::string file_name_of(const std::string& tensor);

}  // namespace tilewright
