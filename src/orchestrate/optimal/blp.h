#pragma once
// The optimal choice of kernels as a binary linear program (Korch §4.2), in the paper's form and in a stronger one.
//
// Published: u_k = 1 where candidate k runs.
//
//     min  sum_k c_k u_k                                                                 (2)
//     sum_{k makes t} u_k >= 1                     for every needed tensor t             (3)
//     sum_{k makes t} u_k >= u_j                   for every candidate j that reads t    (4)
//
// (The paper defines O_ij as "primitive j is an *input* of kernel i", word for word as I_ij; outputs are meant.)
//
// Strong: in addition, y_t = 1 where tensor t is materialised, and w_kt = 1 where candidate k does that. For a
// candidate with one output, w_kt is u_k itself.
//
//     sum_k w_kt = y_t                             for every tensor t
//     y_t = 1                                      for every needed tensor t
//     sum_{k reads s} w_kt <= y_s                  for every tensor t and every s that a maker of t reads
//     w_kt <= u_k                                  where k has several outputs
//     sum_{k covers p} u_k >= 1                    for every unavoidable node p
//
// Every plan that can run gives a solution: for each tensor, the first candidate that makes it has w_kt = 1. (A plan
// may have two kernels that write a tensor, where each has another output that is needed; therefore w, and not u, sums
// to y_t.) A single row for all makers of t that read s replaces one row each, because at most one of them provides t.
// The cover rows are implied: the maker of a needed tensor covers its node, and a candidate that covers a node covers
// or reads its predecessors. They cut off fractional solutions in which halves of two kernels share the work of a node.
// Redundant execution is allowed: any number of kernels may cover a node, unless Choice::once adds a row against that.
//
// Both forms allow kernels with several outputs that wait for each other: for a1 -> a2, b1 -> b2, the kernels {a1, b2}
// and {b1, a2}. Rows against that are added when a solution violates them. Let L be a set of tensors, each of which the
// chosen kernels make only from another tensor of L. The first kernel that makes a tensor of L reads none of L, so
//
//     sum of w_kt over t in L and those k that make t and read none of L  >=  y_s          for every s in L
//
// holds for every plan that can run and not for this solution. (The published form has u_k for w_kt, each k once, and
// u_j for y_s, for every j that makes s.) There are finitely many L, so eventually a solution can run. It is optimal,
// as the program without all those rows is a relaxation.

#include <cstdint>
#include <string_view>
#include <vector>

#include "orchestrate/optimal/kernels.h"

namespace tilewright::optimal {

enum class BlpForm : uint8_t { Published, Strong };

struct BlpOptions {
    BlpForm form = BlpForm::Strong;
    double seconds = 60;        ///< processor time of all rounds
    std::vector<size_t> start;  ///< an initial plan that can run; the cheaper one of it and cheap_plan's is used
    bool reduce = true;         ///< drop dominated candidates; ignored where nodes must not repeat
};

enum class BlpStatus : uint8_t {
    Optimal,    ///< no plan costs less
    Feasible,   ///< the time limit was reached; `bound` limits the gain of a better plan
    Infeasible  ///< no plan computes the needed tensors
};
std::string_view to_string(BlpStatus s);

struct BlpResult {
    BlpStatus status = BlpStatus::Infeasible;
    std::vector<size_t> chosen;  ///< in an order that can run
    double objective = 0;        ///< the cost of `chosen`
    double bound = 0;            ///< a lower bound of the cost of every plan
    double gap() const { return objective > bound ? (objective - bound) / objective : 0; }
    // Statistics of the solver.
    double root = 0;                   ///< objective of the first program's linear relaxation
    size_t candidates = 0;             ///< after dominated ones are dropped
    size_t rows = 0, columns = 0;      ///< of the last program
    size_t rounds = 0, loop_rows = 0;  ///< programs solved, and rows added between them
    double seconds = 0;                ///< processor time
};

/// Selects the cheapest set of candidates. Deterministic unless the time limit is reached.
BlpResult solve(const Choice& choice, const BlpOptions& options = {});

/// The linear relaxation of one form.
struct Relaxation {
    double root = 0;     ///< a lower bound of the cost of every plan; infinity if there is none
    double seconds = 0;  ///< processor time
};
Relaxation relaxation(const Choice& choice, BlpForm form);

/// The minimal sets L, as above, of the chosen candidates: those that wait for no other set. Empty if all can run.
std::vector<std::vector<TensorId>> loops(const Choice& choice, const std::vector<size_t>& chosen);

}  // namespace tilewright::optimal
