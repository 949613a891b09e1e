#include "program/transform/quantised_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/transform/dead_code.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

constexpr int kMostInlined = 8;    // dequantisation, and copies around it
constexpr int64_t kMostRows = 32;  // known at compile time: more rows read weights of f32
constexpr int64_t kWordBits = 32;
constexpr int64_t kLargestBlock = 1 << 12;  // unless one block is the whole sum
constexpr int64_t kMostPeriod = 8;          // numbers in a byte
constexpr size_t kK = 0, kN = 1;            // axes of the weights' definition: along the sum, and columns

/// The weights as numbers[code] * scale or (numbers[code] - zero) * scale; in place of a table, a byte.
struct Decoded {
    int64_t bits = 8;
    int64_t block = 1;                                        ///< points along the sum that share a scale
    Tensor codes;                                             ///< words u32 [K * bits / 32, N], or bytes [K, N]
    std::shared_ptr<const std::vector<double>> numbers = {};  ///< of codes of less than 8 bits
    Tensor scales;                                            ///< f32 [K / block, N]
    std::optional<Tensor> zeros = {};                         ///< likewise
    int64_t per_word() const { return bits == 8 ? 1 : kWordBits / bits; }
};

/// Numbers [k, n] as numbers[k % period][bytes[rows[k] + columns[n]]].
struct Lookup {
    const uint8_t* bytes = nullptr;
    int64_t period = 1;
    Tensor numbers;  ///< f32 [period, 256]
    std::vector<int64_t> rows, columns;
};

/// A node of `whole` and what it needs, as an expression over the same axes.
TensorExpr part_of(TensorExpr whole, ScalarId node) {
    whole.body.set_root(node);
    return tidy(whole);
}

/// The expression with one point for every `block` along the sum; nullopt where its value varies inside of a block.
std::optional<TensorExpr> per_block(const TensorExpr& e, int64_t block) {
    const Expr within = axis(2);
    const Expr blocks = floor_div(e.extents[kK], block);
    const std::vector<Expr> extents = {blocks, e.extents[kN], block}, to = {axis(kK) * block + within, axis(kN)};
    const Ranges ranges = Ranges::of_extents(extents);
    bool same = true;
    const auto moved = [&](Expr x) {
        const Expr y = simplify(substitute_axes(x, to), ranges);
        same = same && !uses(y, *within.as_var());
        return y;
    };
    TensorExpr out = e;
    out.extents = {blocks, e.extents[kN]};
    for (Access& a : out.accesses) {
        for (Expr& i : a.index) i = moved(i);
        for (Expr& i : a.valid) i = moved(i);
    }
    ScalarBody body;
    body.set_root(body.inline_body(e.body, [&](ScalarBody& b, const ScalarNode& n) {
        return n.op == ScalarOp::Index ? b.index(moved(n.index)) : ScalarId();
    }));
    out.body = std::move(body);
    return same ? std::optional(std::move(out)) : std::nullopt;
}

/// Distinct numbers, ascending; nullopt: more than `most`, or one is not finite.
std::optional<std::vector<float>> distinct(std::span<const float> all, size_t most) {
    std::vector<float> found;
    for (const float x : all) {
        const auto at = std::lower_bound(found.begin(), found.end(), x);
        if (at != found.end() && *at == x) continue;
        if (!std::isfinite(x) || found.size() == most) return std::nullopt;
        found.insert(at, x);
    }
    return found;
}

class Rewriter {
  public:
    explicit Rewriter(Program program) : p_(std::move(program)), producers_(p_.producers()) {}

    Program run(QuantisedWeights& report) {
        for (const PrimitiveId id : p_.primitives.ids()) {
            Primitive q = p_.primitives[id];
            if (!rewrite(q)) all_.push_back(std::move(q));
        }
        report.products = products_;
        if (products_ == 0) return std::move(p_);
        p_.primitives = std::move(all_);
        return eliminate_dead_code(std::move(p_));
    }

