#include <algorithm>

#include "base/error.h"
#include "program/analysis/dynamic.h"
#include "tile/matrix.h"
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

/// The extent of a buffer: the largest value of an axis extent.
int64_t constant_extent(const TileProgram& p, const std::string& what, Expr e) {
    const std::optional<int64_t> most = most_value(e, p.stages.at_most);
    TW_CHECK(most, "kernel '{}': the buffer of {} has no constant bound ({})", p.name, what, e.text());
    return *most;
}

/// Lower corner (over starts of kernel axes) and size of the interval that an index covers.
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

/// Alignment in bytes: the swizzle depends on a row's position among eight.
int64_t alignment_of(const Buffer& b) { return b.swizzle == 0 ? 64 : 8 * b.swizzle; }

/// Assigns buffers to the task's scratch memory. Buffers with disjoint lifetimes may share memory.
class Packing {
  public:
    Packing(const TileProgram& p, const Walk& tree, BufferPlan& plan) : p_(p), tree_(tree), plan_(plan) {}

    void run() {
        number_leaves(p_.body, {});
        std::vector<Slot> slots;
        for (size_t i = 0; i < plan_.buffers.size(); ++i) {
            if (plan_.buffers[i].elsewhere) continue;
            Slot s;
            s.members = {i};
            s.bytes = plan_.buffers[i].bytes;
            s.unit = alignment_of(plan_.buffers[i]);
            std::tie(s.first, s.last) = life_of(plan_.buffers[i]);
            slots.push_back(std::move(s));
        }
        in_place(slots);
        // First fit by decreasing size: each at the lowest offset that is free during its lifetime.
        std::stable_sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.bytes > b.bytes; });
        std::vector<const Slot*> placed;
        for (Slot& s : slots) {
            std::vector<std::pair<int64_t, int64_t>> taken;
            for (const Slot* other : placed)
                if (other->first <= s.last && s.first <= other->last)
                    taken.emplace_back(other->offset, other->offset + other->bytes);
            std::sort(taken.begin(), taken.end());
            for (const auto& [begin, end] : taken) {
                if (s.offset + s.bytes <= begin) break;
                s.offset = std::max(s.offset, (end + s.unit - 1) / s.unit * s.unit);
            }
            placed.push_back(&s);
            for (const size_t i : s.members) plan_.buffers[i].offset = s.offset;
            plan_.scratch_bytes = std::max(plan_.scratch_bytes, s.offset + s.bytes);
        }
    }

  private:
    struct Slot {
        std::vector<size_t> members;
        int64_t bytes = 0, offset = 0, unit = 64;
        int first = 0, last = 0;  ///< statement numbers, in textual order
    };

    void number_leaves(const std::vector<Stmt>& body, const TreePath& path) {
        for (size_t i = 0; i < body.size(); ++i) {
            TreePath here = path;
            here.push_back(i);
            const int begin = leaves_;
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind))
                number_leaves(loop->body, here);
            else
                ++leaves_;
            span_[here] = {begin, leaves_ - 1};
        }
    }

    /// Returns the first and the last statement that use the buffer. A loop inside its scope counts as a whole, since
    /// the next iteration may read what this one wrote.
    std::pair<int, int> life_of(const Buffer& b) const {
        std::vector<TreePath> statements;
        if (b.copies > 1) return span_of_scope(b.scope);  // copies of later steps are filled meanwhile
        if (b.access) {
            for (const auto& [path, load] : tree_.loads)
                if (load->stage == b.access->first && load->access == b.access->second) statements.push_back(path);
            for (const auto& [path, compute] : tree_.computes)
                if (compute->stage == b.access->first) statements.push_back(path);
        } else {
            statements = statements_of(p_, tree_, b.value);
            // Corrections of an online maximum can occur anywhere in its loops.
            if (b.correction || online_.count(b.value) != 0) return span_of_scope(b.scope);
        }
        int first = leaves_, last = 0;
        for (const TreePath& s : statements) {
            const auto& [begin, end] =
                span_.at({s.begin(), s.begin() + static_cast<std::ptrdiff_t>(b.scope.size() + 1)});
            first = std::min(first, begin);
            last = std::max(last, end);
        }
        return {first, last};
    }
    std::pair<int, int> span_of_scope(const TreePath& scope) const {
        return scope.empty() ? std::pair(0, leaves_ - 1) : span_.at(scope);
    }

    /// An elementwise stage that is the last reader of a buffer, element by element, overwrites it.
    void in_place(std::vector<Slot>& slots) const {
        for (size_t i = 0; i < plan_.buffers.size(); ++i) {
            const Buffer& out = plan_.buffers[i];
            const PrimitiveId s = p_.stages.producers()[out.value];
            if (out.access || out.correction || out.partial || out.elsewhere || !s) continue;
            const TensorExpr& e = *p_.stages.primitives[s].expr();
            if (e.reducer != Reducer::None) continue;
            const std::vector<Expr> written = result_index(e);
            for (size_t j = 0; j < plan_.buffers.size(); ++j) {
                const Buffer& in = plan_.buffers[j];
                if (i == j || in.access || in.correction || in.partial || in.elsewhere || in.scope != out.scope ||
                    in.dtype != out.dtype || in.box != out.box || !(in.base == out.base) ||
                    print(in.layout) != print(out.layout))
                    continue;
                size_t reads = 0, same = 0;
                for (const Access& a : e.accesses)
                    if (a.value == in.value) {
                        ++reads;
                        same += a.index == written && a.valid.empty() ? 1 : 0;
                    }
                if (reads == 0 || reads != same) continue;
                Slot& target = *slot_of(slots, j);
                Slot& moved = *slot_of(slots, i);
                // The reader is a separate statement, and nothing reads the old value after it.
                if (&target == &moved || target.last != moved.first) continue;
                target.members.insert(target.members.end(), moved.members.begin(), moved.members.end());
                target.last = moved.last;
                target.bytes = std::max(target.bytes, moved.bytes);
                slots.erase(slots.begin() + (&moved - slots.data()));
                break;
            }
        }
    }
    static Slot* slot_of(std::vector<Slot>& slots, size_t buffer) {
        for (Slot& s : slots)
            if (std::find(s.members.begin(), s.members.end(), buffer) != s.members.end()) return &s;
        return nullptr;
    }

    const TileProgram& p_;
    const Walk& tree_;
    BufferPlan& plan_;
    const std::set<ValueId> online_ = online_maxima(p_);
    std::map<TreePath, std::pair<int, int>> span_;  ///< of every statement: the range of leaves below it
    int leaves_ = 0;
};

