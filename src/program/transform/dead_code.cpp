#include "program/transform/dead_code.h"

#include <algorithm>

#include "program/transform/substitute.h"

namespace tilewright {

namespace {

std::shared_ptr<const Program> cleaned(const std::shared_ptr<const Program>& program) {
    return program ? std::make_shared<const Program>(eliminate_dead_code(*program)) : program;
}

}  // namespace

Program eliminate_dead_code(const Program& program) {
    std::set<Var> names;
    IndexVector<ValueId, char> needed(program.values.size(), 0);
    const auto need = [&](ValueId v) {
        needed[v] = 1;
        for (const Expr e : program.values[v].shape) add_names(e, names);
    };
    for (const ValueId v : program.inputs) need(v);
    for (const ValueId v : program.outputs) need(v);

    std::vector<Primitive> kept;  // last first
    const std::vector<PrimitiveId> ids = program.primitives.ids();
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        const Primitive& p = program.primitives[*id];
        const auto* read = std::get_if<ReadScalar>(&p.kind);
        const bool live = read != nullptr ? names.count(*scalar(read->name).as_var()) != 0
                                          : std::any_of(p.outputs.begin(), p.outputs.end(),
                                                        [&](ValueId v) { return needed[v] != 0; });
        if (!live) continue;
        Primitive& copy = kept.emplace_back(p);
        if (auto* branch = std::get_if<If>(&copy.kind)) {
            branch->then_branch = cleaned(branch->then_branch);
            branch->else_branch = cleaned(branch->else_branch);
        } else if (auto* loop = std::get_if<Loop>(&copy.kind)) {
            loop->body = cleaned(loop->body);
        }
        for (const ValueId v : copy.inputs()) need(v);
        for (const ValueId v : copy.outputs) need(v);
        names.merge(names_used(copy));
    }

    Program out = program;
    out.primitives = {};
    for (auto p = kept.rbegin(); p != kept.rend(); ++p) out.primitives.push_back(std::move(*p));
    std::erase_if(out.constants, [&](const auto& entry) { return needed[entry.first] == 0; });
    std::erase_if(out.unread, [&](const auto& entry) { return needed[entry.first] == 0; });
    return out;
}

}  // namespace tilewright
