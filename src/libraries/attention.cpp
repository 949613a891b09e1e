// The stages' axes are those of the scores: rows and heads first, in any order, then the columns. Rows and heads along
// which the keys are constant enumerate queries (heads that share keys count as rows too); the others are the batch.

#include "libraries/attention.h"

#include <algorithm>

#include "libraries/operand_walk.h"
#include "program/analysis/contraction.h"
#include "program/analysis/masks.h"
#include "schedule/default_schedule.h"

namespace tilewright {

namespace {

/// Of a tensor along the axes of an expression, in elements.
struct AxisStrides {
    std::vector<int64_t> of;  ///< per axis
    int64_t offset = 0;       ///< of what the expression's first point reads

    int64_t operator[](size_t axis) const { return of[axis]; }
};

/// Merged axes: their extent, and stride in each of several tensors.
struct LibraryAxis {
    int64_t extent = 1;
    std::vector<int64_t> of;
};

/// Nothing where an axis has no constant stride.
std::optional<AxisStrides> strides_of(const Program& stages, const TensorExpr& e, ValueId v,
                                      const std::vector<Expr>& index) {
    AxisStrides out;
    for (const auto& s : axis_strides(stages, e, v, index)) {
        if (!s || !s->is_constant()) return std::nullopt;
        out.of.push_back(s->constant());
    }
    const std::vector<Expr> origin(e.extents.size(), Expr(0));
    const Expr first = substitute_axes(flat_offset(stages.values[v].shape, index), origin);
    if (!first.is_constant() || first.constant() < 0) return std::nullopt;
    out.offset = first.constant();
    return out;
}

/// Merges all axes into one if each of `tensors` tensors allows it.
std::optional<LibraryAxis> merged(std::vector<LibraryAxis> axes, size_t tensors) {
    std::erase_if(axes, [](const LibraryAxis& a) { return a.extent == 1; });
    if (axes.empty()) return LibraryAxis{1, std::vector<int64_t>(tensors)};
    const auto longest = [](const LibraryAxis& a) { return *std::max_element(a.of.begin(), a.of.end()); };
    std::sort(axes.begin(), axes.end(),
              [&](const LibraryAxis& a, const LibraryAxis& b) { return longest(a) > longest(b); });
    LibraryAxis out = axes.back();
    for (size_t k = axes.size() - 1; k-- > 0;) {
        for (size_t t = 0; t < tensors; ++t)
            if (axes[k].of[t] != out.of[t] * out.extent) return std::nullopt;
        out.extent *= axes[k].extent;
    }
    return out;
}

bool is_library_number(DType t) { return t == DType::F32 || t == DType::F16 || t == DType::BF16; }

size_t tensor_of(const Program& stages, ValueId v) {
    const auto in = std::find(stages.inputs.begin(), stages.inputs.end(), v);
    if (in != stages.inputs.end()) return static_cast<size_t>(in - stages.inputs.begin());
    const auto out = std::find(stages.outputs.begin(), stages.outputs.end(), v);
    return stages.inputs.size() + static_cast<size_t>(out - stages.outputs.begin());
}

/// Returns the access that the node is, ignoring casts.
std::optional<uint32_t> plain_access(const ScalarBody& body, ScalarId node) {
    while (body[node].op == ScalarOp::Cast) node = body[node].a;
    if (body[node].op != ScalarOp::Access) return std::nullopt;
    return body[node].slot;
}

class AttentionRecognition {
  public:
    explicit AttentionRecognition(const Program& stages) : stages_(stages), producers_(stages.producers()) {}

    std::optional<LibraryAttention> run() {
        for (const Primitive& p : stages_.primitives) {
            if (p.expr() == nullptr) return std::nullopt;
            for (const Expr& x : p.expr()->extents)
                if (!x.is_constant()) return std::nullopt;
        }
        return result() && scores() ? assembled() : std::nullopt;
    }

  private:
    static constexpr size_t kNone = ~size_t{0};

