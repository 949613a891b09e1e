#include "tile/gpu_memory.h"

#include <algorithm>

#include "tile/matrix.h"
#include "tile/online.h"

namespace tilewright::gpu {

namespace {

/// Registers that one value may occupy, of a thread's 255.
constexpr int64_t kMostRegisters = 128;

class Choice {
  public:
    Choice(const TileProgram& p, int threads)
        : p_(p),
          tree_(walk(p)),
          threads_(threads),
          online_(online_maxima(p)),
          scales_(online_scales(p.stages, online_)),
          producers_(p.stages.producers()) {
        for (const auto& [path, compute] : tree_.computes) computes_[compute->stage] = {path, compute};
    }

    /// Starts with all candidates and removes what does not fit, because the partition that a stage adopts depends on
    /// the values that it reads from registers.
    RegisterValues run() {
        for (const PrimitiveId s : p_.stages.primitives.ids())
            if (may_stay(s)) in_.insert(result(s));
        while (true) {
            shares_.clear();
            for (const PrimitiveId s : p_.stages.primitives.ids()) shares_[s] = share(s);
            const auto out = std::find_if(in_.begin(), in_.end(), [&](ValueId v) { return !stays(v); });
            if (out == in_.end()) break;
            in_.erase(out);
        }
        RegisterValues out;
        for (const ValueId v : in_) out.values[v] = shares_.at(producers_[v]);
        for (const PrimitiveId s : p_.stages.primitives.ids())
            if (reads_registers(s)) out.stages[s] = shares_.at(s);
        return out;
    }

  private:
    ValueId result(PrimitiveId s) const { return p_.stages.primitives[s].outputs[0]; }
    const TensorExpr& expr(PrimitiveId s) const { return *p_.stages.primitives[s].expr(); }
    size_t kernel_axis(PrimitiveId s, size_t k) const { return p_.stage_axes[s][k]; }
    std::optional<size_t> axis_of(PrimitiveId s, size_t kernel) const {
        const auto& axes = p_.stage_axes[s];
        const auto it = std::find(axes.begin(), axes.end(), kernel);
        if (it == axes.end()) return std::nullopt;
        return static_cast<size_t>(it - axes.begin());
    }
    const std::optional<MatrixUnit>& matrix(PrimitiveId s) const { return computes_.at(s).second->micro.matrix; }

    // --- properties of a value alone

    bool may_stay(PrimitiveId s) const {
        const ValueId v = result(s);
        if (p_.buffer_layouts.count(v) != 0) return false;  // a buffer layout is prescribed
        const bool stored = std::any_of(tree_.stores.begin(), tree_.stores.end(),
                                        [&](const auto& store) { return store.second->value == v; });
        if (is_output(p_, v) && !stored) return false;
        const TreePath home = home_of(p_, tree_, v);
        const std::vector<TreePath> statements = statements_of(p_, tree_, v);
        return std::all_of(statements.begin(), statements.end(),
                           [&](const TreePath& at) { return goes_through_whole(s, home, at); });
    }

    /// Whether no loop between the buffer's scope and the statement cuts an axis of the value.
    bool goes_through_whole(PrimitiveId s, const TreePath& home, const TreePath& statement) const {
        const auto spatial = std::span(p_.stage_axes[s]).first(expr(s).spatial);
        for (const TileLoop* loop : tree_.loops_below(home, statement))
            if (std::find(spatial.begin(), spatial.end(), loop->axis) != spatial.end()) return false;
        return true;
    }

    // --- partitions

    bool reads_registers(PrimitiveId s) const {
        return std::any_of(expr(s).accesses.begin(), expr(s).accesses.end(),
                           [&](const Access& a) { return in_.count(a.value) != 0; });
    }

    /// Returns the partition that the stage adopts from the value with the most axes that it reads; else its own.
    Partition share(PrimitiveId s) const {
        const auto& [path, compute] = computes_.at(s);
        const Share work = share_of(p_, tree_, path, s);
        Partition own = make_partition(expr(s), compute->micro, work, threads_);
        PrimitiveId lead;
        for (const Access& a : expr(s).accesses) {
            if (in_.count(a.value) == 0) continue;
            const PrimitiveId from = producers_[a.value];
            if (!lead || expr(from).spatial > expr(lead).spatial) lead = from;
        }
        if (!lead) return own;
        if (!matrix(s)) return adopted(s, lead, work).value_or(own);
        // A left operand in registers: the step along the reduction axis is the operand's width in registers.
        if (const auto k = axis_of(lead, kernel_axis(s, matrix(s)->sum)); k && shares_.at(lead).warps != 0)
            own.registers[matrix(s)->sum] = shares_.at(lead).registers[*k];
        // Its rows may be any rows.
        const size_t rows = matrix(s)->rows;
        if (const auto k = axis_of(lead, kernel_axis(s, rows)); k && shares_.at(lead).spread[*k] == Spread::RowPairs) {
            own.spread[rows] = shares_.at(lead).spread[*k];
            own.strip[rows] = shares_.at(lead).strip[*k];
        }
        return own;
    }

