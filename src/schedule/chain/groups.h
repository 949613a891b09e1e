#pragma once
// Grouped-query and multi-query attention: heads that share keys and values become the rows of one product of a chain.

#include "program/program.h"

namespace tilewright::chain {

/// Splits every axis that is used in groups of G into two, in all stages and all values that stay in the kernel. Eight
/// heads, four of which share keys:
///     c[i0, i1] = sum(i2) q[i0, i2] * k[i0 // 4, i1, i2]            c is [8, n]
///     p[i0, i1] = exp(c[i0, i1])
/// becomes
///     c[i0, i1, i2] = sum(i3) q[4*i0 + i1, i3] * k[i0, i2, i3]      c is [2, 4, n]
///     p[i0, i1, i2] = exp(c[i0, i1, i2])
/// so that keys move along only one of the two axes. Four heads are the rows of one product instead of four
/// matrix-vector products. Axes that are grouped in two ways, or whose extent is dynamic, stay unchanged.
Program split_groups(const Program& stages);

}  // namespace tilewright::chain
