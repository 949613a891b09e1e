#pragma once
// Which rewrites to make: TASO's cost-based backtracking search (Jia et al., SOSP 2019, section 6 and algorithm 2).
//
// Programs wait in a queue, the cheapest first. One is taken, every rule is applied to it wherever it finds something,
// and what comes out is queued unless it was seen before, costs alpha times the best or more, or has more than twice
// the primitives: alpha above 1 lets a rewrite that costs something open the way for one that pays. A number of
// programs taken, or looked at, ends it. Nothing is random, so that the same program always becomes the same.
//
// Beyond TASO, all rewrites of a program that gain are also tried together: then as many of them as a piece has places
// cost a few programs taken, not one each.
//
// A model is searched piece by piece. A piece is a run of tensor expressions in topological order (so it is convex),
// cut where few values are alive; equal pieces (the layers of a transformer) are searched once, dear ones first, so
// that it is they whom a budget serves.
//
// The search's own idea of costs is rough. So what it proposes for each piece, in the order of what it prefers, is
// judged by whoever plans models: the whole is planned as it was and with the first proposals, each piece keeps its
// proposal where it saves something, else it goes on to its next one, in the end to what it was; and so again until
// nothing changes. The cheapest of the wholes that were planned is taken, which may be the one that came.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/code_cache.h"
#include "program/rewrite/cost.h"
#include "program/rewrite/rewrite.h"

namespace tilewright {

/// What a program costs, in any unit. It may look at the form alone: large constants are not there (Program::unread).
using RewriteCost = std::function<double(const RewriteContext&)>;
/// What a program of any primitives costs as it would be planned, in any unit.
struct PlannedCost {
    double total = 0;
    IndexVector<PrimitiveId, double> of;  ///< each primitive's share of its kernels
};
using RewriteJudge = std::function<PlannedCost(const Program&)>;

struct RewriteSearch {
    RewriteOptions rules = {};
    double alpha = 1.05;      ///< TASO's
    size_t budget = 24;       ///< programs taken from the queue, a piece
    size_t patience = 6;      ///< of those in a row that lead to nothing better end it
    double growth = 2;        ///< primitives that are not folded, at most, as a multiple of the piece's
    size_t always = 4;        ///< or so many more than the piece's: a convolution alone becomes three
    size_t piece = 32;        ///< primitives of a piece, at most
    size_t programs = 20000;  ///< looked at in all pieces together; pieces whose turn does not come stay as they are
    RewriteCost cost = {};    ///< none: analytic_cost
    /// None: each piece becomes what `cost` prefers. Proposals stay where they save these shares of what their
    /// primitives took.
    RewriteJudge judge = {};
    double margin = 0.02, inexact_margin = 0.1;
    /// Where choices are kept for the next time (kept.h); null: nowhere. `judged_by`: text that says all that `judge`
    /// depends on but the program, without which nothing is kept.
    std::shared_ptr<const CodeCache> kept = {};
    std::string judged_by = {};
    double equal =
        0.001;  ///< wholes within this share of the cheapest are as good: the one that changes least is taken
};

struct RewriteReport {
    size_t pieces = 0, distinct = 0;               ///< pieces, and those that were searched
    size_t taken = 0, costed = 0;                  ///< programs from the queue, and all that were looked at
    double before = 0, after = 0;                  ///< the search's costs, summed over pieces
    size_t planned = 0;                            ///< wholes that were judged
    size_t judged_away = 0;                        ///< pieces for which less was taken than the search had preferred
    double planned_before = 0, planned_after = 0;  ///< the judge's costs
    std::map<std::string, size_t> applied;         ///< rules on the way to what was chosen, summed over pieces
};

/// What became of a program, and how.
struct Rewritten {
    Program program;
    double cost = 0;
    std::vector<std::string_view> way;  ///< rules
    bool inexact = false;               ///< one of them is
};

/// What the search finds for a program as a whole, which must be tensor expressions alone, the cheapest first: the
/// cheapest, the cheapest without inexact rules where that is another, and the program itself.
std::vector<Rewritten> proposals(const Program& program, const RewriteSearch& options = {},
                                 RewriteReport* report = nullptr);
/// The first of them.
Program search(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// The same piece by piece, for programs of any size and with any primitives. Constants are not folded afterwards.
Program rewrite(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// Of what the outputs are made of: the same for programs that differ in names and in the order of primitives alone.
uint64_t structure_hash(const Program& program);

}  // namespace tilewright