/// The copy that a Load makes.
Buffer copy_of(const TileProgram& program, const Walk& tree, const TreePath& path, const Load& load) {
    const TensorExpr& e = *program.stages.primitives[load.stage].expr();
    const Access& access = e.accesses.at(load.access);
    std::vector<TreePath> statements{path};
    for (const auto& [where, compute] : tree.computes)
        if (compute->stage == load.stage) statements.push_back(where);
    Buffer b;
    b.value = access.value;
    b.access = {load.stage, load.access};
    b.dtype = program.stages.values[access.value].dtype;
    b.scope = common_scope(statements);
    // The box covers what is read under the ranges at the Load itself.
    const std::vector<Expr>& extents = tree.extents.at(scope_of(path));
    TW_CHECK(b.scope == scope_of(path), "kernel '{}': a Load is nested deeper than its Computes", program.name);
    for (const Expr& i : access.index) {
        Expr base;
        int64_t size = 1;
        box_of(program, "a loaded operand", i, program.stage_axes[load.stage], extents, base, size);
        b.base.push_back(base);
        b.box.push_back(size);
    }
    b.layout = load.layout;
    b.swizzle = load.swizzle;
    if (const auto loop = tree.loops.find(b.scope); loop != tree.loops.end()) b.copies = loop->second->stages;
    return b;
}

