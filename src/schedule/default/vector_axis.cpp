// The vector axis of a micro-kernel.

#include <algorithm>
#include <cmath>
#include <set>

#include "schedule/default/steps.h"

namespace tilewright {

namespace {

/// Relative cost of one element of an operand with vector axis `a`. A contiguous operand costs a lane's share, an
/// in-register transpose some shuffles, a stride of s between lanes s loads and s - 1 shuffles, others a gather.
double operand_cost(const OperandWalks& w, const OperandWalk& operand, size_t a) {
    const int lanes = w.target.micro_lanes();
    if (!operand.depends(a)) return 0.25 / lanes;
    if (operand.unit(a)) return 1.0 / lanes;
    if (w.transposed_axis(operand, a)) return 6.0 / lanes;
    if (operand.spread(a)) return static_cast<double>(2 * operand.spread(a) - 1) / lanes;
    return 1.5;
}

/// Relative cost of one element of what the expression reads, with vector axis `a`. Of a choice by indices alone (the
/// parts of a concatenation) one side is read. Nodes follow their operands, and each is visited once; long bodies are
/// not looked into.
double operands_cost(const OperandWalks& w, size_t a) {
    constexpr size_t kMostNodes = 64;
    const ScalarBody& body = w.e.body;
    double all = 0;
    for (const OperandWalk& operand : w.walks)
        if (!operand.result) all += operand_cost(w, operand, a);
    if (w.e.reducer != Reducer::None || body.nodes().size() > kMostNodes) return all;
    IndexVector<ScalarId, std::set<uint32_t>> reads(body.nodes().size());
    IndexVector<ScalarId, double> cost(body.nodes().size());
    for (const ScalarId id : body.nodes().ids()) {
        const ScalarNode& n = body[id];
        if (n.op == ScalarOp::Access) reads[id].insert(n.slot);
        for (const ScalarId operand : {n.a, n.b, n.c})
            if (operand) reads[id].insert(reads[operand].begin(), reads[operand].end());
        if (n.op == ScalarOp::Select && reads[n.a].empty())
            cost[id] = std::max(cost[n.b], cost[n.c]);
        else
            for (const uint32_t slot : reads[id]) cost[id] += operand_cost(w, w.walks[slot], a);
    }
    return cost[body.root()];
}

/// Relative cost of one element of the expression with vector axis `a`.
double vector_cost(const OperandWalks& w, size_t a) {
    const int lanes = w.target.micro_lanes();
    const auto extent = static_cast<double>(w.extent(a));
    const double waste = std::ceil(extent / lanes) * lanes / extent;
    double cost = 0.5 / lanes + operands_cost(w, a);  // of the arithmetic, and of reading
    if (a >= w.e.spatial)
        // A result is written once per reduction. A reduced vector axis costs it a few shuffles.
        cost += 8.0 / w.sum_points();
    else
        cost += (w.result().unit(a) ? 1.0 / lanes : w.interleaved_axis(a) ? 3.0 / lanes : 1.5) / w.sum_points();
    return cost * waste;
}

/// A reduction axis as the vector axis of a product whose result would be contiguous along `along`. Whole vectors of
/// products are added, and their lanes once at the end.
///
/// It is chosen for a long reduction whose computed operand is contiguous along the reduction rather than the result,
/// where packing would cost more: three output planes from 32 contiguous channels with 9 x 9 windows would pack the
/// pixels again for every row of windows. It is also chosen for an operand that is read only once, which is not packed:
/// the keys of a single query.
std::optional<size_t> summed_vector_axis(const OperandWalks& w, size_t along) {
    const int lanes = w.target.micro_lanes();
    const double sum = w.sum_points();
    if (sum < lanes) return std::nullopt;
    const auto packable = [&](uint32_t slot) { return w.stages.is_constant(w.e.accesses[slot].value); };
    double points = 1;
    for (size_t a = 0; a < w.axes(); ++a) points *= static_cast<double>(w.extent(a));
    const bool packing_costs_more = std::any_of(w.slots.begin(), w.slots.end(), [&](uint32_t slot) {
        if (packable(slot) || !w.walks[slot].depends(along) || w.walks[slot].unit(along)) return false;
        const double reads = points / w.elements(slot);
        return sum >= 64.0 * lanes || reads < 4;
    });
    if (!packing_costs_more) return std::nullopt;
    for (size_t r = w.axes(); r-- > w.e.spatial;) {
        if (!w.fixed(r) || w.e.extents[r].constant() % lanes != 0) continue;
        if (std::all_of(w.slots.begin(), w.slots.end(),
                        [&](uint32_t k) { return w.walks[k].unit(r) || (packable(k) && w.walks[k].depends(r)); }))
            return r;
    }
    return std::nullopt;
}

/// The innermost spatial axis along which the result of a product is contiguous. Operands that lack only contiguous
/// lanes are packed, as a transposed right operand.
std::optional<size_t> product_vector_axis(const OperandWalks& w) {
    for (size_t a = w.e.spatial; a-- > 0;)
        if (w.result().unit(a) && w.extent(a) >= w.target.micro_lanes() / 2) {
            const auto summed = summed_vector_axis(w, a);
            return summed ? summed : a;
        }
    return std::nullopt;
}

}  // namespace

std::optional<size_t> choose_vector_axis(const OperandWalks& w) {
    if (w.product)
        if (const auto axis = product_vector_axis(w)) return axis;
    std::optional<size_t> vector;
    // The cost of scalar code, two operands a cycle.
    double best = std::max(1.5, 0.5 * static_cast<double>(w.walks.size()));
    for (size_t a = 0; a < w.axes(); ++a) {
        if (w.too_short_for_lanes(a)) continue;
        const double cost = vector_cost(w, a);
        if (cost < best) {
            best = cost;
            vector = a;
        }
    }
    return vector;
}

std::optional<size_t> transform_vector_axis(const OperandWalks& w, const ConstantTransform& transform) {
    std::optional<size_t> best;
    double least = 0;
    for (size_t a = 0; a < w.e.spatial; ++a) {
        if (std::find(transform.rows.begin(), transform.rows.end(), a) != transform.rows.end()) continue;
        if (w.too_short_for_lanes(a)) continue;
        const double cost = vector_cost(w, a);
        if (best && cost >= least) continue;
        least = cost;
        best = a;
    }
    return best;
}

}  // namespace tilewright