    const TensorExpr* producer(ValueId v) const {
        const PrimitiveId p = producers_[v];
        return p ? stages_.primitives[p].expr() : nullptr;
    }
    /// Resolves the access through stages that only rearrange elements.
    Access resolved(Access a) const {
        for (const TensorExpr* e = producer(a.value); e != nullptr; e = producer(a.value)) {
            if (e->reducer != Reducer::None || !e->output_index.empty() || e->accesses.size() != 1 ||
                !plain_access(e->body, e->body.root()) || !e->accesses[0].valid.empty())
                break;
            Access inner = e->accesses[0];
            for (Expr& x : inner.index) x = substitute_axes(x, a.index);
            a = inner;
        }
        return a;
    }
    /// Returns the two accesses of a body of the form op(access, access), ignoring casts.
    static std::optional<std::pair<Access, Access>> operands(const TensorExpr& e, const ScalarBody& body, ScalarId at,
                                                             ScalarOp op) {
        while (body[at].op == ScalarOp::Cast) at = body[at].a;
        if (body[at].op != op) return std::nullopt;
        const auto a = plain_access(body, body[at].a), b = plain_access(body, body[at].b);
        if (!a || !b || !e.accesses[*a].valid.empty() || !e.accesses[*b].valid.empty()) return std::nullopt;
        return std::pair(e.accesses[*a], e.accesses[*b]);
    }
    /// Returns the operands of a contraction of plain, unconditional reads; any product type, ignoring casts.
    static std::optional<std::pair<Access, Access>> contracted(const TensorExpr& e) {
        const auto c = contraction(e, Casts::Through);
        if (!c || !c->reads_plainly()) return std::nullopt;
        const Access &a = e.accesses[*c->factors[0].slot], &b = e.accesses[*c->factors[1].slot];
        return a.valid.empty() && b.valid.empty() ? std::optional(std::pair(a, b)) : std::nullopt;
    }
    /// Whether the access is at these axes, but for dimensions of one point.
    static bool is_index(const Access& a, const std::vector<size_t>& axes) {
        size_t at = 0;
        for (const Expr& i : a.index) {
            if (i.is_constant(0)) continue;
            while (at < axes.size() && axes[at] == kNone) ++at;
            if (at == axes.size() || !(i == axis(axes[at]))) return false;
            ++at;
        }
        while (at < axes.size() && axes[at] == kNone) ++at;
        return at == axes.size();
    }
    /// Whether the result has the expression's axes as its dimensions, but for dimensions of one point.
    static bool in_order(const TensorExpr& e) {
        return is_index(Access{{}, result_index(e), {}, 0}, first_axes(e.spatial));
    }
    /// `rows`, then `last`; kNone stands for a dimension of one point.
    static std::vector<size_t> with(std::vector<size_t> rows, size_t last) {
        rows.push_back(last);
        return rows;
    }
    static std::vector<size_t> first_axes(size_t n) {
        std::vector<size_t> out;
        for (size_t a = 0; a < n; ++a) out.push_back(a);
        return out;
    }

    /// Whether `v` is the row statistic of `of`: `reducer` along its last axis.
    bool is_row_statistic(ValueId v, Reducer reducer, ValueId of) const {
        const TensorExpr* e = producer(v);
        if (e == nullptr || e->reducer != reducer || e->spatial + 1 != e->extents.size() || !e->epilogue.empty())
            return false;
        const auto slot = plain_access(e->body, e->body.root());
        if (!slot) return false;
        const Access& a = e->accesses[*slot];
        const Access written{v, result_index(*e), {}, 0};
        return a.value == of && a.valid.empty() && is_index(a, first_axes(e->extents.size())) &&
               is_index(written, with(first_axes(e->spatial), kNone));
    }