    /// Returns the partition of stage `from`, axis by axis; nothing where `s` has more axes, or reduces an axis that
    /// several tiles share.
    std::optional<Partition> adopted(PrimitiveId s, PrimitiveId from, const Share& work) const {
        const Partition& theirs = shares_.at(from);
        const TensorExpr& e = expr(s);
        Partition p;
        p.warps = theirs.warps;
        p.count = theirs.count;
        p.group = theirs.group;
        std::vector<size_t> missing;
        for (size_t k = 0; k < e.extents.size(); ++k) {
            const auto j = axis_of(from, kernel_axis(s, k));
            const bool there = j && *j < expr(from).spatial;
            if (!there && !work.most[k].is_constant(1)) return std::nullopt;
            if (k >= e.spatial && there && (!theirs.tiles[*j].is_constant(1) || theirs.spread[*j] != Spread::Columns))
                return std::nullopt;
            p.registers.push_back(there ? theirs.registers[*j] : 1);
            p.strip.push_back(there ? theirs.strip[*j] : 1);
            p.spread.push_back(there ? theirs.spread[*j] : Spread::Strip);
            if (k >= e.spatial) continue;
            p.tiles.push_back(there ? theirs.tiles[*j] : Expr(1));
            if (!there) missing.push_back(k);
        }
        p.order = missing;
        for (const size_t j : theirs.order)
            if (const auto k = axis_of(s, kernel_axis(from, j)); k && *k < e.spatial) p.order.push_back(*k);
        return p;
    }

    // --- whether a value stays in registers

    bool stays(ValueId v) const {
        const PrimitiveId s = producers_[v];
        const Partition& part = shares_.at(s);
        const int64_t units = part.warps != 0 ? threads_ / part.takes() : threads_;
        if (part.group != 1 || !part.count || *part.count > units || (online_.count(v) != 0 && part.warps == 0))
            return false;
        int64_t registers = (static_cast<int64_t>(byte_size(p_.stages.values[v].dtype)) + 3) / 4;
        for (size_t k = 0; k < expr(s).spatial; ++k) registers *= part.registers[k];
        if (registers > kMostRegisters) return false;
        for (const PrimitiveId t : p_.stages.primitives.ids())
            if (t != s && !reads_alike(s, t)) return false;
        return true;
    }

    /// Whether stage t does not read the value of s, or reads it at the element that it computes.
    bool reads_alike(PrimitiveId s, PrimitiveId t) const {
        const ValueId v = result(s);
        const TensorExpr& reader = expr(t);
        bool reads = false;
        for (size_t i = 0; i < reader.accesses.size(); ++i) {
            const Access& a = reader.accesses[i];
            if (a.value != v) continue;
            reads = true;
            if (!a.valid.empty() || !same_element(s, t, a.index) || in_right_factor(t, i)) return false;
        }
        if (const auto& scale = scales_[t]; scale && scale->maximum == v && reader.reducer != Reducer::None) {
            reads = true;
            if (!same_element(s, t, scale->index)) return false;
        }
        return !reads || same_share(s, t);
    }

    /// Whether t reads the index that s writes, in terms of the kernel's axes; axes of one point count as 0.
    bool same_element(PrimitiveId s, PrimitiveId t, const std::vector<Expr>& index) const {
        const auto in_kernel = [&](PrimitiveId of, Expr e) {
            std::vector<Expr> axes;
            for (size_t k = 0; k < p_.stage_axes[of].size(); ++k)
                axes.push_back(expr(of).extents[k].is_constant(1) ? Expr(0) : axis(kernel_axis(of, k)));
            return substitute_axes(e, axes);
        };
        const std::vector<Expr> written = result_index(expr(s));
        for (size_t d = 0; d < written.size(); ++d)
            if (!(in_kernel(s, written[d]) == in_kernel(t, index[d]))) return false;
        return true;
    }

    /// Whether the access is in the right factor, whose columns lie in other threads than those of the result.
    bool in_right_factor(PrimitiveId t, size_t slot) const {
        if (!matrix(t)) return false;
        const TensorExpr& e = expr(t);
        ScalarBody right = e.body;
        right.set_root(matrix_factors(e, *matrix(t))->right);
        const std::vector<uint32_t> slots = right.slots();
        return std::find(slots.begin(), slots.end(), slot) != slots.end();
    }

