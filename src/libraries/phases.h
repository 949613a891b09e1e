#pragma once
// Transposed convolutions that are computed phase by phase, as one that libraries have.
//
//     y[n, 2*j + p, o] = sum(c, t) x[n, j + p + t - 1, c] * w[p, o, t, c]                  a phase for each p
//
//     v[c, k, o] = w[1 - k % 2, o, 1 - k // 2, c]                                          a copy
//     y[n, i, o] = sum(c, k) x[n, (i + 1 - k) // 2, c] * v[c, k, o]                        where 2 divides i + 1 - k
//
// It is recognised from the index maps: the result has rows 2*j + p, the data is read from row j on, or from j + p, and
// the weights differ from phase to phase.

#include <optional>

#include "program/program.h"

namespace tilewright {

/// The sum of products `p` of `stages` without phases. The copy of the weights becomes a primitive of `stages`. Nothing
/// where it has no phases, or where they are not those of one convolution.
std::optional<Primitive> without_phases(Program& stages, const Primitive& p);

}  // namespace tilewright
