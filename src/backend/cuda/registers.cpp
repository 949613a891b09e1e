#include "backend/cuda/registers.h"

#include <algorithm>

#include "tile/online.h"

namespace tilewright::cuda {

namespace {

/// Registers that one value may take of a thread's 255.
constexpr int64_t kMostRegisters = 128;

class Choice {
  public:
    Choice(const TileProgram& p, int threads) : p_(p), tree_(walk(p)), threads_(threads), online_(online_maxima(p)) {
        for (const auto& [path, compute] : tree_.computes) computes_[compute->stage] = {path, compute};
    }

    RegisterValues run() {
        RegisterValues out;
        for (const PrimitiveId s : p_.stages.primitives.ids()) {
            const ValueId v = p_.stages.primitives[s].outputs[0];
            if (auto part = partition_of(s, out); stays(s, v, part, out)) out[v] = std::move(part);
        }
        return out;
    }

  private:
    /// What the stage adopts from values that it reads; else its own.
    Partition partition_of(PrimitiveId s, const RegisterValues& known) const {
        const TensorExpr& e = *p_.stages.primitives[s].expr();
        for (const Access& a : e.accesses)
            if (const auto it = known.find(a.value); it != known.end()) return it->second;
        const auto& [path, compute] = computes_.at(s);
        return make_partition(e, compute->micro, share_of(p_, tree_, path, s), threads_);
    }

    bool stays(PrimitiveId s, ValueId v, const Partition& part, const RegisterValues& known) const {
        if (part.group != 1 || !part.count || *part.count > threads_ || online_.count(v) != 0) return false;
        if (p_.buffer_layouts.count(v) != 0) return false;  // somebody asked for a buffer
        int64_t registers = (static_cast<int64_t>(byte_size(p_.stages.values[v].dtype)) + 3) / 4;
        for (const int64_t r : part.registers) registers *= r;
        if (registers > kMostRegisters) return false;
        const bool stored = std::any_of(tree_.stores.begin(), tree_.stores.end(),
                                        [&](const auto& store) { return store.second->value == v; });
        if (is_output(p_, v) && !stored) return false;
        const TreePath home = home_of(p_, tree_, v);
        for (const TreePath& statement : statements_of(p_, tree_, v))
            if (!goes_through_whole(s, home, statement)) return false;
        for (const PrimitiveId t : p_.stages.primitives.ids())
            if (t != s && !reads_alike(s, v, t, part, known)) return false;
        return true;
    }

    /// No loop between the buffer's scope and the statement cuts an axis of the value.
    bool goes_through_whole(PrimitiveId s, const TreePath& home, const TreePath& statement) const {
        const auto spatial = std::span(p_.stage_axes[s]).first(p_.stages.primitives[s].expr()->spatial);
        for (const TileLoop* loop : tree_.loops_below(home, statement))
            if (std::find(spatial.begin(), spatial.end(), loop->axis) != spatial.end()) return false;
        return true;
    }

    /// Stage t does not read v, or reads each element where it is at that element itself.
    bool reads_alike(PrimitiveId s, ValueId v, PrimitiveId t, const Partition& part,
                     const RegisterValues& known) const {
        const TensorExpr& reader = *p_.stages.primitives[t].expr();
        const TensorExpr& writer = *p_.stages.primitives[s].expr();
        const auto reads = [&](ValueId x) {
            return std::any_of(reader.accesses.begin(), reader.accesses.end(),
                               [&](const Access& a) { return a.value == x; });
        };
        if (!reads(v)) return true;
        const size_t n = writer.spatial;
        if (reader.reducer != Reducer::None || reader.spatial != n ||
            !std::equal(p_.stage_axes[t].begin(), p_.stage_axes[t].end(), p_.stage_axes[s].begin()))
            return false;
        const std::vector<Expr> written = result_index(writer);
        for (const Access& a : reader.accesses) {
            if (a.value == v && (!(a.index == written) || !a.valid.empty())) return false;
            // It can adopt one share only.
            if (const auto it = known.find(a.value); it != known.end() && !(it->second == part)) return false;
        }
        return true;
    }

    const TileProgram& p_;
    const Walk tree_;
    const int threads_;
    const std::set<ValueId> online_;
    std::map<PrimitiveId, std::pair<TreePath, const Compute*>> computes_;
};

}  // namespace

RegisterValues register_values(const TileProgram& program, int threads) { return Choice(program, threads).run(); }

}  // namespace tilewright::cuda
