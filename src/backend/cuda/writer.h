#pragma once
// Text of C++: indented lines, and unique names.

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

namespace tilewright::cuda {

class Writer {
  public:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        add(fmt::format(format, std::forward<Args>(args)...));
    }
    /// "head {", and what follows one step deeper, until close().
    void open(std::string_view head) {
        add(head.empty() ? "{" : std::string(head) + " {");
        ++depth_;
    }
    void close(std::string_view tail = "") {
        --depth_;
        add("}" + std::string(tail));
    }
    void add(std::string_view text) { out_.append(static_cast<size_t>(depth_) * 4, ' ').append(text).append("\n"); }
    /// A writer for text that goes in here later, by `insert`.
    Writer inner(int deeper) const {
        Writer w;
        w.depth_ = depth_ + deeper;
        return w;
    }
    void insert(const Writer& w) { out_ += w.out_; }
    const std::string& text() const { return out_; }

  private:
    std::string out_;
    int depth_ = 0;
};

/// Names in one function. "conv1/products" -> "conv1_products", the second of that name "conv1_products_2".
class Names {
  public:
    std::string fresh(std::string_view wish);

  private:
    std::set<std::string> taken_;
};

/// Letters, digits and single underscores, not beginning with a digit, at most 40.
std::string identifier(std::string_view wish);

}  // namespace tilewright::cuda