    /// Whether the threads of s and t have the same partition along the value's axes.
    bool same_share(PrimitiveId s, PrimitiveId t) const {
        const Partition &mine = shares_.at(s), &theirs = shares_.at(t);
        if (mine.warps != theirs.warps || theirs.group != 1) return false;
        for (size_t j = 0; j < expr(s).spatial; ++j) {
            const auto k = axis_of(t, kernel_axis(s, j));
            if (!k) {
                if (mine.registers[j] != 1 || !mine.tiles[j].is_constant(1)) return false;
                continue;
            }
            if (mine.registers[j] != theirs.registers[*k] || mine.strip[j] != theirs.strip[*k] ||
                mine.spread[j] != theirs.spread[*k])
                return false;
            const bool summed = *k >= expr(t).spatial;
            if (summed && (mine.spread[j] != Spread::Columns || !mine.tiles[j].is_constant(1))) return false;
        }
        return tiles_by_kernel_axis(s) == tiles_by_kernel_axis(t);
    }

    std::vector<std::pair<size_t, Expr>> tiles_by_kernel_axis(PrimitiveId s) const {
        std::vector<std::pair<size_t, Expr>> out;
        const Partition& p = shares_.at(s);
        for (const size_t k : p.order)
            if (!p.tiles[k].is_constant(1)) out.emplace_back(kernel_axis(s, k), p.tiles[k]);
        return out;
    }

    const TileProgram& p_;
    const Walk tree_;
    const int threads_;
    const std::set<ValueId> online_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    std::map<PrimitiveId, std::pair<TreePath, const Compute*>> computes_;
    std::set<ValueId> in_;
    std::map<PrimitiveId, Partition> shares_;
};

/// The largest number of threads that a statement can use, in whole warps; `most` where it is dynamic. With matrix
/// instructions only their tiles count, since stages between two contractions adopt their partition.
int choose_threads(const TileProgram& p, const Walk& tree, int most) {
    int64_t wanted = 1;
    const auto any = [&](const auto& is) {
        return std::any_of(tree.computes.begin(), tree.computes.end(),
                           [&](const auto& c) { return c.second->micro.matrix && is(*c.second->micro.matrix); });
    };
    const bool matrix = any([](const MatrixUnit&) { return true; });
    for (const auto& [path, compute] : tree.computes) {
        if (matrix && !compute->micro.matrix) continue;
        const auto here = wanted_threads(*p.stages.primitives[compute->stage].expr(), compute->micro,
                                         share_of(p, tree, path, compute->stage));
        wanted = std::max<int64_t>(wanted, here.value_or(most));
    }
    wanted = std::min<int64_t>(wanted, most);
    const int64_t whole = any([](const MatrixUnit& u) { return u.group(); }) ? 128 : 32;
    return static_cast<int>((wanted + whole - 1) / whole * whole);
}

/// Bytes of the largest exchange between threads of several warps.
int64_t exchange_bytes(const TileProgram& p, const Walk& tree, const RegisterValues& registers, int threads) {
    int64_t out = 0;
    for (const auto& [path, compute] : tree.computes) {
        const PrimitiveId s = compute->stage;
        const TensorExpr& e = *p.stages.primitives[s].expr();
        const auto adopted = registers.stages.find(s);
        const Partition share = adopted != registers.stages.end()
                                    ? adopted->second
                                    : make_partition(e, compute->micro, share_of(p, tree, path, s), threads);
        out = std::max(out, share.exchange_bytes(threads, std::max<int64_t>(4, byte_size(e.body.dtype())), e.spatial));
    }
    return out;
}

}  // namespace

RegisterValues register_values(const TileProgram& program, int threads) { return Choice(program, threads).run(); }

BlockMemory block_memory(const TileProgram& p, int most_threads, int64_t capacity) {
    const Walk tree = walk(p);
    BlockMemory out;
    out.threads = choose_threads(p, tree, most_threads);
    out.registers = register_values(p, out.threads);
    out.exchange_bytes = exchange_bytes(p, tree, out.registers, out.threads);
    std::set<ValueId> elsewhere = out.registers.all();
    while (true) {
        out.plan = plan_buffers(p, elsewhere);
        if (out.plan.scratch_bytes + out.exchange_bytes + 16 <= capacity) break;
        // The largest buffer first.
        const Buffer* largest = nullptr;
        for (const Buffer& b : out.plan.buffers)
            if (!b.elsewhere && !b.access && (largest == nullptr || b.bytes > largest->bytes)) largest = &b;
        if (largest == nullptr) break;
        elsewhere.insert(largest->value);
        out.in_memory.insert(largest->value);
    }
    out.room = (out.plan.scratch_bytes + 15) / 16 * 16;
    for (const Buffer& b : out.plan.buffers) {
        out.arrivals.push_back(static_cast<size_t>(out.arrival_count));
        if (b.swizzle != 0) out.arrival_count += b.copies;
    }
    out.shared_bytes = out.exchange_bytes > 0 ? out.room + out.exchange_bytes : out.plan.scratch_bytes;
    out.arrivals_at = (out.shared_bytes + 7) / 8 * 8;
    if (out.arrival_count > 0) out.shared_bytes = out.arrivals_at + 8 * out.arrival_count;
    return out;
}

}  // namespace tilewright::gpu