  private:
    bool rewrite(const Primitive& q) {
        const TensorExpr* e = q.expr();
        const auto c = e != nullptr ? contraction(*e) : std::nullopt;
        if (!c || !c->reads_two() || c->type != DType::F32 || !e->epilogue.empty() || !e->output_index.empty())
            return false;
        const ContractionAxes all = axes(*e, *c);
        if (all.sum.size() != 1 || !all.one_sided.empty() || !all.batch.empty() || all.sum[0] != e->spatial)
            return false;
        for (const bool first : {false, true}) {
            const std::vector<size_t>& columns = first ? all.rows : all.columns;
            if (columns.size() != 1 || !few_rows(*e, first ? all.columns : all.rows)) continue;
            const uint32_t slot = *c->factors[first ? 0 : 1].slot, data = *c->factors[first ? 1 : 0].slot;
            const auto weights = decoded(*e, e->accesses[slot], all.sum[0], columns[0]);
            if (!weights) continue;
            emit(q, slot, data, columns[0], *weights);
            ++products_;
            return true;
        }
        return false;
    }

    /// Whether decoding the weights for every tile of rows takes less than reading them as f32.
    static bool few_rows(const TensorExpr& e, const std::vector<size_t>& rows) {
        int64_t known = 1;
        for (const size_t a : rows) {
            if (!e.extents[a].is_constant()) return true;
            known *= std::min<int64_t>(e.extents[a].constant(), kMostRows + 1);
        }
        return known <= kMostRows;
    }

    // --- recognition

    /// The definition of the weights over [k, n], in terms of constants.
    std::optional<TensorExpr> definition(const TensorExpr& e, const Access& read, size_t k, size_t n) const {
        if (uses_load(read.index) || !read.valid.empty() || !e.extents[k].is_constant() || !e.extents[n].is_constant())
            return std::nullopt;
        std::vector<Expr> to(e.extents.size(), Expr(0));
        to[k] = axis(kK);
        to[n] = axis(kN);
        TensorExpr own;
        own.extents = {e.extents[k], e.extents[n]};
        own.spatial = 2;
        own.accesses = {{read.value, {}, {}, 0}};
        for (const Expr& i : read.index) own.accesses[0].index.push_back(substitute_axes(i, to));
        own.body.set_root(own.body.access(0, p_.values[read.value].dtype));
        for (int i = 0; i <= kMostInlined; ++i) {
            const auto computed = std::find_if(own.accesses.begin(), own.accesses.end(),
                                               [&](const Access& a) { return !p_.is_constant(a.value); });
            if (computed == own.accesses.end())
                return i == 0 || has_names(own) ? std::nullopt : std::optional(std::move(own));
            const PrimitiveId by = producers_[computed->value];
            const TensorExpr* producer = by ? p_.primitives[by].expr() : nullptr;
            if (producer == nullptr || producer->reducer != Reducer::None) return std::nullopt;
            auto next = inline_producer(own, static_cast<size_t>(computed - own.accesses.begin()), *producer,
                                        p_.values[computed->value]);
            if (!next || next->extents.size() != 2) return std::nullopt;
            own = std::move(*next);
        }
        return std::nullopt;
    }

    static ScalarId behind_casts(const ScalarBody& body, ScalarId node) {
        while (body[node].op == ScalarOp::Cast) node = body[node].a;
        return node;
    }

    std::optional<Decoded> decoded(const TensorExpr& e, const Access& read, size_t k, size_t n) {
        const auto whole = definition(e, read, k, n);
        if (!whole || std::any_of(whole->accesses.begin(), whole->accesses.end(),
                                  [&](const Access& a) { return p_.unread.count(a.value) != 0 || uses_load(a.index); }))
            return std::nullopt;
        const ScalarBody& body = whole->body;
        ScalarBody scaled = body;
        scaled.set_root(behind_casts(body, body.root()));
        const auto factors = product_factors(scaled);
        if (!factors || scaled.dtype() != DType::F32) return std::nullopt;
        for (const size_t i : {0, 1})
            if (auto found = decoded(*whole, (*factors)[i].node, (*factors)[1 - i].node)) return found;
        return std::nullopt;
    }

    std::optional<Decoded> decoded(const TensorExpr& whole, ScalarId numbers, ScalarId scale) {
        Decoded out;
        const auto scales = in_blocks(part_of(whole, scale), out.block);
        if (!scales || in_blocks(part_of(whole, numbers), out.block)) return std::nullopt;
        const ScalarNode& difference = whole.body[behind_casts(whole.body, numbers)];
        if (difference.op == ScalarOp::Sub)
            if (auto z = per_block(part_of(whole, difference.b), out.block)) {
                out.zeros = evaluate(*z);
                const std::span<const float> all = out.zeros->as<float>();
                if (std::all_of(all.begin(), all.end(), [&](float x) { return x == all[0]; }))
                    out.zeros.reset();
                else
                    numbers = difference.a;
            }
        if (!encode(part_of(whole, numbers), out)) return std::nullopt;
        out.scales = evaluate(*scales);
        return out;
    }

