#pragma once
// Strong identifiers and the arrays they index.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace tilewright {

/// A typed index into an arena: a ValueId cannot be passed where a PrimitiveId is meant. The default is "none".
template <class Tag>
struct Id {
    static constexpr uint32_t kNone = UINT32_MAX;
    uint32_t value = kNone;

    constexpr Id() = default;
    constexpr explicit Id(size_t v) : value(static_cast<uint32_t>(v)) {}
    constexpr explicit operator bool() const { return value != kNone; }
    constexpr size_t index() const { return value; }
    friend constexpr auto operator<=>(Id, Id) = default;
};

/// A vector that is indexed by one Id type only. Append-only by convention: ids stay valid.
template <class IdT, class T>
class IndexVector {
  public:
    IndexVector() = default;
    IndexVector(std::initializer_list<T> items) : items_(items) {}
    explicit IndexVector(size_t n, const T& v = T()) : items_(n, v) {}

    IdT push_back(T item) {
        items_.push_back(std::move(item));
        return IdT(items_.size() - 1);
    }
    T& operator[](IdT id) { return items_.at(id.index()); }
    const T& operator[](IdT id) const { return items_.at(id.index()); }
    size_t size() const { return items_.size(); }
    bool empty() const { return items_.empty(); }
    bool contains(IdT id) const { return id.index() < items_.size(); }
    void resize(size_t n) { items_.resize(n); }
    auto begin() { return items_.begin(); }
    auto end() { return items_.end(); }
    auto begin() const { return items_.begin(); }
    auto end() const { return items_.end(); }

    /// The ids in order, for `for (ValueId v : values.ids())`.
    std::vector<IdT> ids() const {
        std::vector<IdT> out;
        out.reserve(items_.size());
        for (size_t i = 0; i < items_.size(); ++i) out.push_back(IdT(i));
        return out;
    }

  private:
    std::vector<T> items_;
};

}  // namespace tilewright

template <class Tag>
struct std::hash<tilewright::Id<Tag>> {
    size_t operator()(tilewright::Id<Tag> id) const noexcept { return std::hash<uint32_t>()(id.value); }
};
