#include "libraries/operation.h"

#include <algorithm>

#include "libraries/epilogue.h"
#include "libraries/recognition.h"

namespace tilewright {

namespace {

constexpr size_t kMostDims = 12;  // limit of all libraries for a tensor

using Walks = LibraryWalks;

class Recognition {
  public:
    Recognition(const Program& stages, const std::vector<bool>& constants) : stages_(stages), constants_(constants) {
        if (stages_.primitives.size() != 1 || stages_.outputs.size() != 1) throw Refusal{"several stages"};
        e_ = stages_.primitives[PrimitiveId(0)].expr();
        if (e_ == nullptr) throw Refusal{"not a tensor expression"};
        const auto c = contraction(*e_);
        if (!c || c->type != DType::F32) throw Refusal{"not a sum of products"};
        if (!c->reads_plainly()) throw Refusal{"operands that are not plain reads"};
        for (const Expr& x : e_->extents)
            if (!x.is_constant()) throw Refusal{"dynamic sizes"};
        contraction_ = *c;
        auto epilogue = library_epilogue(e_->epilogue, stages_.values[stages_.outputs[0]].dtype);
        if (auto* refusal = std::get_if<Refusal>(&epilogue)) throw std::move(*refusal);
        epilogue_ = std::get<LibraryEpilogue>(std::move(epilogue));
    }

    /// Whether windows slide over an operand.
    bool has_windows() const {
        return std::any_of(e_->accesses.begin(), e_->accesses.end(), [&](const Access& a) { return slides(a); });
    }

    LibraryOperation run(bool convolution) const {
        LibraryOperation op;
        op.convolution = convolution;
        op.scale = epilogue_.scale;
        op.activation = epilogue_.activation;
        op.most = epilogue_.most;
        size_t data = 0, weights = 1;  // factors
        const auto slot = [&](size_t factor) { return *contraction_.factors[factor].slot; };
        // Weights of groups, w[3*g + c, ...], may look like a window, and then padding decides.
        const Access &first = e_->accesses[slot(data)], &second = e_->accesses[slot(weights)];
        if (slides(second) && (!slides(first) || first.valid.empty())) std::swap(data, weights);
        // The right operand of a product is the one that depends on the result's contiguous axis.
        if (!convolution && !walks_result(slot(weights)) && walks_result(slot(data))) std::swap(data, weights);
        const Access &x = e_->accesses[slot(data)], &w = e_->accesses[slot(weights)];
        const Walks t = walks(x, w, convolution);
        const ContractionAxes roles = roles_of(data == 1);
        if (convolution)
            recognise_convolution(stages_, *e_, x, t, roles, op);
        else
            product(t, roles, op);
        return op;
    }

  private:
    Walks walks(const Access& x, const Access& w, bool convolution) const {
        if (!w.valid.empty() || (!convolution && !x.valid.empty()))
            throw Refusal{"an operand with conditions (padding)"};
        Walks t(stages_, *e_);
        t.add(x.value, convolution ? without_quotients(x.index) : x.index, !convolution && is_constant(x.value));
        t.add(w.value, w.index, is_constant(w.value));
        t.add(stages_.primitives[PrimitiveId(0)].outputs[0], result_index(*e_), false);
        for (const uint32_t slot : epilogue_.added) {
            const Access& read = e_->accesses[slot];
            if (!read.valid.empty()) throw Refusal{"an operand with conditions (padding)"};
            t.add(read.value, read.index, false);
        }
        for (size_t k = convolution ? 1 : 0; k < t.size(); ++k)
            if (t.origin(k) < 0 || (t.origin(k) != 0 && t.constant(k)))
                throw Refusal{"a tensor that is not accessed from its first element"};
        return t;
    }

    /// A dimension of the data that a transposed window indexes has a stride for its rows, and none for axes.
    static std::vector<Expr> without_quotients(std::vector<Expr> index) {
        for (Expr& i : index)
            for (const Term& t : i.terms())
                if (std::any_of(t.atoms.begin(), t.atoms.end(),
                                [](const Atom* a) { return a->kind == Atom::Kind::FloorDiv; })) {
                    i = 0;
                    break;
                }
        return index;
    }

    bool is_constant(ValueId v) const {
        const auto in = std::find(stages_.inputs.begin(), stages_.inputs.end(), v);
        const auto k = static_cast<size_t>(in - stages_.inputs.begin());
        return k < constants_.size() && constants_[k];
    }

    /// Whether a window slides over the operand: an axis of the result and a reduction axis index the same dimension,
    /// or the dimension has padding or a stride.
    bool slides(const Access& a) const {
        if (!a.valid.empty()) return true;
        if (a.index.size() < 2) return false;  // a flattened tensor does not show its dimensions
        return std::any_of(a.index.begin(), a.index.end(), [&](Expr i) {
            bool spatial = false, summed = false;
            const std::vector<Var> vars = variables(i);
            for (const Var v : vars)
                if (v.kind == VarKind::Axis) (v.id < e_->spatial ? spatial : summed) = true;
            const auto linear = vars.size() == 1 ? linear_in(i, vars[0]) : std::nullopt;
            return (spatial && summed) || (spatial && linear && !linear->coefficient.is_constant(1));
        });
    }