    /// The expression per block, in the largest blocks, whose extent is set, of at least a word of 8 numbers.
    static std::optional<TensorExpr> in_blocks(const TensorExpr& e, int64_t& block) {
        const int64_t k = e.extents[kK].constant();
        if (auto found = per_block(e, k)) {
            block = k;
            return found;
        }
        for (int64_t b = kLargestBlock; b >= kWordBits / 4; b /= 2)
            if (k % b == 0)
                if (auto found = per_block(e, b)) {
                    block = b;
                    return found;
                }
        return std::nullopt;
    }

    Tensor evaluate(const TensorExpr& e) {
        TensorExpr floats = e;
        floats.body.set_root(floats.body.cast(DType::F32, floats.body.root()));
        std::vector<Tensor> operands;
        for (const Access& a : e.accesses) operands.push_back(p_.constants.at(a.value));
        const Shape shape = tilewright::evaluate(e.extents, Bindings());
        return interpret(floats, operands, DType::F32, shape, {});
    }

    /// Numbers as a function of one stored byte and of the position along the sum, modulo a small period: two codes in
    /// a byte. Evaluating every number would take tens of nanoseconds each.
    std::optional<Lookup> lookup(const TensorExpr& numbers) const {
        if (numbers.accesses.size() != 1) return std::nullopt;
        const Access& stored = numbers.accesses[0];
        const Tensor& bytes = p_.constants.at(stored.value);
        if (byte_size(bytes.dtype()) != 1 || is_float(bytes.dtype()) || !stored.valid.empty()) return std::nullopt;
        std::vector<Expr> shape(bytes.shape().begin(), bytes.shape().end());
        const Expr offset = simplify(row_major_offset(shape, stored.index), numbers.ranges());
        const auto at = [&](Expr k, Expr n) { return substitute_axes(offset, std::vector<Expr>{k, n}); };
        const Expr k = axis(kK), n = axis(kN);
        if (!simplify(at(k, n) - at(k, 0) - at(0, n) + at(0, 0), numbers.ranges()).is_constant(0)) return std::nullopt;
        Lookup out;
        out.bytes = static_cast<const uint8_t*>(bytes.data());
        for (out.period = 1; out.period <= kMostPeriod; out.period *= 2)
            if (const auto table = of_all_bytes(numbers, out.period, bytes.dtype())) {
                out.numbers = *table;
                break;
            }
        if (out.period > kMostPeriod) return std::nullopt;
        const auto along = [&](Expr extent, bool rows) {
            std::vector<int64_t> offsets;
            for (int64_t i = 0; i < extent.constant(); ++i)
                offsets.push_back((rows ? at(i, 0) : at(0, i) - at(0, 0)).constant());
            return offsets;
        };
        out.rows = along(numbers.extents[kK], true);
        out.columns = along(numbers.extents[kN], false);
        return out;
    }

    /// The numbers of every byte, [period, 256]; nullopt: they depend on more than the byte and k modulo `period`.
    static std::optional<Tensor> of_all_bytes(const TensorExpr& numbers, int64_t period, DType type) {
        const Expr within = axis(kK), blocks = axis(2);
        const std::vector<Expr> extents = {period, numbers.extents[kN], numbers.extents[kK]};
        const Ranges ranges = Ranges::of_extents(extents);
        bool same = true;
        TensorExpr e;
        e.extents = {period, 256};
        e.spatial = 2;
        Tensor all(type, {256}, false);
        // Of a type of fewer bits, bytes hold its numbers alone.
        const int bits = type == DType::I4 || type == DType::U4 ? 4 : type == DType::I2 || type == DType::U2 ? 2 : 8;
        for (int i = 0; i < 256; ++i) {
            const int low = i & ((1 << bits) - 1), sign = is_signed(type) ? 1 << (bits - 1) : 0;
            static_cast<uint8_t*>(all.mutable_data())[i] = static_cast<uint8_t>((low ^ sign) - sign);
        }
        e.accesses = {{ValueId(0), {axis(1)}, {}, 0}};
        e.body.set_root(e.body.inline_body(numbers.body, [&](ScalarBody& b, const ScalarNode& x) {
            if (x.op != ScalarOp::Index) return ScalarId();
            const std::vector<Expr> to = {blocks * period + within, axis(kN)};
            const Expr y = simplify(substitute_axes(x.index, to), ranges);
            same = same && !uses(y, *blocks.as_var()) && !uses(y, *axis(kN).as_var());
            return b.index(same ? y : Expr(0));
        }));
        if (!same) return std::nullopt;
        e.body.set_root(e.body.cast(DType::F32, e.body.root()));
        return interpret(e, std::vector<Tensor>{all}, DType::F32, Shape{period, 256}, {});
    }

