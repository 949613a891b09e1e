#pragma once
// Chosen rewrites as text: what a later compilation of the same program takes over in place of searching.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/rewrite/pieces.h"
#include "program/rewrite/search.h"

namespace tilewright {

/// All that the choice depends on: the build, the options, and the program with its names and origins, but with nothing
/// of constants except their form and the number that fills them, if one does. Empty where the choice is not to be
/// kept: without RewriteSearch::kept, or where the search has a cost or a judge that RewriteSearch::judged_by does not
/// name.
std::string rewrites_key(const Program& program, const RewriteSearch& options);

/// What became of a program's distinct pieces, in order.
struct ChosenRewrites {
    std::vector<std::optional<Rewritten>> pieces;  ///< nothing: the piece stays as it is
    RewriteReport report;
};
/// Nothing where a piece has gained a constant that a text does not hold (more than kSmallConstant elements).
std::optional<std::string> print(const ChosenRewrites& chosen, const std::vector<const Piece*>& pieces);
/// Reads it back: programs are verified, and their inputs, outputs and constants are those of the pieces. Nothing for
/// any other text.
std::optional<ChosenRewrites> parse_rewrites(std::string_view text, const std::vector<const Piece*>& pieces);

}  // namespace tilewright
