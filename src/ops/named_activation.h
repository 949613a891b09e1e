#pragma once
// Activation functions that operators name in an attribute.

#include <optional>
#include <string_view>

#include "ops/scalar_math.h"

namespace tilewright {

/// A function and the defaults of its parameters, where it has such.
struct ActivationKind {
    std::string_view name;  ///< lower case
    std::optional<double> alpha, beta;
    bool recurrent = true;  ///< a function of ONNX's recurrent operators
};

/// `name` in any case; null if there is no such function.
const ActivationKind* find_activation(std::string_view name);

struct NamedActivation {
    std::string_view name;  ///< an ActivationKind's
    double alpha = 0, beta = 0;

    Sx operator()(Sx x) const;
};

}  // namespace tilewright
