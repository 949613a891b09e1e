#pragma once
// The rules by file. rewrite.h puts them together.

#include <span>

#include "program/rewrite/rewrite.h"

namespace tilewright {

std::span<const RewriteRule> factor_rewrites();  ///< factors and summands across sums of products; folding into weights
std::span<const RewriteRule> sum_rewrites();     ///< sums as products with ones, and back; common factors and operands
std::span<const RewriteRule> product_rewrites();     ///< products merged, re-associated, flattened
std::span<const RewriteRule> layout_rewrites();      ///< views, concatenations and pads across everything else
std::span<const RewriteRule> linear_map_rewrites();  ///< products across maps that make more points
std::span<const RewriteRule> enumerated_rewrites();  ///< those found by trying (terms.h)
std::span<const RewriteRule> winograd_rewrites();    ///< convolutions of few taps in another basis

}  // namespace tilewright
