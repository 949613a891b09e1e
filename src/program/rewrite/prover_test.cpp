#include "program/rewrite/prover_test.h"

#include <z3++.h>

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "program/rewrite/rewrite.h"
#include "program/scalar_eval.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

/// p / q with the smallest q that is within half a unit of f32's last place.
std::pair<int64_t, int64_t> simplest_fraction(double x) {
    const double tolerance = std::ldexp(std::fabs(x), -24);
    int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
    double rest = x;
    for (int k = 0; k < 40; ++k) {
        const double whole = std::floor(rest);
        const auto a = static_cast<int64_t>(whole);
        const int64_t p = a * p1 + p0, q = a * q1 + q0;
        p0 = std::exchange(p1, p);
        q0 = std::exchange(q1, q);
        if (std::fabs(static_cast<double>(p) / static_cast<double>(q) - x) <= tolerance) break;
        rest = 1 / (rest - whole);
    }
    return {p1, q1};
}

/// A scalar: a known integer or truth value, or a real expression.
struct Symbolic {
    int64_t integer = 0;
    z3::expr real;
};

class Evaluator {
  public:
    Evaluator(z3::context& z3, const Program& program, size_t given)
        : facts(z3),
          z_(z3),
          p_(program),
          given_(given),
          inverse_(z3.function("inv", z3.real_sort(), z3.real_sort())),
          producers_(program.producers()) {
        const RewriteContext context(program);
        for (const auto& [v, tensor] : program.constants)
            if (const auto fill = context.fill(v)) fills_.emplace(v, *fill);
    }

    z3::expr element(ValueId v, const std::vector<int64_t>& index) {
        const auto [it, fresh] = known_.try_emplace({v, index}, z_.real_val(0));
        if (!fresh) return it->second;
        const z3::expr e = compute(v, index);
        known_.at({v, index}) = e;
        return e;
    }

    z3::expr_vector facts;  ///< about the divisors so far: x inv(x) = 1

  private:
    z3::expr number(double x) {
        const auto [p, q] = simplest_fraction(x);
        return z_.real_val(fmt::format("{}/{}", p, q).c_str());
    }

    z3::expr compute(ValueId v, const std::vector<int64_t>& index) {
        if (!producers_[v]) return given(v, index);
        const Primitive& primitive = p_.primitives[producers_[v]];
        const TensorExpr* e = primitive.expr();
        TW_CHECK(e != nullptr && e->output_index.empty(), "'{}' cannot be proved", primitive.name);
        std::vector<int64_t> point = index;
        point.resize(e->extents.size(), 0);
        if (e->reducer == Reducer::None) return run(*e, e->body, point, nullptr);
        TW_CHECK(e->reducer == Reducer::Sum, "a reduction other than a sum");
        z3::expr_vector terms(z_);
        for (bool more = true; more;) {
            terms.push_back(run(*e, e->body, point, nullptr));
            more = false;
            for (size_t a = e->extents.size(); a-- > e->spatial && !more;) {
                more = ++point[a] < e->extents[a].constant();
                if (!more) point[a] = 0;
            }
        }
        const z3::expr sum = z3::sum(terms);
        return e->epilogue.empty() ? sum : run(*e, e->epilogue, point, &sum);
    }

    z3::expr given(ValueId v, const std::vector<int64_t>& index) {
        const Value& value = p_.values[v];
        if (const auto fill = fills_.find(v); fill != fills_.end()) return number(fill->second);
        const auto constant = p_.constants.find(v);
        if (constant != p_.constants.end() && v.index() >= given_) {
            int64_t at = 0;
            for (size_t d = 0; d < index.size(); ++d) at = at * value.shape[d].constant() + index[d];
            return number(constant->second.get(at));
        }
        std::string name = fmt::format("v{}", v.value);
        for (const int64_t i : index) name += fmt::format("_{}", i);
        return z_.real_const(name.c_str());
    }

