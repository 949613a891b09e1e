#pragma once
// A tensor or buffer of the interpreter of tile programs: numbers that know whether they were written. Internal.

#include <string>

#include "program/scalar_eval.h"
#include "tile/index_code.h"
#include "tile/tile.h"

namespace tilewright {

/// Elements of a box of logical indices, each holding a number and what is known of it. A memory tensor is its own box
/// with its lower corner at 0; a buffer's corner moves.
class Place {
  public:
    enum class State : uint8_t {
        Unwritten,
        Partial,  ///< a reduction that has not ended
        Written,
    };
    struct Cell {
        ScalarValue value;
        State state = State::Unwritten;
        int64_t task = -1;  ///< the task that wrote it; -1: it was there before
    };

    /// A tensor with these contents, all of it written; or with none.
    Place(std::string name, const Tensor& contents);
    Place(std::string name, DType dtype, Shape shape);
    /// A buffer.
    Place(std::string name, const Buffer& buffer);

    /// Forgets all elements and moves the box: `corner` is its lower corner.
    void enter(std::vector<int64_t> corner);

    bool inside(std::span<const int64_t> index) const;
    /// The element of that logical index. InternalError when it lies outside the box.
    Cell& cell(std::span<const int64_t> index);
    /// A written element's number. InternalError when it was not written, is unfinished, or is another task's.
    ScalarValue read(std::span<const int64_t> index, int64_t task);
    /// Writes a finished element, once.
    void write(std::span<const int64_t> index, ScalarValue v, int64_t task);
    /// The elements of a tensor. InternalError when one was never written.
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
    std::vector<IndexCode> layout_;  ///< physical index over logical ones; empty: the same
    std::vector<int64_t> logical_;
};

/// `v`, of type compute_type(t), as storage of type `t` holds it.
ScalarValue stored_as(DType t, ScalarValue v);

}  // namespace tilewright