    /// Matches from the output back to the exponentials, which are divided by their sums before or after the product.
    bool result() {
        if (stages_.outputs.size() != 1) return false;
        const TensorExpr* last = producer(stages_.outputs[0]);
        if (last == nullptr || last->spatial < 2) return false;
        written_ = last;
        product_ = last;
        std::optional<Access> sums;
        if (const auto rounded =
                last->reducer == Reducer::None ? plain_access(last->body, last->body.root()) : std::nullopt) {
            const Access& sum = last->accesses[*rounded];
            product_ = producer(sum.value);
            if (product_ == nullptr || !in_order(*product_) || !sum.valid.empty() ||
                !is_index(sum, first_axes(last->spatial)))
                return false;
        } else if (last->reducer == Reducer::None) {
            const auto divided = operands(*last, last->body, last->body.root(), ScalarOp::Div);
            if (!divided || !is_index(divided->first, first_axes(last->spatial))) return false;
            product_ = producer(divided->first.value);
            sums = divided->second;
            if (product_ == nullptr || !in_order(*product_)) return false;
        }
        if (product_->spatial + 1 != product_->extents.size()) return false;
        if (!product_->epilogue.empty() && !plain_epilogue(*product_)) return false;
        const auto factors = contracted(*product_);
        if (!factors) return false;
        for (const auto& [left, right] :
             {std::pair(factors->first, factors->second), std::pair(factors->second, factors->first)}) {
            if (producer(left.value) == nullptr) continue;
            // The product's axis for each row axis of the left factor.
            rows_.clear();
            bool plain = true;
            for (const Expr& i : left.index) {
                if (i.is_constant(0)) continue;
                const auto v = i.as_var();
                plain = plain && v && v->kind == VarKind::Axis;
                if (plain) rows_.push_back(v->id);
            }
            if (!plain || rows_.size() < 2 || rows_.back() != product_->spatial) continue;
            rows_.pop_back();
            values_ = resolved(right);
            if (producer(values_.value) != nullptr) continue;
            ValueId exponentials = left.value;
            if (sums) return is_index(*sums, with(rows_, kNone)) && softmax(exponentials, sums->value);
            const TensorExpr& e = *producer(left.value);
            const auto divided = operands(e, e.body, e.body.root(), ScalarOp::Div);
            if (e.reducer != Reducer::None || !in_order(e) || !divided ||
                !is_index(divided->first, first_axes(e.spatial)) ||
                !is_index(divided->second, with(first_axes(e.spatial - 1), kNone)))
                return false;
            return softmax(divided->first.value, divided->second.value);
        }
        return false;
    }
    static bool plain_epilogue(const TensorExpr& e) {
        ScalarId at = e.epilogue.root();
        while (e.epilogue[at].op == ScalarOp::Cast) at = e.epilogue[at].a;
        return e.epilogue[at].op == ScalarOp::Acc;
    }

    bool softmax(ValueId exponentials, ValueId sums) {
        const TensorExpr* e = producer(exponentials);
        if (e == nullptr || e->reducer != Reducer::None || !in_order(*e) ||
            !is_row_statistic(sums, Reducer::Sum, exponentials))
            return false;
        ScalarId at = e->body.root();
        while (e->body[at].op == ScalarOp::Cast) at = e->body[at].a;
        if (e->body[at].op != ScalarOp::Exp) return false;
        const auto shifted = operands(*e, e->body, e->body[at].a, ScalarOp::Sub);
        if (!shifted || !is_index(shifted->first, first_axes(e->spatial)) ||
            !is_index(shifted->second, with(first_axes(e->spatial - 1), kNone)) ||
            !is_row_statistic(shifted->second.value, Reducer::Max, shifted->first.value))
            return false;
        scores_ = producer(shifted->first.value);
        return scores_ != nullptr && in_order(*scores_) && scores_->spatial == rows_.size() + 1;
    }

