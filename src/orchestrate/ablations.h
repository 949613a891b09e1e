#pragma once
// Mechanisms of orchestration that can be switched off, to measure the gain of each (Korch §6.4).

namespace tilewright {

struct Ablations {
    /// Operators are the units of fusion (operators.h). An operator that fuses to a single stage may join its
    /// neighbours, as in compilers that fuse operators. The stages of other operators share kernels only with each
    /// other.
    bool no_fission = false;
    /// No kernel has stages of two operators, as in a runtime without fusion.
    bool no_operator_fusion = false;
    bool no_redundancy = false;  ///< no two kernels compute the same primitive, however cheap it is
    bool single_output = false;  ///< a kernel has one output
    bool layouts_first = false;  ///< layouts are chosen for the primitives first, then kernels for these layouts

    bool any() const { return no_fission || no_operator_fusion || no_redundancy || single_output || layouts_first; }
};

}  // namespace tilewright
