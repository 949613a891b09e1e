#pragma once
// Which rewrites to make: TASO's cost-based backtracking search (Jia et al., SOSP 2019, section 6 and algorithm 2).
//
// Programs wait in a queue, the cheapest first. One is taken, every rule is applied to it wherever it finds something,
// and what comes out is queued unless it was seen before, costs alpha times the best or more, or has more than twice
// the primitives: alpha above 1 lets a rewrite that costs something open the way for one that pays. A number of
// programs taken ends it. Nothing is random, so that the same program always becomes the same.
//
// Beyond TASO, all rewrites of a program that gain are also tried together: then as many of them as a piece has places
// cost a few programs taken, not one each.
//
// A model is searched piece by piece. A piece is a run of tensor expressions in topological order (so it is convex),
// cut where few values are alive; equal pieces (the layers of a transformer) are searched once.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "program/rewrite/cost.h"
#include "program/rewrite/rewrite.h"

namespace tilewright {

/// What a program costs, in any unit. It may look at the form alone: large constants are not there (Program::unread).
using RewriteCost = std::function<double(const RewriteContext&)>;

struct RewriteSearch {
    RewriteOptions rules = {};
    double alpha = 1.05;    ///< TASO's
    size_t budget = 24;     ///< programs taken from the queue, a piece
    size_t patience = 6;    ///< of those in a row that lead to nothing better end it
    double growth = 2;      ///< primitives, at most, as a multiple of the piece's
    size_t piece = 32;      ///< primitives of a piece, at most
    RewriteCost cost = {};  ///< none: analytic_cost
    /// A better cost that takes longer to ask. What the search ends with is taken only where this one gains as well, by
    /// these shares: else the best without inexact rules, or the piece as it was. As a piece's ends look different in
    /// the whole, that is judged as well (it may have primitives of any kind), with all changed pieces, then with the
    /// half that gain most, a quarter, and so on to none: the cheapest stays. No judge: whatever `cost` prefers.
    RewriteCost judge = {};
    double margin = 0.02, inexact_margin = 0.1;
};

struct RewriteReport {
    size_t pieces = 0, distinct = 0;        ///< pieces, and those that were searched
    size_t taken = 0, costed = 0;           ///< programs from the queue, and all that were looked at
    double before = 0, after = 0;           ///< costs, summed over pieces
    size_t judged_away = 0;                 ///< pieces for which `judge` took less than the search had found
    double gain = 0;                        ///< of what it took, by its costs
    std::map<std::string, size_t> applied;  ///< rules on the way to what was chosen, summed over pieces
};

/// The cheapest program found from `program` as a whole. It must be tensor expressions alone.
Program search(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// The same piece by piece, for programs of any size and with any primitives. Constants are not folded afterwards.
Program rewrite(const Program& program, const RewriteSearch& options = {}, RewriteReport* report = nullptr);

/// Of what the outputs are made of: the same for programs that differ in names and in the order of primitives alone.
uint64_t structure_hash(const Program& program);

}  // namespace tilewright
