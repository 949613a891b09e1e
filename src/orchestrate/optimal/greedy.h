#pragma once
// The plan of greedy orchestration as the start of the search: no plan that is selected costs more.

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// Layouts that a value may have beside the row-major one: that which the greedy rule gives it. Where that fuses the
/// value away, what spreads to it from those around it; where it copies an input or an output, the copy's.
struct ValueLayout {
    std::optional<Layout> second;
    std::string text;          ///< of it; empty: none
    bool at_boundary = false;  ///< values at a piece's ends have that layout (greedy's); false: row-major
    /// `second`, which there must be.
    const Layout& other() const {
        TW_CHECK(second, "a value has one layout");
        return *second;
    }
};
using ValueLayouts = IndexVector<ValueId, ValueLayout>;

/// A value in one of its layouts.
struct PlacedValue {
    ValueId value;
    bool second = false;
    friend auto operator<=>(const PlacedValue&, const PlacedValue&) = default;
};

/// Primitives of the unfused program that the greedy rule makes one kernel. Kernels that only copy an input or an
/// output are not listed.
struct GreedyKernel {
    std::vector<PrimitiveId> members;  ///< ascending
    std::vector<PlacedValue> reads, writes;
};

struct GreedyPlan {
    std::vector<GreedyKernel> kernels;
    ValueLayouts layouts;
};

/// What the greedy passes made of a program.
struct GreedyGroups {
    ChosenLayouts chosen;  ///< fused, and what lies how; constants have no contents
    Grouped grouped;       ///< laid out, and its kernels
};
GreedyPlan greedy_plan(const Program& program, const GreedyGroups& greedy);

}  // namespace tilewright::optimal
