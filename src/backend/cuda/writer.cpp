#include "backend/cuda/writer.h"

#include <cctype>

namespace tilewright::cuda {

std::string identifier(std::string_view wish) {
    std::string s;
    for (const char c : wish) {
        if (s.size() >= 40) break;
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            s += c;
        else if (!s.empty() && s.back() != '_')
            s += '_';
    }
    while (!s.empty() && s.back() == '_') s.pop_back();
    if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) != 0) s = "n" + s;
    return s;
}

std::string Names::fresh(std::string_view wish) {
    const std::string base = identifier(wish);
    std::string name = base;
    for (int k = 2; !taken_.insert(name).second; ++k) name = base + "_" + std::to_string(k);
    return name;
}

}  // namespace tilewright::cuda