    /// select(conditions, scale * (queries keys^T) + mask, masked).
    bool scores() {
        const TensorExpr& e = *scores_;
        if (e.spatial + 1 != e.extents.size()) return false;
        const auto factors = contracted(e);
        if (!factors) return false;
        queries_ = resolved(factors->first);
        keys_ = resolved(factors->second);
        const Var columns{VarKind::Axis, static_cast<uint32_t>(e.spatial - 1)};
        const auto moves = [&](const Access& a) {
            return std::any_of(a.index.begin(), a.index.end(), [&](Expr x) { return uses(x, columns); });
        };
        if (moves(queries_)) std::swap(queries_, keys_);
        if (moves(queries_) || producer(queries_.value) != nullptr || producer(keys_.value) != nullptr) return false;
        if (e.epilogue.empty()) return true;
        return scaled(e, e.epilogue.root());
    }
    bool scaled(const TensorExpr& e, ScalarId at) {
        while (e.epilogue[at].op == ScalarOp::Cast) at = e.epilogue[at].a;
        const ScalarNode& n = e.epilogue[at];
        const auto constant = [&](ScalarId k) { return e.epilogue[k].op == ScalarOp::Const; };
        switch (n.op) {
            case ScalarOp::Acc:
                return true;
            case ScalarOp::Mul:
                if (!constant(n.a) && !constant(n.b)) return false;
                scale_ *= e.epilogue[constant(n.a) ? n.a : n.b].value;
                factor_seen_ = true;
                return scaled(e, constant(n.a) ? n.b : n.a);
            case ScalarOp::Add: {
                if (mask_ || factor_seen_) return false;  // the scale does not apply to the mask
                for (const auto& [x, y] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
                    const ScalarNode& added = e.epilogue[y];  // select(condition, 0, -inf)
                    if (added.op == ScalarOp::Select && e.epilogue[added.b].op == ScalarOp::Const &&
                        e.epilogue[added.b].value == 0 && is_mask(e.epilogue[added.c]))
                        return condition(e, added.a, false, e.epilogue[added.c].value) && scaled(e, x);
                }
                const auto a = plain_access(e.epilogue, n.a), b = plain_access(e.epilogue, n.b);
                if (a.has_value() == b.has_value()) return false;
                const Access& mask = e.accesses[a ? *a : *b];
                if (!mask.valid.empty()) return false;
                mask_ = resolved(mask);
                return producer(mask_->value) == nullptr && scaled(e, a ? n.b : n.a);
            }
            case ScalarOp::Select: {
                if (mask_ || factor_seen_) return false;  // the condition is of the masked scores
                const bool otherwise = constant(n.c);
                if (!otherwise && !constant(n.b)) return false;
                return condition(e, n.a, !otherwise, e.epilogue[otherwise ? n.c : n.b].value) &&
                       scaled(e, otherwise ? n.b : n.c);
            }
            default:
                return false;
        }
    }

    /// Takes the condition that the node holds, of a tensor, or column <= row + diagonal; elsewhere scores are
    /// `masked`.
    bool condition(const TensorExpr& e, ScalarId at, bool negated, double masked) {
        if ((selected_ || diagonal_) && masked != masked_) return false;
        masked_ = masked;
        const ScalarNode& n = e.epilogue[at];
        if (n.op == ScalarOp::BitNot) return condition(e, n.a, !negated, masked);
        if (n.op == (negated ? ScalarOp::BitOr : ScalarOp::BitAnd))
            return condition(e, n.a, negated, masked) && condition(e, n.b, negated, masked);
        if (n.op == ScalarOp::Access) {
            const Access& mask = e.accesses[n.slot];
            if (selected_ || negated || !mask.valid.empty() || stages_.values[mask.value].dtype != DType::Bool)
                return false;
            selected_ = resolved(mask);
            return producer(selected_->value) == nullptr;
        }
        const auto keep = index_condition(e.epilogue, at, negated);
        if (!keep || diagonal_) return false;
        const auto column = linear_in(*keep, {VarKind::Axis, static_cast<uint32_t>(e.spatial - 1)});
        if (!column || !column->coefficient.is_constant(-1)) return false;
        for (size_t a = 0; a + 1 < e.spatial; ++a) {
            const auto row = linear_in(column->rest, {VarKind::Axis, static_cast<uint32_t>(a)});
            if (!row || !row->coefficient.is_constant(1) || !row->rest.is_constant()) continue;
            diagonal_row_ = a;
            diagonal_ = row->rest.constant();
            return true;
        }
        return false;
    }

