#pragma once
// Contractions on matrix instructions: the shape of an instruction, and the expressions that it computes.

#include <optional>
#include <string>

#include "tile/tile.h"

namespace tilewright {

// The shape of mma.sync for sm_80 and newer (PTX ISA, "Warp-level matrix instructions"): 16 x 8 results.
inline constexpr int64_t kMatrixRows = 16, kMatrixColumns = 8;
/// Rows of a warpgroup instruction, wgmma ("Asynchronous warpgroup level matrix instructions").
inline constexpr int64_t kGroupRows = 64;
inline int64_t matrix_rows(const MatrixUnit& unit) { return unit.group() ? kGroupRows : kMatrixRows; }
/// Reduction length of one instruction: 8 for tf32, 16 for f16 and bf16.
int64_t matrix_sum(MatrixType t);

/// Bytes of an operand's element on a CPU.
inline int64_t matrix_bytes(MatrixType t) { return t == MatrixType::I8 ? 1 : 2; }
/// Elements along the sum that lie together and that one lane adds up: those of 4 bytes.
inline int64_t dot_step(MatrixType t) { return 4 / matrix_bytes(t); }

/// Elements along the sum of one step of dot products in f16, at most: a lane adds up 32 products in f16 (AVX512_FP16),
/// and the sum of a step joins one in f32. Twice as many would be 1.1 times as fast, with twice the
/// bound of the error (docs/codegen.md, numerics.md).
inline constexpr int64_t kF16Step = 64;
/// Elements along the sum of a step of dot products: dot_step(); in f16 the largest divisor of the extent in multiples
/// of it, up to kF16Step. 0: none divides the extent.
int64_t dot_products_step(int64_t extent, MatrixType type);

/// Whether a kernel adds up products of f16 in f16.
bool sums_in_f16(const TileProgram& program);

// Tile registers of CPUs (Intel AMX): eight of 16 rows of 64 bytes. A product adds to 16 x 16 sums of f32 the products
// of 16 rows of 32 elements and of 16 pairs x 16 columns, two elements of 2 bytes each; of bytes, to sums of 32-bit
// integers those of 16 rows of 64 elements and of 16 groups of four x 16 columns.
inline constexpr int64_t kTileRegisters = 8, kTileRows = 16, kTileColumns = 16;
inline constexpr int64_t kTileRowBytes = 64;
/// Elements of a row of a tile register.
inline int64_t tile_sum(MatrixType t) { return kTileRowBytes / matrix_bytes(t); }

/// The tile registers of a register tile: accumulators are `rows` x `columns` of them, each of `height` rows at most.
///     28 rows, 32 columns: 2 x 2 accumulators of 14 rows
struct TileGrid {
    int64_t rows = 1, columns = 1, height = 1;
    /// Accumulators, the left operands of all rows, and one right operand fit the registers.
    bool fits() const { return rows * columns + rows + 1 <= kTileRegisters; }
};
/// Tile registers of a micro-kernel with MatrixForm::Tile whose register tile has these extents per axis.
TileGrid tile_grid(const TensorExpr& e, const Micro& micro);

/// The products of a step along a sum of this extent: the largest divisor of whole groups (dot_step) that fits a tile
/// register; 0: none fills a quarter of it.
int64_t tile_step(int64_t extent, MatrixType type);

/// The factors of a product with MatrixForm::Tile or Dot, as accesses.
struct TileSlots {
    uint32_t left = 0, right = 0;
};
std::optional<TileSlots> tile_slots(const TensorExpr& e, const MatrixUnit& unit);
/// Whether the left factor has runs of `step` contiguous elements along the sum; of tile registers, also rows a uniform
/// stride apart.
bool runs_along_sum(const Program& stages, const TensorExpr& e, uint32_t slot, const MatrixUnit& unit, int64_t step);
/// Whether the right factor has groups of `dot_step` elements along the sum, `lanes` columns of them contiguous:
/// [k / 2, n, k % 2], in bytes [k / 4, n, k % 4] ("VNNI").
bool pairs_along_sum(const Program& stages, const TensorExpr& e, uint32_t slot, const MatrixUnit& unit, int64_t lanes);
/// Why the operands in memory of a Compute with MatrixForm::Tile or Dot do not fit it; empty: they do.
std::string matrix_operand_fault(const TileProgram& program, const Compute& compute);

/// The two factors of a contraction: nodes of the expression's body. `left` depends on the rows.
struct MatrixFactors {
    ScalarId left, right;
};
/// Returns nothing unless the expression is a sum of products of f32 numbers (for MatrixType::I8, of 32-bit integers),
/// in which one factor depends on the rows and the other on the columns only. A factor may be any expression; it is
/// evaluated before the multiplication.
///     sum_k relu(x[m,k]) * w[n,k], rows m, columns n:  left relu(x[m,k]), right w[n,k]
std::optional<MatrixFactors> matrix_factors(const TensorExpr& e, const MatrixUnit& unit);

/// Whether the left operand of a warpgroup's tf32 product is a tensor that lies along the rows, not along the sum:
/// instructions do not read such floats in shared memory (wgmma has no transposed operands of 32 bits), so threads
/// bring them to registers.
bool left_along_rows(const TensorExpr& e, const MatrixUnit& unit);

}  // namespace tilewright
