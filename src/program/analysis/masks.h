#pragma once
// Masks of the scores of a softmax.

#include <optional>

#include "program/scalar.h"

namespace tilewright {

/// Numbers from here on down are masks: a row's maximum of unmasked scores is assumed to be larger by more than the
/// exponents of f32 span.
inline constexpr double kMasked = -0x1p100;

/// Whether the node is a constant that masks a score.
bool is_mask(const ScalarNode& node);

/// An expression that is >= 0 exactly where the node is true, or false if `negated`. Nothing where it is no comparison
/// of integers that indices alone decide.
///     ge(i2, i3)          ->   i2 - i3
///     lt(i2, i3 + 256)    ->   i3 - i2 + 255
std::optional<Expr> index_condition(const ScalarBody& body, ScalarId node, bool negated);

}  // namespace tilewright