    std::optional<LibraryAttention> assembled() const {
        const TensorExpr& s = *scores_;
        const size_t columns = s.spatial - 1, width = s.spatial, wide = wide_axis();
        if (wide == kNone) return std::nullopt;
        const auto q = strides_of(stages_, s, queries_.value, queries_.index),
                   k = strides_of(stages_, s, keys_.value, keys_.index);
        const auto v = strides_of(stages_, *product_, values_.value, values_.index);
        const auto o = strides_of(stages_, *written_, stages_.outputs[0], result_index(*written_));
        if (!q || !k || !v || !o) return std::nullopt;
        std::optional<AxisStrides> m, c;
        if (mask_) {
            m = strides_of(stages_, s, mask_->value, mask_->index);
            if (!m) return std::nullopt;
        }
        if (selected_) {
            c = strides_of(stages_, s, selected_->value, selected_->index);
            if (!c) return std::nullopt;
        }
        const auto grid = grid_of({&*q, &*k, &*v, &*o, m ? &*m : nullptr, c ? &*c : nullptr});
        if (!grid) return std::nullopt;
        const auto tensor = [&](ValueId value, size_t which, int64_t offset, int64_t third, int64_t of_third,
                                int64_t fourth, int64_t of_fourth) {
            LibraryOperand t{tensor_of(stages_, value), stages_.values[value].dtype, {}, {}, offset, {}};
            const LibraryAxis& heads = which == kKeys || which == kValues ? grid->key_heads : grid->heads;
            t.dims = {grid->outer.extent, heads.extent, third, fourth};
            t.strides = {grid->outer.of[which], heads.of[which], of_third, of_fourth};
            return t;
        };
        const auto extent = [](const TensorExpr& e, size_t a) { return e.extents[a].constant(); };
        const LibraryAxis& rows = grid->rows;
        LibraryAttention out;
        out.scale = scale_;
        out.queries =
            tensor(queries_.value, kQueries, q->offset, rows.extent, rows.of[kQueries], extent(s, width), (*q)[width]);
        out.keys =
            tensor(keys_.value, kKeys, k->offset, extent(s, columns), (*k)[columns], extent(s, width), (*k)[width]);
        out.values = tensor(values_.value, kValues, v->offset, extent(s, columns), (*v)[product_->spatial],
                            extent(*product_, wide), (*v)[wide]);
        out.result = tensor(stages_.outputs[0], kResult, o->offset, rows.extent, rows.of[kResult],
                            extent(*product_, wide), (*o)[wide]);
        const auto repeated = [&](ValueId value, size_t which, const AxisStrides& strides) {
            LibraryOperand t =
                tensor(value, which, strides.offset, rows.extent, rows.of[which], extent(s, columns), strides[columns]);
            for (size_t d = 0; d < 3; ++d)
                if (t.strides[d] == 0) t.dims[d] = 1;
            return t;
        };
        if (mask_) out.mask = repeated(mask_->value, kMask, *m);
        if (selected_) out.selected = repeated(selected_->value, kSelected, *c);
        out.diagonal = diagonal_;
        out.masked = masked_;
        return has_library_tensors(out) ? std::optional(std::move(out)) : std::nullopt;
    }

