#pragma once
// Rewrites that replace primitives of several pieces. No search of one piece finds them.

#include <vector>

#include "program/rewrite/pieces.h"
#include "program/rewrite/search.h"

namespace tilewright {

constexpr size_t kNoPiece = static_cast<size_t>(-1);

/// The pieces of a second search: disjoint runs, in order, around matches that replace primitives of several pieces and
/// reduce the cost. A run is extended on both sides to RewriteSearch::piece primitives where that is possible, and
/// has at most RewriteSearch::across times as many.
///     pieces   | .  .  a | b  c  . |        a match replaces a and b
///     runs       [.  a  b  c]
/// `piece_of`: for each value of the program, the number of the piece that computes it, or kNoPiece.
std::vector<Run> runs_across_pieces(const Program& program, const std::vector<size_t>& piece_of,
                                    const RewriteSearch& options);

}  // namespace tilewright
