#include "orchestrate/optimal/milp.h"

#include <coin/CbcHeuristic.hpp>
#include <coin/CbcHeuristicDiveCoefficient.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CglClique.hpp>
#include <coin/CglGomory.hpp>
#include <coin/CglProbing.hpp>
#include <coin/CglZeroHalf.hpp>
#include <coin/OsiClpSolverInterface.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilewright::optimal {

namespace {

OsiClpSolverInterface loaded(const Milp& milp) {
    OsiClpSolverInterface solver;
    solver.messageHandler()->setLogLevel(0);
    const size_t n = milp.columns.size();
    CoinPackedMatrix matrix(false, 0, 0);
    matrix.setDimensions(0, static_cast<int>(n));
    std::vector<double> lower(n), upper(n, 1), cost(n), row_lower, row_upper;
    for (size_t k = 0; k < n; ++k) {
        lower[k] = milp.columns[k].lower;
        cost[k] = milp.columns[k].cost;
    }
    const auto infinite = [&](double x) { return std::isinf(x) ? std::copysign(solver.getInfinity(), x) : x; };
    for (const Milp::Row& row : milp.rows) {
        CoinPackedVector v;
        for (const auto& [column, coefficient] : row.terms) v.insert(static_cast<int>(column), coefficient);
        matrix.appendRow(v);
        row_lower.push_back(infinite(row.lower));
        row_upper.push_back(infinite(row.upper));
    }
    solver.loadProblem(matrix, lower.data(), upper.data(), cost.data(), row_lower.data(), row_upper.data());
    for (size_t k = 0; k < n; ++k)
        if (milp.columns[k].integer) solver.setInteger(static_cast<int>(k));
    return solver;
}

}  // namespace

double relaxed(const Milp& milp) {
    OsiClpSolverInterface solver = loaded(milp);
    solver.initialSolve();
    return solver.isProvenPrimalInfeasible() ? std::numeric_limits<double>::infinity() : solver.getObjValue();
}

// Cbc's own driver (CbcMain1) is not used: its presolve crashes on programs of a few rows that it solves completely
// (2.10.8). Its set-up is done here.
MilpResult solve(const Milp& milp, const std::vector<double>& start, double seconds) {
    MilpResult result;
    OsiClpSolverInterface solver = loaded(milp);
    solver.initialSolve();
    if (solver.isProvenPrimalInfeasible()) {
        result.infeasible = true;
        return result;
    }
    result.root = result.bound = solver.getObjValue();

    CbcModel model(solver);
    model.setLogLevel(0);
    model.messageHandler()->setLogLevel(0);
    model.solver()->messageHandler()->setLogLevel(0);
    model.setUseElapsedTime(false);
    model.setMaximumSeconds(std::max(seconds, 0.01));
    model.setAllowableGap(0);
    model.setAllowableFractionGap(0);

    CglProbing probing;
    probing.setUsingObjective(1);
    probing.setMaxPass(1);
    probing.setMaxPassRoot(1);
    probing.setMaxProbe(10);
    probing.setMaxProbeRoot(50);
    probing.setMaxLook(10);
    probing.setMaxLookRoot(50);
    CglGomory gomory;
    gomory.setLimit(300);
    CglClique clique;
    clique.setStarCliqueReport(false);
    clique.setRowCliqueReport(false);
    CglZeroHalf zero_half;
    constexpr int kWhileUseful = -98;  // cuts at the root, and below it if they moved the bound
    model.addCutGenerator(&probing, kWhileUseful, "probing");
    model.addCutGenerator(&gomory, kWhileUseful, "gomory");
    model.addCutGenerator(&clique, kWhileUseful, "clique");
    model.addCutGenerator(&zero_half, kWhileUseful, "zero half");
    CbcRounding rounding(model);
    CbcHeuristicDiveCoefficient dive(model);
    model.addHeuristic(&rounding);
    model.addHeuristic(&dive);
    if (!start.empty()) {
        double cost = 0;
        for (size_t k = 0; k < start.size(); ++k) cost += milp.columns[k].cost * start[k];
        model.setBestSolution(start.data(), static_cast<int>(start.size()), cost, true);
    }
    model.branchAndBound();
    result.infeasible = model.isProvenInfeasible() && model.bestSolution() == nullptr;
    if (result.infeasible) return result;
    result.optimal = model.isProvenOptimal() && model.bestSolution() != nullptr;
    result.bound = std::max(result.bound, model.getBestPossibleObjValue());
    if (const double* best = model.bestSolution()) result.solution.emplace(best, best + milp.columns.size());
    return result;
}

}  // namespace tilewright::optimal
