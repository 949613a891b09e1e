#pragma once
// What is known at compile time of the place where a stage is computed: annotations are derived from it and checked
// against it.

#include <cstdint>
#include <optional>
#include <vector>

#include "tile/tile.h"
#include "tile/walk.h"

namespace tilewright {

/// The current range of one axis of the stage.
struct AxisSpan {
    std::optional<int64_t> extent;  ///< of the range, where it is constant
    bool full = true;               ///< the range is the whole axis
    int64_t lo_multiple = 0;        ///< it starts at a multiple of this; 0: at 0
};

/// A tensor in memory or a buffer of the task.
struct OperandSite {
    bool memory = false;
    bool near = false;       ///< has a cache hint (TileProgram::near)
    bool far = false;        ///< Residence::Memory
    bool checked = false;    ///< a Load has decided the conditions of the access
    bool last_read = false;  ///< no later stage reads it
    Expr bytes;              ///< of the tensor
    int64_t element_bytes = 4;
    std::vector<Expr> strides;  ///< in memory, in elements
    bool streams() const;       ///< from memory: it is too large for the near caches
    bool may_stream() const;    ///< likewise, or its size is dynamic
};

struct StageSite {
    const TensorExpr* expr = nullptr;
    const Micro* micro = nullptr;
    std::vector<AxisSpan> axes;
    std::vector<OperandSite> operands;  ///< per access
    OperandSite result;
    bool read_back = false;           ///< a stage of the kernel reads the result
    bool partial = false;             ///< the reduction is cut: Compute adds to what is there
    bool apart = false;               ///< its partial sums are not kept in the result (Buffer::partial)
    bool online = false;              ///< an online maximum, or a sum that one scales
    std::optional<size_t> loop_axis;  ///< the stage's axis of the innermost loop around it
    /// Of the innermost parallel loop, in a kernel of several stages: the stage's axis, and the loop's step.
    std::optional<size_t> task_axis;
    int64_t task_step = 1;

    bool has_vector() const { return micro->vector_axis.has_value() && micro->lanes > 1; }
    bool vector_axis(size_t a) const { return has_vector() && *micro->vector_axis == a; }
    bool on_tiles() const { return micro->matrix && micro->matrix->tile(); }
    bool on_dots() const { return micro->matrix && micro->matrix->dot(); }
    bool vector_reduces() const { return has_vector() && *micro->vector_axis >= expr->spatial; }
    int64_t register_tile(size_t a) const;
    int64_t virtual_threads(size_t a) const;
    /// The loops around the register tile, outermost first: those over spatial axes, or those of the reduction.
    std::vector<size_t> order(bool reductions) const;
};

/// The site of the Compute at this path.
StageSite site_of(const TileProgram& program, const Walk& walk, const TreePath& path, const Compute& compute);
/// Of a value of the kernel.
OperandSite operand_site(const TileProgram& program, const Walk& walk, ValueId value);

}  // namespace tilewright
