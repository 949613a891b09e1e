// The loop order of a micro-kernel.

#include <algorithm>
#include <cmath>

#include "cost/cache_sets.h"
#include "program/analysis/dynamic.h"
#include "schedule/default/steps.h"

namespace tilewright {

namespace {

/// Axes along which both operands of a product and its result vary.
std::vector<size_t> batch_axes(const OperandWalks& w) {
    std::vector<size_t> out;
    for (size_t a = 0; a < w.e.spatial; ++a)
        if (!w.e.extents[a].is_constant(1) && w.result().depends(a) &&
            std::all_of(w.slots.begin(), w.slots.end(), [&](uint32_t k) { return w.walks[k].depends(a); }))
            out.push_back(a);
    return out;
}

/// Whether a batch axis is one of channel groups: each row of the broadcast operand holds all groups contiguously, and
/// the weights of all groups stay in L2.
bool is_group_axis(const OperandWalks& w, const Micro& micro, size_t batch) {
    const size_t vector = *micro.vector_axis;
    bool inside = false;
    double weights = 0;
    for (const uint32_t k : w.slots) {
        const OperandWalk& operand = w.walks[k];
        if (operand.depends(vector)) {
            weights += static_cast<double>(w.element_bytes(k)) * w.elements(k);
            continue;
        }
        if (!operand.stride(batch)) continue;
        for (size_t a = 0; a < w.e.spatial; ++a)
            if (a != vector && micro.registers[a] > 1 && operand.depends(a) && operand.stride(a))
                inside = inside || std::abs(*operand.stride(batch)) < std::abs(*operand.stride(a));
    }
    return inside && weights <= static_cast<double>(w.target.task_bytes()) / 8;
}

/// Whether the windows of all channels of a plane read and write far more than L2 holds. Batches do not count: their
/// loop is outside.
bool plane_exceeds_l2(const OperandWalks& w, size_t vector) {
    std::vector<int64_t> plane;
    auto bytes = static_cast<double>(byte_size(w.out_type));
    for (size_t a = 0; a < w.axes(); ++a) {
        const bool counts = a == vector || a >= w.e.spatial || w.slides(a);
        plane.push_back(counts ? w.extent(a) : 1);
        if (a < w.e.spatial) bytes *= static_cast<double>(plane.back());
    }
    for (const Access& a : w.e.accesses) bytes += static_cast<double>(box_bytes(w.stages, a, plane));
    return bytes > 2.5 * static_cast<double>(w.target.task_bytes());
}

/// The operand's strides where a stage only moves contiguous runs of memory (heads of an attention). Loops in the
/// operand's order keep the hardware's prefetch streams going, and the place of completely written lines does not
/// matter: 2.5 times as fast as in the order of the result, measured.
std::optional<std::vector<int64_t>> copied_strides(const OperandWalks& w, std::optional<size_t> vector) {
    if (!vector || *vector >= w.e.spatial || w.e.reducer != Reducer::None || w.e.accesses.size() != 1)
        return std::nullopt;
    if (!w.walks[0].unit(*vector) || !w.walks[1].unit(*vector)) return std::nullopt;
    std::vector<int64_t> strides;
    for (size_t a = 0; a < w.axes(); ++a) {
        const auto stride = w.walks[0].stride(a);
        if (!stride) return std::nullopt;
        strides.push_back(std::abs(*stride));
    }
    return strides;
}

/// Of the result, by axis; nothing where one is not known.
std::optional<std::vector<int64_t>> result_strides(const OperandWalks& w) {
    std::vector<int64_t> strides;
    for (size_t a = 0; a < w.e.spatial; ++a) {
        const std::optional<Expr>& s = w.result().strides[a];
        if (!s) return std::nullopt;
        strides.push_back(std::abs(assumed_value(*s, w.stages.assumed)));
    }
    return strides;
}

/// Loops in the order of memory, the vectors innermost.
void order_by(const std::vector<int64_t>& strides, size_t vector, std::vector<size_t>& order) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return a != vector && (b == vector || strides[a] > strides[b]); });
}

