// Operators that check what the data gives, and pass their inputs on.

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"
#include "program/text.h"

namespace tilewright {

namespace {

/// Position of the first element outside its bounds, given as `members` values that repeat; -1: none.
template <class T>
int64_t first_outside(const T* values, int64_t count, const int64_t* lowest, const int64_t* highest, int64_t members) {
    const auto outside = [&](int64_t i, int64_t m) { return values[i] < lowest[m] || values[i] > highest[m]; };
    if (members == 1) {
        bool any = false;  // branch-free, so that it vectorises
        const int64_t least = lowest[0], most = highest[0];
        for (int64_t i = 0; i < count; ++i)
            any |= static_cast<int>(values[i] < least) | static_cast<int>(values[i] > most);
        if (!any) return -1;
    }
    for (int64_t i = 0; i < count; ++i)
        if (outside(i, i % members)) return i;
    return -1;
}

/// (values, lowest, highest) -> values
class CheckedValues final : public OpaqueOp {
  public:
    CheckedValues(std::string node, std::string what) : node_(std::move(node)), what_(std::move(what)) {}
    std::string print() const override {
        return fmt::format("CheckedValues(node={}, what={})", name_text(node_), name_text(what_));
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &values = inputs[0], &lowest = inputs[1], &highest = inputs[2];
        const int64_t count = values.count(), members = lowest.count();
        const auto *low = lowest.as<int64_t>(), *high = highest.as<int64_t>();
        const bool wide = values.dtype == DType::I64;
        const int64_t at = wide ? first_outside(values.as<int64_t>(), count, low, high, members)
                                : first_outside(values.as<int32_t>(), count, low, high, members);
        if (at >= 0)
            throw ModelError(fmt::format("{}: {} {}, element {}, is outside [{}, {}]", node_, what_,
                                         wide ? values.as<int64_t>()[at] : values.as<int32_t>()[at], at,
                                         low[at % members], high[at % members]));
        const TensorView out = outputs.allocate(0, values.shape);
        if (count > 0) std::memcpy(out.data, values.data, static_cast<size_t>(count) * byte_size(values.dtype));
    }

  private:
    std::string node_, what_;
};

/// Passes its inputs on if the condition, its first input, has the expected value; else throws the given message.
class RequireCondition final : public OpaqueOp {
  public:
    RequireCondition(bool wanted, std::string message) : wanted_(wanted), message_(std::move(message)) {}
    std::string print() const override {
        return fmt::format("RequireCondition(wanted={}, message={})", wanted_ ? 1 : 0, name_text(message_));
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        if ((*inputs[0].as<uint8_t>() != 0) != wanted_) throw ModelError(message_);
        for (size_t k = 1; k < inputs.size(); ++k) {
            const TensorView out = outputs.allocate(k - 1, inputs[k].shape);
            const size_t bytes = static_cast<size_t>(out.count()) * byte_size(out.dtype);
            if (bytes > 0) std::memcpy(out.data, inputs[k].data, bytes);
        }
    }

  private:
    bool wanted_;
    std::string message_;
};

}  // namespace

namespace opaque {

Operator checked_values(std::string node, std::string what) {
    return std::make_shared<CheckedValues>(std::move(node), std::move(what));
}
Operator require_condition(bool wanted, std::string message) {
    return std::make_shared<RequireCondition>(wanted, std::move(message));
}

}  // namespace opaque

std::vector<OpaqueReader> checked_value_readers() {
    return {
        {"CheckedValues",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<CheckedValues>(t.text("node"), t.text("what"));
         }},
    };
}

std::vector<OpaqueReader> condition_readers() {
    return {
        {"RequireCondition",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<RequireCondition>(t.flag("wanted"), t.text("message"));
         }},
    };
}

}  // namespace tilewright
