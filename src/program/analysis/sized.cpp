#include "program/analysis/sized.h"

#include <algorithm>
#include <set>

#include "program/transform/substitute.h"

namespace tilewright {

namespace {

std::set<Var> symbols_of_inputs(const Program& program) {
    std::set<Var> out;
    for (const ValueId input : program.inputs)
        for (const Expr d : program.values[input].shape)
            for (const Var v : variables(d))
                if (v.kind == VarKind::Symbol) out.insert(v);
    return out;
}

bool computes(const Primitive& p) {
    const auto* opaque = std::get_if<Opaque>(&p.kind);
    return p.expr() != nullptr || (opaque != nullptr && opaque->op->deterministic());
}

}  // namespace

IndexVector<ValueId, char> depend_on_sizes(const Program& program) {
    const std::set<Var> known = symbols_of_inputs(program);
    IndexVector<ValueId, char> out(program.values.size(), 0);
    for (const auto& [v, tensor] : program.constants) out[v] = 1;
    const auto is_known = [&](Var v) { return known.count(v) != 0; };
    for (const Primitive& p : program.primitives) {
        if (!computes(p)) continue;
        const std::vector<ValueId> inputs = p.inputs();
        if (!std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) { return !v || out[v] != 0; })) continue;
        std::set<Var> names = names_used(p);
        for (const ValueId v : p.outputs)
            for (const Expr d : program.values[v].shape) add_names(d, names);
        if (!std::all_of(names.begin(), names.end(), is_known)) continue;
        for (const ValueId v : p.outputs) out[v] = 1;
    }
    return out;
}

}  // namespace tilewright
