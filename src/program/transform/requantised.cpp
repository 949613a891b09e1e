#include "program/transform/requantised.h"

#include <cmath>
#include <optional>
#include <utility>

#include "program/analysis/access.h"
#include "program/analysis/rounded.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

constexpr int kMostInlined = 8;

/// Returns q's access, its number, if the body quantises what it dequantises: cast(round(((q - zero) * scale) / scale)
/// + zero).
class Requantisation {
  public:
    Requantisation(const Program& program, const TensorExpr& e) : p_(program), e_(e), b_(e.body) {}

    std::optional<uint32_t> match(DType to) const {
        const auto byte = rounded_byte(b_, b_.root());
        if (!byte || b_.dtype() != to || !is(byte->real, ScalarOp::Div)) return std::nullopt;
        const std::optional<ScalarId>& zero = byte->zero;
        const ScalarNode& ratio = b_[byte->real];
        if (ratio.dtype != DType::F32 || !is(ratio.a, ScalarOp::Mul)) return std::nullopt;
        const ScalarNode& real = b_[ratio.a];
        for (const auto& [integer, scale] : {std::pair(real.a, real.b), std::pair(real.b, real.a)})
            if (same(scale, ratio.b) && is_moderate(scale) && is(integer, ScalarOp::Cast))
                if (auto found = integers(b_[integer].a, zero, to)) return found;
        return std::nullopt;
    }

  private:
    bool is(ScalarId id, ScalarOp op) const { return b_[id].op == op; }

    /// Equal numbers, or reads of the same element of a constant.
    bool same(ScalarId x, ScalarId y) const {
        while (is(x, ScalarOp::Cast)) x = b_[x].a;
        while (is(y, ScalarOp::Cast)) y = b_[y].a;
        const ScalarNode &a = b_[x], &b = b_[y];
        if (a.op == ScalarOp::Const && b.op == ScalarOp::Const) return number(a) == number(b);
        if (a.op != ScalarOp::Access || b.op != ScalarOp::Access) return false;
        const Access &first = e_.accesses[a.slot], &second = e_.accesses[b.slot];
        return first == second && first.valid.empty();
    }
    static double number(const ScalarNode& n) { return is_float(n.dtype) ? n.value : static_cast<double>(n.int_value); }

    /// Whether products of up to 255 and the scale neither overflow nor become subnormal.
    bool is_moderate(ScalarId scale) const {
        const auto moderate = [](double v) { return std::abs(v) >= 0x1p-100 && std::abs(v) <= 0x1p100; };
        if (is(scale, ScalarOp::Const)) return moderate(number(b_[scale]));
        if (!is(scale, ScalarOp::Access)) return false;
        const auto known = p_.constants.find(e_.accesses[b_[scale].slot].value);
        if (known == p_.constants.end() || p_.unread.count(known->first) != 0) return false;
        for (int64_t i = 0; i < known->second.count(); ++i)
            if (!moderate(known->second.get(i))) return false;
        return true;
    }

    std::optional<uint32_t> integers(ScalarId id, const std::optional<ScalarId>& zero, DType to) const {
        const bool no_zero = !zero || (is(*zero, ScalarOp::Const) && number(b_[*zero]) == 0);
        if (is(id, ScalarOp::Sub)) {
            if (!zero || !same(b_[id].b, *zero)) return std::nullopt;
            id = b_[id].a;
        } else if (!no_zero) {
            return std::nullopt;
        }
        if (!is(id, ScalarOp::Cast) || b_[id].dtype != DType::I32) return std::nullopt;
        const ScalarNode& q = b_[b_[id].a];
        if (q.op != ScalarOp::Access || q.dtype != to || !e_.accesses[q.slot].valid.empty()) return std::nullopt;
        return q.slot;
    }

    const Program& p_;
    const TensorExpr& e_;
    const ScalarBody& b_;
};

class RequantisedCopies {
  public:
    explicit RequantisedCopies(Program& program) : p_(program), producers_(program.producers()) {}

    size_t run() {
        for (Primitive& q : p_.primitives) rewrite(q);
        return found_;
    }