/// Vectors whose lanes are apart in the result write parts of lines, as scalar code does: twelve channels, channels
/// last, along rows of pixels. The loops finish a row of the result before the next, so that its lines are in L1 for
/// all of their parts and in one task only.
///     12 planes of 208 x 208 into channels last, two threads of Zen 2: 2.4 ms plane by plane, 0.3 row by row
void order_scattered(const OperandWalks& w, StageChoice& choice) {
    const std::optional<size_t> vector = choice.micro.vector_axis;
    if (w.target.gpu || w.e.reducer != Reducer::None || choice.transposed || choice.strip) return;
    if (vector && (w.result().unit(*vector) || !w.result().depends(*vector) || w.interleaved_axis(*vector))) return;
    auto strides = result_strides(w);
    if (!strides) return;
    if (vector) {
        const int64_t row = w.extent(*vector) * (*strides)[*vector] * byte_size(w.out_type);
        if (row <= l1_bytes(w.target) / 2) (*strides)[*vector] = 0;
    }
    std::vector<size_t>& order = choice.micro.order;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*strides)[a] > (*strides)[b]; });
    const auto outer =
        std::find_if(order.begin(), order.end(), [&](size_t a) { return !w.e.extents[a].is_constant(1); });
    if (outer != order.end() && *outer != vector) choice.shared = *outer;
}

/// Elementwise stages whose results are contiguous along the vectors write them in their order in memory: axes are in
/// the order of the operator, and its layout may be another one.
///     Resize to 128 x 128 x 256, channels last: vector by vector of each pixel, not all pixels of a vector
void order_elementwise(const OperandWalks& w, StageChoice& choice) {
    const std::optional<size_t> vector = choice.micro.vector_axis;
    if (w.target.gpu || w.e.reducer != Reducer::None || choice.transposed || choice.strip) return;
    if (!vector || *vector >= w.e.spatial || !w.result().unit(*vector)) return;
    if (const auto strides = result_strides(w)) order_by(*strides, *vector, choice.micro.order);
}

bool contains(const std::vector<size_t>& axes, size_t a) {
    return std::find(axes.begin(), axes.end(), a) != axes.end();
}

/// The other axes of the operand that moves along the vectors, in the order in which its panels are packed.
std::vector<size_t> outer_columns(const OperandWalks& w, size_t vector) {
    std::vector<size_t> out;
    for (size_t a = 0; a < w.e.spatial; ++a)
        if (a != vector && std::all_of(w.slots.begin(), w.slots.end(),
                                       [&](uint32_t k) { return w.walks[k].depends(a) == w.walks[k].depends(vector); }))
            out.push_back(a);
    return out;
}

/// Loops over panels are outside of rows, so that a panel of the right operand serves all rows. Batches, along which
/// both operands vary, are outside of panels: one matrix after the other. Channel groups are inside of rows.
///     16 heads of 17 x 16 x 16384: 2.9 ms in place of 4.6; 24 groups of 16 channels, 16384 pixels: 5.2 of 8.4
void order_product(const OperandWalks& w, StageChoice& choice) {
    Micro& micro = choice.micro;
    const size_t vector = *micro.vector_axis;
    std::vector<size_t> groups;
    for (const size_t a : batch_axes(w)) (is_group_axis(w, micro, a) ? groups : micro.order).push_back(a);
    if (micro.matrix && micro.matrix->tile())
        for (const size_t a : outer_columns(w, vector)) micro.order.push_back(a);
    micro.order.push_back(vector);
    for (size_t a = 0; a < w.e.spatial; ++a)
        if (!contains(micro.order, a) && !contains(groups, a)) micro.order.push_back(a);
    if (!groups.empty() && micro.order.back() != vector) choice.shared = micro.order.back();
    micro.order.insert(micro.order.end(), groups.begin(), groups.end());
}

