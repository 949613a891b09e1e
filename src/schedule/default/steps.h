#pragma once
// The steps of choose_micro, in their order. Each reads the operands' walks and what the steps before it have chosen.

#include <optional>

#include "program/constant_transform.h"
#include "schedule/default/operand_walks.h"

namespace tilewright {

/// Vectors of a register tile that sums down the columns of a matrix.
inline constexpr int64_t kSummedVectors = 8;

/// The vector axis: for a product the axis along which the result is contiguous, or the sum where packing an operand
/// costs more; else the cheapest axis by vector_cost. nullopt: scalar code.
std::optional<size_t> choose_vector_axis(const OperandWalks& w);

/// The vector axis of a constant-coefficient linear transform: none of the transform's own axes, the cheapest of the
/// others.
std::optional<size_t> transform_vector_axis(const OperandWalks& w, const ConstantTransform& transform);

/// Micro::registers and what follows from them (contraction, summed_rows, windows, transposed, strip): micro.lanes and
/// micro.vector_axis are given.
void choose_register_tile(const OperandWalks& w, StageChoice& choice);

/// Small reduction windows are unrolled whole: their bodies share loads.
void unroll_windows(const OperandWalks& w, StageChoice& choice);

/// Micro::order, and the axis that threads share out first.
void choose_loop_order(const OperandWalks& w, StageChoice& choice);

/// The operands of a product that are copied before use: padding decided, or lanes made contiguous.
std::vector<size_t> choose_loads(const OperandWalks& w, size_t vector);

}  // namespace tilewright
