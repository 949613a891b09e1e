#pragma once
// How the axes of an expression walk through the tensors of a kernel, and which of them are one dimension.

#include <string>
#include <vector>

#include "libraries/operation.h"

namespace tilewright {

Expr flat_offset(const std::vector<Expr>& shape, const std::vector<Expr>& index);

/// An axis of the expression, or several that all tensors walk as one.
struct Walked {
    std::vector<size_t> axes;  ///< outermost first
    int64_t extent = 1;
};

/// The tensors of a contraction: data, weights, result, then what the epilogue reads. Members throw Refusal where no
/// strides describe a tensor.
class OperandWalks {
  public:
    enum : size_t { kData, kWeights, kResult };

    OperandWalks(const Program& stages, const TensorExpr& e);

    /// `constant`: by the place of every element in place of strides.
    void add(ValueId value, const std::vector<Expr>& index, bool constant);

    size_t size() const { return all_.size(); }
    int64_t origin(size_t t) const { return all_[t].origin; }
    bool constant(size_t t) const { return all_[t].constant; }
    int64_t extent(size_t axis) const { return extents_[axis]; }
    bool moves(size_t t, size_t axis) const;
    int64_t stride(size_t t, size_t axis) const { return all_[t].strides[axis]; }
    int64_t stride(size_t t, const Walked& w) const { return w.axes.empty() ? 0 : stride(t, w.axes.back()); }

    /// Those axes, merged where all tensors walk them as one, outermost first in the order of tensor `by`.
    std::vector<Walked> merged(std::vector<size_t> axes, size_t by) const;
    /// One axis of all of them. `what`: for the reason.
    Walked one(const std::vector<size_t>& axes, size_t by, const char* what) const;

    /// The operand with these dimensions; those that it does not move along are 1, unless it is to have them all.
    LibraryOperand operand(size_t t, const std::vector<Walked>& dims, bool whole) const;

  private:
    struct One {
        size_t number = 0;  ///< of the kernel: inputs, then outputs
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
