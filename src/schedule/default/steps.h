#pragma once
// The steps of choose_micro, in order. Each reads the operands' walks and the choices of earlier steps.

#include <optional>

#include "program/constant_transform.h"
#include "schedule/default/operand_walks.h"

namespace tilewright {

/// Vectors of a register tile for sums down the columns of a matrix.
inline constexpr int64_t kSummedVectors = 8;

/// Rows whose share of a left factor stays in L2 (StageChoice::keeps_left).
inline constexpr int64_t kKeptRows = 256;

/// Panels of a packed block (StageChoice::right_blocks): a row of it is several lines of its page.
inline constexpr int64_t kPackedPanels = 8;

/// Codes of a word of quantised weights, of two bits each.
inline constexpr int64_t kMostCodes = 16;

/// The vector axis. For a product it is the axis along which the result is contiguous, or the reduction axis where
/// packing an operand costs more; otherwise the cheapest axis by vector_cost. nullopt: scalar code.
std::optional<size_t> choose_vector_axis(const OperandWalks& w);

/// The vector axis of a constant-coefficient linear transform: the cheapest axis that is not one of the transform's
/// own.
std::optional<size_t> transform_vector_axis(const OperandWalks& w, const ConstantTransform& transform);

/// Chooses the whole micro-kernel of a product on tile registers (MatrixForm::Tile), and its copied operands. False,
/// with no change, where the target has none, or the product does not fit them (matrix_axes()).
bool choose_tile_micro(const OperandWalks& w, StageChoice& choice);
/// Likewise for MatrixForm::Dot.
bool choose_dot_micro(const OperandWalks& w, StageChoice& choice);

/// Sets Micro::registers and dependent fields (contraction, summed_rows, windows, transposed, strip). Requires
/// micro.lanes and micro.vector_axis.
void choose_register_tile(const OperandWalks& w, StageChoice& choice);

/// Unrolls small reduction windows completely: their bodies share loads.
void unroll_windows(const OperandWalks& w, StageChoice& choice);

/// Sets Micro::order, and the axis that threads split first.
void choose_loop_order(const OperandWalks& w, StageChoice& choice);

/// The operands of a product that are copied before use, to decide padding or to make lanes contiguous.
std::vector<size_t> choose_loads(const OperandWalks& w, size_t vector);

}  // namespace tilewright
