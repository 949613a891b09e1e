// Errors of the C interface, and fields of its structures that later versions add.

#include <algorithm>
#include <cstring>

#include "driver/api_call.h"

struct tilewright_error {
    tilewright_status status;
    std::string message, hint;
};

namespace tilewright::api {

tilewright_status report(tilewright_error** error, tilewright_status status, const char* message,
                         const std::string& hint) noexcept {
    if (error == nullptr) return status;
    try {
        *error = new tilewright_error{status, message, hint};
    } catch (...) {  // out of memory for the error object
        *error = nullptr;
    }
    return status;
}

void copy_known_fields(const void* given, size_t size, size_t first, void* known, size_t known_size, const char* name) {
    constexpr size_t kMost = 4096;
    if (size < first || size > kMost)
        invalid("options->struct_size is {}: expected sizeof({}), {} here", size, name, known_size);
    std::memcpy(known, given, std::min(size, known_size));
    const auto* bytes = static_cast<const unsigned char*>(given);
    if (size > known_size && std::any_of(bytes + known_size, bytes + size, [](unsigned char b) { return b != 0; }))
        invalid("the options of {} bytes set a field that this version ({}) does not have", size, TILEWRIGHT_VERSION);
}

}  // namespace tilewright::api

using namespace tilewright;

extern "C" {

const char* tilewright_error_message(const tilewright_error* error) {
    return error != nullptr ? error->message.c_str() : "";
}

const char* tilewright_error_hint(const tilewright_error* error) { return error != nullptr ? error->hint.c_str() : ""; }

tilewright_status tilewright_error_status(const tilewright_error* error) {
    return error != nullptr ? error->status : TILEWRIGHT_OK;
}

void tilewright_error_free(tilewright_error* error) { delete error; }

}  // extern "C"
