#include "base/error.h"

namespace tilewright {

void internal_error(const char* file, int line, const char* condition, const std::string& message) {
    std::string text = fmt::format("internal error at {}:{}: {}", file, line, condition);
    if (!message.empty()) text += ": " + message;
    throw InternalError(text);
}

}  // namespace tilewright
