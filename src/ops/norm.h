#pragma once
// Normalisations over axes, shared by several operators.

#include <vector>

#include "program/builder.h"

namespace tilewright {

struct Normalized {
    ValueId value, mean, inverse_deviation;  ///< statistics keep their axes with extent 1
};

/// d = x - mean(x);   y = d / sqrt(mean(d * d) + epsilon), over `axes`.
Normalized normalize(Builder& b, ValueId x, const std::vector<int64_t>& axes, double epsilon);
/// 1 / sqrt(v + epsilon)
ValueId inverse_root(Builder& b, ValueId v, double epsilon);

}  // namespace tilewright
