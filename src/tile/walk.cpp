#include "tile/walk.h"

#include <algorithm>

#include "base/error.h"

namespace tilewright {

namespace {

void visit(Walk& out, const std::vector<Stmt>& body, const TreePath& path, const std::vector<Expr>& current) {
    out.extents[path] = current;
    for (size_t i = 0; i < body.size(); ++i) {
        TreePath here = path;
        here.push_back(i);
        if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
            out.loops[here] = loop;
            std::vector<Expr> inside = current;
            inside[loop->axis] = min(inside[loop->axis], loop->step);
            if (!inside[loop->axis].is_constant()) inside[loop->axis] = loop->step;
            visit(out, loop->body, here, inside);
        } else if (const auto* load = std::get_if<Load>(&body[i].kind)) {
            out.loads.emplace_back(here, load);
        } else if (const auto* compute = std::get_if<Compute>(&body[i].kind)) {
            out.computes.emplace_back(here, compute);
        } else {
            out.stores.emplace_back(here, std::get_if<Store>(&body[i].kind));
        }
    }
}

bool reduces(const TileProgram& program, size_t axis) {
    for (const PrimitiveId s : program.stage_axes.ids()) {
        const TensorExpr* e = program.stages.primitives[s].expr();
        const std::vector<size_t>& axes = program.stage_axes[s];
        if (e != nullptr && std::find(axes.begin() + static_cast<std::ptrdiff_t>(std::min(e->spatial, axes.size())),
                                      axes.end(), axis) != axes.end())
            return true;
    }
    return false;
}

}  // namespace

Walk walk(const TileProgram& program) {
    Walk out;
    std::vector<Expr> whole;
    whole.reserve(program.axes.size());
    for (const TileAxis& a : program.axes) whole.push_back(a.extent);
    visit(out, program.body, {}, whole);
    for (const auto& [path, loop] : out.loops)
        if (loop->parallel && reduces(program, loop->axis)) out.split = path;
    return out;
}

std::set<size_t> Walk::narrowed(const TreePath& scope) const {
    std::set<size_t> out;
    std::vector<Expr> whole = extents.at({});
    if (split && scope.size() >= split->size() && std::equal(split->begin(), split->end(), scope.begin())) {
        const size_t axis = loops.at(*split)->axis;
        whole[axis] = extents.at(*split)[axis];
    }
    const std::vector<Expr>& here = extents.at(scope);
    for (size_t a = 0; a < whole.size(); ++a)
        if (!(whole[a] == here[a])) out.insert(a);
    return out;
}

std::vector<const TileLoop*> Walk::loops_below(const TreePath& scope, const TreePath& statement) const {
    std::vector<const TileLoop*> out;
    for (size_t n = scope.size() + 1; n < statement.size(); ++n)
        out.push_back(loops.at({statement.begin(), statement.begin() + static_cast<std::ptrdiff_t>(n)}));
    return out;
}

bool Walk::runs_once(const TreePath& loop) const {
    const TileLoop& l = *loops.at(loop);
    const Expr extent = extents.at(scope_of(loop))[l.axis];
    return extent.is_constant() && extent.constant() <= l.step;
}

bool Walk::has_partial_sums(const TileProgram& program, PrimitiveId stage) const {
    const std::vector<size_t>& axes = program.stage_axes[stage];
    for (const auto& [path, compute] : computes) {
        if (compute->stage != stage) continue;
        const std::set<size_t> cut = narrowed(scope_of(path));
        for (size_t k = program.stages.primitives[stage].expr()->spatial; k < axes.size(); ++k)
            if (cut.count(axes[k]) != 0) return true;
    }
    return false;
}

TreePath common_scope(const std::vector<TreePath>& statements) {
    TreePath scope = scope_of(statements.at(0));
    for (const TreePath& s : statements) {
        size_t n = 0;
        while (n < scope.size() && n + 1 < s.size() && scope[n] == s[n]) ++n;
        scope.resize(n);
    }
    return scope;
}

namespace {

/// Number of loops around the Compute at `at` outside the first loop of a task that cuts a reduction of stage `s`.
size_t loops_outside_reduction(const TileProgram& program, const Walk& walk, PrimitiveId s, const TreePath& at) {
    const std::vector<size_t>& axes = program.stage_axes[s];
    const size_t spatial = program.stages.primitives[s].expr()->spatial;
    const auto loops = walk.loops_below({}, at);
    size_t n = 0;
    while (n < loops.size() && (loops[n]->parallel || std::find(axes.begin() + static_cast<std::ptrdiff_t>(spatial),
                                                                axes.end(), loops[n]->axis) == axes.end()))
        ++n;
    return n;
}

}  // namespace

bool inside_reduction(const TileProgram& program, const Walk& walk, PrimitiveId s, const TreePath& at,
                      const TreePath& statement) {
    return common_scope({at, statement}).size() > loops_outside_reduction(program, walk, s, at);
}

