#pragma once
// Heads that share keys and values (grouped-query and multi-query attention), seen as what they are to a chain: the
// rows of one product.

#include "program/program.h"

namespace tilewright::chain {

/// The same stages with every axis that is used in groups of G as two, in all stages and all values that stay in the
/// kernel. Eight heads of which each four have the keys of one:
///     c[i0, i1] = sum(i2) q[i0, i2] * k[i0 // 4, i1, i2]            c is [8, n]
///     p[i0, i1] = exp(c[i0, i1])
/// becomes
///     c[i0, i1, i2] = sum(i3) q[4*i0 + i1, i3] * k[i0, i2, i3]      c is [2, 4, n]
///     p[i0, i1, i2] = exp(c[i0, i1, i2])
/// so that the keys are moved along no longer by all heads: four of them are rows of a product instead of four products
/// with a vector. Axes that are grouped in two ways, or whose extent is open, stay as they are.
Program split_groups(const Program& stages);

}  // namespace tilewright::chain
