#pragma once
// A primitive as a kernel of its own, in given layouts of its tensors.

#include <optional>
#include <string>
#include <vector>

#include "cost/target.h"
#include "layout/layout.h"
#include "orchestrate/kernel_group.h"

namespace tilewright::joint {

/// One primitive as a program. The inputs are its computed operands, each once; constants have no contents.
struct SinglePrimitive {
    Program program;
    std::vector<ValueId> tensors;  ///< of the outer program: each input, then the result
    std::string key;               ///< primitives with equal keys have equal kernels in equal layouts

    const Primitive& primitive() const { return program.primitives[PrimitiveId(0)]; }
    /// The value of the program for tensor `t`.
    ValueId value(size_t t) const { return t < program.inputs.size() ? program.inputs[t] : program.outputs[0]; }
};
SinglePrimitive single_primitive(const Program& program, const KernelExtractor& extracted, PrimitiveId id);
/// A copy of a tensor, whose layouts differ.
SinglePrimitive single_copy(const Program& program, ValueId value);

/// One text per list of layouts.
std::string text_of(const std::vector<Layout>& layouts);

/// The kernel, with one layout per tensor, and which of its inputs are constants.
struct KernelInLayouts {
    KernelBody body;
    std::vector<bool> weights;
};
/// Nothing where the primitive cannot write its result in the layout.
std::optional<KernelInLayouts> kernel_in_layouts(const SinglePrimitive& single, const std::vector<Layout>& layouts,
                                                 const Target& target);

}  // namespace tilewright::joint
