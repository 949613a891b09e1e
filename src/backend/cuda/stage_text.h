#pragma once
// One statement of a tile program as C++ that all threads of a block run: a Compute, or the copy of a Load or Store.
//
// A thread's register tile is a nest of short loops that the compiler unrolls. Every value is computed once per
// combination of the register coordinates that it depends on: for a product with registers m=8 n=4
//
//     for i_m < 8: a[i_m] = s_a[...]
//     for i_n < 4: b[i_n] = s_b[...]
//     for i_m < 8: for i_n < 4: c[i_m][i_n] = tw::fused(a[i_m], b[i_n], c[i_m][i_n])
//
// On matrix instructions (Micro::matrix) the operands' values are rounded and packed into words, two halves each, as
// the instruction takes them; stage_matrix.cpp.
//
// Points of a tile beyond the current range are computed clamped to its last point and not written (DietCode §4.3's
// local padding: no predicate where a Load has filled the whole tile).

#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/variables.h"
#include "backend/cuda/writer.h"
#include "tile/gpu_partition.h"

namespace tilewright::cuda {

using gpu::Partition;
using gpu::Spread;

/// Where the elements of an operand or result lie.
struct Place {
    std::string object;  ///< what is indexed
    DType storage = DType::F32;
    std::vector<Expr> strides;     ///< per dimension (of `layout`'s memory if there is one), in elements
    std::vector<Expr> origin;      ///< subtracted from the index first (buffers); empty: zero
    std::optional<Layout> layout;  ///< of a buffer whose box is laid out
    std::vector<Expr> box;         ///< a buffer's logical shape
    bool checked = false;          ///< a Load has decided the access's conditions
    bool filled = false;           ///< every element of the box may be read
    bool shared = false;           ///< in the block's shared memory
    int swizzle = 0;               ///< Load::swizzle
    bool in_registers = false;     ///< each thread has its own: `object` is indexed by its coordinates along these axes
    std::vector<size_t> register_axes;
    std::vector<bool> zero_behind;  ///< per axis of the statement: behind the end of the whole axis lie zeros
    std::string final;              ///< of an online maximum: a condition; until it is true, -infinity reads as 0
};

/// The current range of one axis of the stage.
struct AxisRange {
    Expr lo, hi;  ///< over the kernel's variables, symbols, scalars
    Expr most;    ///< hi - lo is at most this, which is over symbols and scalars
    Expr total;   ///< the axis' whole extent
    bool whole = true;
};

struct StageJob {
    const TensorExpr* expr = nullptr;
    const Micro* micro = nullptr;
    std::vector<AxisRange> ranges;
    std::vector<std::string> axes;   ///< what they are called
    std::vector<Place> accesses;     ///< one per access of expr
    std::vector<std::string> names;  ///< of what the accesses read
    Place out;
    std::optional<Place> correction;  ///< of an online maximum: takes exp(old - new), indexed as `out`
    std::optional<size_t> rescale;    ///< access of `expr` whose element multiplies what was summed up before
    Partition share;                  ///< of the threads
    /// A sum that stays in the registers of `out` through the loops around its statement: Steps adds to what is there,
    /// Finish, behind the loops, makes the result of it.
    enum class Phase : uint8_t { Whole, Steps, Finish };
    Phase phase = Phase::Whole;
    bool in_flight = false;  ///< products of four warps may go on behind the statement, until the next one's end
    bool async = false;      ///< a copy that may still be under way when the statement is through
    int threads = 32;        ///< of the block
    int64_t room = 0;        ///< byte of shared memory from which on groups of several warps exchange sums
};

/// Appends the statement; whether it writes vectors. Throws InternalError where partial sums are kept in another type
/// than their own.
bool emit_stage(Writer& out, Variables& variables, const StageJob& job);

/// "const Type name[8][4]" without initialiser, for the extents that are not 1.
std::string array_declaration(const std::string& type, const std::string& name, const std::vector<int64_t>& extents);

}  // namespace tilewright::cuda
