#pragma once
// NumPy's .npz: a ZIP archive of .npy files, one for each array, with the array's name.
// Format: numpy.savez, numpy.savez_compressed; PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3.

#include <string>
#include <vector>

#include "graph/import.h"

namespace tilewright {

/// The arrays by name, in the archive's order. Supports stored and deflated members, with or without ZIP64 sizes.
/// Throws ModelError with the file and the array for a damaged archive, a wrong checksum, or a member that inflates to
/// more than it declares.
std::vector<NamedTensor> load_npz(const std::string& path);

/// Deflated at zlib's fastest level. A name that would escape from a folder when the archive is extracted ("..", a
/// leading '/', a backslash) is replaced by file_name_of. Throws RuntimeError if the file cannot be written, or exceeds
/// 4 GiB.
void save_npz(const std::string& path, const std::vector<NamedTensor>& arrays);

}  // namespace tilewright
