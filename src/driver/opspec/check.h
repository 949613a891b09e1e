#pragma once
// Checks an operator's machine code against the interpreter, on the same inputs.

#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct OpCheck {
    bool ok = true;
    bool sampled = false;  ///< only samples of the outputs were checked
    int64_t elements = 0;  ///< checked
    int64_t total = 0;     ///< elements of the outputs
    double error = 0;      ///< largest difference relative to the largest expected magnitude
    double tolerance = 0;  ///< limit of `error`
    std::string reason;    ///< of a failure
};

/// The tolerance of float32 against the interpreter's double precision, relative to the result's largest magnitude:
///     2^-24 (64 + 4 sqrt(n)),  n = the total length of all sums on the path.
/// Independent rounding errors of a sum of n terms in any order add up to about sqrt(n) / 2 units of its result's size;
/// 4 sqrt(n) is eight times that. The 64 covers other operations: polynomials of exp and erf, and exp of scores, whose
/// relative error is the score's absolute error.
double tolerance_of(const Program& program);

/// Compares `outputs` with the interpreter's. Programs of more than `budget` points are checked by samples: the first
/// and the last corner of each output and two random places from `seed`, each as large as an eighth of the budget
/// allows.
OpCheck check_outputs(const Program& program, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                      double budget, uint64_t seed = 0);

/// "all 393216 elements", "4096 of 393216 elements"
std::string describe(const OpCheck& check);

}  // namespace tilewright