    /// Whether the operand depends on the result's contiguous axis.
    bool walks_result(uint32_t slot) const {
        const Expr out = flat_offset(stages_.values[stages_.outputs[0]].shape, result_index(*e_));
        for (size_t a = 0; a < e_->spatial; ++a) {
            const Var v{VarKind::Axis, static_cast<uint32_t>(a)};
            const auto linear = linear_in(out, v);
            if (!linear || !linear->coefficient.is_constant(1) || e_->extents[a].is_constant(1)) continue;
            const std::vector<Expr>& index = e_->accesses[slot].index;
            if (std::any_of(index.begin(), index.end(), [&](Expr i) { return uses(i, v); })) return true;
        }
        return false;
    }

    /// Rows are axes of the data, columns of the weights. Axes of one point have no role.
    ContractionAxes roles_of(bool swapped) const {
        ContractionAxes roles = axes(*e_, contraction_);
        if (swapped) std::swap(roles.rows, roles.columns);
        for (auto* list : {&roles.batch, &roles.rows, &roles.columns, &roles.broadcast, &roles.sum, &roles.one_sided})
            std::erase_if(*list, [&](size_t a) { return e_->extents[a].is_constant(1); });
        if (!roles.one_sided.empty()) throw Refusal{"a reduction axis that only one operand uses"};
        if (!roles.broadcast.empty()) throw Refusal{"a result axis that neither operand uses"};
        return roles;
    }

    static void product(const Walks& t, const ContractionAxes& roles, LibraryOperation& op) {
        const std::vector<Walked> batch = t.merged(roles.batch, Walks::kResult),
                                  rows = t.merged(roles.rows, Walks::kResult),
                                  columns = t.merged(roles.columns, Walks::kResult);
        const Walked sum = t.one(roles.sum, t.constant(Walks::kData) ? Walks::kWeights : Walks::kData, "sums");
        // If rows or columns do not merge into one axis, all but the last are batch axes along which one operand is
        // broadcast.
        std::vector<Walked> front = batch;
        for (const auto* list : {&rows, &columns})
            for (size_t k = 0; k + 1 < list->size(); ++k) front.push_back((*list)[k]);
        const Walked m = rows.empty() ? Walked{} : rows.back(), n = columns.empty() ? Walked{} : columns.back();
        if (front.size() + 2 > kMostDims) throw Refusal{"more dimensions than the library has"};
        const auto dims = [&](const Walked& a, const Walked& b) {
            std::vector<Walked> out = front;
            out.push_back(a);
            out.push_back(b);
            return out;
        };
        op.data = t.operand(Walks::kData, dims(m, sum), false);
        op.weights = t.operand(Walks::kWeights, dims(sum, n), false);
        op.result = t.operand(Walks::kResult, dims(m, n), true);
        for (size_t k = Walks::kResult + 1; k < t.size(); ++k) op.added.push_back(t.operand(k, dims(m, n), false));
    }

    const Program& stages_;
    const std::vector<bool>& constants_;
    const TensorExpr* e_ = nullptr;
    Contraction contraction_{};
    LibraryEpilogue epilogue_;
};

}  // namespace

bool LibraryOperation::is_bias(size_t i) const {
    const size_t channel = convolution ? 1 : result.dims.size() - 1;
    const LibraryOperand& o = added[i];
    for (size_t d = 0; d < o.dims.size(); ++d)
        if (d == channel ? o.dims[d] != result.dims[d] || o.strides[d] != 1 : o.dims[d] != 1) return false;
    return true;
}

bool LibraryOperation::is_residual(size_t i) const {
    const LibraryOperand& o = added[i];
    for (size_t d = 0; d < o.dims.size(); ++d)
        if (o.dims[d] != result.dims[d] || (o.dims[d] != 1 && o.strides[d] != result.strides[d])) return false;
    return true;
}

std::variant<std::vector<LibraryOperation>, Refusal> library_operations(const Program& stages,
                                                                        const std::vector<bool>& constants) {
    std::vector<LibraryOperation> found;
    try {
        const Recognition stage(stages, constants);
        std::optional<Refusal> first;
        const auto add = [&](bool convolution) {
            try {
                found.push_back(stage.run(convolution));
            } catch (Refusal& refusal) {
                if (!first) first = std::move(refusal);
            }
        };
        if (stage.has_windows()) add(true);
        add(false);  // the strides of a product describe some windows too
        if (found.empty()) return *std::move(first);
    } catch (Refusal& refusal) {
        return std::move(refusal);
    }
    return found;
}

}  // namespace tilewright
