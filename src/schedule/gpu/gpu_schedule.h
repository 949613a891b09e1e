#pragma once
// Schedules for a GPU: the grid, the tiles of a block in shared memory, and the register tiles of warps or threads.
//
// A product's block has tiles of both operands in shared memory, copied in pipelined steps along the reduction, and
// accumulators in registers. Tiles, steps and pipeline depth are the best of all that fit shared memory, by a closed
// form of the cost model. Chains of products are searched as on a CPU (schedule/chain; rule 4 with the block's shared
// memory as capacity), and each candidate's tree then takes a GPU's micro-kernels and copies. A block of any other
// kernel has a few thousand points.

#include <optional>
#include <set>

#include "cost/target.h"
#include "schedule/chain/search.h"
#include "schedule/default_schedule.h"
#include "tile/tile.h"

namespace tilewright {

/// The type to which f32 operands of multiplications may be rounded, on matrix instructions. F32: none, on ordinary
/// cores. Operands that are f16 or bf16 in the model are multiplied in their type in any case, which is exact.
enum class Precision : uint8_t { F32, TF32, F16, BF16 };
std::string_view to_string(Precision p);
std::optional<Precision> precision_from_string(std::string_view name);

/// The schedule of a kernel of one stage, or of several that share rows (default_schedule.h), for `target.gpu`, as all
/// schedules here. Always succeeds. Buffers that exceed the block's shared memory are placed in memory by the code
/// generator.
TileProgram gpu_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                         const Target& target, Precision precision);

/// Up to `most` schedules of a kernel that is one product, ascending by estimate; empty for other kernels. The default
/// heuristic uses the first. A search that measures on a GPU may try more.
std::vector<TileProgram> gpu_product_schedules(const Program& stages, const Target& target, Precision precision,
                                               size_t most);

/// The schedule of a GEMM chain. Nothing where no candidate is legal and fits.
std::optional<TileProgram> gpu_chain_schedule(const chain::Chain& chain, const Target& target, Precision precision,
                                              const chain::SearchOptions& options);

/// Rule 4 before a tree exists: bytes of shared memory for a block of a chain's candidate. Equation 1 counts every tile
/// once. Here a tile that a product copies step by step counts twice (the next step is prefetched), copies in
/// sequential loops of a flat tiling share memory and count once, and tiles in registers of warps do not count.
class GpuChainBytes {
  public:
    explicit GpuChainBytes(const chain::Chain& chain);
    double operator()(const chain::Candidate& candidate) const;

  private:
    struct Tile {
        double element_bytes = 4;
        std::vector<IndexReach> reach;  ///< per dimension, over the axes of the stage that reads or computes it
        std::vector<size_t> axes;       ///< of that stage, numbers of kernel axes
        std::vector<size_t> moves;      ///< those of them along which it varies
        bool copied = false;            ///< an operand of a product that is an input; otherwise a product's result
        bool given = false;             ///< a result of the chain, stored where it is computed
        std::optional<size_t> reader;   ///< the tile that is the next product's result
    };
    static std::vector<int64_t> shape(const Tile& t, const std::vector<int64_t>& range);
    bool kept(const Tile& t, const std::vector<int64_t>& range) const;

    const chain::Chain& c_;
    std::vector<Tile> tiles_;
};

/// Split sums that are no products on tiles must be faster by this factor, by estimates that no measurement supports.
inline constexpr double kSplitMargin = 1.1;

// --- products

/// The roles of the axes of a product.
struct GpuProduct {
    size_t rows = 0, columns = 0, sum = 0;
    std::optional<MatrixType> matrix;  ///< none: on the ordinary cores
    bool group = false;                ///< on warpgroup instructions (WGMMA)
};
/// Nothing where no operand is reused along some axis, so that shared memory would not help. Columns are the axis along
/// which the result is contiguous, rows the longest axis of the other operand, and the sum the longest axis that both
/// share.
std::optional<GpuProduct> gpu_product(const Program& stages, const TensorExpr& e, ValueId out, Precision precision);
/// Whether warpgroup instructions can read the operands as Loads store them: tensors of the instruction's type, with
/// rows, columns and the sum each in one dimension, the contiguous one shifted by whole units of 16 bytes alone, and at
/// least the rows of one instruction and the sum of two.
/// `left_in_registers`: the left operand may be any f16 or bf16 value that the threads have in registers.
bool fits_group(const Program& stages, const TensorExpr& e, const GpuProduct& product, const GpuTarget& target,
                bool left_in_registers = false);
/// The product on warpgroup instructions. In tf32 these read the right operand along the sum alone. One that lies along
/// its columns becomes the left operand, which threads bring to registers (left_along_rows), where the other one lies
/// along the sum and the instruction takes them so: rows and columns change places.
///     c[m, n] = sum(k) a[m, k] * b[k, n]:  rows n, columns m
GpuProduct on_groups(const Program& stages, const TensorExpr& e, GpuProduct product, const GpuTarget& target);
/// Whether both operands are read as zeros behind the end of the sum, since the tensors end there. Warpgroup
/// instructions read whole steps: without these zeros, steps must divide the sum.
bool zeros_behind_sum(const Program& stages, const TensorExpr& e, const GpuProduct& product);
/// The axes along which a tile of a warpgroup's product has one point, since an operand has them between its rows and
/// its contiguous dimension, or in that one, and instructions read rows that lie side by side: w of x[h, w, c] with
/// rows h; the heads of x[rows, 64*head + c].
std::set<size_t> axes_inside_rows(const TensorExpr& e, const GpuProduct& product);

/// The axes of a program of one stage, without a statement.
TileProgram without_body(Program stages);
/// `body` in a loop of the grid.
std::vector<Stmt> in_parallel(size_t axis, int64_t step, std::vector<Stmt> body);

/// Schedules of a product of at most eight rows, a stage of its own, ascending by their estimates in seconds
/// (gpu_rows.cpp). Empty where its operands do not lie side by side along columns or the sum.
std::vector<std::pair<double, TileProgram>> gpu_row_schedules(const Program& stages, const Target& target);

/// How a block computes its tile of a product.
struct GpuTiles {
    int64_t rows = 64, columns = 64, sum = 32;  ///< of a block; `sum`: of a step
    int64_t warp_rows = 32, warp_columns = 32;  ///< of a warp or a warpgroup; of a thread on ordinary cores
    int stages = 1;
    int64_t part = 0;  ///< points of the sum in a block's part (split-K); 0: all
};
/// The micro-kernel of a product with these tiles.
Micro gpu_micro(const TensorExpr& e, const GpuProduct& product, const GpuTiles& tiles);

/// The copy of a product's operand to shared memory. Rows are padded or swizzled against bank conflicts. For ordinary
/// cores, elements that a thread reads together are contiguous. Nothing where the operand cannot be copied: it is
/// computed in the kernel, its conditions are not each on a single index, its indices are data-dependent, or its box
/// has no constant bound. `micro`: the product's micro-kernel if known; the width of swizzled rows of warpgroup
/// operands depends on it.
std::optional<Load> gpu_load(const TileProgram& program, PrimitiveId stage, size_t access, const GpuProduct& product,
                             const Micro* micro = nullptr);

}  // namespace tilewright
