#include "orchestrate/kernel_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "program/transform/substitute.h"

namespace tilewright {

KernelExtractor::KernelExtractor(const Program& program)
    : program_(program), consumers_(program.consumers()), results_(program.outputs.begin(), program.outputs.end()) {
    if (program.constants_at == Residence::Near) return;
    for (const auto& [v, tensor] : program.constants) far_.emplace(v, program.constants_at);
    // What earlier runs have appended to.
    for (const Primitive& p : program.primitives)
        if (const auto* opaque = std::get_if<Opaque>(&p.kind); opaque != nullptr && opaque->op->concatenates())
            for (const ValueId v : p.outputs) far_.emplace(v, program.constants_at);
}

KernelBody extract(const Program& program, const KernelGroup& group) { return KernelExtractor(program)(group); }

KernelBody KernelExtractor::operator()(const KernelGroup& group) const {
    const Program& program = program_;
    KernelBody body;
    Program& p = body.stages;
    const std::set<PrimitiveId> inside(group.primitives.begin(), group.primitives.end());
    std::map<ValueId, ValueId> local;
    std::set<ValueId> made;
    for (const PrimitiveId id : group.primitives) made.insert(program.primitives[id].outputs[0]);
    const auto add = [&](ValueId v, const char* kind, size_t number) {
        Value value = program.values[v];
        value.name = fmt::format("{}{}", kind, number);
        return local[v] = p.values.push_back(std::move(value));
    };
    // Inputs in order of first use.
    for (const PrimitiveId id : group.primitives)
        for (const ValueId v : program.primitives[id].inputs())
            if (made.count(v) == 0 && local.count(v) == 0) {
                p.inputs.push_back(add(v, "in", p.inputs.size()));
                if (const auto at = far_.find(v); at != far_.end()) p.far.emplace(p.inputs.back(), at->second);
                body.tensors.push_back(v);
                body.weights.push_back(program.is_constant(v));
            }
    std::vector<ValueId> outputs;
    for (const PrimitiveId id : group.primitives) {
        const Primitive& original = program.primitives[id];
        const ValueId out = original.outputs[0];
        const bool leaves =
            results_.count(out) != 0 || std::any_of(consumers_[out].begin(), consumers_[out].end(),
                                                    [&](PrimitiveId c) { return inside.count(c) == 0; });
        const ValueId mine = leaves ? add(out, "out", outputs.size()) : add(out, "local", p.values.size());
        if (leaves) {
            p.outputs.push_back(mine);
            outputs.push_back(out);
        }
        Primitive copy = original;
        copy.name = fmt::format("stage{}", p.primitives.size());
        copy.source.clear();
        copy.origin = {};
        copy.outputs = {mine};
        for (Access& a : copy.expr()->accesses) a.value = local.at(a.value);
        p.primitives.push_back(std::move(copy));
    }
    const std::set<Var> names = names_of(p);
    for (const auto& [v, most] : program.at_most)
        if (names.count(v) != 0) p.at_most.emplace(v, most);
    for (const auto& [v, size] : program.assumed)
        if (names.count(v) != 0) p.assumed.emplace(v, size);
    body.tensors.insert(body.tensors.end(), outputs.begin(), outputs.end());
    for (const std::vector<size_t>& rows : group.row_axes) body.row_axes.push_back(rows);
    return body;
}

std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups) {
    std::vector<KernelGroup> out;
    const KernelExtractor extracted(program);
    for (const KernelGroup& g : groups) {
        if (extracted(g).stages.outputs.size() == 1)
            out.push_back(g);
        else
            for (const PrimitiveId id : g.primitives) out.push_back({{id}, {{}}, false});
    }
    return out;
}

Program without_contents(Program program) {
    for (auto& [v, tensor] : program.constants) tensor = Tensor();
    return program;
}

Program numbered(Program program) {
    for (const PrimitiveId id : program.primitives.ids()) program.primitives[id].origin.parts = {id.value};
    return program;
}

}  // namespace tilewright
