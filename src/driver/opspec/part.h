#pragma once
// Computes a window of a program's outputs: results that are too large for the interpreter are checked by samples.

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// The elements with lo[d] <= index[d] < hi[d]; a scalar's box has no dimensions.
struct Box {
    std::vector<int64_t> lo, hi;

    int64_t count() const;
    friend bool operator==(const Box&, const Box&) = default;
};
/// All of a tensor.
Box whole(const Shape& shape);

/// The program whose outputs are these boxes of `program`'s, one for each output: the same expressions at the same
/// points, with the same inputs, but every primitive computes only the smallest box that its readers need.
///     c[i0, i1] = sum(i2 < 64) a[i0, i2] b[i2, i1]     box [5:6, 0:8] of c
///     c[i0, i1] = sum(i2 < 64) a[i0 + 5, i2] b[i2, i1], i0 < 1, i1 < 8
/// Other primitives than tensor expressions are computed completely. Shapes must be numbers.
Program compute_part(const Program& program, const std::vector<Box>& outputs);

/// The number of points of its expressions: the cost of interpreting the program.
double point_count(const Program& program);

/// The elements of `box`, as a tensor of its shape.
Tensor cut(const Tensor& tensor, const Box& box);

}  // namespace tilewright