/// A vector of channels over the whole plane keeps its weights in registers, but touches only one line of each pixel.
/// Where the plane is read from memory, all channels of a tile of windows are computed before the next tile, so that
/// lines are read in order. (128 channels of 512 x 512 pixels, 3 x 3: 8.7 ms instead of 20; of 14 x 14: a fifth
/// slower.)
void order_windows(const OperandWalks& w, StageChoice& choice) {
    if (!choice.windows || !plane_exceeds_l2(w, *choice.micro.vector_axis)) return;
    std::vector<size_t>& order = choice.micro.order;
    const size_t vector = *choice.micro.vector_axis;
    const auto at = std::find(order.begin(), order.end(), *choice.windows);
    const auto channels = std::find(order.begin(), at, vector);
    if (channels != at) {
        order.erase(channels);
        order.push_back(vector);
    }
    choice.shared = choice.windows;
}

/// Products whose lanes are summed read the operand that no cache has in the order in which it lies: all heads of a
/// token's keys, then the next token's.
///     keys [1025, 3, 64] from memory, three queries for each head: 56 us, packed 125
void order_stream(const OperandWalks& w, StageChoice& choice) {
    if (!choice.micro.vector_axis || *choice.micro.vector_axis < w.e.spatial) return;
    std::optional<uint32_t> largest;
    for (const uint32_t slot : w.slots)
        if (w.stages.residence(w.e.accesses[slot].value) == Residence::Memory &&
            (!largest || w.elements(slot) > w.elements(*largest)))
            largest = slot;
    if (!largest) return;
    const auto stride = [&](size_t a) {
        const std::optional<Expr>& s = w.walks[*largest].strides[a];
        return s ? std::abs(assumed_value(*s, w.stages.assumed)) : 0;
    };
    std::stable_sort(choice.micro.order.begin(), choice.micro.order.end(),
                     [&](size_t a, size_t b) { return a < w.e.spatial && b < w.e.spatial && stride(a) > stride(b); });
}

/// Reduction axes. Those of a product end with the one along which the broadcast operand is contiguous.
std::vector<size_t> reduction_order(const OperandWalks& w, const StageChoice& choice) {
    std::vector<size_t> reductions;
    for (size_t a = w.e.spatial; a < w.axes(); ++a) reductions.push_back(a);
    if (!choice.contraction) return reductions;
    const auto broadcast_stride = [&](size_t a) {
        for (const OperandWalk& operand : w.walks)
            if (!operand.result && operand.strides[a] && operand.depends(a) &&
                !operand.depends(*choice.micro.vector_axis))
                return operand.stride(a) ? std::abs(*operand.stride(a)) : INT64_MAX / 2;
        return int64_t{1};
    };
    std::stable_sort(reductions.begin(), reductions.end(),
                     [&](size_t a, size_t b) { return broadcast_stride(a) > broadcast_stride(b); });
    return reductions;
}

}  // namespace

void choose_loop_order(const OperandWalks& w, StageChoice& choice) {
    Micro& micro = choice.micro;
    const std::optional<size_t> vector = micro.vector_axis;
    if (choice.contraction) {
        order_product(w, choice);
    } else {
        for (size_t a = 0; a < w.e.spatial; ++a)
            if (!choice.strip || (a != *choice.transposed && a != vector)) micro.order.push_back(a);
        if (choice.strip) micro.order.insert(micro.order.end(), {*choice.transposed, *vector});
    }
    order_windows(w, choice);
    order_scattered(w, choice);
    order_elementwise(w, choice);
    if (const auto strides = copied_strides(w, vector)) order_by(*strides, *vector, micro.order);
    if (w.product) order_stream(w, choice);
    const std::vector<size_t> reductions = reduction_order(w, choice);
    micro.order.insert(micro.order.end(), reductions.begin(), reductions.end());
}

}  // namespace tilewright
