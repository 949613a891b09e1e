#pragma once
// Whole files, and errors that name them.

#include <initializer_list>
#include <string>
#include <string_view>

namespace tilewright {

/// A regular file's bytes. Throws RuntimeError naming the path and the reason; pipes and devices are refused, which
/// might never end.
std::string read_file(const std::string& path);
/// The parts, one after the other. Throws RuntimeError naming the path and the reason.
void write_file(const std::string& path, std::initializer_list<std::string_view> parts);
/// Throws as write_file would where the file's folder is not there or it may not be written, and touches nothing: for
/// what takes long before there is anything to write.
void check_writable(const std::string& path);
/// A tensor's name as a file's: what is neither letter, digit, '-', '_' nor '.' becomes '_'. Never "", ".", ".." or
/// hidden, and at most 200 bytes.
std::string file_name_of(const std::string& tensor);

}  // namespace tilewright
