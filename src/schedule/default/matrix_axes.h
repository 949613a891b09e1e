#pragma once
// Products of bf16 numbers or bytes whose operands lie as a CPU's matrix instructions read them.

#include <optional>

#include "schedule/default/operand_walks.h"
#include "tile/matrix.h"

namespace tilewright {

struct MatrixAxes {
    MatrixUnit unit;
    TileSlots slots;
    std::optional<size_t> outer_rows;  ///< shares the register tile with the rows
    int64_t step = 0;                  ///< products along the sum
    int64_t lanes = 0;                 ///< columns of a vector
};

/// The axes of a product for MatrixForm::Tile or Dot. nullopt: factors are neither bf16 nor U8 and I8, there is one
/// row, the columns do not fill a vector, the reduction is dynamic or has no step, or the right factor is neither
/// constant nor stored in groups along the sum (pairs_along_sum).
std::optional<MatrixAxes> matrix_axes(const OperandWalks& w, MatrixForm form);

/// Sets what does not depend on the register tile's extents: unit, vector axis, the step, the loop order with the sum
/// innermost, and the copy of a left operand with conditions.
void finish_matrix_micro(const OperandWalks& w, const MatrixAxes& axes, StageChoice& choice);

}  // namespace tilewright
