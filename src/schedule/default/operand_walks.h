#pragma once
// Strides of an expression's operands along its axes. The steps of the default heuristic depend only on these.

#include <optional>
#include <vector>

#include "program/analysis/access.h"
#include "schedule/boxes.h"
#include "schedule/default_schedule.h"

namespace tilewright {

/// The strides of an operand or of the result along every axis.
struct OperandWalk {
    std::vector<std::optional<Expr>> strides;
    std::vector<bool> unit_lanes;  ///< per axis: neighbouring lanes of a vector are contiguous in memory
    bool result = false;

    bool depends(size_t a) const { return !strides[a] || !strides[a]->is_constant(0); }
    bool unit(size_t a) const { return unit_lanes[a]; }
    /// In elements; nullopt where it is unknown at compile time or not constant.
    std::optional<int64_t> stride(size_t a) const {
        return strides[a] && strides[a]->is_constant() ? std::optional(strides[a]->constant()) : std::nullopt;
    }
    /// The stride between lanes if it is small enough for contiguous loads and shuffles (kMostSpread), else 0.
    int64_t spread(size_t a) const {
        const int64_t apart = stride(a).value_or(0);
        return apart > 1 && apart <= kMostSpread ? apart : 0;
    }
};
OperandWalk walk_of(const Program& stages, const TensorExpr& e, ValueId value, const std::vector<Expr>& index,
                    bool result, int lanes);

/// Interleaving two vectors gained nothing (transposed convolutions with a stride of two, 0.055 to 0.061 ms and 0.060
/// to 0.066).
inline constexpr int64_t kLeastInterleaved = 3;

/// The walks of one expression's operands, for a target.
struct OperandWalks {
    OperandWalks(const Program& stages, const TensorExpr& e, DType out_type, const Target& target);

    const Program& stages;
    const TensorExpr& e;
    const DType out_type;
    const Target& target;
    std::vector<OperandWalk> walks;  ///< one per access, then the result
    std::vector<uint32_t> slots;     ///< the accesses of the body
    bool product = false;            ///< a sum of products of two accesses

    size_t axes() const { return e.extents.size(); }
    int64_t extent(size_t a) const { return guessed_extent(stages, e.extents[a]); }
    bool fixed(size_t a) const { return e.extents[a].is_constant(); }
    const OperandWalk& result() const { return walks.back(); }
    int64_t element_bytes(size_t access) const;
    /// The number of elements of its operand that an access reads, each counted once.
    double elements(size_t access) const;
    /// The number of points of the reduction axes.
    double sum_points() const;
    /// Whether the axis is so short that vectors would be mostly empty.
    bool too_short_for_lanes(size_t a) const;
    /// `slides` of default_schedule.h.
    bool slides(size_t a) const;
    /// Whether an operand of the body varies along the vector axis but not along `a`: its vectors serve all rows of a
    /// tile.
    bool reused_along(size_t a, size_t vector) const;
    /// The axis whose few points lie between neighbours along `vector` in the result of a copy or of elementwise code:
    /// the register tile holds all of them, and their vectors are interleaved into contiguous stores.
    ///     y[w, c] = x[c, w], c < 4, vectors along w: c;   y[k // 2, n, k % 2] = x[k, n], vectors along n: k, by two
    struct Interleaved {
        size_t axis = 0;
        int64_t points = 0;
    };
    std::optional<Interleaved> interleaved_axis(size_t vector) const;
    /// The axis along which an operand is contiguous where vectors along `vector` run across it: blocks of lanes x
    /// lanes are loaded row by row and transposed in registers. Copies and elementwise code only.
    std::optional<size_t> transposed_axis(const OperandWalk& w, size_t vector) const;
};

/// Whether the vectors of an operand's panel, one for each reduction step, map to one set of the caches (a matrix whose
/// rows are a multiple of 4 KiB long), and enough rows read the panel to amortise packing it.
bool panel_collides(const Program& stages, const TensorExpr& e, const OperandWalk& w, size_t vector);

}  // namespace tilewright
