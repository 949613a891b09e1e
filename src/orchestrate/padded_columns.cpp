#include "orchestrate/padded_columns.h"

#include <algorithm>
#include <map>
#include <optional>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/transform/tidy.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

constexpr int64_t kLeastTerms = 256;  // of a sum, and rows: fewer do not repay another kernel
constexpr int64_t kMostChannels = kTileColumns / 2;

struct Narrow {
    uint32_t weights = 0;  ///< slot
    size_t channel = 0;    ///< axis of the output channels
    size_t dimension = 0;  ///< of the weights
    size_t result = 0;     ///< dimension of the result
};

/// The dimension whose index is the axis, if no other uses it.
std::optional<size_t> dimension_of(const std::vector<Expr>& index, size_t a) {
    std::optional<size_t> found;
    for (size_t d = 0; d < index.size(); ++d) {
        if (!index_uses({&index[d], 1}, a)) continue;
        if (found || index[d] != axis(a)) return std::nullopt;
        found = d;
    }
    return found;
}

std::optional<Narrow> narrow_product(const Program& program, const Primitive& p) {
    const TensorExpr* e = p.expr();
    const auto product = e != nullptr ? weighted_contraction(program, *e) : std::nullopt;
    const auto c = product ? contraction(*e) : std::nullopt;
    if (!c || c->type != DType::F32 || !c->reads_two()) return std::nullopt;
    const Access &x = e->accesses[product->data], &w = e->accesses[product->weights];
    if (program.values[w.value].dtype != DType::F32 || !w.valid.empty()) return std::nullopt;
    Narrow out{product->weights, e->spatial, 0, 0};
    int64_t rows = 1, terms = 1;
    for (size_t a = 0; a < e->spatial; ++a) {
        if (!e->extents[a].is_constant()) return std::nullopt;
        const int64_t extent = e->extents[a].constant();
        if (!index_uses(w.index, a)) {
            rows = std::min(rows * extent, kLeastTerms);
        } else if (extent > 1) {
            if (index_uses(x.index, a) || out.channel != e->spatial) return std::nullopt;
            out.channel = a;
        }
    }
    bool runs = false;
    for (size_t a = e->spatial; a < e->extents.size(); ++a) {
        if (!e->extents[a].is_constant()) return std::nullopt;
        const int64_t extent = e->extents[a].constant();
        terms = std::min(terms * extent, kLeastTerms);
        runs = runs || (tile_step(extent, MatrixType::BF16) >= tile_sum(MatrixType::BF16) / 2 &&
                        dimension_of(x.index, a).has_value());
    }
    if (out.channel == e->spatial || rows < kLeastTerms || terms < kLeastTerms || !runs) return std::nullopt;
    const int64_t channels = e->extents[out.channel].constant();
    const auto of_weights = dimension_of(w.index, out.channel), of_result = dimension_of(result_index(*e), out.channel);
    if (channels >= kMostChannels || !of_weights || !of_result ||
        program.values[w.value].shape[*of_weights] != e->extents[out.channel])
        return std::nullopt;
    out.dimension = *of_weights;
    out.result = *of_result;
    return out;
}

class Padder {
  public:
    Padder(Program program, const ProductFilter& may) : p_(std::move(program)), may_(may) {}

    Program run() {
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive p = p_.primitives[id];
            if (!may_ || may_(p_, p))
                if (const auto found = narrow_product(p_, p)) split(p, *found);
            all_.push_back(std::move(p));
        }
        p_.primitives = std::move(all_);
        return std::move(p_);
    }

  private:
    /// Adds the padded product in front of `p`, which becomes its epilogue.
    void split(Primitive& p, const Narrow& narrow) {
        TensorExpr end = *p.expr();
        Primitive product = p;
        product.name += "/padded";
        TensorExpr& e = *product.expr();
        e.epilogue = {};
        e.extents[narrow.channel] = kTileColumns;
        e.accesses[narrow.weights].value = padded(e.accesses[narrow.weights].value, narrow.dimension);
        e = tidy(e);
        Value value = p_.values[p.outputs[0]];
        value.name += ".padded";
        value.dtype = DType::F32;
        value.shape[narrow.result] = kTileColumns;
        product.outputs = {p_.values.push_back(std::move(value))};

        end.accesses.push_back({product.outputs[0], result_index(end), {}, 0});
        const auto slot = static_cast<uint32_t>(end.accesses.size() - 1);
        ScalarBody body;
        if (end.epilogue.empty())
            body.set_root(body.access(slot, DType::F32));
        else
            body.set_root(body.inline_body(end.epilogue, [&](ScalarBody& b, const ScalarNode& n) {
                return n.op == ScalarOp::Acc ? b.access(slot, DType::F32) : ScalarId();
            }));
        end.body = std::move(body);
        end.epilogue = {};
        end.reducer = Reducer::None;
        end.extents.resize(end.spatial);
        p.kind = tidy(end);
        all_.push_back(std::move(product));
    }

    ValueId padded(ValueId weights, size_t dimension) {
        const auto [at, is_new] = made_.try_emplace({weights, dimension});
        if (!is_new) return at->second;
        const Tensor from = p_.constants.at(weights);
        Shape shape = from.shape();
        const int64_t channels = shape[dimension];
        shape[dimension] = kTileColumns;
        int64_t inner = 1;
        for (size_t d = dimension + 1; d < shape.size(); ++d) inner *= shape[d];
        Tensor to(DType::F32, shape);
        const auto unread = p_.unread.find(weights);
        if (unread == p_.unread.end()) {
            const std::span<const float> x = from.as<float>();
            const std::span<float> y = to.as_mutable<float>();
            for (int64_t i = 0; i < from.count(); ++i) {
                const int64_t outer = i / (channels * inner), rest = i % (channels * inner);
                y[static_cast<size_t>(outer * kTileColumns * inner + rest)] = x[static_cast<size_t>(i)];
            }
        }
        Value value = p_.values[weights];
        value.name += ".padded";
        value.shape[dimension] = kTileColumns;
        at->second = p_.values.push_back(std::move(value));
        if (unread != p_.unread.end()) p_.unread.emplace(at->second, unread->second);
        p_.constants.emplace(at->second, std::move(to));
        return at->second;
    }

    Program p_;
    const ProductFilter& may_;
    IndexVector<PrimitiveId, Primitive> all_;
    std::map<std::pair<ValueId, size_t>, ValueId> made_;
};

}  // namespace

Program pad_columns(Program program, const ProductFilter& may) { return Padder(std::move(program), may).run(); }

}  // namespace tilewright
