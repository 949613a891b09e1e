#pragma once
// The rules by file. rewrite.h combines them.

#include <span>

#include "program/rewrite/rewrite.h"

namespace tilewright {

std::span<const RewriteRule> factor_rewrites();  ///< factors and summands across sums of products; folding into weights
std::span<const RewriteRule> sum_rewrites();     ///< sums as products with ones and back; common factors and operands
std::span<const RewriteRule> product_rewrites();     ///< merging, re-associating and flattening products
std::span<const RewriteRule> layout_rewrites();      ///< views, concatenations and pads across other primitives
std::span<const RewriteRule> linear_map_rewrites();  ///< products across linear maps that increase the number of points
std::span<const RewriteRule> enumerated_rewrites();  ///< rules found by enumeration (terms.h)
std::span<const RewriteRule> winograd_rewrites();    ///< convolutions with few taps in Winograd's basis

}  // namespace tilewright
