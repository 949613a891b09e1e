#include "ops/checked_values.h"

#include <fmt/format.h>

#include "opaque/operators.h"

namespace tilewright {

namespace {

/// Values that select fewer elements are checked on request only. A comparison takes a tenth of a nanosecond per
/// element, gathering 16 floats ten times as much.
constexpr int64_t kFewElements = 16;
/// Checking this many values takes less time than one step of a run.
constexpr int64_t kFewValues = 256;

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
    const auto op = opaque::checked_values(c.node.describe(), std::string(what));
    return c.b
        .emit_opaque(op, {v, c.b.int_values(std::move(lowest), bounds), c.b.int_values(std::move(highest), bounds)},
                     {{c.dtype(input), c.shape(input)}}, "checked")
        .front();
}

}  // namespace tilewright
