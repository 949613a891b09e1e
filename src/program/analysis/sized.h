#pragma once
// Values that depend on sizes and constants alone. They are equal in all runs on inputs of equal sizes.

#include <cstdint>

#include "program/program.h"

namespace tilewright {

/// The most bytes that a session keeps of such values, for all combinations of sizes that it remembers.
inline constexpr int64_t kMostSizedBytes = int64_t{16} << 20;

/// By value, whether its elements follow from the sizes of the program's inputs and from constants, by expressions and
/// deterministic operators: constants do, inputs do not.
///     range(0, $seq)  ->  distances[$seq, $seq]  ->  gather of a table of 32 weights        depend on sizes alone
///     scores + that                                                                         does not
/// False for values of control flow, and for those whose sizes depend on data.
IndexVector<ValueId, char> depend_on_sizes(const Program& program);

}  // namespace tilewright
