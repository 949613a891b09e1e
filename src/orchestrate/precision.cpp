#include "orchestrate/precision.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/padded_columns.h"
#include "orchestrate/paired_operands.h"
#include "orchestrate/window_runs.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

bool is_constant_at_least(Expr e, int64_t least) { return e.is_constant() && e.constant() >= least; }

/// Whether the type has a finite number for each of the constant's.
bool holds(DType type, const Program& program, ValueId constant) {
    constexpr double kMostF16 = 65504;
    if (type != DType::F16 || program.unread.count(constant) != 0 || program.values[constant].dtype != DType::F32)
        return true;
    const std::span<const float> x = program.constants.at(constant).as<float>();
    return std::all_of(x.begin(), x.end(), [](float e) { return !(std::fabs(e) > kMostF16); });
}

/// In f16, shorter steps along a sum take the time of f32: each ends with additions in f32 (Intel Xeon 6/207: 16 pairs
/// 1.4 times as fast as f32, 32 pairs 1.7).
constexpr int64_t kLeastF16Step = 32;

/// Whether a sum of this extent has steps of the type's instructions.
bool has_steps(int64_t extent, DType type) {
    if (type == DType::F16) return dot_products_step(extent, MatrixType::F16) >= kLeastF16Step;
    return tile_step(extent, MatrixType::BF16) > 0;
}

