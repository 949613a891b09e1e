#pragma once
// The inverse of OpaqueOp::print: an opaque operator from its text, "TopK(axis=1, largest=1)".

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "runtime/opaque.h"

namespace tilewright {

/// Name and attributes. The accessors throw ModelError for a missing or malformed attribute.
class OpaqueText {
  public:
    /// Throws ModelError for a text that is not of the form NAME(KEY=VALUE, ...).
    explicit OpaqueText(std::string_view text);

    const std::string& name() const { return name_; }
    const std::map<std::string, std::string>& values() const { return values_; }
    bool has(const std::string& key) const { return values_.count(key) != 0; }
    const std::string& text(const std::string& key) const;
    int64_t integer(const std::string& key) const;
    bool flag(const std::string& key) const { return integer(key) != 0; }
    double number(const std::string& key) const;
    DType dtype(const std::string& key) const;
    std::vector<int64_t> integers(const std::string& key) const;  ///< "[1, 2]"
    /// An enumerator, by its position among `names`.
    template <class E>
    E choice(const std::string& key, std::span<const std::string_view> names) const {
        return static_cast<E>(position(key, names));
    }
    /// An enumerator that is printed as its number.
    template <class E>
    E choice(const std::string& key, int64_t count) const {
        return static_cast<E>(below(key, count));
    }

  private:
    size_t position(const std::string& key, std::span<const std::string_view> names) const;
    int64_t below(const std::string& key, int64_t count) const;
    [[noreturn]] void fail(const std::string& key, std::string_view expected) const;

    std::string name_;
    std::map<std::string, std::string> values_;
};

using OpaquePointer = std::shared_ptr<const OpaqueOp>;

/// Makes the operators of one name.
struct OpaqueReader {
    std::string_view name;
    OpaquePointer (*read)(const OpaqueText& text);
};

class CustomOperators;

/// The operator whose print() is this text; null if none has its name. Throws ModelError for wrong attributes, and for
/// a node of an operator that is not among `operators`.
OpaquePointer opaque_op(std::string_view text, const CustomOperators* operators = nullptr);
/// A node of a custom operator (custom.h), whose name in texts is kCustomName.
OpaquePointer read_custom(const OpaqueText& text, const CustomOperators* operators);
inline constexpr std::string_view kCustomName = "Custom";

// Of each file that defines opaque operators.
std::vector<OpaqueReader> selection_readers();
std::vector<OpaqueReader> signal_readers();
std::vector<OpaqueReader> vision_readers();
std::vector<OpaqueReader> cast_readers();
std::vector<OpaqueReader> scatter_readers();
std::vector<OpaqueReader> append_readers();
std::vector<OpaqueReader> reduction_readers();
std::vector<OpaqueReader> resize_readers();
std::vector<OpaqueReader> unpool_readers();
std::vector<OpaqueReader> checked_value_readers();
std::vector<OpaqueReader> condition_readers();

}  // namespace tilewright
