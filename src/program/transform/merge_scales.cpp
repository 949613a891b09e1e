#include "program/transform/merge_scales.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "program/transform/dead_code.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

bool is_kept(double v) { return v == 0 || std::isnormal(static_cast<float>(v)); }

/// Constants of a program times a number.
class ScaledConstants {
  public:
    explicit ScaledConstants(Program& program) : p_(program) {}

    /// Whether the value is a constant of F32 whose contents are known, and stay normal numbers.
    bool may_scale(ValueId v, double by) const {
        const auto at = p_.constants.find(v);
        if (at == p_.constants.end() || p_.unread.count(v) != 0 || at->second.dtype() != DType::F32) return false;
        for (int64_t i = 0; i < at->second.count(); ++i)
            if (!is_kept(at->second.get(i) * by)) return false;
        return true;
    }

    ValueId scaled(ValueId v, double by) {
        const auto known = made_.find({v, by});
        if (known != made_.end()) return known->second;
        const Tensor& from = p_.constants.at(v);
        Tensor to(DType::F32, from.shape());
        for (int64_t i = 0; i < to.count(); ++i) to.set(i, from.get(i) * by);
        Value value = p_.values[v];
        value.name += ".scaled" + std::to_string(made_.size());
        const ValueId out = p_.values.push_back(std::move(value));
        p_.constants.emplace(out, std::move(to));
        return made_[{v, by}] = out;
    }

  private:
    Program& p_;
    std::map<std::pair<ValueId, double>, ValueId> made_;
};

class BodyRewriter {
  public:
    BodyRewriter(TensorExpr& e, const ScalarBody& body, ScaledConstants& constants)
        : e_(e), from_(body), constants_(constants), moved_(body.nodes().size()) {}

    /// The new body; nothing if it is the old one.
    std::optional<ScalarBody> run() {
        out_.set_root(copy(from_.root()));
        return changed_ ? std::optional(std::move(out_)) : std::nullopt;
    }

  private:
    ScalarId copy(ScalarId id) {
        if (moved_[id.index()]) return moved_[id.index()];
        ScalarId to = divided(id);
        if (!to) to = kept_real(id);
        if (!to) {
            ScalarNode n = from_[id];
            for (ScalarId* operand : {&n.a, &n.b, &n.c})
                if (*operand) *operand = copy(*operand);
            to = out_.add(std::move(n));
        }
        return moved_[id.index()] = to;
    }

    bool is(ScalarId id, ScalarOp op) const { return from_[id].op == op; }

    /// round(x / c) of a linear function x of integers or of the sum.
    ScalarId divided(ScalarId id) {
        if (!is(id, ScalarOp::RoundEven) || !is(from_[id].a, ScalarOp::Div)) return {};
        const ScalarNode& ratio = from_[from_[id].a];
        if (ratio.dtype != DType::F32 || !is(ratio.b, ScalarOp::Const)) return {};
        const double by = 1 / from_[ratio.b].value;
        if (!(by > 0) || !is_linear(ratio.a, by) || !has_sum_or_integers(ratio.a)) return {};
        changed_ = true;
        return out_.unary(ScalarOp::RoundEven, scaled(ratio.a, by));
    }

    /// A number by which may be multiplied: a constant, or an element of one.
    bool is_factor(ScalarId id, double by) const {
        const ScalarNode& n = from_[id];
        if (n.dtype != DType::F32) return false;
        if (n.op == ScalarOp::Const) return is_kept(n.value * by);
        return n.op == ScalarOp::Access && e_.accesses[n.slot].valid.empty() &&
               constants_.may_scale(e_.accesses[n.slot].value, by);
    }

    bool is_linear(ScalarId id, double by) const {
        if (is_factor(id, by)) return true;
        const ScalarNode& n = from_[id];
        switch (n.op) {
            case ScalarOp::Acc:
                return n.dtype == DType::F32;
            case ScalarOp::Cast:
                return n.dtype == DType::F32 && !is_float(from_[n.a].dtype);
            case ScalarOp::Mul:
                return scaled_operand(n, by).has_value();
            case ScalarOp::Add:
            case ScalarOp::Sub:
            case ScalarOp::Max:
            case ScalarOp::Min:
                return is_linear(n.a, by) && is_linear(n.b, by);
            default:
                return false;
        }
    }

