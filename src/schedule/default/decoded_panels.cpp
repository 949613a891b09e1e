#include "schedule/default/decoded_panels.h"

#include <algorithm>
#include <numeric>

#include "program/analysis/contraction.h"
#include "program/transform/axes.h"
#include "program/transform/tidy.h"
#include "schedule/boxes.h"
#include "schedule/default/steps.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

constexpr int64_t kLeastRows = 16;  // a register tile of fewer decodes every weight once

class Maker {
  public:
    Maker(const Program& stages, const Target& target) : stages_(stages), target_(target) {}

    std::optional<TileProgram> run() {
        if (!recognise() || sums_in_f16() || !merge_sum()) return std::nullopt;
        make_stages();
        const Micro product = product_micro();
        if (!product.vector_axis || !is_column(*product.vector_axis)) return std::nullopt;
        return program(product);
    }

  private:
    bool is_column(size_t a) const { return std::find(columns_.begin(), columns_.end(), a) != columns_.end(); }
    const TensorExpr& whole() const { return *stages_.primitives[PrimitiveId(0)].expr(); }

    DType stored(uint32_t slot) const { return stages_.values[whole().accesses[slot].value].dtype; }

    /// Whether weights and data of f16 are multiplied as they are.
    bool sums_in_f16() const {
        if (!target_.f16_sums() || stored(data_) != DType::F16) return false;
        const DType result = stages_.values[stages_.primitives[PrimitiveId(0)].outputs[0]].dtype;
        return choose_micro(stages_, whole(), result, target_).micro.matrix.has_value();
    }

    bool recognise() {
        if (target_.gpu || stages_.primitives.size() != 1) return false;
        const TensorExpr& e = whole();
        const auto c = contraction(e);
        if (!c || c->type != DType::F32 || !c->reads_widened() || !e.output_index.empty()) return false;
        const ContractionAxes all = axes(e, *c);
        return all.batch.empty() && all.one_sided.empty() && (recognise(*c, all, 1) || recognise(*c, all, 0));
    }

    /// Whether factor `k` is what a panel would hold.
    bool recognise(const Contraction& c, const ContractionAxes& all, size_t k) {
        const TensorExpr& e = whole();
        const Contraction::Factor &weights = c.factors[k], &data = c.factors[1 - k];
        if (!data.slot || (weights.slot && stored(*weights.slot) != DType::F16)) return false;
        const std::vector<size_t>& columns = k == 0 ? all.rows : all.columns;
        if (columns.empty() ||
            std::any_of(columns.begin(), columns.end(), [&](size_t a) { return !e.extents[a].is_constant(); }))
            return false;
        columns_ = columns;
        factor_ = k;
        data_ = *data.slot;
        weights_ = weights.node;
        int64_t rows = 1;
        for (const size_t a : k == 0 ? all.columns : all.rows) rows *= guessed_extent(stages_, e.extents[a]);
        return rows >= kLeastRows && e.accesses[data_].valid.empty();
    }

    /// One axis for the sum, if the data is contiguous along it:   x[m, 32 b + 8 i + j]   ->   x[m, k]
    bool merge_sum() {
        const TensorExpr& e = whole();
        depth_ = 1;
        for (size_t r = e.extents.size(); r-- > e.spatial;) {
            if (!e.extents[r].is_constant()) return false;
            point_ += axis(r) * depth_;
            depth_ *= e.extents[r].constant();
        }
        read_ = e.accesses[data_];
        const Expr k = axis(e.spatial);
        for (Expr& index : read_.index) {
            const Expr rest = index - point_;
            const auto sums = [&](Expr x) {
                const std::vector<Var> all = variables(x);
                return std::any_of(all.begin(), all.end(),
                                   [&](Var v) { return v.kind == VarKind::Axis && v.id >= e.spatial; });
            };
            if (!sums(index)) continue;
            if (sums(rest)) return false;
            index = rest + k;
        }
        return true;
    }

