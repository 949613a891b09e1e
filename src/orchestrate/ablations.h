#pragma once
// What orchestration can do without, to see what each part of it is worth (Korch §6.4).

namespace tilewright {

struct Ablations {
    /// Operators are units (operators.h): one that fuses to a single stage may join its neighbours, as compilers that
    /// fuse operators do; the parts of any other share kernels with each other alone.
    bool no_fission = false;
    /// Nothing of one operator shares a kernel with anything of another: what a runtime without fusion does.
    bool no_operator_fusion = false;
    bool no_redundancy = false;  ///< no primitive is computed by two kernels, however cheap it is
    bool single_output = false;  ///< a kernel gives one tensor
    bool layouts_first = false;  ///< layouts are chosen for the primitives, and kernels among what that leaves

    bool any() const { return no_fission || no_operator_fusion || no_redundancy || single_output || layouts_first; }
};

}  // namespace tilewright