    /// Packs the numbers into codes.
    bool encode(const TensorExpr& numbers, Decoded& out) {
        const int64_t k = numbers.extents[kK].constant(), n = numbers.extents[kN].constant();
        if (const auto table = lookup(numbers)) {
            const auto which = [&](int64_t row, int64_t column) {
                const int64_t at = table->rows[static_cast<size_t>(row)] + table->columns[static_cast<size_t>(column)];
                return static_cast<size_t>(row % table->period * 256 + table->bytes[at]);
            };
            return encode(table->numbers.as<float>(), {k, n}, out, which);
        }
        const Tensor all = evaluate(numbers);
        return encode(all.as<float>(), {k, n}, out,
                      [&](int64_t row, int64_t column) { return static_cast<size_t>(row * n + column); });
    }

    /// `all` has the numbers that may occur, of which element [k, n] is number `which(k, n)`.
    template <class Which>
    static bool encode(std::span<const float> all, const std::array<int64_t, 2>& shape, Decoded& out,
                       const Which& which) {
        const auto each = [&](const auto& body) {  // blocks of columns: rows of the stored tensor are columns here
            constexpr int64_t kColumns = 64;
            for (int64_t first = 0; first < shape[1]; first += kColumns)
                for (int64_t row = 0; row < shape[0]; ++row)
                    for (int64_t column = first; column < std::min(first + kColumns, shape[1]); ++column)
                        body(row, column, which(row, column));
        };
        std::vector<uint8_t> codes(all.size()), occurs(all.size(), 0);
        each([&](int64_t, int64_t, size_t i) { occurs[i] = 1; });
        std::vector<float> present;
        for (size_t i = 0; i < all.size(); ++i)
            if (occurs[i] != 0) present.push_back(all[i]);
        if (const auto found = distinct(present, 16)) {
            out.bits = found->size() <= 4 && out.block % 16 == 0 ? 2 : 4;
            if (out.block % out.per_word() == 0) {
                auto table = std::make_shared<std::vector<double>>(found->begin(), found->end());
                table->resize(size_t{1} << out.bits, 0);
                out.numbers = std::move(table);
                for (size_t i = 0; i < all.size(); ++i)
                    codes[i] =
                        static_cast<uint8_t>(std::lower_bound(found->begin(), found->end(), all[i]) - found->begin());
                out.codes = Tensor(DType::U32, {shape[0] / out.per_word(), shape[1]});
                const std::span<uint32_t> to = out.codes.as_mutable<uint32_t>();
                each([&](int64_t row, int64_t column, size_t i) {
                    to[static_cast<size_t>(row / out.per_word() * shape[1] + column)] |=
                        uint32_t{codes[i]} << (out.bits * (row % out.per_word()));
                });
                return true;
            }
            out.bits = 8;
        }
        float low = 0, high = 0;
        for (const float x : present) {
            if (x != std::nearbyint(x)) return false;  // NaN as well
            low = std::min(low, x);
            high = std::max(high, x);
        }
        if (low < -128 || high > (low < 0 ? 127 : 255)) return false;
        for (size_t i = 0; i < all.size(); ++i)
            if (occurs[i] != 0) codes[i] = static_cast<uint8_t>(static_cast<int>(all[i]));
        out.codes = Tensor(low < 0 ? DType::I8 : DType::U8, {shape[0], shape[1]}, false);
        auto* to = static_cast<uint8_t*>(out.codes.mutable_data());
        each([&](int64_t row, int64_t column, size_t i) { to[row * shape[1] + column] = codes[i]; });
        return true;
    }

    // --- the new program

    ValueId constant(const Primitive& q, const char* role, Tensor t) {
        std::vector<Expr> shape(t.shape().begin(), t.shape().end());
        const ValueId v = p_.values.push_back({q.name + "/" + role, t.dtype(), std::move(shape)});
        p_.constants.emplace(v, std::move(t));
        return v;
    }

