#include "program/transform/dead_code.h"

#include <algorithm>

#include "program/transform/substitute.h"

namespace tilewright {

namespace {

/// Returns the same pointer if nothing is dead: a body is identified by it (compile/unit.h).
std::shared_ptr<const Program> cleaned(const std::shared_ptr<const Program>& program) {
    if (!program) return program;
    Program out = eliminate_dead_code(*program);
    const bool nested = std::any_of(out.primitives.begin(), out.primitives.end(), [](const Primitive& p) {
        return std::holds_alternative<If>(p.kind) || std::holds_alternative<Loop>(p.kind);
    });
    const bool same =
        out.primitives.size() == program->primitives.size() && out.constants.size() == program->constants.size() &&
        out.requirements.size() == program->requirements.size() && (!nested || print(out) == print(*program));
    return same ? program : std::make_shared<const Program>(std::move(out));
}

/// A primitive that is not an expression binds fresh symbols of its outputs' shapes. It stays while a symbol is used,
/// even if its outputs are not read (fusion may have moved every read elsewhere).
bool binds_used_symbol(const Program& program, const Primitive& p, const std::set<Var>& names,
                       const std::set<Var>& given) {
    if (p.expr() != nullptr) return false;
    for (const ValueId v : p.outputs)
        for (const Expr d : program.values[v].shape)
            if (const auto s = d.as_var();
                s && s->kind == VarKind::Symbol && names.count(*s) != 0 && given.count(*s) == 0)
                return true;
    return false;
}

/// Names without cost: dimensions of the program's inputs, and elements read from them.
std::set<Var> names_of_inputs(const Program& program) {
    std::set<Var> out;
    const std::set<ValueId> inputs(program.inputs.begin(), program.inputs.end());
    for (const ValueId v : program.inputs)
        for (const Expr e : program.values[v].shape) add_names(e, out);
    for (const Primitive& p : program.primitives)
        if (const auto* read = std::get_if<ReadScalar>(&p.kind); read != nullptr && inputs.count(read->value) != 0)
            out.insert(*scalar(read->name).as_var());
    return out;
}

/// Names whose primitives are kept for requirements.
std::set<Var> names_to_check(const Program& program) {
    std::set<Var> out;
    const std::set<Var> free = names_of_inputs(program);
    for (const Requirement& r : program.requirements) {
        std::set<Var> its;
        add_names(r.a, its);
        add_names(r.b, its);
        if (r.when != Requirement::Check::Free || std::includes(free.begin(), free.end(), its.begin(), its.end()))
            out.merge(its);
    }
    return out;
}

}  // namespace

Program eliminate_dead_code(Program program) {
    // Programs of expressions only bind no names.
    const bool plain = std::all_of(program.primitives.begin(), program.primitives.end(),
                                   [](const Primitive& p) { return p.expr() != nullptr; });
    std::set<Var> names, given;
    if (!plain) names = names_to_check(program);
    if (!plain)
        for (const ValueId v : program.inputs)
            for (const Expr e : program.values[v].shape) add_names(e, given);
    IndexVector<ValueId, char> needed(program.values.size(), 0);
    const auto need = [&](ValueId v) {
        needed[v] = 1;
        if (plain) return;
        for (const Expr e : program.values[v].shape) add_names(e, names);
    };
    for (const ValueId v : program.inputs) need(v);
    for (const ValueId v : program.outputs) need(v);

    std::vector<Primitive> kept;  // in reverse order
    std::set<Var> lost;           // names bound only by removed primitives
    const std::vector<PrimitiveId> ids = program.primitives.ids();
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        Primitive& p = program.primitives[*id];
        const auto* read = std::get_if<ReadScalar>(&p.kind);
        const bool live = read != nullptr ? names.count(*scalar(read->name).as_var()) != 0
                                          : std::any_of(p.outputs.begin(), p.outputs.end(),
                                                        [&](ValueId v) { return needed[v] != 0; }) ||
                                                binds_used_symbol(program, p, names, given);
        if (!live) {
            if (read != nullptr) lost.insert(*scalar(read->name).as_var());
            if (p.expr() == nullptr)
                for (const ValueId v : p.outputs)
                    for (const Expr e : program.values[v].shape)
                        if (const auto s = e.as_var()) lost.insert(*s);
            continue;
        }
        Primitive& copy = kept.emplace_back(std::move(p));
        if (auto* branch = std::get_if<If>(&copy.kind)) {
            branch->then_branch = cleaned(branch->then_branch);
            branch->else_branch = cleaned(branch->else_branch);
        } else if (auto* loop = std::get_if<Loop>(&copy.kind)) {
            loop->body = cleaned(loop->body);
        }
        for (const ValueId v : copy.inputs()) need(v);
        for (const ValueId v : copy.outputs) need(v);
        if (!plain) names.merge(names_used(copy));
    }

    // A primitive that relies on a requirement has its names in its operands' dimensions.
    std::erase_if(lost, [&](Var v) { return names.count(v) != 0; });
    if (!lost.empty())
        std::erase_if(program.requirements, [&](const Requirement& r) {
            std::set<Var> its;
            add_names(r.a, its);
            add_names(r.b, its);
            return std::any_of(its.begin(), its.end(), [&](Var v) { return lost.count(v) != 0; });
        });
    program.primitives = {};
    for (auto p = kept.rbegin(); p != kept.rend(); ++p) program.primitives.push_back(std::move(*p));
    std::erase_if(program.constants, [&](const auto& entry) { return needed[entry.first] == 0; });
    std::erase_if(program.unread, [&](const auto& entry) { return needed[entry.first] == 0; });
    return program;
}

}  // namespace tilewright
