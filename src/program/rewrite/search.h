#pragma once
// The rewrite search: TASO's cost-based backtracking search (Jia et al., SOSP 2019, section 6 and algorithm 2).
//
// Programs wait in a priority queue, the cheapest first. Each step pops one program and applies every rule at every
// match. A resulting program is queued unless it was seen before, costs alpha times the best or more, or has more than
// twice the primitives. With alpha above 1 a rewrite that increases the cost can enable one that pays off. The search
// ends after a number of popped or evaluated programs. It is deterministic: the same program always gets the same
// result.
//
// Beyond TASO, all profitable rewrites of a program are also tried together, so that independent rewrites in a piece
// take a few expansions instead of one each.
//
// A model is searched piece by piece. A piece is a run of tensor expressions in topological order (so it is convex),
// cut where few values are live. Equal pieces (the layers of a transformer) are searched once. Expensive pieces are
// searched first, so that the budget is spent on them.
//
// The search's own costs are rough. Its proposals for each piece, in order of preference, are therefore evaluated by
// planning the full program: once without rewrites and once with the first proposals. A piece keeps its proposal if
// that saves time, else the next proposal is tried, and finally the original piece. This repeats until nothing changes.
// The cheapest full plan is chosen, possibly that of the original program.
//
// Matches that replace primitives of several pieces are missed by these searches. Runs of primitives around them are
// the pieces of a second search of the resulting program.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/code_cache.h"
#include "program/rewrite/cost.h"
#include "program/rewrite/rewrite.h"

namespace tilewright {

/// The cost of a program, in any unit. It must depend on the form only: large constants are absent (Program::unread).
/// Called by several threads.
using RewriteCost = std::function<double(const RewriteContext&)>;
/// The cost of a planned program with any primitives, in any unit.
struct PlannedCost {
    double total = 0;
    IndexVector<PrimitiveId, double> of;  ///< each primitive's share of the cost of its kernels
};
/// Called by two threads.
using RewriteEvaluator = std::function<PlannedCost(const Program&)>;

struct RewriteSearch {
    RewriteOptions rules = {};
    double alpha = 1.05;      ///< as in TASO
    size_t budget = 24;       ///< programs popped from the queue, per piece
    size_t patience = 6;      ///< ends the search after so many pops in a row without improvement
    double growth = 2;        ///< limit on primitives that are not folded, as a multiple of the piece's
    size_t always = 4;        ///< or this many more than the piece's: one convolution becomes three primitives
    size_t piece = 32;        ///< maximum primitives per piece
    size_t across = 2;        ///< maximum primitives per piece of the second search, in pieces; 0: no second search
    size_t programs = 20000;  ///< programs evaluated in all pieces together; pieces beyond this limit are unchanged
    RewriteCost cost = {};    ///< none: analytic_cost
    /// The evaluator of full plans. None: each piece becomes what `cost` prefers.
    RewriteEvaluator evaluator = {};
    /// A proposal is kept if it saves more than this share of its primitives' cost.
    double margin = 0.02, inexact_margin = 0.1;
    /// The cache of choices (kept.h); null: none. `evaluator_key`: text that identifies everything that `evaluator`
    /// depends on except the program; without it nothing is cached.
    std::shared_ptr<const CodeCache> kept = {};
    std::string evaluator_key = {};
    double equal = 0.001;  ///< full plans within this share of the cheapest count as equal: the one with the fewest
                           ///< changes is chosen
};

struct RewriteReport {
    size_t pieces = 0, distinct = 0;  ///< all pieces, and the distinct pieces that were searched
    size_t taken = 0, costed = 0;     ///< programs popped from the queue, and all programs evaluated
    double before = 0, after = 0;     ///< the search's costs, summed over pieces
    size_t planned = 0;               ///< full plans that were evaluated
    size_t rejected_by_plan = 0;      ///< pieces for which the evaluator chose another proposal than the search's best
    double planned_before = 0, planned_after = 0;  ///< the evaluator's costs
    std::map<std::string, size_t> applied;         ///< rules that led to the chosen programs, summed over pieces
};

/// A rewritten program and the rules that led to it.
struct Rewritten {
    Program program;
    double cost = 0;
    std::vector<std::string_view> way;  ///< applied rules, in order
    bool inexact = false;               ///< whether one of them is inexact
};

/// The search's proposals for a whole program of tensor expressions, cheapest first: the cheapest, the cheapest
/// without inexact rules if that differs, and the program itself.
std::vector<Rewritten> proposals(const Program& program, const RewriteSearch& options = {},
                                 RewriteReport* report = nullptr);
/// The first of them.
Program search(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// Rewrites piece by piece programs of any size and with any primitives. Constants are not folded afterwards.
Program rewrite(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// A hash of the outputs' definitions: equal for programs that differ only in names and in the order of primitives.
uint64_t structure_hash(const Program& program);

}  // namespace tilewright
