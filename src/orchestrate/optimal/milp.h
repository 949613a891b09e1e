#pragma once
// Mixed-integer linear programs, minimised by COIN-OR's Cbc. Only milp.cpp includes the solver's headers.

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
        std::vector<std::pair<size_t, double>> terms;  ///< column and coefficient; a column occurs once
        double lower = 0, upper = 0;                   ///< infinite: unbounded
    };
    std::vector<Column> columns;
    std::vector<Row> rows;
};

struct MilpResult {
    bool optimal = false;
    bool infeasible = false;
    std::optional<std::vector<double>> solution;  ///< the best found
    double bound = 0;
    double root = 0;  ///< objective of the linear relaxation
};

/// Minimises on one thread, without output. Deterministic unless the time limit is reached. `start`: an initial
/// solution. `seconds`: of processor time. Costs should be about 1 to 1e6 in total: differences below 1e-5 are ignored.
MilpResult solve(const Milp& milp, const std::vector<double>& start, double seconds);

/// The minimum without integrality constraints; infinity if there is no solution.
double relaxed(const Milp& milp);

}  // namespace tilewright::optimal
