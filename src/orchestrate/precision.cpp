#include "orchestrate/precision.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/padded_columns.h"
#include "orchestrate/paired_operands.h"
#include "orchestrate/window_runs.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

bool is_constant_at_least(Expr e, int64_t least) { return e.is_constant() && e.constant() >= least; }

/// A product with weights that can run on tile registers once layouts are chosen: columns that fill vectors, rows, and
/// a reduction that tiles divide, along which the data can be contiguous.
std::optional<WeightedContraction> product_on_tiles(const Program& program, const Primitive& p) {
    const TensorExpr* e = p.expr();
    if (e == nullptr) return std::nullopt;
    const auto product = weighted_contraction(program, *e);
    const auto c = contraction(*e);
    if (!product || !c || c->type != DType::F32) return std::nullopt;
    const Access &data = e->accesses[product->data], &weights = e->accesses[product->weights];
    const auto stored = [&](const Access& a) { return program.values[a.value].dtype; };
    const bool decoded =  // in panels of bf16
        !c->factors[0].slot || !c->factors[1].slot || stored(weights) == DType::F16;
    if (stored(data) != DType::F32 && stored(data) != DType::BF16) return std::nullopt;
    if (!decoded && stored(weights) != DType::F32 && stored(weights) != DType::BF16) return std::nullopt;
    bool columns = false, rows = false, sum = false;
    for (size_t a = 0; a < e->spatial; ++a) {
        const bool by_data = index_uses(data.index, a), by_weights = index_uses(weights.index, a);
        columns = columns || (by_weights && !by_data && is_constant_at_least(e->extents[a], kTileColumns));
        rows = rows || (by_data && !by_weights && !e->extents[a].is_constant(1));
    }
    for (size_t r = e->spatial; r < e->extents.size(); ++r)
        sum = sum || (e->extents[r].is_constant() && tile_step(e->extents[r].constant(), MatrixType::BF16) > 0 &&
                      std::any_of(data.index.begin(), data.index.end(), [&](Expr i) {
                          const auto linear = linear_in(i, {VarKind::Axis, static_cast<uint32_t>(r)});
                          return linear && linear->coefficient.is_constant(1);
                      }));
    return columns && rows && sum ? product : std::nullopt;
}

/// A product that reads each of many weights once. It takes the time of its weights.
std::optional<WeightedContraction> product_of_one_row(const Program& program, const Primitive& p) {
    constexpr int64_t kMany = int64_t{1} << 16;
    const TensorExpr* e = p.expr();
    const auto product = e != nullptr ? weighted_contraction(program, *e) : std::nullopt;
    if (!product || e->body.dtype() != DType::F32) return std::nullopt;
    const Access& weights = e->accesses[product->weights];
    if (program.values[weights.value].dtype != DType::F32) return std::nullopt;
    for (size_t a = 0; a < e->spatial; ++a)
        if (!index_uses(weights.index, a) && !e->extents[a].is_constant(1)) return std::nullopt;
    return program.constants.at(weights.value).count() >= kMany ? product : std::nullopt;
}

class Narrower {
  public:
    explicit Narrower(PairedOperands given) : p_(std::move(given.program)), paired_(std::move(given.products)) {}

    Program run(NarrowedOperands& report) {
        find_products();
        narrow_values();
        narrow_constants();
        insert_copies();
        report_.products = data_.size();
        report = report_;
        return std::move(p_);
    }

  private:
    void find_products() {
        for (const PrimitiveId id : p_.primitives.ids()) {
            if (const auto product = product_on_tiles(p_, p_.primitives[id])) {
                weights_.emplace(id, *product);
                data_.emplace(id, product->data);
            } else if (const auto paired = paired_.find(id); paired != paired_.end()) {
                data_.emplace(*paired);
            }
        }
    }

    static bool is_copy(const TensorExpr& e) {
        return e.reducer == Reducer::None && e.body[e.body.root()].op == ScalarOp::Access;
    }

    /// Whether the reader computes as well from a rounded operand.
    bool tolerates(const Primitive& reader) const {
        const TensorExpr* e = reader.expr();
        if (e == nullptr) return false;
        if (e->reducer == Reducer::None || e->reducer == Reducer::Max || e->reducer == Reducer::Min) return true;
        return contraction(*e).has_value() || e->body[e->body.root()].op == ScalarOp::Access;
    }

