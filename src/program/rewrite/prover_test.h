#pragma once
// Proofs that two programs compute the same values, for one choice of shapes and all real inputs.
//
// Every element of an output is written as a real expression of the inputs' elements, and Z3 searches for inputs
// for which the two differ. Assumptions besides real arithmetic:
//   - nothing is divided by 0: x / y is x inv(y), with y inv(y) = 1, inv(x y) = inv(x) inv(y) and
//     inv(inv(x)) = x;
//   - exp(x + y) = exp(x) exp(y), exp(-x) = inv(exp(x)), exp(0) = 1; other functions (tanh, erf, ...) are
//     uninterpreted functions that are 0 at 0;
//   - max and min are exact (relu is max(x, 0));
//   - a constant written as a float stands for the simplest fraction whose nearest f32 it is: 0.16666667 for 1/6.
// Constants of the programs are inputs here, so proofs hold for all weights. Known numbers are only those that rules
// can read (RewriteContext::fill) and those that only the second program has (Winograd's matrices).

#include <cstddef>

#include "program/program.h"

namespace tilewright {

enum class Verdict { Proven, Refuted, Unknown };

struct ProofOptions {
    size_t elements = 16;  ///< of an output, sampled evenly; an output usually has fewer distinct forms than that
    unsigned work =
        20'000'000;  ///< limit per element in Z3's resource units, so that a verdict does not depend on the machine
};

/// The programs must have the same inputs, and all dimensions must be constant. `after` may be derived from `before`
/// by patches: constants with the same ValueId are equal.
Verdict prove_equal(const Program& before, const Program& after, const ProofOptions& options = {});

}  // namespace tilewright
