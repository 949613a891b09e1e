#include "tile/register_tile.h"

#include <algorithm>

namespace tilewright {

std::vector<int64_t> tail_sizes(int64_t tile) {
    constexpr int64_t kExact = 16;  // tiles of rows are not larger
    std::vector<int64_t> out;
    for (int64_t size = 1; size < tile; size += size < kExact ? 1 : size / 4) out.push_back(size);
    out.push_back(tile);
    return out;
}

std::vector<int64_t> half_tail_sizes(int64_t tile) { return tail_sizes((tile + 1) / 2); }

int64_t tail_step(int64_t points, int64_t largest) {
    if (points <= largest) return points;
    return points <= 2 * largest ? (points + 1) / 2 : largest;
}

bool between_lanes(const TensorExpr& e, size_t vector_axis, size_t axis_number) {
    if (!e.extents[axis_number].is_constant()) return false;
    return std::any_of(e.output_index.begin(), e.output_index.end(), [&](Expr i) {
        const auto lanes = linear_in(i, {VarKind::Axis, static_cast<uint32_t>(vector_axis)}),
                   points = linear_in(i, {VarKind::Axis, static_cast<uint32_t>(axis_number)});
        return lanes && points && points->coefficient.is_constant(1) &&
               lanes->coefficient.is_constant(e.extents[axis_number].constant()) && !lanes->coefficient.is_constant(1);
    });
}

bool in_blocks(const TensorExpr& e, size_t axis_number) {
    const Var self{VarKind::Axis, static_cast<uint32_t>(axis_number)};
    return e.reducer == Reducer::None && std::any_of(e.output_index.begin(), e.output_index.end(),
                                                     [&](Expr i) { return uses(i, self) && !linear_in(i, self); });
}

bool whole_tails(const Annotations& a, size_t axis, int64_t tile) {
    return std::all_of(a.tails.begin(), a.tails.end(), [&](const Tail& t) {
        return t.axis != axis || (t.border == 0 && !t.shift && t.sizes.back() == tile);
    });
}

Accumulators accumulators_for(std::optional<int64_t> steps) {
    constexpr int64_t kInFlight = 8, kMost = 4, kWorthIt = 16;
    if (steps && *steps < kWorthIt) return {};
    return {kMost, kInFlight};
}

}  // namespace tilewright
