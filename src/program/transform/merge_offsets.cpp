#include "program/transform/merge_offsets.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "program/analysis/contraction.h"
#include "program/transform/dead_code.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

constexpr double kExact = 0x1p24;  // floats represent integers up to it

/// The epilogue of one expression.
class OffsetMerger {
  public:
    OffsetMerger(Program& program, TensorExpr& e)
        : p_(program), e_(e), from_(e.epilogue), moved_(from_.nodes().size()) {}

    bool run() {
        out_.set_root(copy(from_.root()));
        if (changed_) e_.epilogue = std::move(out_);
        return changed_;
    }

  private:
    struct Offset {
        uint32_t slot = 0;
        double sign = 1;
    };
    /// The sum, and constants that are added to it.
    struct Terms {
        std::vector<Offset> offsets;
        bool in_floats = false;  ///< the sum is one of floats, which were converted to integers
    };

    ScalarId copy(ScalarId id) {
        if (moved_[id.index()]) return moved_[id.index()];
        ScalarId to = merged(id);
        if (!to) {
            ScalarNode n = from_[id];
            for (ScalarId* operand : {&n.a, &n.b, &n.c})
                if (*operand) *operand = copy(*operand);
            to = out_.add(std::move(n));
        }
        return moved_[id.index()] = to;
    }

    ScalarId merged(ScalarId id) {
        const ScalarNode& cast = from_[id];
        if (cast.op != ScalarOp::Cast || cast.dtype != DType::F32 || from_[cast.a].dtype != DType::I32) return {};
        Terms terms;
        if (!parse(cast.a, terms) || terms.offsets.empty() || (!terms.in_floats && terms.offsets.size() < 2)) return {};
        if (terms.in_floats && !sums_integers()) return {};
        const auto constant = combined(terms);
        if (!constant) return {};
        changed_ = true;
        const DType t = terms.in_floats ? DType::F32 : DType::I32;
        const ScalarId sum = out_.binary(ScalarOp::Add, out_.acc(t), out_.access(*constant, t));
        return terms.in_floats ? sum : out_.cast(DType::F32, sum);
    }

    /// Acc, plus or minus reads of constants, converted to integers somewhere or not.
    bool parse(ScalarId id, Terms& terms) const {
        const ScalarNode& n = from_[id];
        switch (n.op) {
            case ScalarOp::Acc:
                terms.in_floats = n.dtype == DType::F32;
                return n.dtype == DType::F32 || n.dtype == DType::I32;
            case ScalarOp::Cast:
                return n.dtype == DType::I32 && from_[n.a].dtype == DType::F32 && parse(n.a, terms);
            case ScalarOp::Add:
            case ScalarOp::Sub:
                for (const auto& [sum, offset] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
                    if (from_[offset].op != ScalarOp::Access || (n.op == ScalarOp::Sub && offset != n.b)) continue;
                    terms.offsets.push_back({from_[offset].slot, n.op == ScalarOp::Sub ? -1.0 : 1.0});
                    if (known(terms.offsets.back().slot) != nullptr && parse(sum, terms)) return true;
                    terms.offsets.pop_back();
                }
                return false;
            default:
                return false;
        }
    }

    /// The contents of a constant of integers that float numbers represent, if it is read as a whole.
    const Tensor* known(uint32_t slot) const {
        const Access& a = e_.accesses[slot];
        const auto at = p_.constants.find(a.value);
        if (!a.valid.empty() || at == p_.constants.end() || p_.unread.count(a.value) != 0) return nullptr;
        const Tensor& t = at->second;
        if (t.dtype() != DType::I32 && t.dtype() != DType::F32) return nullptr;
        for (int64_t i = 0; i < t.count(); ++i)
            if (std::abs(t.get(i)) > kExact || t.get(i) != std::floor(t.get(i))) return nullptr;
        return &t;
    }

    /// Whether the expression sums products of bytes and constant integers, exactly.
    bool sums_integers() const {
        const auto c = contraction(e_);
        if (!c || !c->reads_widened() || c->type != DType::F32) return false;
        double largest = 1;
        for (const Contraction::Factor& f : c->factors) {
            const ValueId v = e_.accesses[*f.read].value;
            const DType t = p_.values[v].dtype;
            if (t == DType::U8 || t == DType::I8) {
                largest *= 255;
                continue;
            }
            const auto at = p_.constants.find(v);
            if (t != DType::F32 || at == p_.constants.end() || p_.unread.count(v) != 0) return false;
            double most = 0;
            for (int64_t i = 0; i < at->second.count(); ++i) {
                const double x = at->second.get(i);
                if (x != std::floor(x)) return false;
                most = std::max(most, std::abs(x));
            }
            largest *= most;
        }
        for (size_t r = e_.spatial; r < e_.extents.size(); ++r) {
            if (!e_.extents[r].is_constant()) return false;
            largest *= static_cast<double>(e_.extents[r].constant());
        }
        return largest < kExact;
    }

    /// The positions that an access reads, without those along dimensions of one element.
    static std::vector<Expr> moving(const Access& a) {
        std::vector<Expr> out;
        for (const Expr& i : a.index)
            if (!i.is_constant(0)) out.push_back(i);
        return out;
    }

    /// The access of the sum of the constants; nothing if they are read at different positions.
    std::optional<uint32_t> combined(const Terms& terms) {
        const uint32_t first = terms.offsets[0].slot;
        const DType t = terms.in_floats ? DType::F32 : DType::I32;
        const Tensor& shape = *known(first);
        Tensor sum(t, shape.shape());
        for (const Offset& o : terms.offsets) {
            const Tensor& part = *known(o.slot);
            if (part.count() != sum.count() || moving(e_.accesses[o.slot]) != moving(e_.accesses[first]))
                return std::nullopt;
            for (int64_t i = 0; i < sum.count(); ++i) sum.set(i, sum.get(i) + o.sign * part.get(i));
        }
        for (int64_t i = 0; i < sum.count(); ++i)
            if (std::abs(sum.get(i)) > kExact) return std::nullopt;
        Value value = p_.values[e_.accesses[first].value];
        value.name += ".offset" + std::to_string(p_.values.size());
        value.dtype = t;
        Access a = e_.accesses[first];
        a.value = p_.values.push_back(std::move(value));
        p_.constants.emplace(a.value, std::move(sum));
        e_.accesses.push_back(std::move(a));
        return static_cast<uint32_t>(e_.accesses.size() - 1);
    }

    Program& p_;
    TensorExpr& e_;
    const ScalarBody from_;
    std::vector<ScalarId> moved_;
    ScalarBody out_;
    bool changed_ = false;
};

}  // namespace

Program merge_offsets(Program program) {
    bool changed = false;
    for (Primitive& p : program.primitives) {
        TensorExpr* e = p.expr();
        if (e == nullptr || e->epilogue.empty() || !OffsetMerger(program, *e).run()) continue;
        *e = tidy(*e);
        changed = true;
    }
    return changed ? eliminate_dead_code(std::move(program)) : program;
}

}  // namespace tilewright
