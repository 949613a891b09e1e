#pragma once
// Unique names.

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace tilewright::import_detail {

/// Generates names that differ from every name of the file and from each other.
class NameTable {
  public:
    /// Reserves a name of the file; make() never returns it.
    void reserve(const std::string& name) { reserved_.insert(name); }
    /// `name` itself for the first caller; a variant of it afterwards.
    std::string claim(const std::string& name);
    /// "x" -> "x", or "x_2", "x_3" if that is taken. Long names are truncated, as those of nested calls grow.
    std::string make(std::string base);

  private:
    std::unordered_set<std::string> reserved_;
    std::unordered_set<std::string> given_;
    std::unordered_map<std::string, int64_t> next_suffix_;
};

}  // namespace tilewright::import_detail