    void make_stages() {
        const TensorExpr& e = whole();
        Program& p = out_.stages;
        p = stages_;
        p.primitives = {};
        const DType type = p.values[read_.value].dtype == DType::BF16 ? DType::BF16 : DType::F32;
        std::vector<Expr> shape = {depth_}, read = {axis(e.spatial)};
        for (const size_t a : columns_) {
            shape.push_back(e.extents[a]);
            read.push_back(axis(a));
        }
        panel_ = p.values.push_back({stages_.primitives[PrimitiveId(0)].name + "/panel", type, std::move(shape)});

        // Axes: those of the sum, then the columns.
        TensorExpr decode = e;
        decode.epilogue = {};
        decode.reducer = Reducer::None;
        decode.body.set_root(weights_);
        decode.extents.assign(e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial), e.extents.end());
        std::vector<Expr> to(e.extents.size(), Expr(0));
        for (size_t r = e.spatial; r < e.extents.size(); ++r) to[r] = axis(r - e.spatial);
        for (const size_t a : columns_) {
            to[a] = axis(decode.extents.size());
            decode.extents.push_back(e.extents[a]);
        }
        decode.spatial = decode.extents.size();
        decode = map_indices(decode, [&](Expr x) { return substitute_axes(x, to); });
        decode.output_index = {substitute_axes(point_, to)};
        for (const size_t a : columns_) decode.output_index.push_back(to[a]);
        // Positions in a pair must be known.
        const size_t last = decode.spatial - columns_.size() - 1;
        if (const int64_t sum = decode.extents[last].constant(); sum > kMostCodes && sum % 2 == 0)
            decode = split_axis_only(decode, last, sum % 8 == 0 ? 8 : 2);
        decode = tidy(decode);

        product_ = e;
        product_.extents.resize(e.spatial);
        product_.extents.emplace_back(depth_);
        product_.accesses[data_] = read_;
        const auto added = static_cast<uint32_t>(product_.accesses.size());
        product_.accesses.push_back({panel_, std::move(read), {}, 0});
        ScalarBody body;
        const ScalarId x = body.access(data_, p.values[read_.value].dtype), w = body.access(added, type);
        body.set_root(factor_ == 0 ? body.binary(ScalarOp::Mul, w, x) : body.binary(ScalarOp::Mul, x, w));
        product_.body = std::move(body);
        product_ = tidy(product_);  // drops what only the decoding reads