  private:
    void rewrite(Primitive& q) {
        const TensorExpr* e = q.expr();
        if (e == nullptr || e->reducer != Reducer::None || !is_byte(p_.values[q.outputs[0]].dtype)) return;
        TensorExpr own = *e;
        for (int k = 0; k < kMostInlined; ++k) {
            if (const auto of = Requantisation(p_, own).match(p_.values[q.outputs[0]].dtype)) {
                own.body = ScalarBody();
                own.body.set_root(own.body.access(*of, p_.values[own.accesses[*of].value].dtype));
                q.kind = tidy(own);
                ++found_;
                return;
            }
            auto next = with_producer_of_real(own);
            if (!next) return largest_integer(q, own);
            own = std::move(*next);
        }
    }

    /// Quantises the largest of what was dequantised alike: that is the largest integer. `own` is q with all
    /// elementwise producers in place.
    ///     y = u8(round(max(i) x[i] / s)), x[i] = i32(k[i]) * s   ->   y = max(i) k[i]
    void largest_integer(Primitive& q, const TensorExpr& own) {
        const DType to = p_.values[q.outputs[0]].dtype;
        std::optional<size_t> at;
        for (size_t k = 0; k < own.accesses.size(); ++k)
            if (p_.values[own.accesses[k].value].dtype == DType::F32 && producers_[own.accesses[k].value]) {
                if (at || !own.accesses[k].valid.empty()) return;
                at = k;
            }
        if (!at) return;
        const Access& read = own.accesses[*at];
        const TensorExpr* of = p_.primitives[producers_[read.value]].expr();
        if (of == nullptr || of->reducer != Reducer::Max || !of->epilogue.empty() || !of->output_index.empty() ||
            of->accesses.size() != 1 || of->body[of->body.root()].op != ScalarOp::Access || uses_load(read.index))
            return;
        // q over the points of the reduction, as if it read the reduction's operand.
        TensorExpr each = own;
        const size_t spatial = own.extents.size();
        std::vector<Expr> point = read.index;
        for (size_t r = of->spatial; r < of->extents.size(); ++r) {
            point.push_back(axis(each.extents.size()));
            each.extents.push_back(of->extents[r]);
        }
        each.spatial = each.extents.size();
        Access moved = of->accesses[0];
        for (Expr& i : moved.index) i = substitute_axes(i, point);
        for (Expr& i : moved.valid) i = substitute_axes(i, point);
        const std::vector<Expr> valid = std::exchange(moved.valid, {});
        each.accesses[*at] = std::move(moved);
        for (int k = 0; k < kMostInlined; ++k) {
            if (const auto found = Requantisation(p_, each).match(to)) {
                Access integers = each.accesses[*found];
                if (!integers.valid.empty() || uses_load(integers.index)) return;
                integers.valid = valid;
                integers.fill = to == DType::U8 ? 0 : -128;
                each.accesses = {std::move(integers)};
                each.spatial = spatial;
                each.reducer = Reducer::Max;
                each.body = ScalarBody();
                each.body.set_root(each.body.access(0, to));
                q.kind = tidy(each);
                ++found_;
                return;
            }
            auto next = with_producer_of_real(each);
            if (!next) return;
            each = std::move(*next);
        }
    }

    /// `own` with the elementwise producer of its one computed read of a float in place.
    std::optional<TensorExpr> with_producer_of_real(const TensorExpr& own) const {
        for (size_t k = 0; k < own.accesses.size(); ++k) {
            const Access& a = own.accesses[k];
            if (p_.values[a.value].dtype != DType::F32 || !producers_[a.value]) continue;
            const TensorExpr* by = p_.primitives[producers_[a.value]].expr();
            if (by == nullptr || by->reducer != Reducer::None || !a.valid.empty()) return std::nullopt;
            return inline_producer(own, k, *by, p_.values[a.value]);
        }
        return std::nullopt;
    }

    Program& p_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    size_t found_ = 0;
};

}  // namespace

size_t copy_requantised(Program& program) { return RequantisedCopies(program).run(); }

}  // namespace tilewright