    /// The product with axes (blocks, words, numbers of a word) in place of the sum's; of one block, it has none.
    void emit(const Primitive& q, uint32_t slot, uint32_t data_slot, size_t n, const Decoded& w) {
        const TensorExpr& e = *q.expr();
        const int64_t k = e.extents[e.spatial].constant(), per_word = w.per_word();
        const bool blocks = w.block < k;
        TensorExpr sum;
        sum.extents.assign(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
        sum.spatial = e.spatial;
        sum.reducer = Reducer::Sum;
        const auto reduce = [&](int64_t extent) {
            sum.extents.emplace_back(extent);
            return axis(sum.extents.size() - 1);
        };
        const Expr block = blocks ? reduce(k / w.block) : Expr(0);
        const Expr word = block * (w.block / per_word) + reduce(w.block / per_word);
        const Expr number = per_word > 1 ? reduce(per_word) : Expr(0);
        std::vector<Expr> to;
        for (size_t a = 0; a < e.spatial; ++a) to.push_back(axis(a));
        to.push_back(word * per_word + number);
        for (size_t a = 0; a < e.accesses.size(); ++a) {
            Access x = e.accesses[a];
            for (Expr& i : x.index) i = substitute_axes(i, to);
            for (Expr& i : x.valid) i = substitute_axes(i, to);
            if (a == slot) x = {constant(q, "codes", w.codes), {word, axis(n)}, {}, 0};
            sum.accesses.push_back(std::move(x));
        }
        const auto per_block = [&](const char* role, const Tensor& t) {
            sum.accesses.push_back({constant(q, role, t), {block, axis(n)}, {}, 0});
            return sum.body.access(static_cast<uint32_t>(sum.accesses.size() - 1), DType::F32);
        };
        ScalarBody& b = sum.body;
        ScalarId factor = number_of(b, slot, number, w);
        if (w.zeros) factor = b.binary(ScalarOp::Sub, factor, per_block("zeros", *w.zeros));
        if (blocks) factor = b.binary(ScalarOp::Mul, factor, per_block("scales", w.scales));
        const ScalarId data = b.access(data_slot, p_.values[e.accesses[data_slot].value].dtype);
        b.set_root(slot < data_slot ? b.binary(ScalarOp::Mul, factor, data) : b.binary(ScalarOp::Mul, data, factor));
        Primitive made = q;
        made.kind = std::move(sum);
        if (!blocks) scale_result(made, n, w.scales);
        all_.push_back(std::move(made));
    }

    /// The decoded number before zero point and scale.
    static ScalarId number_of(ScalarBody& b, uint32_t slot, Expr number, const Decoded& w) {
        const ScalarId stored = b.access(slot, w.codes.dtype());
        if (w.bits == 8) return b.cast(DType::F32, stored);
        const ScalarId shift = b.cast(DType::U32, b.index(number * w.bits));
        const ScalarId code = b.binary(ScalarOp::BitAnd, b.binary(ScalarOp::ShiftRight, stored, shift),
                                       b.int_constant(DType::U32, (1 << w.bits) - 1));
        return b.table(DType::F32, w.numbers, b.cast(DType::I64, code));
    }

    /// One scale for a column: behind the sum.
    void scale_result(Primitive& sum, size_t n, const Tensor& scales) {
        Primitive scaled = sum;
        scaled.name += "/scaled";
        TensorExpr e;
        e.extents.assign(sum.expr()->extents.begin(),
                         sum.expr()->extents.begin() + static_cast<std::ptrdiff_t>(sum.expr()->spatial));
        e.spatial = e.extents.size();
        const ValueId unscaled = p_.values.push_back({sum.name + "/unscaled", DType::F32, e.extents});
        e.accesses = {{unscaled, {}, {}, 0}, {constant(sum, "scales", scales), {Expr(0), axis(n)}, {}, 0}};
        for (size_t a = 0; a < e.spatial; ++a) e.accesses[0].index.push_back(axis(a));
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
        scaled.kind = std::move(e);
        sum.outputs = {unscaled};
        all_.push_back(sum);
        sum = std::move(scaled);
    }

    Program p_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    IndexVector<PrimitiveId, Primitive> all_;
    size_t products_ = 0;
};

}  // namespace

Program quantised_weights(Program program, QuantisedWeights* report) {
    QuantisedWeights own;
    return Rewriter(std::move(program)).run(report != nullptr ? *report : own);
}

}  // namespace tilewright