        Primitive first = stages_.primitives[PrimitiveId(0)], second = first;
        first.name += "/decoded";
        first.outputs = {panel_};
        first.kind = std::move(decode);
        second.kind = product_;
        p.primitives.push_back(std::move(first));
        p.primitives.push_back(std::move(second));
    }

    /// As for weights in memory; in bf16 these are in pairs.
    Micro product_micro() const {
        Program view = out_.stages;
        view.primitives = {};
        Primitive p = out_.stages.primitives[PrimitiveId(1)];
        if (view.values[panel_].dtype == DType::BF16 && depth_ % 2 == 0) {
            view.values[panel_].shape[0] = depth_ / 2;
            view.values[panel_].shape.emplace_back(2);
            for (Access& a : p.expr()->accesses)
                if (a.value == panel_) {
                    a.index.push_back(mod(a.index[0], 2));
                    a.index[0] = floor_div(a.index[0], 2);
                }
        }
        const DType result = view.values[p.outputs[0]].dtype;
        view.primitives.push_back(std::move(p));
        return choose_micro(view, *view.primitives[PrimitiveId(0)].expr(), result, target_).micro;
    }

    /// Whole rows of the product's register tile, in which order weights lie in memory, and all numbers of a word.
    Micro decoding_micro(const Micro& product) const {
        const TensorExpr& e = *out_.stages.primitives[PrimitiveId(0)].expr();
        const size_t sums = e.spatial - columns_.size();
        Micro micro;
        micro.registers.assign(e.spatial, 1);
        micro.virtual_threads.assign(e.spatial, 1);
        micro.vector_axis =
            sums +
            static_cast<size_t>(std::find(columns_.begin(), columns_.end(), *product.vector_axis) - columns_.begin());
        micro.lanes = target_.micro_lanes();
        micro.registers[*micro.vector_axis] = product.registers[*product.vector_axis];
        const int64_t numbers = e.extents[sums - 1].constant();
        micro.registers[sums - 1] = numbers <= kMostCodes ? numbers : 2;
        micro.order.resize(e.spatial);
        std::iota(micro.order.begin(), micro.order.end(), 0);
        std::stable_partition(micro.order.begin(), micro.order.end(), [&](size_t a) { return a >= sums; });
        return micro;
    }

    /// Columns of a task, for each axis: register tiles whose panel stays in the near part of L2, with several tasks
    /// for each thread.
    std::vector<int64_t> columns_of_task(const Micro& product) const {
        const int64_t least = 4 * target_.tasks_at_a_time();
        int64_t bytes = depth_ * static_cast<int64_t>(byte_size(out_.stages.values[panel_].dtype)), tasks = 1;
        std::vector<int64_t> steps;
        for (const size_t a : columns_) {
            steps.push_back(product.registers[a]);
            bytes *= steps.back();
            tasks *= whole().extents[a].constant() / steps.back();
        }
        for (size_t k = columns_.size(); k-- > 0;)
            while (2 * steps[k] <= whole().extents[columns_[k]].constant() && 2 * bytes <= target_.task_bytes() / 8 &&
                   tasks / 2 >= least) {
                steps[k] *= 2;
                bytes *= 2;
                tasks /= 2;
            }
        return steps;
    }

    TileProgram program(const Micro& product) {
        const TensorExpr& decode = *out_.stages.primitives[PrimitiveId(0)].expr();
        std::vector<size_t> of_product, of_decode;
        for (size_t a = 0; a < product_.extents.size(); ++a) {
            of_product.push_back(out_.axes.size());
            out_.axes.push_back({a < product_.spatial ? fmt::format("s{}", a) : "k", product_.extents[a]});
        }
        for (size_t a = 0; a + columns_.size() < decode.spatial; ++a) {
            of_decode.push_back(out_.axes.size());
            out_.axes.push_back({fmt::format("d{}", a), decode.extents[a]});
        }
        of_decode.insert(of_decode.end(), columns_.begin(), columns_.end());
        out_.stage_axes.push_back(of_decode);
        out_.stage_axes.push_back(of_product);
        if (product.matrix) out_.buffer_layouts.emplace(panel_, pairs(dot_step(product.matrix->type)));
        std::vector<Stmt> body;
        body.push_back(Stmt{Compute{PrimitiveId(0), decoding_micro(product)}});
        body.push_back(Stmt{Compute{PrimitiveId(1), product}});
        const std::vector<int64_t> steps = columns_of_task(product);
        for (size_t k = columns_.size(); k-- > 0;) {
            TileLoop loop;
            loop.axis = columns_[k];
            loop.step = steps[k];
            loop.parallel = true;
            loop.body = std::move(body);
            body.clear();
            body.push_back(Stmt{std::move(loop)});
        }
        out_.body = std::move(body);
        out_.name = stages_.name;
        return std::move(out_);
    }

    /// [k, columns...]   ->   [k / step, columns..., k % step]
    Layout pairs(int64_t step) const {
        Layout out;
        layout::Reorder order{{0}};
        for (size_t k = 0; k < columns_.size(); ++k) order.permutation.push_back(k + 2);
        order.permutation.push_back(1);
        out.primitives.emplace_back(layout::Split{0, step});
        out.primitives.emplace_back(std::move(order));
        return out;
    }

    const Program& stages_;
    const Target& target_;
    TileProgram out_;
    std::vector<size_t> columns_;
    size_t factor_ = 0;
    uint32_t data_ = 0;
    ScalarId weights_;
    int64_t depth_ = 1;
    Expr point_ = 0;  ///< along the whole sum, over its axes
    Access read_;     ///< of the data, with the merged sum
    ValueId panel_;
    TensorExpr product_;
};

}  // namespace

std::optional<TileProgram> decoded_panels(const Program& stages, const Target& target) {
    return Maker(stages, target).run();
}

}  // namespace tilewright
