#pragma once
// The layouts that each tensor of a program may have.

#include <set>
#include <utility>
#include <vector>

#include "orchestrate/joint/search.h"
#include "orchestrate/layouts.h"

namespace tilewright::joint {

/// A program without the copies that choose_layouts makes of inputs and outputs, and the heuristic's layout of each
/// value; of an input or output that it copies, the copy's.
struct RuleLayouts {
    Program program;
    IndexVector<ValueId, Layout> layouts;
    std::set<std::pair<PrimitiveId, ValueId>> not_copied;  ///< reads of inputs that have a copy, but not of the copy

    /// The layout in which a primitive reads or writes the value.
    Layout layout(PrimitiveId primitive, ValueId v) const {
        return not_copied.count({primitive, v}) != 0 ? Layout() : layouts[v];
    }
};
RuleLayouts without_copies(const ChosenLayouts& rule);

/// Per value, different layouts. The first is the heuristic's. Values that must be row-major at some point have that
/// layout as well.
using LayoutOptions = IndexVector<ValueId, std::vector<Layout>>;

/// A layout that a contraction proposes, and the seconds that it gains there, over all of its occurrences.
struct Proposal {
    ValueId value;
    Layout layout;
    double gain = 0;
    bool result = false;  ///< of the contraction; false: an operand
};
/// Adds the proposals that gain most, at most `most` layouts a value. Proposals are propagated (layout/propagate.h),
/// and those of `without` are left out.
LayoutOptions layout_options(const RuleLayouts& rule, const std::vector<Proposal>& proposals, size_t most,
                             Ablation without = Ablation::None);

}  // namespace tilewright::joint
