#include "compile/precision_switches.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "program/analysis/contraction.h"

namespace tilewright {

namespace {

class Switcher {
  public:
    Switcher(Program program, const std::vector<NarrowedProduct>& products, DType type)
        : p_(std::move(program)), products_(products), type_(type) {}

    Program run() {
        std::map<PrimitiveId, size_t> of;
        for (size_t k = 0; k < products_.size(); ++k) of.emplace(PrimitiveId(products_[k].origin.parts.at(0)), k);
        find_readers(of);
        switches_ = p_.values.push_back({kSwitches, DType::Bool, {Expr(static_cast<int64_t>(products_.size()))}});
        p_.inputs.push_back(switches_);
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive p = std::move(p_.primitives[id]);
            if (const auto it = of.find(id); it != of.end())
                add_both(std::move(p), it->second);
            else
                all_.push_back(std::move(p));
        }
        p_.primitives = std::move(all_);
        return std::move(p_);
    }

  private:
    /// f32(bf16(x))
    ScalarId rounded(ScalarBody& body, ScalarId x) const { return body.cast(DType::F32, body.cast(type_, x)); }

    /// The products that read a value or copies of it.
    void find_readers(const std::map<PrimitiveId, size_t>& of) {
        for (size_t i = p_.primitives.size(); i-- > 0;) {
            const PrimitiveId id(static_cast<uint32_t>(i));
            const Primitive& p = p_.primitives[id];
            if (p.expr() == nullptr) continue;
            const auto product = of.find(id);
            for (const ValueId v : p.inputs()) {
                if (product != of.end()) readers_[v].insert(product->second);
                if (!is_copy(*p.expr())) continue;
                const auto further = readers_.find(p.outputs[0]);
                if (further != readers_.end()) readers_[v].insert(further->second.begin(), further->second.end());
            }
        }
    }

    void add_both(Primitive exact, size_t k) {
        const NarrowedProduct& product = products_[k];
        const auto c = contraction(*exact.expr());
        TW_CHECK(c, "'{}' is no product", exact.name);
        const ValueId result = exact.outputs[0];
        Primitive narrow = exact;
        narrow.name += fmt::format("/{}", to_string(type_));
        for (const Contraction::Factor& f : c->factors) {
            if (!f.slot) continue;
            ValueId& operand = narrow.expr()->accesses[*f.slot].value;
            if (p_.values[operand].dtype != DType::F32) continue;
            if (p_.is_constant(operand) ? product.weights : product.data) operand = rounded_operand(operand, exact);
        }
        exact.outputs = {added(result, "f32")};
        narrow.outputs = {added(result, to_string(type_))};
        Primitive choice;
        choice.name = exact.name + "/switch";
        choice.source = "precision";
        choice.outputs = {result};
        choice.origin = exact.origin;
        TensorExpr e = elementwise(result, {narrow.outputs[0], exact.outputs[0]});
        const DType t = p_.values[result].dtype;
        ScalarId b = e.body.access(0, t);
        if (product.stored) b = e.body.select(all_on(e, readers_[result]), rounded(e.body, b), b);
        e.body.set_root(e.body.select(all_on(e, {k}), b, e.body.access(1, t)));
        choice.kind = std::move(e);
        all_.push_back(std::move(exact));
        all_.push_back(std::move(narrow));
        all_.push_back(std::move(choice));
    }

    /// Whether all these products are rounded.
    ScalarId all_on(TensorExpr& e, const std::set<size_t>& products) const {
        ScalarId on = e.body.int_constant(DType::Bool, 1);
        for (const size_t k : products) {
            e.accesses.push_back({switches_, {Expr(static_cast<int64_t>(k))}, {}, 0});
            const ScalarId one = e.body.access(static_cast<uint32_t>(e.accesses.size() - 1), DType::Bool);
            on = e.body.binary(ScalarOp::BitAnd, on, one);
        }
        return on;
    }

    /// Rounded once for all products that read it.
    ValueId rounded_operand(ValueId v, const Primitive& reader) {
        const auto [at, is_new] = rounded_.try_emplace(v);
        if (!is_new) return at->second;
        at->second = added(v, "rounded");
        if (p_.is_constant(v)) {
            const Tensor& from = p_.constants.at(v);
            Tensor to(DType::F32, from.shape(), false);
            const auto x = from.as<float>();
            const auto y = to.as_mutable<float>();
            const bool half = type_ == DType::F16;
            for (size_t i = 0; i < x.size(); ++i)
                y[i] = half ? half_to_float(float_to_half(x[i])) : bfloat16_to_float(float_to_bfloat16(x[i]));
            p_.constants.emplace(at->second, std::move(to));
            return at->second;
        }
        Primitive copy;
        copy.name = reader.name + "/rounded";
        copy.source = "precision";
        copy.outputs = {at->second};
        copy.origin = reader.origin;
        TensorExpr e = elementwise(v, {v});
        e.body.set_root(rounded(e.body, e.body.access(0, DType::F32)));
        copy.kind = std::move(e);
        all_.push_back(std::move(copy));
        return at->second;
    }

    /// Another value of the same shape.
    ValueId added(ValueId like, std::string_view role) {
        Value value = p_.values[like];
        value.name = fmt::format("{}.{}", value.name, role);
        return p_.values.push_back(std::move(value));
    }

    /// An expression over the shape of `like` that reads each operand at the same place; without a body.
    TensorExpr elementwise(ValueId like, const std::vector<ValueId>& operands) const {
        TensorExpr e;
        e.extents = p_.values[like].shape;
        e.spatial = e.extents.size();
        for (const ValueId v : operands) {
            Access a;
            a.value = v;
            for (size_t d = 0; d < e.spatial; ++d) a.index.push_back(axis(d));
            e.accesses.push_back(std::move(a));
        }
        return e;
    }

    Program p_;
    const std::vector<NarrowedProduct>& products_;
    const DType type_;
    ValueId switches_;
    std::map<ValueId, std::set<size_t>> readers_;
    std::map<ValueId, ValueId> rounded_;
    IndexVector<PrimitiveId, Primitive> all_;
};

}  // namespace

Program with_switches(Program program, const std::vector<NarrowedProduct>& products, DType type) {
    return Switcher(std::move(program), products, type).run();
}

}  // namespace tilewright
