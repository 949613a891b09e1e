#pragma once
// A program in pieces that a search can hold.

#include <string>
#include <utility>
#include <vector>

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// Runs [first, second) of primitives, all of them tensor expressions, at most `largest` long and cut where the fewest
/// values that the primitives compute are alive.
std::vector<std::pair<size_t, size_t>> cut(const Program& program, size_t largest);

/// The primitives of a run as a program of their own. What they read from elsewhere is an input or a constant, what is
/// read elsewhere an output.
struct Piece {
    Program program;              ///< constants without a fill are marked unread: only their form is of interest
    std::vector<ValueId> values;  ///< of the whole, per value of the piece
};
/// One for each run.
std::vector<Piece> pieces(const Program& whole, const std::vector<std::pair<size_t, size_t>>& runs);

/// The piece's text without names: pieces of one text become the same.
std::string piece_text(const Piece& piece);

/// A piece, and what shall stand in its place: values beyond the piece's are new.
struct Replacement {
    const Piece* from;
    const Program* to;
};
/// What the whole becomes with all of them, of different runs, in place. `new_values[k]` is the first value that
/// replacement k adds.
Program put_back(const Program& whole, const std::vector<Replacement>& replacements,
                 std::vector<ValueId>* new_values = nullptr);

}  // namespace tilewright
