#pragma once
// Chosen rewrites as text, which a later compilation of the same program reuses instead of searching.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/rewrite/pieces.h"
#include "program/rewrite/search.h"

namespace tilewright {

/// All that the search depends on but the program: the build and the options.
std::string rewrite_options_text(const RewriteSearch& options);

/// The cache key: the build, the options, the runs that are searched, and the program with its names and origins. Of
/// constants it contains only their form and their fill value, if any. Empty if the choice must not be cached: without
/// RewriteSearch::kept, or if the search has a cost or an evaluator that RewriteSearch::evaluator_key does not
/// identify.
std::string rewrites_key(const Program& program, const std::vector<Run>& runs, const RewriteSearch& options);

/// The choice for each of a program's distinct pieces, in order.
struct ChosenRewrites {
    std::vector<std::optional<Rewritten>> pieces;  ///< none: the piece is unchanged
    RewriteReport report;
};
/// None if a piece has a new constant that is too large for the text (more than kSmallConstant elements).
std::optional<std::string> print(const ChosenRewrites& chosen, const std::vector<const Piece*>& pieces);
/// Parses it: the programs are verified, and their inputs, outputs and constants must be those of the pieces. None
/// for any other text.
std::optional<ChosenRewrites> parse_rewrites(std::string_view text, const std::vector<const Piece*>& pieces);

}  // namespace tilewright
