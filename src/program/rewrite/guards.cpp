#include "program/rewrite/guards.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "program/intervals.h"
#include "program/rewrite/algebra.h"

namespace tilewright {

namespace {

/// No convolution over values up to this magnitude overflows f32.
constexpr double kSafe = 1e18;

/// Larger constants are not read; products with them may have any number (intervals.h).
constexpr int64_t kMaxRead = int64_t{1} << 20;  // elements

/// The values that Winograd input transforms read, in order. Output transforms read the products.
std::vector<ValueId> transformed_values(const Program& program) {
    std::set<ValueId> tiles, products;
    std::vector<ValueId> out;
    for (const Primitive& p : program.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr || e->body.empty()) continue;
        const bool of_tiles = std::any_of(e->accesses.begin(), e->accesses.end(),
                                          [&](const Access& a) { return tiles.count(a.value) != 0; });
        if (of_tiles) products.insert(p.outputs[0]);
        if (e->body[e->body.root()].op != ScalarOp::Weigh) continue;
        for (const Access& a : e->accesses) {
            if (program.is_constant(a.value) || products.count(a.value) != 0) continue;
            tiles.insert(p.outputs[0]);
            if (std::find(out.begin(), out.end(), a.value) == out.end()) out.push_back(a.value);
        }
    }
    return out;
}

/// The names of the transformed values that need a check: the fewest that let bounds propagate from one to the next.
class Checks {
  public:
    Checks(const Program& original, const std::set<std::string>& transformed) : p_(original) {
        for (const auto& [v, t] : p_.constants)
            if (p_.unread.count(v) == 0 && t.count() <= kMaxRead) known_[v] = interval_of(t);
        for (const ValueId v : p_.inputs) visit(v, {}, transformed);
        for (const Primitive& p : p_.primitives) {
            const TensorExpr* e = p.expr();
            const RealInterval found =
                e == nullptr ? RealInterval{} : interval_of(p_, *e, [&](ValueId v) { return of(v); });
            for (const ValueId v : p.outputs) visit(v, found, transformed);
        }
    }
    /// Values with other names, introduced by rewrites, are also checked.
    bool needed(const std::string& name) const { return safe_.count(name) == 0; }

  private:
    RealInterval of(ValueId v) const {
        const auto it = known_.find(v);
        return it == known_.end() ? RealInterval{} : it->second;
    }
    void visit(ValueId v, RealInterval found, const std::set<std::string>& transformed) {
        const std::string& name = p_.values[v].name;
        if (transformed.count(name) != 0) {
            if (found.magnitude() <= kSafe)
                safe_.insert(name);
            else
                found = {-kMostGuarded, kMostGuarded};  // the value will be checked
        }
        known_[v] = found;
    }

    const Program& p_;
    std::unordered_map<ValueId, RealInterval> known_;
    std::set<std::string> safe_;
};

/// worst = max over all elements of (|x| <= kMostGuarded ? 0 : 1)
TensorExpr outside(const Program& program, ValueId x) {
    const Value& value = program.values[x];
    std::vector<Expr> index;
    for (size_t d = 0; d < value.shape.size(); ++d) index.push_back(axis(d));
    ExprWriter e(value.shape, 0, Reducer::Max);
    ScalarBody& body = e.body();
    const ScalarId element = e.read(x, value.dtype, index);
    const DType t = body[element].dtype;
    const ScalarId small =
        body.binary(ScalarOp::Le, body.unary(ScalarOp::Abs, element), body.constant(t, kMostGuarded));
    return e.finish(body.select(small, body.int_constant(DType::I32, 0), body.int_constant(DType::I32, 1)));
}

}  // namespace

Program guard_winograd(Program program, const Program& original) {
    const std::vector<ValueId> transformed = transformed_values(program);
    if (transformed.empty()) return program;
    std::set<std::string> names;
    for (const ValueId v : transformed) names.insert(program.values[v].name);
    const Checks checks(original, names);
    std::set<ValueId> unchecked;
    for (const ValueId v : transformed)
        if (checks.needed(program.values[v].name)) unchecked.insert(v);

    IndexVector<PrimitiveId, Primitive> primitives;
    const auto guard = [&](ValueId x, const Primitive* maker) {
        if (unchecked.erase(x) == 0) return;
        const std::string name = program.values[x].name + "/winograd_guard";
        const ValueId worst = program.values.push_back({name, DType::I32, {}});
        const std::string source = maker == nullptr ? "" : maker->source;
        const Origin origin = maker == nullptr ? Origin{} : maker->origin;
        primitives.push_back({name, source, {worst}, outside(program, x), origin});
        primitives.push_back({name + "/read", source, {}, ReadScalar{worst, 0, name}, origin});
        program.requirements.push_back(
            {Requirement::Kind::AtLeast, 0, scalar(name),  // without elements: the least number
             fmt::format("'{}' exceeds the range in which Winograd convolutions are accurate", program.values[x].name),
             "", Requirement::Check::Fallback});
    };
    for (const ValueId v : program.inputs) guard(v, nullptr);
    for (const PrimitiveId id : program.primitives.ids()) {
        const std::vector<ValueId> made = program.primitives[id].outputs;
        primitives.push_back(program.primitives[id]);
        for (const ValueId v : made) guard(v, &program.primitives[id]);
    }
    program.primitives = std::move(primitives);
    return program;
}

Program read_by_guards(Program original) {
    std::erase_if(original.constants, [](const auto& c) { return c.second.count() > kMaxRead; });
    return original;
}

}  // namespace tilewright
