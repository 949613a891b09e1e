#pragma once
// NumPy's .npz: a ZIP archive of .npy files, one for each array, called by the array's name.
// Format: numpy.savez, numpy.savez_compressed; PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3.

#include <string>
#include <vector>

#include "graph/import.h"

namespace tilewright {

/// The arrays by name, in the archive's order. Stored and deflated members, with or without ZIP64 sizes. Throws
/// ModelError naming the file and the array: a damaged archive, a checksum that is wrong, a member that inflates to
/// more than it declares.
std::vector<NamedTensor> load_npz(const std::string& path);

/// Deflated, at zlib's fastest level. A name that would lead out of a folder when the archive is unpacked ("..", a
/// leading '/', a backslash) is written as file_name_of gives it. Throws RuntimeError when the file cannot be written,
/// or passes 4 GiB.
void save_npz(const std::string& path, const std::vector<NamedTensor>& arrays);

}  // namespace tilewright
