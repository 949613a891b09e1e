#pragma once
// Reference execution that shows its values.

#include <functional>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// Called with each value of a program once it has its contents: constants and inputs first, then results in the order
/// of the primitives. Values of bodies of control flow are not shown. An exception ends the execution.
using WatchValues = std::function<void(ValueId value, const Tensor& contents)>;

/// interpret() (program.h); `watch` may be empty.
std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs,
                              const InterpretOptions& options, const WatchValues& watch);

}  // namespace tilewright