/// A product with weights that can run on the CPU's instructions for the type once layouts are chosen: columns that
/// fill vectors, rows, and a reduction that steps divide, along which the data can be contiguous.
std::optional<WeightedContraction> narrow_product(const Program& program, const Primitive& p, DType type) {
    const TensorExpr* e = p.expr();
    if (e == nullptr) return std::nullopt;
    const auto product = weighted_contraction(program, *e);
    const auto c = contraction(*e);
    if (!product || !c || c->type != DType::F32) return std::nullopt;
    const Access &data = e->accesses[product->data], &weights = e->accesses[product->weights];
    const auto stored = [&](const Access& a) { return program.values[a.value].dtype; };
    const bool computed = !c->factors[0].slot || !c->factors[1].slot;
    if (type == DType::F16 && computed) return std::nullopt;
    const bool decoded = computed || stored(weights) == DType::F16;  // in panels of bf16
    if (stored(data) != DType::F32 && stored(data) != type) return std::nullopt;
    if (!decoded && stored(weights) != DType::F32 && stored(weights) != type) return std::nullopt;
    if (!holds(type, program, weights.value)) return std::nullopt;
    bool columns = false, rows = false, sum = false;
    for (size_t a = 0; a < e->spatial; ++a) {
        const bool by_data = index_uses(data.index, a), by_weights = index_uses(weights.index, a);
        // Winograd's tiles, which lose too much in f16; or channel groups.
        if (type == DType::F16 && by_data && by_weights && !e->extents[a].is_constant(1)) return std::nullopt;
        columns = columns || (by_weights && !by_data && is_constant_at_least(e->extents[a], kTileColumns));
        rows = rows || (by_data && !by_weights && !e->extents[a].is_constant(1));
    }
    for (size_t r = e->spatial; r < e->extents.size(); ++r)
        sum = sum || (e->extents[r].is_constant() && has_steps(e->extents[r].constant(), type) &&
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

/// The operands of a product that are stored narrow: constants, and computed tensors and inputs.
struct NarrowProduct {
    std::vector<uint32_t> weights, data;  ///< slots
};

/// What is stored narrow.
struct Narrowing {
    DType type = DType::BF16;
    std::map<PrimitiveId, NarrowProduct> products;
    std::set<PrimitiveId> kept;    ///< products whose operands and results stay as they are
    bool results = true;           ///< also results of the products, whatever reads them
    std::set<std::string> values;  ///< further ones, by name
    /// Whether a copy of an operand that others read in f32 pays.
    std::function<bool(const Program&, const Primitive&)> copies;
};

/// The name of a value that is stored in a type.
std::string stored_as(const std::string& name, DType type) { return fmt::format("{}.{}", name, to_string(type)); }

class Narrower {
  public:
    Narrower(Program program, Narrowing how) : p_(std::move(program)), how_(std::move(how)) {}

    Program run(NarrowedOperands& report) {
        keep_values();
        narrow_values();
        narrow_constants();
        report_products();
        insert_copies();
        report = report_;
        return std::move(p_);
    }

  private:
    /// Whether the reader computes as well from a rounded operand.
    bool tolerates(const Primitive& reader) const {
        const TensorExpr* e = reader.expr();
        if (e == nullptr) return false;
        if (e->reducer == Reducer::None || e->reducer == Reducer::Max || e->reducer == Reducer::Min) return true;
        return contraction(*e).has_value() || e->body[e->body.root()].op == ScalarOp::Access;
    }

    void report_products() {
        for (const auto& [id, product] : how_.products) {
            const Primitive& p = p_.primitives[id];
            report_.products += product.data.empty() ? 0 : 1;
            const ValueId result = p.outputs[0];
            report_.rounded.push_back({p_.values[result].name, p.origin, !product.weights.empty(),
                                       !product.data.empty(), p_.values[result].dtype == how_.type});
        }
    }

    /// Finds the operands and results of the kept products, and what is only copied to such operands.
    void keep_values() {
        for (const PrimitiveId id : how_.kept) {
            const Primitive& p = p_.primitives[id];
            for (const ValueId v : p.inputs()) kept_.insert(v);
            kept_.insert(p.outputs.begin(), p.outputs.end());
            report_.kept.push_back({p_.values[p.outputs[0]].name, p.origin});
        }
        for (size_t i = p_.primitives.size(); i-- > 0;) {
            const Primitive& p = p_.primitives[PrimitiveId(static_cast<uint32_t>(i))];
            if (p.expr() == nullptr || !is_copy(*p.expr()) || kept_.count(p.outputs[0]) == 0) continue;
            for (const ValueId v : p.inputs()) kept_.insert(v);
        }
    }

    /// Sets the type of computed values: operands of the products and their results, then, from the last primitive to
    /// the first, what is only copied to such values.
    void narrow_values() {
        const auto producers = p_.producers();
        const auto consumers = p_.consumers();
        const std::set<ValueId> outputs(p_.outputs.begin(), p_.outputs.end());
        const auto may = [&](ValueId v) {
            return p_.values[v].dtype == DType::F32 && producers[v] && outputs.count(v) == 0 && kept_.count(v) == 0 &&
                   p_.primitives[producers[v]].expr() != nullptr;
        };
        std::set<ValueId> wanted;
        for (const auto& [id, product] : how_.products) {
            for (const uint32_t slot : product.data) wanted.insert(p_.primitives[id].expr()->accesses[slot].value);
            if (how_.results && !product.data.empty()) wanted.insert(p_.primitives[id].outputs[0]);
        }
        if (!how_.values.empty())
            for (const ValueId v : p_.values.ids())
                if (how_.values.count(p_.values[v].name) != 0) wanted.insert(v);
        for (const ValueId v : wanted)
            if (may(v) && std::all_of(consumers[v].begin(), consumers[v].end(),
                                      [&](PrimitiveId r) { return tolerates(p_.primitives[r]); }))
                narrow(v);
        const auto copied_to_narrow = [&](PrimitiveId r) {
            const Primitive& reader = p_.primitives[r];
            return reader.expr() != nullptr && is_copy(*reader.expr()) &&
                   p_.values[reader.outputs[0]].dtype == how_.type;
        };
        for (size_t i = p_.primitives.size(); i-- > 0;)
            for (const ValueId v : p_.primitives[PrimitiveId(static_cast<uint32_t>(i))].outputs)
                if (may(v) && !consumers[v].empty() &&
                    std::all_of(consumers[v].begin(), consumers[v].end(), copied_to_narrow))
                    narrow(v);
    }

    void narrow(ValueId v) {
        p_.values[v].dtype = how_.type;
        ++report_.values;
    }

    void narrow_constants() {
        std::map<ValueId, ValueId> made;
        for (const auto& [id, product] : how_.products)
            for (const uint32_t slot : product.weights) {
                Access& w = p_.primitives[id].expr()->accesses[slot];
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
        Tensor to(how_.type, from.shape(), false);
        if (unread == p_.unread.end()) {
            const auto* x = reinterpret_cast<const float*>(from.data());
            auto* y = reinterpret_cast<uint16_t*>(to.mutable_data());
            const bool half = how_.type == DType::F16;
            for (int64_t i = 0; i < from.count(); ++i) y[i] = half ? float_to_half(x[i]) : float_to_bfloat16(x[i]);
        }
        Value value = p_.values[wide];
        value.name = stored_as(value.name, how_.type);
        value.dtype = how_.type;
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
            const auto product = how_.products.find(id);
            if (product != how_.products.end() && (!how_.copies || how_.copies(p_, p)))
                for (const uint32_t slot : product->second.data) {
                    Access& data = p.expr()->accesses[slot];
                    if (p_.values[data.value].dtype != DType::F32) continue;
                    const auto [at, is_new] = copies.try_emplace(data.value);
                    if (is_new) {
                        Primitive copy = rounding(data.value, p);
                        at->second = copy.outputs[0];
                        all.push_back(std::move(copy));
                    }
                    data.value = at->second;
                }
            all.push_back(std::move(p));
        }
        report_.copies = copies.size();
        p_.primitives = std::move(all);
    }

    Primitive rounding(ValueId wide, const Primitive& reader) {
        Value value = p_.values[wide];
        value.name = stored_as(value.name, how_.type);
        value.dtype = how_.type;
        TensorExpr copy;
        copy.extents = value.shape;
        copy.spatial = value.shape.size();
        Access from;
        from.value = wide;
        for (size_t d = 0; d < value.shape.size(); ++d) from.index.push_back(axis(d));
        copy.accesses = {from};
        copy.body.set_root(copy.body.access(0, DType::F32));
        Primitive p;
        p.name = fmt::format("{}/{}", reader.name, to_string(how_.type));
        p.source = kPrecisionSource;
        p.outputs = {p_.values.push_back(std::move(value))};
        p.origin.nodes = reader.origin.nodes;
        p.kind = std::move(copy);
        return p;
    }

    Program p_;
    Narrowing how_;
    std::set<ValueId> kept_;  ///< they stay in f32
    NarrowedOperands report_;
};

// --- CPUs

/// A sum of products of f32, but not one of squares.
bool is_product(const TensorExpr& e) {
    const auto c = contraction(e);
    return c && c->type == DType::F32 && (!c->reads_plainly() || c->reads_two());
}

Program narrow_on_cpu(Program program, DType type, const F32Products& keep,
                      const std::set<std::string>* results_by_name, NarrowedOperands& report) {
    const auto may = [&](const Program& of, const Primitive& product) { return !keep.contains(of, product); };
    std::map<std::vector<uint32_t>, std::string> results;
    for (const Primitive& p : program.primitives)
        if (!p.origin.parts.empty() && !p.outputs.empty())  // a check has none
            results.emplace(p.origin.parts, program.values[p.outputs[0]].name);
    // What is added to few columns or channels takes longer than f16 saves (Candy's last and first convolution).
    if (type == DType::BF16) program = gather_window_runs(pad_columns(std::move(program), may), MatrixType::BF16, may);
    PairedOperands paired = pair_operands(program, type, may);
    Narrowing how;
    how.type = type;
    how.results = results_by_name == nullptr;
    if (results_by_name != nullptr) how.values = *results_by_name;
    for (const auto& [id, p] : paired.products) how.products[id].data = {p};
    for (const PrimitiveId id : paired.program.primitives.ids()) {
        const Primitive& p = paired.program.primitives[id];
        if (p.expr() == nullptr) continue;
        if (keep.contains(paired.program, p)) {
            if (is_product(*p.expr())) how.kept.insert(id);
        } else if (const auto product = narrow_product(paired.program, p, type)) {
            how.products[id] = {{product->weights}, {product->data}};
        } else if (const auto row = product_of_one_row(paired.program, p)) {
            if (holds(type, paired.program, p.expr()->accesses[row->weights].value))
                how.products[id].weights = {row->weights};
        }
    }
    Program narrow = Narrower(std::move(paired.program), std::move(how)).run(report);
    for (NarrowedProduct& p : report.rounded)  // padded products have results of their own
        if (const auto at = results.find(p.origin.parts); at != results.end()) p.result = at->second;
    return narrow;
}

// --- GPUs

/// A product of this many numbers or fewer takes the time of its launch, and so does a copy.
constexpr double kSmallProduct = 1 << 20;

/// Whether the product, with operands of that type, has warpgroup instructions, which read operands as they are stored.
bool fits_group_narrow(const Program& program, const Primitive& p, const Target& target, Precision precision,
                       DType type) {
    TensorExpr e = *p.expr();
    Program view;
    view.values = program.values;
    for (const Access& a : e.accesses)
        if (view.values[a.value].dtype == DType::F32) view.values[a.value].dtype = type;
    const auto product = gpu_product(view, e, p.outputs[0], precision);
    if (!product || !product->matrix) return false;
    GpuProduct group = *product;
    group.group = true;
    double points = 1;
    for (const Expr& x : e.extents) points *= static_cast<double>(assumed_extent(x, program.assumed));
    return points > kSmallProduct && fits_group(view, e, group, *target.gpu);
}

Program narrow_on_gpu(Program program, const Target& target, Precision precision, NarrowedOperands& report) {
    Narrowing how;
    how.type = narrow_type(precision);
    how.results = false;
    how.copies = [target, precision, type = how.type](const Program& p, const Primitive& reader) {
        return fits_group_narrow(p, reader, target, precision, type);
    };
    for (const PrimitiveId id : program.primitives.ids()) {
        const Primitive& p = program.primitives[id];
        if (p.expr() == nullptr) continue;
        const auto c = contraction(*p.expr());
        if (!c || c->type != DType::F32 || !c->reads_two()) continue;
        const auto on_units = gpu_product(program, *p.expr(), p.outputs[0], precision);
        const bool matrix = on_units && on_units->matrix;
        if (!matrix && !product_of_one_row(program, p)) continue;
        NarrowProduct product;
        for (const Contraction::Factor& f : c->factors) {
            const ValueId v = p.expr()->accesses[*f.slot].value;
            if (program.values[v].dtype != DType::F32) continue;
            if (!program.is_constant(v)) {
                if (matrix) product.data.push_back(*f.slot);
            } else if (holds(how.type, program, v)) {
                product.weights.push_back(*f.slot);
            }
        }
        how.products.emplace(id, std::move(product));
    }
    return Narrower(std::move(program), std::move(how)).run(report);
}

}  // namespace

bool is_copy(const TensorExpr& e) { return e.reducer == Reducer::None && e.body[e.body.root()].op == ScalarOp::Access; }

DType narrow_type(Precision precision) { return precision == Precision::F16 ? DType::F16 : DType::BF16; }

bool has_narrow_products(const Target& target, Precision precision) {
    return precision == Precision::F16 ? target.f16_sums() : precision == Precision::BF16 && target.bf16_products();
}

Program narrow_operands(Program program, const Target& target, Precision precision, NarrowedOperands* report,
                        const F32Products& keep, const std::set<std::string>* results) {
    NarrowedOperands own;
    NarrowedOperands& out = report != nullptr ? *report : own;
    if (target.gpu)
        return precision == Precision::F16 || precision == Precision::BF16
                   ? narrow_on_gpu(std::move(program), target, precision, out)
                   : program;
    if (!has_narrow_products(target, precision)) return program;
    return narrow_on_cpu(std::move(program), narrow_type(precision), keep, results, out);
}

}  // namespace tilewright