    /// One factor at a time, so that inv(x y) = inv(x) inv(y) holds by construction.
    z3::expr inverse(const z3::expr& x) {
        if (x.is_app() && x.decl().decl_kind() == Z3_OP_MUL) {
            z3::expr out = z_.real_val(1);
            for (unsigned k = 0; k < x.num_args(); ++k) out = out * inverse(x.arg(k));
            return out;
        }
        if (x.is_numeral()) return (z_.real_val(1) / x).simplify();
        if (x.is_app() && x.decl().name().str() == "inv") return x.arg(0);
        const z3::expr normal = expanded(x);
        if (normal.is_numeral() || (normal.is_app() && normal.decl().decl_kind() == Z3_OP_MUL)) return inverse(normal);
        return of_divisor(normal);
    }
    z3::expr of_divisor(const z3::expr& x) {
        const z3::expr out = inverse_(x);
        if (divisors_.emplace(x.id(), x).second) facts.push_back(x * out == 1);
        return out;
    }

    z3::expr expanded(const z3::expr& x) {
        z3::params params(z_);
        params.set("som", true);
        return x.simplify(params);
    }

    /// exp(n x) as exp(x)^n for a whole number n.
    z3::expr exp_of_term(const z3::func_decl& f, const z3::expr& term) {
        const bool scaled = term.is_app() && term.decl().decl_kind() == Z3_OP_MUL && term.arg(0).is_numeral();
        const double n = scaled ? term.arg(0).as_double() : 1;
        if (n != std::floor(n) || std::fabs(n) > 8) return f(term);
        z3::expr x = scaled ? term.arg(1) : term;
        for (unsigned k = 2; scaled && k < term.num_args(); ++k) x = x * term.arg(k);
        const z3::expr one = f(x);
        z3::expr out = z_.real_val(1);
        for (int k = 0; k < static_cast<int>(std::fabs(n)); ++k) out = out * one;
        return n < 0 ? inverse(out) : out;
    }

    z3::expr function(ScalarOp op, const z3::expr& x) {
        const z3::func_decl f = z_.function(std::string(to_string(op)).c_str(), z_.real_sort(), z_.real_sort());
        z3::expr normal = expanded(x);
        if (normal.is_numeral() && normal.as_double() == 0) {
            if (op == ScalarOp::Exp) return z_.real_val(1);
            if (const ScalarFunction* known = scalar_function(op); known != nullptr && known->reference(0) == 0)
                return normal;
        }
        if (op == ScalarOp::Exp && normal.is_app() && normal.decl().decl_kind() == Z3_OP_MUL)
            return exp_of_term(f, normal);
        if (op != ScalarOp::Exp || !normal.is_app() || normal.decl().decl_kind() != Z3_OP_ADD) return f(normal);
        z3::expr out = z_.real_val(1);
        for (unsigned k = 0; k < normal.num_args(); ++k) out = out * exp_of_term(f, normal.arg(k));
        return out;
    }

