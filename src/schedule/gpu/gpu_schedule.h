#pragma once
// Schedules for a GPU: what a block of the grid does, what lies in its shared memory, what a warp or a thread has in
// its registers.
//
// A product's block has tiles of both operands in shared memory, copied in steps along the sum that run ahead, and the
// sums in registers; tiles, steps and stages are the best of all whose shared memory fits, by a closed form of the
// model. Chains of products are searched as on a CPU (schedule/chain; rule 4 with the block's shared memory as
// capacity), each candidate's tree then taking a GPU's micro-kernels and copies. Everything else gives a block a few
// thousand points.

#include <optional>

#include "cost/target.h"
#include "schedule/chain/search.h"
#include "schedule/default_schedule.h"
#include "tile/tile.h"

namespace tilewright {

/// What multiplications may round f32 operands to, on matrix instructions; F32: nothing, on the ordinary cores.
/// Operands that are f16 or bf16 in the model are multiplied as such in any case: that is exact.
enum class Precision : uint8_t { F32, TF32, F16, BF16 };
std::string_view to_string(Precision p);
std::optional<Precision> precision_from_string(std::string_view name);

/// All of these are for `target.gpu`.
///
/// For a kernel of one stage, or of several that share rows (default_schedule.h). Always succeeds; what does not fit
/// the block's shared memory is left to the generator, which puts it in memory.
TileProgram gpu_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                         const Target& target, Precision precision);

/// The best tiles by the model of a kernel that is one product, best first, `most` of them; none: it is no product. The
/// default heuristic takes the first; a search that measures on a GPU may try more.
std::vector<TileProgram> gpu_product_schedules(const Program& stages, const Target& target, Precision precision,
                                               size_t most);

/// For a kernel of several products. Nothing where no candidate is legal and fits.
std::optional<TileProgram> gpu_chain_schedule(const chain::Chain& chain, const Target& target, Precision precision,
                                              const chain::SearchOptions& options);

/// Rule 4 before there is a tree: bytes of shared memory that a block of a chain's candidate needs. Equation 1
/// counts every tile once; here a tile that a product copies step by step counts twice, as the next step's is on its
/// way, what flat tilings copy behind each other counts once, and what warps keep in their registers not at all.
class GpuChainBytes {
  public:
    explicit GpuChainBytes(const chain::Chain& chain);
    double operator()(const chain::Candidate& candidate) const;

  private:
    struct Tile {
        double element_bytes = 4;
        std::vector<IndexReach> reach;  ///< per dimension, over the axes of the stage that reads or makes it
        std::vector<size_t> axes;       ///< of the kernel, of that stage
        std::vector<size_t> moves;      ///< those it moves along
        bool copied = false;            ///< an operand of a product that is an input; else a product's result
        bool given = false;             ///< a result of the chain's: it is written where it is made
        std::optional<size_t> reader;   ///< the tile that is the next product's result
    };
    static std::vector<int64_t> shape(const Tile& t, const std::vector<int64_t>& range);
    bool kept(const Tile& t, const std::vector<int64_t>& range) const;

    const chain::Chain& c_;
    std::vector<Tile> tiles_;
};

// --- products

/// Which axes of a product are what.
struct GpuProduct {
    size_t rows = 0, columns = 0, sum = 0;
    std::optional<MatrixType> matrix;  ///< none: on the ordinary cores
    bool group = false;                ///< on warpgroup instructions (WGMMA)
};
/// Nothing where no operand is used again along some axis: there is nothing to keep in shared memory. Columns are what
/// lies side by side in the result; rows the longest axis of the other operand; the sum the longest that both share.
std::optional<GpuProduct> gpu_product(const Program& stages, const TensorExpr& e, ValueId out, Precision precision);
/// Whether warpgroup instructions can read its operands where Loads put them: tensors of the instruction's
/// type, rows, columns and the sum each by itself in one dimension, whole instructions of rows and of the sum.
/// `left_in_registers`: the left one may be anything else, of halves: the threads that need its elements have them.
bool fits_group(const Program& stages, const TensorExpr& e, const GpuProduct& product, const GpuTarget& target,
                bool left_in_registers = false);

/// How a block computes its tile of a product.
struct GpuTiles {
    int64_t rows = 64, columns = 64, sum = 32;  ///< of a block, a step along the sum
    int64_t warp_rows = 32, warp_columns = 32;  ///< of a warp, or of four; of a thread on the ordinary cores
    int stages = 1;
};
/// The micro-kernel of a product with these tiles.
Micro gpu_micro(const TensorExpr& e, const GpuProduct& product, const GpuTiles& tiles);

/// The copy of an operand of a product to shared memory: rows that lie on different banks, and for the ordinary cores
/// side by side along what a thread reads together. Nothing where it can be no copy: an operand made in the kernel,
/// conditions that no single index decides, indices from memory, boxes without a constant bound. `micro`: of the
/// product, where it is known; the width of swizzled rows of warpgroup operands depends on it.
std::optional<Load> gpu_load(const TileProgram& program, PrimitiveId stage, size_t access, const GpuProduct& product,
                             const Micro* micro = nullptr);

}  // namespace tilewright
