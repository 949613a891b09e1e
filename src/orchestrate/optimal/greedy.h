#pragma once
// The plan of greedy orchestration, the start of the search. No plan that is selected costs more.

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/schedules.h"

namespace tilewright::optimal {

/// The layouts of a value besides row-major. The alternative layout is the one of greedy orchestration. For a value
/// that is fused away, it is propagated from its neighbours; for an input or output that is copied, it is the copy's.
struct ValueLayout {
    std::optional<Layout> second;
    std::string text;          ///< of `second`; empty: none
    bool at_boundary = false;  ///< the boundary layout is the alternative one (as in the greedy plan); false: row-major
    /// The alternative layout. Requires `second`.
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

/// Primitives of the unfused program that are one kernel in the greedy plan. Kernels that only copy an input or output
/// are not listed.
struct GreedyKernel {
    std::vector<PrimitiveId> members;  ///< ascending
    std::vector<PlacedValue> reads, writes;
};

struct GreedyPlan {
    std::vector<GreedyKernel> kernels;
    ValueLayouts layouts;
};

/// The result of the greedy passes for a program.
struct GreedyGroups {
    ChosenLayouts chosen;  ///< the fused program and its layouts; constants have no contents
    Grouped grouped;       ///< the program with layouts applied, and its kernels
};
GreedyPlan greedy_plan(const Program& program, const GreedyGroups& greedy);

}  // namespace tilewright::optimal
