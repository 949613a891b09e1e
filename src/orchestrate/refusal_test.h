#pragma once
// Reasons of fusion passes, for the tests of this folder.

#include <memory>
#include <string>

#include "orchestrate/fusion_limits.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/program_test.h"

namespace tilewright::test {

/// The reason why `reader` is not fused with `producer`, both named by their results; "" if nothing was refused. `pass`
/// runs the passes on a program with these limits.
template <class Pass>
std::string refusal(const Program& program, const std::string& producer, const std::string& reader, const Pass& pass,
                    FusionLimits limits = {}) {
    const Program p = numbered(program);
    limits.refusals = std::make_shared<Refusals>();
    pass(p, limits);
    const auto producers = p.producers();
    const auto parts = [&](const std::string& name) { return p.primitives[producers[value_of(p, name)]].origin.parts; };
    const char* reason = limits.refusals->reason(parts(producer), parts(reader));
    return reason != nullptr ? reason : "";
}

inline FusionLimits nothing_shared() {
    FusionLimits limits;
    limits.may_share = [](const Primitive&, const Primitive&) { return false; };
    return limits;
}

}  // namespace tilewright::test
