#pragma once
// The bytes of a compiled model's file that its writer and its reader agree on beside the table (model_file.h).

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "artifact/model_file.h"
#include "base/checksum.h"

namespace tilewright::artifact {

inline constexpr std::string_view kTableMagic("TWMODEL\0", 8);
inline constexpr std::string_view kArchiveMagic = "!<arch>\n";  ///< of static archives
/// Its last byte is the version of the trailer.
inline constexpr std::string_view kTrailerMagic("TWEND\r\n\2", 8);

/// What follows the shared object. The weights are checked where they are loaded, so that no page is mapped twice.
struct ModelTrailer {
    uint64_t weights_at = 0, weight_bytes = 0;  ///< in the file
    Checksum weights;                           ///< pieces_checksum
    Checksum rest;                              ///< rest_of
    char magic[8] = {};

    bool has_places_in(std::string_view object) const {
        return weights_at <= object.size() && weight_bytes <= object.size() - weights_at;
    }
    /// The checksum of the object's other bytes and of the fields before `rest`.
    Checksum rest_of(std::string_view object) const {
        return checksum({object.substr(0, weights_at),
                         object.substr(weights_at + weight_bytes),
                         {reinterpret_cast<const char*>(this), offsetof(ModelTrailer, rest)}});
    }
};

static_assert(sizeof(ModelTrailer) == 56 && offsetof(ModelTrailer, rest) == 32);
static_assert(sizeof(ModelTable) == 40 && offsetof(ModelTable, variants) == 16 && offsetof(ModelTable, weights) == 24);
static_assert(sizeof(ModelVariant) == 32 && offsetof(ModelVariant, kernels) == 16);

}  // namespace tilewright::artifact
