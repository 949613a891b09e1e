#pragma once
// Divides a program into pieces that are small enough for the search.

#include <string>
#include <utility>
#include <vector>

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// A run [first, second) of primitives, all of them tensor expressions.
using Run = std::pair<size_t, size_t>;

/// Runs of at most `largest` primitives. Cuts are placed where the fewest computed values are live.
std::vector<Run> cut(const Program& program, size_t largest);

/// The primitives of a run as a separate program. Values that the run reads from outside become inputs or constants,
/// values read outside become outputs.
struct Piece {
    Program program;              ///< constants without a fill are marked unread: only their form is used
    std::vector<ValueId> values;  ///< the value of the full program, per value of the piece
};
/// One for each run.
std::vector<Piece> pieces(const Program& whole, const std::vector<Run>& runs);

/// The piece's text without names: equal texts mean equal pieces.
std::string piece_text(const Piece& piece);

/// A piece and its replacement; values of `to` beyond the piece's values are new.
struct Replacement {
    const Piece* from;
    const Program* to;
    const Piece* of = nullptr;  ///< the equal piece from which `to` was made, whose origins it has; null: `from`
};
/// The full program with all replacements, of different runs, applied. `new_values[k]` is the first value that
Program put_back(const Program& whole, const std::vector<Replacement>& replacements,
                 std::vector<ValueId>* new_values = nullptr);

}  // namespace tilewright
