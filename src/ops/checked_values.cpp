#include "ops/checked_values.h"

#include <fmt/format.h>

#include <cstring>

#include "ops/opaque_text.h"
#include "program/text.h"

namespace tilewright {

namespace {

/// Values that select fewer elements are checked on request only. A comparison takes a tenth of a nanosecond per
/// element, gathering 16 floats ten times as much.
constexpr int64_t kFewElements = 16;
/// Checking this many values takes less time than one step of a run.
constexpr int64_t kFewValues = 256;

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

}  // namespace

ValueId checked_values(NodeContext& c, size_t input, Expr lowest, Expr highest, std::string_view what, Expr elements) {
    return checked_values(c, input, std::vector{lowest}, std::vector{highest}, what, elements);
}

ValueId checked_values(NodeContext& c, size_t input, std::vector<Expr> lowest, std::vector<Expr> highest,
                       std::string_view what, Expr elements) {
    const ValueId v = c.in(input);
    if (const auto known = c.b.int_contents(v)) {
        for (size_t i = 0; i < known->size(); ++i) {
            const Expr e = (*known)[i];
            const std::string outside =
                fmt::format("{} {} is outside [{}, {}]", what, e.text(), lowest[i % lowest.size()].text(),
                            highest[i % highest.size()].text());
            if (!e.is_constant() && !c.b.check_values) continue;
            c.b.require_at_least(e, lowest[i % lowest.size()], outside, fmt::format("{} and least {}", what, what));
            c.b.require_at_least(highest[i % highest.size()], e, outside, fmt::format("largest {} and {}", what, what));
        }
        return v;
    }
    const Expr count = c.b.count(v);
    const bool cheap = !elements.is_constant() || elements.constant() >= kFewElements ||
                       (count.is_constant() && count.constant() <= kFewValues);
    const bool constant = c.b.contents(v) != nullptr;  // too many elements to be stored as expressions
    if (!constant && !c.b.check_values && !(cheap && c.is_checked_input(input))) return v;
    const Dims bounds = {static_cast<int64_t>(lowest.size())};
    const auto op = std::make_shared<CheckedValues>(c.node.describe(), std::string(what));
    return c.b
        .emit_opaque(op, {v, c.b.int_values(std::move(lowest), bounds), c.b.int_values(std::move(highest), bounds)},
                     {{c.dtype(input), c.shape(input)}}, "checked")
        .front();
}

std::vector<OpaqueReader> checked_value_readers() {
    return {
        {"CheckedValues",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<CheckedValues>(t.text("node"), t.text("what"));
         }},
    };
}

}  // namespace tilewright
