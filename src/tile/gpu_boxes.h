#pragma once
// Loads as boxes that TMA of sm_90 copies (cp.async.bulk.tensor): one thread issues the copy of a box, TMA
// writes it as Load::swizzle has it, fills what lies outside of the tensor with zeros, and counts its bytes at
// an arrival that all threads wait for.
//
// A box is one range of each dimension of the tensor. A buffer whose layout cuts a dimension is several boxes:
//
//     a: f16[m, k], 128 rows by 128 of the sum, layout split(1, 64) reorder(1, 0, 2): two boxes of 128 x 64

#include <string>
#include <variant>
#include <vector>

#include "tile/gpu_index.h"
#include "tile/tile.h"

namespace tilewright::gpu {

struct BoxCopy {
    std::vector<Expr> extents;  ///< of the tensor, innermost first
    std::vector<int64_t> box;   ///< elements along each
    std::vector<size_t> apart;  ///< axes of the copy of which each point is a box of its own
    int64_t bytes = 0;          ///< of all boxes
};

/// `copy`: the elements of the buffer, axis by axis as it lies there, and where each comes from (accesses[0], over the
/// kernel's variables and the copy's axes); `access`: what the stage reads. A text where the engine cannot do it: why.
std::variant<BoxCopy, std::string> as_boxes(const TensorExpr& copy, const Access& access, const Value& tensor,
                                            int swizzle, const IndexVariables& variables);

}  // namespace tilewright::gpu
