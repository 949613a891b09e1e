#pragma once
// Strides of a kernel's tensors along the axes of an expression, and axes that merge into one dimension.

#include <string>
#include <vector>

#include "libraries/operation.h"

namespace tilewright {

Expr flat_offset(const std::vector<Expr>& shape, const std::vector<Expr>& index);

/// An axis of the expression, or several that merge into one in all tensors.
struct Walked {
    std::vector<size_t> axes;  ///< outermost first
    int64_t extent = 1;
};

/// The tensors of a contraction: data, weights, result, then the operands of the epilogue. Members throw Refusal for
/// a tensor without constant strides.
class LibraryWalks {
  public:
    enum : size_t { kData, kWeights, kResult };

    LibraryWalks(const Program& stages, const TensorExpr& e);

    /// `constant`: store the position of every element instead of strides.
    void add(ValueId value, const std::vector<Expr>& index, bool constant);

    size_t size() const { return all_.size(); }
    int64_t origin(size_t t) const { return all_[t].origin; }
    bool constant(size_t t) const { return all_[t].constant; }
    int64_t extent(size_t axis) const { return extents_[axis]; }
    bool moves(size_t t, size_t axis) const;
    int64_t stride(size_t t, size_t axis) const { return all_[t].strides[axis]; }
    int64_t stride(size_t t, const Walked& w) const { return w.axes.empty() ? 0 : stride(t, w.axes.back()); }

    /// Returns the axes, merged where all tensors allow it, outermost first in the order of tensor `by`.
    std::vector<Walked> merged(std::vector<size_t> axes, size_t by) const;
    /// Merges all axes into one, else throws Refusal. `what`: for the reason.
    Walked one(const std::vector<size_t>& axes, size_t by, const char* what) const;

    /// Returns the operand with these dimensions; dimensions along which it is constant are 1 unless `whole`.
    LibraryOperand operand(size_t t, const std::vector<Walked>& dims, bool whole) const;

  private:
    struct One {
        size_t number = 0;  ///< in the kernel: inputs, then outputs
        DType type = DType::F32;
        bool constant = false;
        std::vector<int64_t> strides;              ///< per axis
        std::vector<std::vector<int64_t>> places;  ///< of a constant: per axis and position
        int64_t origin = 0;
    };

    bool follows(size_t outer, const Walked& inner) const;
    std::vector<std::vector<int64_t>> places_of(Expr offset) const;

    const Program& stages_;
    std::vector<int64_t> extents_;
    std::vector<One> all_;
};

}  // namespace tilewright
