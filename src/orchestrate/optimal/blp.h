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
// Strong: also y_t = 1 where tensor t is materialised, and w_kt where it is candidate k that does it; for a candidate
// with one output, w_kt is u_k itself.
//
//     sum_k w_kt = y_t                             for every tensor t
//     y_t = 1                                      for every needed tensor t
//     sum_{k reads s} w_kt <= y_s                  for every tensor t and every s that a maker of t reads
//     w_kt <= u_k                                  where k has several outputs
//     sum_{k covers p} u_k >= 1                    for every unavoidable node p
//
// Every plan that runs gives a solution: for each tensor the first candidate that makes it has w_kt = 1. (A plan may
// well have two kernels that write a tensor, where each has another output that is needed; therefore w, and not u, sums
// to y_t.) One row for all makers of t that read s, in place of one each, is right because one of them at most provides
// t. The cover rows follow: a needed tensor's maker covers its node, and a candidate that covers a node covers or
// reads what that reads. They cut off fractional solutions in which halves of two kernels share a node's work.
// Redundant execution is allowed: nothing bounds how many kernels cover a node, unless Choice::once adds such a row.
//
// Both allow kernels with several outputs that wait for each other: of a1 -> a2, b1 -> b2, the kernels {a1, b2} and
// {b1, a2}. Rows against that are added when a solution needs them. Let L be a set of tensors, each of which the chosen
// kernels make from another of them alone. The first kernel that makes a tensor of L reads none of L, so
//
//     sum of w_kt over t in L and those k that make t and read none of L  >=  y_s          for every s in L
//
// holds for every plan that runs and not for this solution. (The published form has u_k for w_kt, each k once, and u_j
// for y_s, of every j that makes s.) There are finitely many L, so some solution runs at last, and it is optimal, as
// the program without all those rows is a relaxation.

#include <cstdint>
#include <string_view>
#include <vector>

#include "orchestrate/optimal/kernels.h"

namespace tilewright::optimal {

enum class BlpForm : uint8_t { Published, Strong };

struct BlpOptions {
    BlpForm form = BlpForm::Strong;
    double seconds = 60;        ///< of processor time, for all rounds together
    std::vector<size_t> start;  ///< a plan to begin with; must run. The better of it and cheap_plan's is taken
    bool reduce = true;         ///< leave dominated candidates out; never where nodes may not repeat
};

enum class BlpStatus : uint8_t {
    Optimal,    ///< no plan costs less
    Feasible,   ///< time was up; `bound` says how much less a plan may cost
    Infeasible  ///< no plan makes what is needed
};
std::string_view to_string(BlpStatus s);

struct BlpResult {
    BlpStatus status = BlpStatus::Infeasible;
    std::vector<size_t> chosen;  ///< in an order that runs
    double objective = 0;        ///< what they cost
    double bound = 0;            ///< no plan costs less than this
    double gap() const { return objective > bound ? (objective - bound) / objective : 0; }
    // What solving took.
    double root = 0;                   ///< of the first program's linear relaxation
    size_t candidates = 0;             ///< that were left to choose from
    size_t rows = 0, columns = 0;      ///< of the last program
    size_t rounds = 0, loop_rows = 0;  ///< programs solved, and rows added between them
    double seconds = 0;                ///< of processor time
};

/// The same answer on every run, unless time is up.
BlpResult solve(const Choice& choice, const BlpOptions& options = {});

/// A form's linear relaxation.
struct Relaxation {
    double root = 0;     ///< no plan costs less; infinity where there is none
    double seconds = 0;  ///< of processor time
};
Relaxation relaxation(const Choice& choice, BlpForm form);

/// Sets L as above that the chosen candidates hold: the smallest ones that wait for no other. Empty where all can run.
std::vector<std::vector<TensorId>> loops(const Choice& choice, const std::vector<size_t>& chosen);

}  // namespace tilewright::optimal