    /// Sets the type of computed values: operands of the products and their results, then, from the last primitive to
    /// the first, what is only copied to such values.
    void narrow_values() {
        const auto producers = p_.producers();
        const auto consumers = p_.consumers();
        const std::set<ValueId> outputs(p_.outputs.begin(), p_.outputs.end());
        const auto may = [&](ValueId v) {
            return p_.values[v].dtype == DType::F32 && producers[v] && outputs.count(v) == 0 &&
                   p_.primitives[producers[v]].expr() != nullptr;
        };
        std::set<ValueId> wanted;
        for (const auto& [id, slot] : data_) {
            wanted.insert(p_.primitives[id].expr()->accesses[slot].value);
            wanted.insert(p_.primitives[id].outputs[0]);
        }
        for (const ValueId v : wanted)
            if (may(v) && std::all_of(consumers[v].begin(), consumers[v].end(),
                                      [&](PrimitiveId r) { return tolerates(p_.primitives[r]); }))
                narrow(v);
        const auto copied_to_narrow = [&](PrimitiveId r) {
            const Primitive& reader = p_.primitives[r];
            return reader.expr() != nullptr && is_copy(*reader.expr()) &&
                   p_.values[reader.outputs[0]].dtype == DType::BF16;
        };
        for (size_t i = p_.primitives.size(); i-- > 0;)
            for (const ValueId v : p_.primitives[PrimitiveId(static_cast<uint32_t>(i))].outputs)
                if (may(v) && !consumers[v].empty() &&
                    std::all_of(consumers[v].begin(), consumers[v].end(), copied_to_narrow))
                    narrow(v);
    }

    void narrow(ValueId v) {
        p_.values[v].dtype = DType::BF16;
        ++report_.values;
    }

    void narrow_constants() {
        std::map<ValueId, ValueId> made;
        for (const PrimitiveId id : p_.primitives.ids()) {
            const auto on_tiles = weights_.find(id);
            const auto product = on_tiles != weights_.end() ? std::optional(on_tiles->second)
                                                            : product_of_one_row(p_, p_.primitives[id]);
            if (!product) continue;
            Access& w = p_.primitives[id].expr()->accesses[product->weights];
            if (p_.values[w.value].dtype != DType::F32) continue;
            const auto [at, is_new] = made.try_emplace(w.value);
            if (is_new) at->second = converted(w.value);
            w.value = at->second;
        }
        report_.constants = made.size();
        std::set<ValueId> used(p_.outputs.begin(), p_.outputs.end());
        for (const Primitive& p : p_.primitives)
            for (const ValueId v : p.inputs()) used.insert(v);
        for (const auto& [wide, narrow] : made)
            if (used.count(wide) == 0) p_.constants.erase(wide);
    }

    ValueId converted(ValueId wide) {
        const Tensor& from = p_.constants.at(wide);
        const auto unread = p_.unread.find(wide);
        Tensor to(DType::BF16, from.shape(), false);
        if (unread == p_.unread.end()) {
            const auto* x = reinterpret_cast<const float*>(from.data());
            auto* y = reinterpret_cast<uint16_t*>(to.mutable_data());
            for (int64_t i = 0; i < from.count(); ++i) y[i] = float_to_bfloat16(x[i]);
        }
        Value value = p_.values[wide];
        value.name += ".bf16";
        value.dtype = DType::BF16;
        const ValueId v = p_.values.push_back(std::move(value));
        if (unread != p_.unread.end()) p_.unread.emplace(v, unread->second);
        p_.constants.emplace(v, std::move(to));
        return v;
    }

    /// Operands that others read in f32 are rounded into a copy, in front of the first product that reads it.
    void insert_copies() {
        std::map<ValueId, ValueId> copies;
        IndexVector<PrimitiveId, Primitive> all;
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive p = std::move(p_.primitives[id]);
            const auto product = data_.find(id);
            if (product != data_.end()) {
                Access& data = p.expr()->accesses[product->second];
                if (p_.values[data.value].dtype == DType::F32) {
                    const auto [at, is_new] = copies.try_emplace(data.value);
                    if (is_new) {
                        Primitive copy = rounding(data.value, p);
                        at->second = copy.outputs[0];
                        all.push_back(std::move(copy));
                    }
                    data.value = at->second;
                }
            }
            all.push_back(std::move(p));
        }
        report_.copies = copies.size();
        p_.primitives = std::move(all);
    }

    Primitive rounding(ValueId wide, const Primitive& reader) {
        Value value = p_.values[wide];
        value.name += ".bf16";
        value.dtype = DType::BF16;
        TensorExpr copy;
        copy.extents = value.shape;
        copy.spatial = value.shape.size();
        Access from;
        from.value = wide;
        for (size_t d = 0; d < value.shape.size(); ++d) from.index.push_back(axis(d));
        copy.accesses = {from};
        copy.body.set_root(copy.body.access(0, DType::F32));
        Primitive p;
        p.name = reader.name + "/bf16";
        p.source = "precision";
        p.outputs = {p_.values.push_back(std::move(value))};
        p.origin.nodes = reader.origin.nodes;
        p.kind = std::move(copy);
        return p;
    }

    Program p_;
    std::map<PrimitiveId, uint32_t> paired_;              ///< PairedOperands::products
    std::map<PrimitiveId, WeightedContraction> weights_;  ///< of products with weights
    std::map<PrimitiveId, uint32_t> data_;                ///< slot of the left factor, of all products on tiles
    NarrowedOperands report_;
};

}  // namespace

Program narrow_operands(Program program, const Target& target, NarrowedOperands* report) {
    if (!target.bf16_products()) return program;
    NarrowedOperands own;
    return Narrower(pair_operands(gather_window_runs(pad_columns(std::move(program)), MatrixType::BF16)))
        .run(report != nullptr ? *report : own);
}

}  // namespace tilewright
