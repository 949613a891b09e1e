#include <algorithm>

#include "base/error.h"
#include "tile/online.h"
#include "tile/walk.h"

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
        size_t kernel_axis = 0;
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
        const int64_t extent = constant_extent(p, what, extents[kernel_axis]);
        const int64_t reach = factor.constant() * (extent - 1);
        if (factor.constant() >= 0) {
            base += axis(kernel_axis) * factor;
        } else {
            base += axis(kernel_axis) * factor + reach;
        }
        size += std::abs(reach);
    }
}

}  // namespace

BufferPlan plan_buffers(const TileProgram& program) {
    const Walk tree = walk(program);
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
    for (const auto& [path, load] : tree.loads) {
        const TensorExpr& e = *program.stages.primitives[load->stage].expr();
        const Access& access = e.accesses.at(load->access);
        std::vector<TreePath> statements{path};
        for (const auto& [where, compute] : tree.computes)
            if (compute->stage == load->stage) statements.push_back(where);
        Buffer b;
        b.value = access.value;
        b.access = {load->stage, load->access};
        b.dtype = program.stages.values[access.value].dtype;
        b.scope = common_scope(statements);
        // The box is what is touched under the ranges at the Load itself.
        const std::vector<Expr>& extents = tree.extents.at(scope_of(path));
        TW_CHECK(b.scope == scope_of(path), "kernel '{}': a Load stands deeper than its Computes", program.name);
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
    const std::set<ValueId> online = online_maxima(program);
    // Values that never reach memory, and outputs that a Store writes.
    for (const PrimitiveId s : program.stages.primitives.ids()) {
        const ValueId v = program.stages.primitives[s].outputs.at(0);
        const bool stored = std::any_of(tree.stores.begin(), tree.stores.end(),
                                        [&](const auto& store) { return store.second->value == v; });
        if (is_output(program, v) && !stored) continue;
        if (statements_of(program, tree, v).empty()) continue;
        Buffer b;
        b.value = v;
        b.dtype = program.stages.values[v].dtype;
        b.scope = home_of(program, tree, v);
        const std::vector<Expr>& extents = tree.extents.at(b.scope);
        const TensorExpr& e = *program.stages.primitives[s].expr();
        for (const Expr index : result_index(e)) {
            Expr base;
            int64_t size = 1;
            box_of(program, "value '" + program.stages.values[v].name + "'", index, program.stage_axes[s], extents,
                   base, size);
            b.base.push_back(base);
            b.box.push_back(size);
        }
        if (auto it = program.buffer_layouts.find(v); it != program.buffer_layouts.end()) b.layout = it->second;
        if (online.count(v) != 0) {
            Buffer correction = b;
            correction.correction = true;
            finish(std::move(correction));
        }
        finish(std::move(b));
    }
    return plan;
}

}  // namespace tilewright
