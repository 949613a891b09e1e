#pragma once
// A tensor or buffer of the interpreter of tile programs that tracks which elements were written. Internal.

#include <string>

#include "program/scalar_eval.h"
#include "tile/index_code.h"
#include "tile/tile.h"

namespace tilewright {

/// Elements of a box of logical indices, each with a value and a state. The box of a memory tensor is the tensor, with
/// its lower corner at 0; the corner of a buffer's box moves.
class Place {
  public:
    enum class State : uint8_t {
        Unwritten,
        Partial,  ///< a reduction that is incomplete
        Written,
    };
    struct Cell {
        ScalarValue value;
        State state = State::Unwritten;
        int64_t task = -1;  ///< the task that wrote it; -1: an initial value
    };

    /// A tensor with these contents, all of it written; or an unwritten one.
    Place(std::string name, const Tensor& contents);
    Place(std::string name, DType dtype, Shape shape);
    /// A buffer.
    Place(std::string name, const Buffer& buffer);

    /// Marks all elements unwritten and moves the box: `corner` is its lower corner.
    void enter(std::vector<int64_t> corner);

    bool inside(std::span<const int64_t> index) const;
    /// Returns the element at a logical index. Throws InternalError when it lies outside the box.
    Cell& cell(std::span<const int64_t> index);
    /// Returns a written element. Throws InternalError when it is unwritten, incomplete, or written by another task.
    ScalarValue read(std::span<const int64_t> index, int64_t task);
    /// Writes a finished element, once.
    void write(std::span<const int64_t> index, ScalarValue v, int64_t task);
    /// Returns the elements of a tensor. Throws InternalError if one is unwritten.
    Tensor contents() const;

    /// "element [3, 4] of 'x'"
    std::string element(std::span<const int64_t> index) const;

    const DType dtype;
    const std::string name;
    std::vector<int64_t> corner, box;
    std::vector<int64_t> physical;
    Layout layout;
    std::vector<Cell> cells;  ///< row-major over `physical`

  private:
    std::vector<IndexCode> layout_;  ///< physical index over logical ones; empty: identity
    std::vector<int64_t> logical_;
};

/// Returns `v`, of type compute_type(t), rounded to storage type `t`.
ScalarValue stored_as(DType t, ScalarValue v);

}  // namespace tilewright
