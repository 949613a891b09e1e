#pragma once
// The bytes of a compiled model's file that its writer and its reader agree on beside the table (model_file.h).

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "artifact/model_file.h"
#include "base/keyed_hash.h"

namespace tilewright::artifact {

inline constexpr std::string_view kTableMagic("TWMODEL\0", 8);
inline constexpr std::string_view kArchiveMagic = "!<arch>\n";  ///< of static archives
// Behind the shared object: the hash of its bytes, then a magic, whose last byte is the version of the trailer.
inline constexpr std::string_view kTrailerMagic("TWEND\r\n\1", 8);
inline constexpr size_t kFileHashBytes = 32, kTrailerBytes = kFileHashBytes + 8;
/// Computed on all processors: most of the time to load a large file.
inline std::string hash_of_object(std::string_view object) { return pieces_hash(HashKey{}, std::span(&object, 1)); }

static_assert(sizeof(ModelTable) == 40 && offsetof(ModelTable, variants) == 16 && offsetof(ModelTable, weights) == 24);
static_assert(sizeof(ModelVariant) == 32 && offsetof(ModelVariant, kernels) == 16);

}  // namespace tilewright::artifact
