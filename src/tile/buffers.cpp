#include <algorithm>

#include "base/error.h"
#include "tile/tile.h"

namespace tilewright {

std::string_view to_string(Padding p) {
    switch (p) {
        case Padding::Local:
            return "local";
        case Padding::Partition:
            return "partition";
        case Padding::Global:
            return "global";
    }
    return "?";
}

namespace {

using Path = std::vector<size_t>;

/// A statement that touches a buffer, with the largest extents of the axes' ranges around it.
struct Use {
    Path path;  ///< of the statement
};

/// What the walk over the tree knows at one loop: how far every axis can still run inside it.
struct Walk {
    const TileProgram& program;
    std::map<Path, std::vector<Expr>> extents;  ///< per loop path: largest current extent of every axis inside it
    std::vector<std::pair<Path, const Load*>> loads;
    std::vector<std::pair<Path, const Compute*>> computes;
    std::vector<std::pair<Path, const Store*>> stores;

    void visit(const std::vector<Stmt>& body, const Path& path, const std::vector<Expr>& current) {
        extents[path] = current;
        for (size_t i = 0; i < body.size(); ++i) {
            Path here = path;
            here.push_back(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
                std::vector<Expr> inside = current;
                inside[loop->axis] = min(inside[loop->axis], loop->step);
                if (!inside[loop->axis].is_constant()) inside[loop->axis] = loop->step;
                visit(loop->body, here, inside);
            } else if (const auto* load = std::get_if<Load>(&body[i].kind)) {
                loads.emplace_back(here, load);
            } else if (const auto* compute = std::get_if<Compute>(&body[i].kind)) {
                computes.emplace_back(here, compute);
            } else {
                stores.emplace_back(here, std::get_if<Store>(&body[i].kind));
            }
        }
    }
};

/// The innermost loop around all of the statements.
Path common_scope(const std::vector<Path>& statements) {
    Path scope(statements[0].begin(), statements[0].end() - 1);
    for (const Path& s : statements) {
        size_t n = 0;
        while (n < scope.size() && n + 1 < s.size() && scope[n] == s[n]) ++n;
        scope.resize(n);
    }
    return scope;
}

int64_t constant_extent(const TileProgram& p, const std::string& what, Expr e) {
    TW_CHECK(e.is_constant(), "kernel '{}': the buffer of {} has no constant bound ({})", p.name, what, e.text());
    return e.constant();
}

/// Lower corner (over starts of kernel axes) and size of the interval an index runs through.
void box_of(const TileProgram& p, const std::string& what, Expr index, const std::vector<size_t>& stage_axes,
            const std::vector<Expr>& extents, Expr& base, int64_t& size) {
    base = index.constant();
    size = 1;
    for (const Term& t : index.terms()) {
        int64_t varying = 0;
        Expr factor = t.coefficient;
        std::optional<size_t> kernel_axis;
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var && a->var.kind == VarKind::Axis) {
                ++varying;
                kernel_axis = stage_axes.at(a->var.id);
                continue;
            }
            const Expr e = a->kind == Atom::Kind::Var        ? Expr::var(a->var)
                           : a->kind == Atom::Kind::FloorDiv ? floor_div(a->a, a->b)
                           : a->kind == Atom::Kind::Mod      ? mod(a->a, a->b)
                           : a->kind == Atom::Kind::Min      ? min(a->a, a->b)
                                                             : max(a->a, a->b);
            TW_CHECK(is_uniform(e), "kernel '{}': {} is indexed by {}, which is not affine", p.name, what,
                     index.text());
            factor = factor * e;
        }
        if (varying == 0) {
            base += factor;
            continue;
        }
        TW_CHECK(varying == 1 && factor.is_constant(), "kernel '{}': {} is indexed by {}, which is not affine", p.name,
                 what, index.text());
        const int64_t extent = constant_extent(p, what, extents[*kernel_axis]);
        const int64_t reach = factor.constant() * (extent - 1);
        if (factor.constant() >= 0) {
            base += axis(*kernel_axis) * factor;
        } else {
            base += axis(*kernel_axis) * factor + reach;
        }
        size += std::abs(reach);
    }
}

}  // namespace

