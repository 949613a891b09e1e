#pragma once
// TileProgram: how one kernel runs. A tree of loops over tiles of the kernel's axes, with Load, Compute and Store
// statements placed in it (MCFuser §III; the tiling expression of the paper is the tree's one-line text).
//
// What it computes is a small Program of its own, `stages`: values are the kernel's operands and results with their
// *physical* shapes (layouts already applied to the index maps), primitives are tensor expressions with at most one
// reduction each. interpret(stages) is therefore the reference for every schedule of the kernel.
//
// Axes that index maps identify across stages are one axis of the kernel. A matrix product C = A B, tiles 96 x 64:
//
//     axes m=512 n=768 k=3072
//     parallel m by 96 { parallel n by 64 { compute S0 [m n k] vector n, registers m=12 n=32 } }
//
// Meaning. Every axis has a current range, at first [0, extent). A Loop cuts its axis' current range into steps and
// runs its body once per step with the range narrowed to it (the last may be shorter). Compute runs its stage over the
// current ranges of the stage's axes. Where a reduction axis is narrowed, Compute adds to what is there: it starts from
// the reducer's identity when every reduction axis' range begins at 0, and applies the epilogue when every one ends at
// its extent. Loops marked parallel form the grid: they are outermost, nested in each other, over spatial axes;
// each of their points is one task.
//
// Split-K. The innermost parallel loop may be over an axis that the kernel's stage reduces. Each of its tasks then has
// a part of the sum: it starts from the identity where the part begins. The task that finishes last adds the parts, in
// the order of the axis, applies the epilogue, and runs the Store:
//
//     parallel m by 128 { parallel n by 128 { parallel k by 768 { for k by 64 { compute S0 ... } store c } } }
//
// Only code for GPUs does that (docs/lockstep.md).
//
// Where values live. Kernel inputs and outputs are in memory; any other value of `stages` lives in a buffer of the task
// (scratch), as does a copy made by Load. The buffer of a sum that is made in parts has the type of the sum: its
// numbers are rounded to the value's own type where they leave it. A buffer covers the box that is touched under the
// innermost loop around all its statements; its index is the value's index minus the box's lower corner. A kernel
// output that has a Store is computed into a buffer and written by the Store; without one, Compute writes memory
// directly. Its partial sums are then kept in the output itself, which must have the accumulation type; those of tile
// registers are kept in a buffer of the task, over the stage's spatial axes.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "layout/layout.h"
#include "program/program.h"
#include "tile/annotations.h"

