#include "orchestrate/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/schedules.h"

namespace tilewright {

size_t KernelSet::add(TileProgram kernel, const std::string& provider, const std::vector<bool>& weights) {
    std::string text = print_without_names(kernel);
    if (!provider.empty()) {
        text += provider + ' ';
        for (const bool weight : weights) text += weight ? 'c' : 'v';
    }
    const auto [it, fresh] = by_text_.try_emplace(std::move(text), kernels_.size());
    if (fresh) {
        kernels_.push_back(std::move(kernel));
        provided_.push_back({provider, provider.empty() ? std::vector<bool>() : weights});
    }
    return it->second;
}

KernelBody extract(const Program& program, const KernelGroup& group) {
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
                body.tensors.push_back(v);
            }
    const auto consumers = program.consumers();
    const std::set<ValueId> results(program.outputs.begin(), program.outputs.end());
    std::vector<ValueId> outputs;
    for (const PrimitiveId id : group.primitives) {
        const Primitive& original = program.primitives[id];
        const ValueId out = original.outputs[0];
        const bool leaves = results.count(out) != 0 || std::any_of(consumers[out].begin(), consumers[out].end(),
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
    body.tensors.insert(body.tensors.end(), outputs.begin(), outputs.end());
    for (const std::vector<size_t>& rows : group.row_axes) body.row_axes.push_back(rows);
    return body;
}

std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups) {
    std::vector<KernelGroup> out;
    for (const KernelGroup& g : groups) {
        if (extract(program, g).stages.outputs.size() == 1)
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

Scheduling scheduling(const OrchestrateOptions& options) {
    Scheduling how = options.scheduling;
    how.rule = options.target;
    return how;
}

std::shared_ptr<Schedules> schedules_of(const OrchestrateOptions& options) {
    if (options.schedules) return options.schedules;
    return std::make_shared<Schedules>(scheduling(options), options.measure, options.kept, options.recall);
}

std::string Plan::print() const {
    std::string s;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (const auto* call = std::get_if<KernelCall>(&steps[i].what)) {
            s += fmt::format("{:4} kernel {} \"{}\" (", i, call->kernel, call->name);
            for (size_t k = 0; k < call->tensors.size(); ++k)
                s += fmt::format("{}{}: {}{}", k > 0 ? ", " : "", program.values[call->tensors[k]].name,
                                 tilewright::to_string(program.values[call->tensors[k]].dtype),
                                 tilewright::to_string(std::span<const Expr>(program.values[call->tensors[k]].shape)));
            s += ")\n";
        } else {
            s += fmt::format("{:4} {}\n", i, program.primitives[std::get<PrimitiveId>(steps[i].what)].name);
        }
        for (const auto& body : steps[i].bodies) s += "  body:\n" + body->print();
    }
    for (const Slices& x : slices)
        s += fmt::format("steps {} to {} in {} slices\n", x.first, x.first + x.count - 1, x.slices);
    if (optimal) s += "optimal: " + optimal->print() + "\n";
    return s;
}

}  // namespace tilewright