/// The buffer of the stage's partial sums that are not kept in its result.
std::optional<Buffer> partial_sums(const TileProgram& program, const Walk& tree, PrimitiveId s) {
    const ValueId v = program.stages.primitives[s].outputs.at(0);
    const auto sums = partial_sums_of(program, tree, v);
    if (!sums) return std::nullopt;
    const TensorExpr& e = *program.stages.primitives[s].expr();
    Buffer b;
    b.value = v;
    b.partial = true;
    b.scope = sums->scope;
    b.dtype = e.body.dtype();
    for (const size_t a : partial_sum_axes(e, *sums->compute->micro.matrix)) {
        Expr base;
        int64_t size = 1;
        box_of(program, "the partial sums of '" + program.stages.values[v].name + "'", axis(a), program.stage_axes[s],
               tree.extents.at(b.scope), base, size);
        b.base.push_back(base);
        b.box.push_back(size);
    }
    b.box.back() = (b.box.back() + kTileColumns - 1) / kTileColumns * kTileColumns;
    return b;
}

}  // namespace

BufferPlan plan_buffers(const TileProgram& program, const std::set<ValueId>& elsewhere) {
    const Walk tree = walk(program);
    BufferPlan plan;
    const auto finish = [&](Buffer b) {
        std::vector<Expr> box(b.box.begin(), b.box.end());
        for (const Expr& e : physical_shape(b.layout, box)) b.physical.push_back(e.constant());
        int64_t bytes = static_cast<int64_t>(byte_size(b.dtype));
        TW_CHECK(b.swizzle == 0 || (!b.physical.empty() && b.physical.back() * bytes == b.swizzle),
                 "kernel '{}': rows are not the {} bytes that are swizzled", program.name, b.swizzle);
        for (const int64_t d : b.physical)
            if (__builtin_mul_overflow(bytes, d, &bytes))
                internal_error(__FILE__, __LINE__, "a buffer fits in memory", program.name);
        // A whole vector may be read at the end, but only of whole rows.
        const int64_t unit = alignment_of(b);
        b.bytes = ((bytes + unit - 1) / unit * unit + (b.swizzle == 0 ? 64 : 0)) * b.copies;
        plan.buffers.push_back(std::move(b));
    };
    // Copies made by Loads.
    for (const auto& [path, load] : tree.loads) {
        finish(copy_of(program, tree, path, *load));
    }
    const std::set<ValueId> online = online_maxima(program);
    // Values that are not stored in memory, and outputs that a Store writes.
    for (const PrimitiveId s : program.stages.primitives.ids()) {
        const ValueId v = program.stages.primitives[s].outputs.at(0);
        const bool stored = std::any_of(tree.stores.begin(), tree.stores.end(),
                                        [&](const auto& store) { return store.second->value == v; });
        if (is_output(program, v) && !stored) {
            if (auto partial = partial_sums(program, tree, s)) finish(std::move(*partial));
            continue;
        }
        if (statements_of(program, tree, v).empty()) continue;
        Buffer b;
        b.value = v;
        b.scope = home_of(program, tree, v);
        const std::vector<Expr>& extents = tree.extents.at(b.scope);
        const TensorExpr& e = *program.stages.primitives[s].expr();
        b.dtype = tree.has_partial_sums(program, s) ? e.body.dtype() : program.stages.values[v].dtype;
        for (const Expr index : result_index(e)) {
            Expr base;
            int64_t size = 1;
            box_of(program, "value '" + program.stages.values[v].name + "'", index, program.stage_axes[s], extents,
                   base, size);
            b.base.push_back(base);
            b.box.push_back(size);
        }
        if (auto it = program.buffer_layouts.find(v); it != program.buffer_layouts.end()) b.layout = it->second;
        b.elsewhere = elsewhere.count(v) != 0;
        if (online.count(v) != 0) {
            Buffer correction = b;
            correction.correction = true;
            finish(std::move(correction));
        }
        finish(std::move(b));
    }
    Packing(program, tree, plan).run();
    return plan;
}

}  // namespace tilewright