namespace tilewright {

struct TileAxis {
    std::string name;  ///< "m"; unique in the kernel
    Expr extent;       ///< over symbols and scalars
};

/// What happens where a tile is not full (DietCode §4.3).
enum class Padding : uint8_t {
    Local,      ///< fetch with fill, compute the whole tile, write back under a predicate
    Partition,  ///< the full tiles and the rest are separate code
    Global,     ///< the tensor in memory is padded to whole tiles: no check at all
};
std::string_view to_string(Padding p);

/// What the operands of a matrix instruction are rounded to; it adds up in f32 (dot products of f16: in steps).
enum class MatrixType : uint8_t {
    TF32,  ///< 10 bits of mantissa, the exponents of f32
    F16,
    BF16,
    I8  ///< one operand U8, the other I8, nothing rounded; it adds up in 32-bit integers
};
std::string_view to_string(MatrixType t);

/// The instructions that multiply and add.
enum class MatrixForm {
    Warp,  ///< of a GPU's warp (mma.sync)
    /// Of a warpgroup of four warps (wgmma, sm_90a alone): 64 rows at a time, registers are the tile of all four, and
    /// the right operand, mostly the left as well, is read where a Load has put it.
    Group,
    /// On the tile registers of a CPU (Intel AMX). Both factors are read where they lie: the left one in runs along the
    /// sum, the right one in pairs along the sum (tile/matrix.h). Columns are the vector axis.
    Tile,
    /// Vector instructions of a CPU that add two products of bf16 (AVX512_BF16) or four of 8-bit integers (VNNI, AVX2)
    /// to every lane: rows times vectors of columns, as with multiply-adds. Factors lie as for Tile, in runs and groups
    /// of two or four. Of f16 (AVX512_FP16), a lane's halves add up the even and the odd products of a step in f16.
    Dot,
};
/// As in the text of tile programs; of Warp, nothing.
std::string_view to_string(MatrixForm form);

/// A product on matrix instructions: which axes of the stage are an instruction's rows, columns and sum. On a GPU an
/// instruction has 16 x 8 results of 8 (tf32) or 16 products each, and Micro::registers is the tile of a warp; on a CPU
/// it has up to 16 x 16 results of up to 32 products, or a vector of two products each (tile/matrix.h). It says where
/// multiplications run and what they are rounded to, not what is computed: the interpreter and machines without such
/// instructions ignore it.
struct MatrixUnit {
    MatrixType type = MatrixType::F16;
    size_t rows = 0, columns = 0, sum = 0;
    MatrixForm form = MatrixForm::Warp;
    bool group() const { return form == MatrixForm::Group; }
    bool tile() const { return form == MatrixForm::Tile; }
    bool dot() const { return form == MatrixForm::Dot; }
    friend bool operator==(const MatrixUnit&, const MatrixUnit&) = default;
};

/// Lanes up to so many elements apart are read as vectors of neighbours and picked from those by shuffles (windows of
/// stride two); lanes farther apart are read one by one.
inline constexpr int64_t kMostSpread = 4;

/// The innermost level: how Compute's box is run in registers. Axes by their position in the stage's expression.
struct Micro {
    std::optional<size_t> vector_axis;  ///< lanes; its register tile is a multiple of `lanes`
    int64_t lanes = 1;
    std::vector<int64_t> registers;  ///< register tile per axis; 1: looped over one by one. A reduction axis' factor
                                     ///< unrolls it (and, for the vector axis, gives that many partial accumulators)
    std::vector<size_t> order;       ///< loop order around the register tile, outermost first; reductions last
    Padding padding = Padding::Partition;  ///< of register tiles
    /// Virtual threads (Gensor §IV) per axis: that many interleaved sub-tiles inside the register tile; 1: none.
    std::vector<int64_t> virtual_threads;
    std::optional<MatrixUnit> matrix;
    Annotations annotations = {};
};

struct Stmt;

struct TileLoop {
    size_t axis = 0;
    int64_t step = 1;
    bool parallel = false;
    /// Steps that are under way at a time: the Loads in front of the body run stages - 1 steps ahead of the rest of it,
    /// each into a buffer of its own, so that a copy takes as long as it likes while earlier steps compute. It stands
    /// at the loop and not at its Loads because they wait and go on together. 1: nothing runs ahead.
    int stages = 1;
    std::vector<Stmt> body;
};

/// Copies the box of memory that access `access` of stage `stage` touches under the current ranges into a buffer;
/// the stage's Computes below read the buffer. Conditions of the access are decided here: elements outside become its
/// fill, so that Compute needs no checks. They must be conditions on single index expressions.
struct Load {
    PrimitiveId stage;
    size_t access = 0;
    Layout layout;  ///< of the buffer, over the box's dimensions (packing)
    Padding padding = Padding::Local;
    /// Bytes of a row, 32, 64 or 128: the buffer's last dimension, whose pieces of 16 bytes lie in an order of their
    /// own in every row, so that eight rows below each other are on different banks. That is as TMA
    /// writes and matrix instructions of a warpgroup read (sm_90a; CUtensorMapSwizzle): bits 4 and up of an address are
    /// xored with its bits 7 and up. No index map says so; machines that have neither ignore it. 0: they lie in order.
    int swizzle = 0;
    std::optional<BlockCopy> copy = {};
};

struct Compute {
    PrimitiveId stage;
    Micro micro;
    /// The stage is a maximum that others read inside the loops that still add to it: they see the maximum so far, and
    /// the sums of what it scales (tile/online.h) are multiplied by exp(old - new) before a part is added. While it is
    /// -infinity and not final, readers see 0: exp(-inf - 0) is the right 0 where exp(-inf - -inf) would be no number.
    bool online = false;
};

/// Writes the buffer of a kernel output to memory, for the current ranges of its stage's spatial axes.
struct Store {
    ValueId value;
    Padding padding = Padding::Local;
    std::optional<NonTemporal> non_temporal = {};
    std::optional<BlockCopy> copy = {};
};

struct Stmt {
    std::variant<TileLoop, Load, Compute, Store> kind;
};

struct TileProgram {
    std::string name;
    Program stages;
    std::vector<TileAxis> axes;
    /// Per stage (primitive of `stages`): which kernel axis each of its axes is.
    IndexVector<PrimitiveId, std::vector<size_t>> stage_axes;
    std::vector<Stmt> body;
    /// Layout of buffers of values that are computed in the kernel and not written to memory, over their box. Absent:
    /// row-major.
    std::map<ValueId, Layout> buffer_layouts;
    /// Inputs and outputs that lie in a near cache, however large they are: the kernel that wrote them has just run, or
    /// the one that reads them runs next (orchestrate/slices.h). They have neither non-temporal stores nor prefetches.
    std::set<ValueId> near;
};

/// One of the task's buffers: derived from the tree, never stored in it.
struct Buffer {
    ValueId value;                                         ///< of `stages`
    std::optional<std::pair<PrimitiveId, size_t>> access;  ///< for the copy of a Load: which access reads it
    bool correction = false;  ///< holds exp(old - new) of the last step of the online maximum `value`
    /// Holds the partial sums of the output `value`, which a Compute on tile registers writes to memory: by the axes in
    /// partial_sum_axes(), rows of whole vectors.
    bool partial = false;
    DType dtype = DType::F32;
    std::vector<size_t> scope;  ///< axes-with-steps path: the loops (by statement path) the buffer lives under
    std::vector<Expr> base;     ///< lower corner of the box, per dimension, over range starts: axis(k) is the start of
                                ///< kernel axis k's current range at the scope
    std::vector<int64_t> box;   ///< largest extent per dimension
    Layout layout;
    std::vector<int64_t> physical;  ///< extents in memory
    int copies = 1;                 ///< so many of it, one behind the other: TileLoop::stages
    int swizzle = 0;                ///< Load::swizzle
    int64_t bytes = 0;              ///< of all copies, each rounded to 64; with a swizzle to eight rows
    int64_t offset = 0;             ///< in the task's scratch; what is never needed together may share memory
    bool elsewhere = false;         ///< takes none of the scratch
};
struct BufferPlan {
    std::vector<Buffer> buffers;
    int64_t scratch_bytes = 0;  ///< of one task
};
/// Throws InternalError when a box has no constant bound. The buffers of the values `elsewhere` take no scratch:
/// they are kept in registers.
BufferPlan plan_buffers(const TileProgram& program, const std::set<ValueId>& elsewhere = {});

/// Empty when the program computes its stages, else one sentence per fault. The stages themselves (verify(Program)) and
///  - axes: a kernel axis has the extent of the stage axes it is, a stage has it once; steps are positive
///  - grid: parallel loops are outermost, one inside the other, each over an axis that no stage reduces; two over one
///    axis (tasks go group by group) part it evenly
///  - split-K: the innermost parallel loop may cut the reduction of the kernel's only stage, in parts of whole steps of
///    the loops inside; a task has constant bounds, and its sums stay in registers through those loops
///  - every stage has one Compute; outside the loops over its own axes there are only those around all its readers
///  - readers of a value (Computes and its Store) stand behind its Compute and outside its partial reductions, and
///    under shared loops read the part that the same step has computed
///  - an online maximum is read, in the steps of its own loops, only by what it scales: sums along the same loops, one
///    for one with its steps, or terms that are used up in the same step
///  - Loads copy inputs, in a scope that encloses the reading Compute, before it; Stores write outputs, once; a swizzle
///    has the bytes of a row
///  - partial reductions in memory are kept in their own type; micro-kernels fit their stage, matrix units a product;
///    buffers have constant bounds
///  - a loop of several stages has Loads, in front of everything else in its body
std::vector<std::string> verify(const TileProgram& program);
/// One line of the tree in the manner of MCFuser's tiling expression (§III-A): "mh(n(k(Lq,Lk,C0),Lv,C4),Se)"; loops by
/// the names of their axes, outermost first, L and S with the value that is copied, C with the number of the stage.
std::string tiling_expression(const TileProgram& program);
/// Text that parse_tile_program reads back to a program that prints the same; the grammar stands in parse.cpp.
std::string print(const TileProgram& program);
/// print() with fixed names of the program and of its stages: equal for programs that differ in these names alone.
std::string print_without_names(const TileProgram& program);
/// print() without the stages: differs for different schedules of the same stages.
std::string print_schedule(const TileProgram& program);
/// Throws ModelError naming the line. What it accepts need not pass `verify`.
TileProgram parse_tile_program(std::string_view text);
/// Reference execution of the tree, tile by tile, in double precision: every access checked against its tensor or
/// buffer and against being read before it was written, every element of an output against being written once, by one
/// task (InternalError names statement and element). Numbers are rounded to their storage when they are finished, also
/// in buffers; partial sums are not. `bindings`: symbols and scalars that the inputs' shapes do not bind.
///
/// Padding. A Load's box beyond the touched elements: Local fills it where the tensor ends, Partition leaves it, Global
/// reads it whatever is there, which must lie inside the tensor. A register tile's rest along spatial axes: Local and
/// Partition leave nothing behind, Global computes it, for which operands and result must have room. A Store's box:
/// Local and Partition write the current ranges, Global all of it.
std::vector<Tensor> interpret(const TileProgram& program, const std::vector<Tensor>& inputs, const Bindings& bindings);

}  // namespace tilewright
