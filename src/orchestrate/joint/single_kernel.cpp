#include "orchestrate/joint/single_kernel.h"

#include <utility>

#include "layout/propagate.h"
#include "orchestrate/layouts.h"

namespace tilewright::joint {

SinglePrimitive single_primitive(const Program& program, const KernelExtractor& extracted, PrimitiveId id) {
    KernelBody body = extracted({{id}, {{}}});
    SinglePrimitive out;
    out.program = std::move(body.stages);
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < out.program.inputs.size(); ++i) {
        const ValueId here = out.program.inputs[i], outside = body.tensors[i];
        if (!program.is_constant(outside)) {
            inputs.push_back(here);
            out.tensors.push_back(outside);
            continue;
        }
        const Value& value = out.program.values[here];
        out.program.constants.emplace(here, Tensor(value.dtype, evaluate(value.shape, Bindings()), false));
        out.program.unread.emplace(here, 0);
    }
    out.program.inputs = std::move(inputs);
    out.program.name = "single";
    // An output of the model that nothing else reads is no less a result.
    out.program.outputs = {out.program.primitives[PrimitiveId(0)].outputs[0]};
    out.tensors.push_back(program.primitives[id].outputs[0]);
    out.key = print(out.program);
    return out;
}

SinglePrimitive single_copy(const Program& program, ValueId value) {
    SinglePrimitive out;
    Program& p = out.program;
    p.name = "copy";
    Value v = program.values[value];
    v.name = "from";
    p.inputs = {p.values.push_back(v)};
    v.name = "to";
    p.outputs = {p.values.push_back(v)};
    p.primitives.push_back(layout_copy(p, p.inputs[0], p.outputs[0]));
    out.tensors = {value, value};
    out.key = print(p);
    return out;
}

std::string text_of(const std::vector<Layout>& layouts) {
    std::string out;
    for (const Layout& l : layouts) out += print(l) + ";";
    return out;
}

std::optional<KernelInLayouts> kernel_in_layouts(const SinglePrimitive& single, const std::vector<Layout>& layouts,
                                                 const Target& target) {
    std::map<ValueId, Layout> chosen;
    for (size_t t = 0; t < layouts.size(); ++t)
        if (!layouts[t].is_identity()) chosen.emplace(single.value(t), layouts[t]);
    const ValueId result = single.program.outputs[0];
    if (expands(layouts.back(), single.program.values[result].shape) && !can_expand(*single.primitive().expr()))
        return std::nullopt;
    const Program placed = lay_out(single.program, chosen, target, {.contents = Contents::Anything});
    KernelInLayouts out;
    out.body = extract(placed, {{PrimitiveId(0)}, {{}}});
    for (size_t i = 0; i < out.body.stages.inputs.size(); ++i)
        out.weights.push_back(placed.is_constant(out.body.tensors[i]));
    return out;
}

}  // namespace tilewright::joint
