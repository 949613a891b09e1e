#pragma once

#include "program/program.h"

namespace tilewright {

/// Merges common subexpressions of the program:
///   - tensor expressions with equal text over equal operands, deterministic opaque operators with equal print() (the
///     symbols that only the second one's outputs bind are replaced by the first one's), reads of one scalar,
///   - constants of equal type, shape and bytes,
///   - copies, c[i0] = a[i0], which become a itself.
/// Program outputs keep their own values. Dead primitives are removed. Nested programs likewise.
Program merge_common_subexpressions(Program program);

}  // namespace tilewright