    enum : size_t { kQueries, kKeys, kValues, kResult, kMask, kSelected, kTensors };
    /// The row and batch axes of the scores as dimensions: outer x heads x rows.
    struct Grid {
        LibraryAxis outer, heads, rows;
        LibraryAxis key_heads;  ///< of the keys and the values; each belongs to as many heads that follow each other
    };
    /// `strides`: of each of the tensors; null where there is none.
    std::optional<Grid> grid_of(const std::vector<const AxisStrides*>& strides) const {
        std::vector<LibraryAxis> batch, rows, sharing;
        for (size_t a = 0; a + 1 < scores_->spatial; ++a) {
            if (scores_->extents[a].is_constant(1)) continue;
            LibraryAxis x{scores_->extents[a].constant(), {}};
            for (size_t t = 0; t < kTensors; ++t)
                x.of.push_back(strides[t] == nullptr          ? 0
                               : t == kValues || t == kResult ? (*strides[t])[rows_[a]]
                                                              : (*strides[t])[a]);
            if ((x.of[kKeys] == 0) != (x.of[kValues] == 0) || x.of[kQueries] == 0) return std::nullopt;
            if (diagonal_ && a == diagonal_row_ && x.of[kKeys] != 0) return std::nullopt;
            // Heads that share keys count as rows, but where a diagonal counts the rows.
            const bool shared = x.of[kKeys] == 0 && diagonal_ && a != diagonal_row_;
            (x.of[kKeys] != 0 ? batch : shared ? sharing : rows).push_back(std::move(x));
        }
        Grid out{{1, std::vector<int64_t>(kTensors)}, {}, {}, {}};
        const auto all_rows = merged(rows, kTensors), group = merged(sharing, kTensors);
        if (!all_rows || !group) return std::nullopt;
        out.rows = *all_rows;
        if (const auto all = merged(batch, kTensors)) {
            out.key_heads = *all;
        } else if (batch.size() == 2) {
            const bool ordered = batch[0].of[kResult] > batch[1].of[kResult];
            out.outer = batch[ordered ? 0 : 1];
            out.key_heads = batch[ordered ? 1 : 0];
        } else {
            return std::nullopt;
        }
        if (group->extent == 1) {
            out.heads = out.key_heads;
            return out;
        }
        std::vector<LibraryAxis> heads = {out.key_heads, *group};
        for (LibraryAxis& x : heads) x.of[kKeys] = x.of[kValues] = 0;
        const auto all_heads = merged(std::move(heads), kTensors);
        if (!all_heads) return std::nullopt;
        out.heads = *all_heads;
        return out;
    }

    /// Whether element types and innermost strides are those of libraries. Dimensions of one point get the stride of a
    /// packed tensor.
    static bool has_library_tensors(LibraryAttention& out) {
        const DType type = out.queries.type;
        if (type != DType::F16 && type != DType::BF16) return false;
        LibraryOperand *mask = out.mask ? &*out.mask : nullptr, *selected = out.selected ? &*out.selected : nullptr;
        for (LibraryOperand* t : {&out.queries, &out.keys, &out.values, &out.result, mask, selected}) {
            if (t == nullptr) continue;
            if (t == mask ? !is_library_number(t->type) : t != selected && t->type != type) return false;
            int64_t packed = 1;
            for (size_t d = 4; d-- > 0; packed = std::max(packed, t->strides[d] * t->dims[d]))
                if (t->dims[d] == 1) t->strides[d] = packed;
            if (t->strides[3] != 1) return false;
        }
        return true;
    }
    /// The product's axis that is no row axis.
    size_t wide_axis() const {
        size_t out = kNone;
        for (size_t a = 0; a < product_->spatial; ++a)
            if (std::find(rows_.begin(), rows_.end(), a) == rows_.end()) {
                if (out != kNone) return kNone;
                out = a;
            }
        return out;
    }

    const Program& stages_;
    IndexVector<ValueId, PrimitiveId> producers_;
    const TensorExpr *written_ = nullptr, *product_ = nullptr, *scores_ = nullptr;
    std::vector<size_t> rows_;  ///< the product's axis for each axis of the scores but the last
    Access queries_, keys_, values_;
    std::optional<Access> mask_, selected_;
    std::optional<int64_t> diagonal_;
    size_t diagonal_row_ = kNone;  ///< axis of the scores
    double scale_ = 1, masked_ = 0;
    bool factor_seen_ = false;
};

}  // namespace

std::variant<LibraryAttention, Refusal> library_attention(const Program& stages) {
    if (stages.primitives.size() < 5) return Refusal{"fewer stages than an attention"};
    if (auto found = AttentionRecognition(stages).run()) return *std::move(found);
    return Refusal{"not an attention (product, softmax, product)"};
}

}  // namespace tilewright
