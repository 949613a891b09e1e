#pragma once
// The bytes of a compiled model's file that its writer and its reader agree on beside the table (model_file.h).

#include <cstddef>
#include <string_view>

#include "artifact/model_file.h"

namespace tilewright::artifact {

inline constexpr std::string_view kTableMagic("TWMODEL\0", 8);
inline constexpr std::string_view kArchiveMagic = "!<arch>\n";  ///< of static archives
// Behind the shared object: the pieces_hash of its bytes, then a magic, whose last byte is the version of the trailer.
inline constexpr std::string_view kTrailerMagic("TWEND\r\n\1", 8);
inline constexpr size_t kFileHashBytes = 32, kTrailerBytes = kFileHashBytes + 8;

static_assert(sizeof(ModelTable) == 40 && offsetof(ModelTable, variants) == 16 && offsetof(ModelTable, weights) == 24);
static_assert(sizeof(ModelVariant) == 32 && offsetof(ModelVariant, kernels) == 16);

}  // namespace tilewright::artifact
