#pragma once
// Is what an operator's machine code computed right? The interpreter says so, on the same inputs.

#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct OpCheck {
    bool ok = true;
    bool sampled = false;  ///< parts of the outputs were checked, not all of them
    int64_t elements = 0;  ///< checked
    int64_t total = 0;     ///< elements of the outputs
    double error = 0;      ///< largest difference, as a share of the largest expected magnitude
    double tolerance = 0;  ///< what it may be
    std::string reason;    ///< why not ok
};

/// What float32 may differ from the interpreter's double precision, as a share of the result's largest magnitude:
///     2^-24 (64 + 4 sqrt(n)),  n = the lengths of all sums on the way, added up.
/// Rounding errors of a sum of n terms in any order are about sqrt(n) / 2 units of its result's size where they are
/// independent; 4 sqrt(n) is eight times that. The 64 are for what is no sum: polynomials of exp and erf, and exp of
/// scores, whose relative error is the score's absolute one.
double tolerance_of(const Program& program);

/// Compares `outputs` with the interpreter's. Programs of more than `budget` points are checked by samples: the first
/// and the last corner of each output and two places that `seed` picks, each as large as an eighth of the budget
/// allows.
OpCheck check_outputs(const Program& program, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                      double budget, uint64_t seed = 0);

/// "all 393216 elements", "4096 of 393216 elements"
std::string describe(const OpCheck& check);

}  // namespace tilewright