    /// Which operand of a product takes the scale: a factor, or else the integers, whatever they are multiplied by.
    std::optional<bool> scaled_operand(const ScalarNode& product, double by) const {
        if (is_factor(product.b, by) && is_linear(product.a, 1)) return true;
        if (is_factor(product.a, by) && is_linear(product.b, 1)) return false;
        for (const bool second : {false, true})
            if (const ScalarId id = second ? product.b : product.a; has_sum_or_integers(id) && is_linear(id, by))
                return second;
        return std::nullopt;
    }

    bool has_sum_or_integers(ScalarId id) const {
        const ScalarNode& n = from_[id];
        if (n.op == ScalarOp::Cast || n.op == ScalarOp::Acc) return true;
        return (n.a && has_sum_or_integers(n.a)) || (n.b && has_sum_or_integers(n.b));
    }

    ScalarId number(double v) { return out_.constant(DType::F32, static_cast<double>(static_cast<float>(v))); }

    /// What is_linear() accepts, times `by`.
    ScalarId scaled(ScalarId id, double by) {
        const ScalarNode& n = from_[id];
        if (n.op == ScalarOp::Const) return number(n.value * by);
        if (n.op == ScalarOp::Access) {
            Access a = e_.accesses[n.slot];
            a.value = constants_.scaled(a.value, by);
            e_.accesses.push_back(std::move(a));
            return out_.access(static_cast<uint32_t>(e_.accesses.size() - 1), DType::F32);
        }
        if (n.op == ScalarOp::Cast || n.op == ScalarOp::Acc) return out_.binary(ScalarOp::Mul, copy(id), number(by));
        if (n.op == ScalarOp::Mul) {
            const bool second = *scaled_operand(n, by);
            const ScalarId a = second ? copy(n.a) : scaled(n.a, by);
            const ScalarId b = second ? scaled(n.b, by) : copy(n.b);
            return out_.binary(n.op, a, b);
        }
        const ScalarId a = scaled(n.a, by), b = scaled(n.b, by);
        return out_.binary(n.op, a, b);
    }

    /// f32(i32(u8(x)) - z) of an integral float x.
    ScalarId kept_real(ScalarId id) {
        if (!is(id, ScalarOp::Cast) || from_[id].dtype != DType::F32) return {};
        ScalarId integers = from_[id].a;
        double zero = 0;
        if (is(integers, ScalarOp::Sub)) {
            if (!is(from_[integers].b, ScalarOp::Const)) return {};
            zero = static_cast<double>(from_[from_[integers].b].int_value);
            integers = from_[integers].a;
        }
        if (!is(integers, ScalarOp::Cast) || from_[integers].dtype != DType::I32) return {};
        const ScalarNode& byte = from_[from_[integers].a];
        if (byte.op != ScalarOp::Cast || byte.dtype != DType::U8 || from_[byte.a].dtype != DType::F32 ||
            !is_integral(byte.a) || std::abs(zero) > 255)
            return {};
        changed_ = true;
        // As the conversion to U8 does: NaN becomes 0.
        ScalarId x = copy(byte.a);
        const ScalarId least = number(0), most = number(255);
        x = out_.select(out_.binary(ScalarOp::Gt, x, least), x, least);
        x = out_.select(out_.binary(ScalarOp::Lt, x, most), x, most);
        return zero == 0 ? x : out_.binary(ScalarOp::Sub, x, number(zero));
    }

    bool is_integral(ScalarId id) const {
        const ScalarNode& n = from_[id];
        if (n.op == ScalarOp::RoundEven) return true;
        if (n.op == ScalarOp::Const) return n.value == std::floor(n.value);
        return n.op == ScalarOp::Add && is_integral(n.a) && is_integral(n.b);
    }

    TensorExpr& e_;
    const ScalarBody& from_;
    ScaledConstants& constants_;
    std::vector<ScalarId> moved_;
    ScalarBody out_;
    bool changed_ = false;
};

}  // namespace

Program merge_scales(Program program) {
    ScaledConstants constants(program);
    bool changed = false;
    for (Primitive& p : program.primitives) {
        TensorExpr* e = p.expr();
        if (e == nullptr) continue;
        bool own = false;
        for (ScalarBody* body : {&e->body, &e->epilogue}) {
            if (body->empty()) continue;
            if (auto better = BodyRewriter(*e, *body, constants).run()) {
                *body = std::move(*better);
                own = true;
            }
        }
        if (own) *e = tidy(*e);
        changed = changed || own;
    }
    return changed ? eliminate_dead_code(std::move(program)) : program;
}

}  // namespace tilewright
