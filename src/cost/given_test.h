#pragma once
// Optional results in tests.

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace tilewright {

/// The contained value. Throws std::logic_error with `what` if there is none, so the test fails.
template <class T>
T given(std::optional<T> x, const std::string& what = "") {
    if (!x) throw std::logic_error("nothing is there " + what);
    return std::move(*x);
}
template <class T>
const T& given(const std::shared_ptr<const T>& x, const std::string& what = "") {
    if (!x) throw std::logic_error("nothing is there " + what);
    return *x;
}

}  // namespace tilewright