    z3::expr run(const TensorExpr& e, const ScalarBody& body, const std::vector<int64_t>& point, const z3::expr* acc) {
        const ScalarBody needed = body.pruned();
        std::vector<Symbolic> values;
        Env env;
        env.axes = point;
        const auto at = [&](ScalarId id) -> const Symbolic& { return values[id.index()]; };
        for (const ScalarNode& n : needed.nodes()) {
            Symbolic s{0, z_.real_val(0)};
            switch (n.op) {
                case ScalarOp::Const:
                    s.integer = n.int_value;
                    s.real = number(n.value);
                    break;
                case ScalarOp::Index:
                    s.integer = evaluate(n.index, env);
                    break;
                case ScalarOp::Access:
                    s.real = read(e.accesses[n.slot], env);
                    break;
                case ScalarOp::Acc:
                    TW_CHECK(acc != nullptr);
                    s.real = *acc;
                    break;
                case ScalarOp::Add:
                    s.real = at(n.a).real + at(n.b).real;
                    break;
                case ScalarOp::Sub:
                    s.real = at(n.a).real - at(n.b).real;
                    break;
                case ScalarOp::Table:
                    s.real = number(table_at(n, at(n.a).integer));
                    break;
                case ScalarOp::Mul:
                case ScalarOp::Weigh:  // equal for reals
                    s.real = at(n.a).real * at(n.b).real;
                    break;
                case ScalarOp::Div:
                    s.real = at(n.a).real * inverse(at(n.b).real);
                    break;
                case ScalarOp::Neg:
                    s.real = -at(n.a).real;
                    break;
                case ScalarOp::Max:
                    s.real = z3::ite(at(n.a).real >= at(n.b).real, at(n.a).real, at(n.b).real);
                    break;
                case ScalarOp::Min:
                    s.real = z3::ite(at(n.a).real <= at(n.b).real, at(n.a).real, at(n.b).real);
                    break;
                case ScalarOp::Lt:
                    s.integer = at(n.a).integer < at(n.b).integer ? 1 : 0;
                    break;
                case ScalarOp::Ge:
                    s.integer = at(n.a).integer >= at(n.b).integer ? 1 : 0;
                    break;
                case ScalarOp::BitAnd:
                    s.integer = at(n.a).integer & at(n.b).integer;
                    break;
                case ScalarOp::Select:
                    s.real = at(n.a).integer != 0 ? at(n.b).real : at(n.c).real;
                    break;
                case ScalarOp::Cast:
                    s.real = n.dtype == DType::F32 && is_float(needed[n.a].dtype) ? at(n.a).real
                                                                                  : z_.real_val(at(n.a).integer);
                    break;
                default:
                    s.real = function(n.op, at(n.a).real);
            }
            values.push_back(std::move(s));
        }
        return values[needed.root().index()].real;
    }

    z3::expr read(const Access& a, const Env& env) {
        for (const Expr c : a.valid)
            if (evaluate(c, env) < 0) return number(a.fill);
        std::vector<int64_t> index;
        for (const Expr i : a.index) index.push_back(evaluate(i, env));
        return element(a.value, index);
    }

    z3::context& z_;
    const Program& p_;
    size_t given_;                     ///< values from this number on are introduced by the rewrite
    std::map<ValueId, double> fills_;  ///< the constants that rules can read
    z3::func_decl inverse_;
    IndexVector<ValueId, PrimitiveId> producers_;
    std::map<std::pair<ValueId, std::vector<int64_t>>, z3::expr> known_;
    std::map<unsigned, z3::expr> divisors_;  ///< by Z3's id, which is stable during their lifetime
};

}  // namespace

Verdict prove_equal(const Program& before, const Program& after, const ProofOptions& options) {
    TW_CHECK(before.outputs.size() == after.outputs.size());
    z3::context z;
    Evaluator left(z, before, before.values.size()), right(z, after, before.values.size());
    z3::params params(z);
    params.set("som", true);
    Verdict verdict = Verdict::Proven;
    for (size_t k = 0; k < before.outputs.size(); ++k) {
        const Shape shape = evaluate(before.values[before.outputs[k]].shape, {});
        if (shape != evaluate(after.values[after.outputs[k]].shape, {})) return Verdict::Refuted;
        const auto count = static_cast<size_t>(element_count(shape));
        const size_t checked = std::min(count, options.elements);
        for (size_t n = 0; n < checked; ++n) {
            size_t at = checked < 2 ? 0 : n * (count - 1) / (checked - 1);
            std::vector<int64_t> index(shape.size());
            for (size_t d = shape.size(); d-- > 0; at /= static_cast<size_t>(shape[d]))
                index[d] = static_cast<int64_t>(at % static_cast<size_t>(shape[d]));
            const z3::expr x = left.element(before.outputs[k], index), y = right.element(after.outputs[k], index);
            z3::solver solver(z);
            solver.set("rlimit", options.work);
            const z3::expr difference = (x - y).simplify(params);
            if (!difference.is_numeral()) {  // otherwise facts about divisors are not needed
                solver.add(left.facts);
                solver.add(right.facts);
            }
            solver.add(difference != 0);
            switch (solver.check()) {
                case z3::unsat:
                    break;
                case z3::sat:
                    return Verdict::Refuted;
                case z3::unknown:
                    verdict = Verdict::Unknown;
            }
        }
    }
    return verdict;
}

}  // namespace tilewright
