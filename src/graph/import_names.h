#pragma once
// Unique names.

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace tilewright::import_detail {

/// Hands out names that no other name equals: neither those of the file, which keep their owners, nor each other.
class NameTable {
  public:
    /// A name that the file uses somewhere; make() never returns it.
    void reserve(const std::string& name) { reserved_.insert(name); }
    /// `name` itself for its first owner; after that a variation of it.
    std::string claim(const std::string& name);
    /// "x" -> "x", or "x_2", "x_3" where that is taken. Long names are cut, so that names of nested calls stay short.
    std::string make(std::string base);

  private:
    std::unordered_set<std::string> reserved_;
    std::unordered_set<std::string> given_;
    std::unordered_map<std::string, int64_t> next_suffix_;
};

}  // namespace tilewright::import_detail
