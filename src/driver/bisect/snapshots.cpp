#include "driver/bisect/snapshots.h"

#include "compile/unit.h"

namespace tilewright::bisect {

namespace {

/// Control flow counts as different: its bodies are copies.
bool same(const Program& a, const Primitive& p, const Program& b, const Primitive& q) {
    if (p.outputs != q.outputs || p.kind.index() != q.kind.index()) return false;
    if (p.expr() != nullptr)
        return a.values[p.outputs[0]].shape == b.values[q.outputs[0]].shape &&
               print(a, *p.expr()) == print(b, *q.expr());
    if (const auto* x = std::get_if<ReadScalar>(&p.kind)) {
        const auto& y = std::get<ReadScalar>(q.kind);
        return x->value == y.value && x->position == y.position && x->name == y.name;
    }
    if (const auto* x = std::get_if<Opaque>(&p.kind)) {
        const auto& y = std::get<Opaque>(q.kind);
        return x->op == y.op && x->inputs == y.inputs;
    }
    return false;
}

/// Whether both have the same primitives on the same constants.
bool same(const Program& a, const Program& b) {
    if (a.inputs != b.inputs || a.outputs != b.outputs || a.primitives.size() != b.primitives.size() ||
        a.constants.size() != b.constants.size() || a.requirements.size() != b.requirements.size())
        return false;
    for (const auto& [v, tensor] : a.constants) {
        const auto it = b.constants.find(v);
        if (it == b.constants.end() || it->second.data() != tensor.data() || it->second.shape() != tensor.shape())
            return false;
    }
    for (const PrimitiveId id : a.primitives.ids())
        if (!same(a, a.primitives[id], b, b.primitives[id])) return false;
    return true;
}

}  // namespace

void Snapshots::attach(PassOptions& options) {
    options.after = [this, before = std::move(options.after)](const std::string& pass, const PassResult& result) {
        if (before) before(pass, result);
        take(pass, result);
    };
}

void Snapshots::take(const std::string& pass, const PassResult& result) {
    const bool coded = pass == "generate_code" || pass == "place_constants";
    if (result.plan != nullptr && !coded) plan_ = *result.plan;
    if (pass == "confirm_measurements") add(pass, result.plan->program, true);  // may be another plan
    if (result.plan != nullptr) return;
    const bool laid_out = pass == "apply_layouts" || (!all_.empty() && all_.back().laid_out);
    if (result.unit == nullptr) {
        add(pass, *result.program, false);
        return;
    }
    add(pass, result.unit->whole_program(), laid_out);
    if (pass != "choose_layouts") return;
    for (const auto& [v, layout] : result.unit->layouts) layouts_[result.unit->program().values[v].name] = layout;
}

void Snapshots::add(const std::string& pass, Program program, bool laid_out) {
    if (!all_.empty() && all_.back().laid_out == laid_out && same(all_.back().program, program)) {
        all_.back().until = pass;
        all_.back().program = std::move(program);  // its ids are those of what comes next
        return;
    }
    all_.push_back({pass, pass, std::move(program), laid_out});
}

}  // namespace tilewright::bisect
