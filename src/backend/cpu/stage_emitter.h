#pragma once
// Code of one stage over a box: loops around a register tile, vectors along one axis.
//
// One generator emits contractions, convolutions, reductions, copies and elementwise code. They differ only in the axes
// on which each access depends. For a product with registers m=12 n=32 on 16 lanes the inner loop is
//
//     b0, b1 = load B[k, n .. n+31]          (depends on the vector axis: two vectors)
//     a_i    = load A[m+i, k]                (does not: a scalar, broadcast)         12 times
//     acc_i0 = fma(a_i, b0, acc_i0), acc_i1 = fma(a_i, b1, acc_i1)
//
// Every value is computed once per combination of the register coordinates that it depends on.

#include <llvm/IR/IRBuilder.h>

#include <optional>
#include <vector>

#include "backend/cpu/dot_unit.h"
#include "backend/cpu/expr_emitter.h"
#include "tile/tile.h"

namespace tilewright::cpu {

/// The memory of an operand or result.
struct Place {
    llvm::Value* base = nullptr;
    DType storage = DType::F32;
    std::vector<Expr> strides;     ///< per dimension, in elements
    std::vector<Expr> origin;      ///< subtracted from the index first (buffers); empty: zero
    std::optional<Layout> layout;  ///< layout of a buffer's box; `box` is then its logical shape
    std::vector<Expr> box;
    bool checked = false;                    ///< a Load has evaluated the access's conditions
    bool non_temporal = false;               ///< of a result: non-temporal stores; it is 64-byte aligned
    llvm::Value* non_temporal_if = nullptr;  ///< (i1) with `non_temporal`: a test of a dynamic size
    llvm::Value* final = nullptr;            ///< (i1) of an online maximum: if false, -inf reads as 0
    llvm::MDNode* scope = nullptr;           ///< alias scope of this memory
    llvm::MDNode* others = nullptr;          ///< scopes it does not alias
};

/// The current range of one axis of the stage.
struct AxisRange {
    llvm::Value* lo = nullptr;
    llvm::Value* extent = nullptr;
    std::optional<int64_t> constant_extent;
    std::optional<int64_t> most;  ///< upper bound of the extent, for a subrange of a dynamic axis
    int64_t lo_multiple = 1;      ///< lo is a multiple of this (0: lo is 0)
    Expr total;                   ///< extent of the whole axis
    bool full = true;             ///< the range is the whole axis
    bool to_end = true;           ///< the range's length is a multiple of lo_multiple, or it ends at the axis' end
};

struct StageJob {
    const TensorExpr* expr = nullptr;
    const Micro* micro = nullptr;
    std::vector<AxisRange> ranges;
    std::vector<Place> accesses;  ///< one per access of expr
    Place out;
    std::optional<Place> partial_sums;  ///< of tile registers, indexed by partial_sum_axes(); absent: in `out`
    std::optional<Place> correction;    ///< of an online maximum: receives exp(old - new), indexed as `out`
    std::optional<size_t> rescale;      ///< access of `expr` whose element scales the partial sums
    int vector_bits = 256;              ///< of a register
    bool emulated_tiles = false;        ///< tile registers of bf16 are memory (tile_unit.h)
    bool emulated_byte_tiles = false;   ///< tile registers of bytes are
    bool emulated_dots = false;         ///< dot products of bf16 are multiply-adds (dot_unit.h)
    bool emulated_f16 = false;          ///< those of f16 are multiply-adds in f32, and rounded
    ByteDots byte_dots = ByteDots::Emulated;
    bool byte_permutations = false;  ///< an instruction reads 128 bytes at 64 positions (AVX512_VBMI)
};

/// Emits the stage at the builder's insertion point and leaves the builder after it. `vars` holds bindings of symbols,
/// scalars and the variables of `Place::origin`; the stage's axes are bound in a copy.
void emit_stage(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job);

/// Emits for (iv = lo; iv < hi; iv += step) body(iv), or body(lo) alone if there is exactly one iteration at compile
/// time. `tail`: the loop is marked by mark_tail_loop.
void emit_loop(llvm::IRBuilder<>& b, llvm::Value* lo, llvm::Value* hi, int64_t step,
               const std::function<void(llvm::Value*)>& body, const char* name, bool tail = false);
/// Likewise, with a step that may be known at run time alone.
void emit_loop(llvm::IRBuilder<>& b, llvm::Value* lo, llvm::Value* hi, llvm::Value* step,
               const std::function<void(llvm::Value*)>& body, const char* name, bool tail = false);

}  // namespace tilewright::cpu
