#pragma once
// Mixed-integer linear programs, minimised by COIN-OR's Cbc. The solver's headers are in milp.cpp alone.

#include <optional>
#include <utility>
#include <vector>

namespace tilewright::optimal {

/// Columns are between 0 and 1.
struct Milp {
    struct Column {
        double cost = 0;
        double lower = 0;
        bool integer = false;
    };
    struct Row {
        std::vector<std::pair<size_t, double>> terms;  ///< column and coefficient, each column once
        double lower = 0, upper = 0;                   ///< infinite where there is none
    };
    std::vector<Column> columns;
    std::vector<Row> rows;
};

struct MilpResult {
    bool optimal = false;
    bool infeasible = false;
    std::optional<std::vector<double>> solution;  ///< the best found
    double bound = 0;
    double root = 0;  ///< of the linear relaxation
};

/// Prints nothing, runs on one thread, and gives the same answer every time unless time is up. `start`: a solution to
/// begin with. Costs should be about 1 to 1e6 altogether: differences below 1e-5 are not looked for.
MilpResult solve(const Milp& milp, const std::vector<double>& start, double seconds);

/// The least cost where no column need be an integer; infinity where there is no solution.
double relaxed(const Milp& milp);

}  // namespace tilewright::optimal