TreePath home_of(const TileProgram& program, const Walk& walk, ValueId value) {
    TreePath home = common_scope(statements_of(program, walk, value));
    for (const auto& [path, compute] : walk.computes)
        if (compute->online && program.stages.primitives[compute->stage].outputs.at(0) == value)
            home.resize(std::min(home.size(), loops_outside_reduction(program, walk, compute->stage, path)));
    return home;
}

std::optional<PartialSums> partial_sums_of(const TileProgram& program, const Walk& walk, ValueId value) {
    if (!is_output(program, value)) return std::nullopt;
    for (const auto& [path, store] : walk.stores)
        if (store->value == value) return std::nullopt;
    for (const auto& [path, compute] : walk.computes) {
        if (program.stages.primitives[compute->stage].outputs.at(0) != value) continue;
        const bool tiles = compute->micro.matrix && compute->micro.matrix->tile();
        if (!tiles || !walk.has_partial_sums(program, compute->stage)) return std::nullopt;
        const size_t outside = loops_outside_reduction(program, walk, compute->stage, path);
        return PartialSums{{path.begin(), path.begin() + static_cast<std::ptrdiff_t>(outside)}, compute};
    }
    return std::nullopt;
}

std::vector<size_t> partial_sum_axes(const TensorExpr& expr, const MatrixUnit& unit) {
    std::vector<size_t> axes;
    for (size_t a = 0; a < expr.spatial; ++a)
        if (a != unit.columns) axes.push_back(a);
    axes.push_back(unit.columns);
    return axes;
}

std::vector<TreePath> statements_of(const TileProgram& program, const Walk& walk, ValueId value) {
    std::vector<TreePath> out;
    for (const auto& [path, store] : walk.stores)
        if (store->value == value) out.push_back(path);
    for (const auto& [path, compute] : walk.computes) {
        const Primitive& stage = program.stages.primitives[compute->stage];
        const bool reads = std::any_of(stage.expr()->accesses.begin(), stage.expr()->accesses.end(),
                                       [&](const Access& a) { return a.value == value; });
        if (reads || stage.outputs.at(0) == value) out.push_back(path);
    }
    return out;
}

std::vector<Var> dynamic_names(const TileProgram& p) {
    std::set<std::string> seen;
    std::vector<Var> out;
    const auto collect = [&](Expr e) {
        for (const Var v : variables(e))
            if ((v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) && seen.insert(Expr::var(v).text()).second)
                out.push_back(v);
    };
    const auto collect_body = [&](const ScalarBody& body) {
        for (const ScalarNode& n : body.nodes())
            if (n.op == ScalarOp::Index) collect(n.index);
    };
    for (const TileAxis& a : p.axes) collect(a.extent);
    for (const Value& v : p.stages.values)
        for (const Expr& d : v.shape) collect(d);
    for (const Primitive& s : p.stages.primitives) {
        const TensorExpr& e = *s.expr();
        for (const Expr& x : e.extents) collect(x);
        for (const Access& a : e.accesses) {
            for (const Expr& i : a.index) collect(i);
            for (const Expr& i : a.valid) collect(i);
        }
        for (const Expr& i : e.output_index) collect(i);
        collect_body(e.body);
        collect_body(e.epilogue);
    }
    return out;
}

bool is_output(const TileProgram& program, ValueId value) {
    const auto& outputs = program.stages.outputs;
    return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
}

bool is_input(const TileProgram& program, ValueId value) {
    const auto& inputs = program.stages.inputs;
    return std::find(inputs.begin(), inputs.end(), value) != inputs.end();
}

std::optional<IndexCondition> condition_on_index(const Access& access, Expr condition) {
    for (size_t d = 0; d < access.index.size(); ++d)
        for (const int sign : {1, -1}) {
            const Expr rest = condition - access.index[d] * sign;
            if (is_uniform(rest)) return IndexCondition{d, sign, rest};
        }
    return std::nullopt;
}

Access copied_access(const Access& access, const LogicalIndex& box, std::span<const Expr> origin,
                     std::span<const Expr> shape, bool inside) {
    Access read;
    read.value = access.value;
    read.fill = access.fill;
    read.valid = box.valid;
    for (size_t d = 0; d < shape.size(); ++d) {
        const Expr index = origin[d] + box.index[d];
        read.index.push_back(index);
        if (inside) continue;
        read.valid.push_back(index);
        read.valid.push_back(shape[d] - 1 - index);
    }
    for (const Expr& condition : access.valid) {
        const auto on = condition_on_index(access, condition);
        TW_CHECK(on.has_value(), "the condition {} >= 0 does not depend on exactly one index", condition.text());
        read.valid.push_back(read.index[on->dimension] * on->sign + on->rest);
    }
    return read;
}

}  // namespace tilewright