BufferPlan plan_buffers(const TileProgram& program) {
    Walk walk{program, {}, {}, {}, {}};
    std::vector<Expr> whole;
    for (const TileAxis& a : program.axes) whole.push_back(a.extent);
    walk.visit(program.body, {}, whole);
    BufferPlan plan;
    const auto finish = [&](Buffer b) {
        std::vector<Expr> box(b.box.begin(), b.box.end());
        for (const Expr& e : physical_shape(b.layout, box)) b.physical.push_back(e.constant());
        int64_t bytes = static_cast<int64_t>(byte_size(b.dtype));
        for (const int64_t d : b.physical)
            if (__builtin_mul_overflow(bytes, d, &bytes))
                internal_error(__FILE__, __LINE__, "a buffer fits in memory", program.name);
        b.bytes = (bytes + 63) / 64 * 64 + 64;  // a whole vector may be read at the end
        b.offset = plan.scratch_bytes;
        plan.scratch_bytes += b.bytes;
        plan.buffers.push_back(std::move(b));
    };
    // Copies made by Loads.
    for (const auto& [path, load] : walk.loads) {
        const TensorExpr& e = *program.stages.primitives[load->stage].expr();
        const Access& access = e.accesses.at(load->access);
        std::vector<Path> statements{path};
        for (const auto& [where, compute] : walk.computes)
            if (compute->stage == load->stage) statements.push_back(where);
        Buffer b;
        b.value = access.value;
        b.access = {load->stage, load->access};
        b.dtype = program.stages.values[access.value].dtype;
        b.scope = common_scope(statements);
        // The box is what is touched under the ranges at the Load itself.
        const std::vector<Expr>& extents = walk.extents.at(Path(path.begin(), path.end() - 1));
        TW_CHECK(b.scope == Path(path.begin(), path.end() - 1), "kernel '{}': a Load stands deeper than its Computes",
                 program.name);
        for (const Expr& i : access.index) {
            Expr base;
            int64_t size = 1;
            box_of(program, "a loaded operand", i, program.stage_axes[load->stage], extents, base, size);
            b.base.push_back(base);
            b.box.push_back(size);
        }
        b.layout = load->layout;
        finish(std::move(b));
    }
    // Values that never reach memory, and outputs that a Store writes.
    for (const PrimitiveId s : program.stages.primitives.ids()) {
        const ValueId v = program.stages.primitives[s].outputs.at(0);
        const bool output =
            std::find(program.stages.outputs.begin(), program.stages.outputs.end(), v) != program.stages.outputs.end();
        std::vector<Path> statements;
        bool stored = false;
        for (const auto& [where, store] : walk.stores)
            if (store->value == v) {
                statements.push_back(where);
                stored = true;
            }
        if (output && !stored) continue;
        for (const auto& [where, compute] : walk.computes) {
            bool touches = compute->stage == s;
            for (const Access& a : program.stages.primitives[compute->stage].expr()->accesses)
                touches = touches || a.value == v;
            if (touches) statements.push_back(where);
        }
        if (statements.empty()) continue;
        Buffer b;
        b.value = v;
        b.dtype = program.stages.values[v].dtype;
        b.scope = common_scope(statements);
        const std::vector<Expr>& extents = walk.extents.at(b.scope);
        const TensorExpr& e = *program.stages.primitives[s].expr();
        const size_t rank = program.stages.values[v].shape.size();
        for (size_t d = 0; d < rank; ++d) {
            const Expr index = e.output_index.empty() ? axis(d) : e.output_index[d];
            Expr base;
            int64_t size = 1;
            box_of(program, "value '" + program.stages.values[v].name + "'", index, program.stage_axes[s], extents,
                   base, size);
            b.base.push_back(base);
            b.box.push_back(size);
        }
        if (auto it = program.buffer_layouts.find(v); it != program.buffer_layouts.end()) b.layout = it->second;
        finish(std::move(b));
    }
    return plan;
}

}  // namespace tilewright
