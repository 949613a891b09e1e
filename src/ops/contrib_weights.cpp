// Operators of com.microsoft on weights of 2, 4 or 8 bits: MatMulNBits, MatMulBnb4, GatherBlockQuantized.
//
//     MatMulNBits(a, q)   ->   w[n, k] = (q[n, k] - zero[n, k // block]) * scale[n, k // block];   y = a *
//     transposed(w)
//
// The weights are dequantised to f32. Constant ones are decoded by the product (program/transform/quantised_weights.h),
// or folded. ONNX Runtime rounds `a` to 8 bits where accuracy_level is 4; here it never is.

#include <array>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// Sizes that attributes give stay below this, so that their products fit 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 30;

int64_t size_attr(const NodeContext& c, const std::string& name) {
    c.require(c.node.has(name), fmt::format("attribute '{}' is missing", name));
    const int64_t n = c.node.attr_int(name, 0);
    c.require(n >= 1 && n < kLargestSize, fmt::format("attribute '{}' should be from 1 to 2^30, and is {}", name, n));
    return n;
}

int64_t block_size_attr(const NodeContext& c, int64_t fallback) {
    const int64_t block = c.node.attr_int("block_size", fallback);
    c.require(block >= 16 && block < kLargestSize && (block & (block - 1)) == 0,
              fmt::format("attribute 'block_size' should be a power of 2 from 16 on, and is {}", block));
    return block;
}

int64_t bits_attr(const NodeContext& c) {
    const int64_t bits = c.node.attr_int("bits", 4);
    c.require(bits == 2 || bits == 4 || bits == 8,
              fmt::format("attribute 'bits' should be 2, 4 or 8, and is {}", bits));
    return bits;
}

/// Input `input` in the shape {rows, columns}.
ValueId matrix(NodeContext& c, size_t input, Expr rows, Expr columns, std::string_view what) {
    c.b.require_equal(c.b.count(c.in(input)), rows * columns,
                      fmt::format("{} (input {}) should have {} x {} elements, and have shape {}", what, input,
                                  rows.text(), columns.text(), to_string(c.shape(input))));
    return c.b.reshape(c.in(input), {rows, columns});
}

/// Number `place` of those packed into a byte, the first in the lowest bits.
Sx unpacked(Sx byte, Sx place, int64_t bits) {
    if (bits == 8) return byte.cast(DType::I32);
    const Sx shift = (place * static_cast<double>(bits)).cast(DType::I32);
    return byte.cast(DType::I32).apply(ScalarOp::ShiftRight, shift).apply(ScalarOp::BitAnd, (1 << bits) - 1);
}

// --- MatMulNBits

/// Builds w[n, k] with axes 0 and 1.
class BlockWeights {
  public:
    explicit BlockWeights(NodeContext& c)
        : c_(c),
          bits_(bits_attr(c)),
          per_byte_(8 / bits_),
          n_(size_attr(c, "N")),
          k_(size_attr(c, "K")),
          block_(block_size_attr(c, 0)),
          blocks_((k_ + block_ - 1) / block_) {
        e_.extents = {n_, k_};
        e_.spatial = 2;
    }

    int64_t rows() const { return n_; }
    int64_t depth() const { return k_; }

    ValueId dequantised() {
        const ValueId packed = matrix(c_, 1, n_, blocks_ * (block_ / per_byte_), "the packed weights");
        const ValueId scales = matrix(c_, 2, n_, blocks_, "the scales");
        const Expr k = axis(1);
        const Sx q = unpacked(read(packed, {axis(0), floor_div(k, per_byte_)}), index(mod(k, per_byte_)), bits_);
        Expr block = floor_div(k, block_);
        Sx block_number = index(block);
        if (c_.has(4)) {
            const std::string misfit =
                fmt::format("g_idx should have shape [{}], and has {}", k_, to_string(c_.shape(4)));
            c_.require(c_.rank(4) == 1, misfit);
            c_.b.require_at_least(c_.shape(4)[0], k_, misfit);
            block_number = read(c_.in(4), {k}).cast(DType::I64).apply(ScalarOp::FloorMod, static_cast<double>(blocks_));
            block = mod(load(static_cast<size_t>(e_.accesses.size() - 1)), blocks_);
        }
        const Sx zero = zero_point(block, block_number);
        const Sx scale = read(scales, {axis(0), block}).cast(DType::F32);
        e_.body.set_root((q.cast(DType::F32) - zero) * scale);
        return c_.b.emit(std::move(e_), DType::F32, "weights");
    }

  private:
    Sx read(ValueId v, std::vector<Expr> at) {
        e_.accesses.push_back({v, std::move(at), {}, 0});
        return {e_.body, e_.body.access(static_cast<uint32_t>(e_.accesses.size() - 1), c_.b.dtype(v))};
    }
    Sx index(Expr i) { return {e_.body, e_.body.index(i)}; }

    Sx zero_point(Expr block, Sx block_number) {
        if (!c_.has(3)) return {e_.body, number(e_.body, DType::F32, static_cast<double>(1 << (bits_ - 1)))};
        if (c_.dtype(3) != DType::U8) {
            c_.require(c_.dtype(3) == c_.dtype(0),
                       fmt::format("the zero points (input 3) should be u8 or {}, and are {}", to_string(c_.dtype(0)),
                                   to_string(c_.dtype(3))));
            return read(matrix(c_, 3, n_, blocks_, "the zero points"), {axis(0), block}).cast(DType::F32);
        }
        const int64_t bytes = (blocks_ + per_byte_ - 1) / per_byte_;
        const ValueId packed = matrix(c_, 3, n_, bytes, "the zero points");
        const Sx byte = read(packed, {axis(0), floor_div(block, per_byte_)});
        const Sx place = block_number.apply(ScalarOp::FloorMod, static_cast<double>(per_byte_));
        return unpacked(byte, place, bits_).cast(DType::F32);
    }

    NodeContext& c_;
    int64_t bits_, per_byte_, n_, k_, block_, blocks_;
    TensorExpr e_;
};

/// a * w in f32. w [rows, columns], transposed with `transpose`.
ValueId weighted(NodeContext& c, ValueId w, bool transpose) {
    const Expr depth = c.b.shape(w)[transpose ? 1 : 0];
    c.require(c.rank(0) >= 1, "input 0 should not be a scalar");
    c.b.require_equal(
        c.shape(0).back(), depth,
        fmt::format("an input of shape {} does not fit {} rows of weights", to_string(c.shape(0)), depth.text()));
    return c.b.matmul(c.b.cast(c.in(0), DType::F32), transpose ? c.b.transpose(w, {1, 0}) : w);
}

/// Inputs: a, packed weights, scales, zero points, g_idx, bias. Weights without elements are 0.
void matmul_nbits(NodeContext& c) {
    c.require(c.node.attr_int("weight_prepacked", 0) == 0, "attribute 'weight_prepacked' should be 0");
    BlockWeights weights(c);
    ValueId y;
    if (c.b.count(c.in(1)).is_constant(0)) {
        c.require(c.rank(0) >= 1, "input 0 should not be a scalar");
        Dims shape = c.shape(0);
        c.b.require_equal(shape.back(), weights.depth(),
                          fmt::format("an input of shape {} does not fit K = {}", to_string(shape), weights.depth()));
        shape.back() = weights.rows();
        y = c.b.full(std::move(shape), DType::F32, 0);
    } else {
        y = weighted(c, weights.dequantised(), true);
    }
    if (c.has(5)) {
        const std::string misfit =
            fmt::format("a bias of shape {} does not fit {} columns", to_string(c.shape(5)), weights.rows());
        c.require(c.rank(5) == 1, misfit);
        c.b.require_equal(c.shape(5)[0], weights.rows(), misfit);
        y = c.b.binary(ScalarOp::Add, y, c.b.cast(c.in(5), DType::F32));
    }
    c.out(0, c.b.cast(y, c.dtype(0)));
}

// --- MatMulBnb4

/// The numbers that 4 bits represent, of FP4 (sign, exponent, mantissa; scaled to 1) and NF4 (quantiles of the normal
/// distribution), as in Dettmers et al., QLoRA, 2023.
constexpr std::array<double, 16> kFp4 = {
    0,    5.208333333e-03F,  0.66666667F,  1,  0.33333333F,  0.5,  0.16666667F,  0.25,
    -0.0, -5.208333333e-03F, -0.66666667F, -1, -0.33333333F, -0.5, -0.16666667F, -0.25};
constexpr std::array<double, 16> kNf4 = {
    -1,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1,
};

/// w[n, k] = numbers[q[i]] * absmax[i // block]   with i = n * K + k, and two numbers a byte, the first in the upper
/// bits.
void matmul_bnb4(NodeContext& c) {
    const int64_t n = size_attr(c, "N"), k = size_attr(c, "K"), block = block_size_attr(c, 0);
    const int64_t kind = c.node.attr_int("quant_type", 0);
    c.require(kind == 0 || kind == 1, fmt::format("attribute 'quant_type' should be 0 or 1, and is {}", kind));
    const ValueId packed = c.b.reshape(matrix(c, 1, 1, (n * k + 1) / 2, "the packed weights"), {(n * k + 1) / 2});
    const int64_t blocks = (n * k + block - 1) / block;
    const ValueId scales = c.b.reshape(matrix(c, 2, 1, blocks, "absmax"), {blocks});
    TensorExpr e;
    e.extents = {n, k};
    e.spatial = 2;
    const Expr i = axis(0) * k + axis(1);
    e.accesses = {{packed, {floor_div(i, 2)}, {}, 0}, {scales, {floor_div(i, block)}, {}, 0}};
    const Sx byte(e.body, e.body.access(0, c.b.dtype(packed))), place(e.body, e.body.index(mod(i + 1, 2)));
    const Sx code = unpacked(byte, place, 4).cast(DType::I64);
    const std::array<double, 16>& numbers = kind == 0 ? kFp4 : kNf4;
    const auto table = std::make_shared<const std::vector<double>>(numbers.begin(), numbers.end());
    const Sx value(e.body, e.body.table(DType::F32, table, code));
    e.body.set_root(value * Sx(e.body, e.body.access(1, c.b.dtype(scales))).cast(DType::F32));
    const ValueId w = c.b.emit(std::move(e), DType::F32, "weights");
    c.out(0, c.b.cast(weighted(c, w, c.node.attr_int("transB", 1) != 0), c.dtype(0)));
}

// --- GatherBlockQuantized

/// Reads data, scales and zero points of gathered elements.
class BlockGather {
  public:
    explicit BlockGather(NodeContext& c) : c_(c), data_(c.shape(0)) {
        const size_t rank = data_.size();
        gathered_ = static_cast<size_t>(c.axis_attr("gather_axis", 0, rank));
        blocked_ = static_cast<size_t>(c.axis_attr("quantize_axis", 1, rank));
        float_ = is_float(c.dtype(0));
        if (!float_) bits_ = bits_attr(c);
        per_byte_ = c.dtype(0) == DType::U8 ? 8 / bits_ : 1;
        c.require(
            float_ || c.dtype(0) == DType::U8 || bits_ == 4,
            fmt::format("attribute 'bits' should be 4 for data of type {}, and is {}", to_string(c.dtype(0)), bits_));
        c.require(per_byte_ == 1 || (gathered_ == 0 && blocked_ + 1 == rank && rank > 1),
                  "packed data must be gathered along axis 0 and quantised along the last axis");
        if (!(float_ && c.node.attr_int("block_size", 128) == 0)) block_ = block_size_attr(c, 128);
        whole_ = data_;
        whole_.back() *= per_byte_;
    }

    ValueId dequantised() {
        const size_t q = c_.rank(1), rank = data_.size();
        for (size_t d = 0; d < gathered_; ++d) e_.extents.push_back(whole_[d]);
        const Dims indices = c_.shape(1);
        e_.extents.insert(e_.extents.end(), indices.begin(), indices.end());
        for (size_t d = gathered_ + 1; d < rank; ++d) e_.extents.push_back(whole_[d]);
        e_.spatial = e_.extents.size();
        std::vector<Expr> where;
        for (size_t d = 0; d < q; ++d) where.push_back(axis(gathered_ + d));
        const Sx chosen = read(c_.in(1), where).cast(DType::I64);
        const Sx extent = index(data_[gathered_]);
        // Elements of indices outside of the data are 0.
        const Sx inside =
            chosen.apply(ScalarOp::Lt, extent).apply(ScalarOp::BitAnd, (chosen + extent).apply(ScalarOp::Ge, 0));
        for (size_t d = 0; d < rank; ++d)
            at_.push_back(d < gathered_ ? axis(d) : d > gathered_ ? axis(d + q - 1) : mod(load(0), data_[d]));
        c_.b.require_at_least(data_[gathered_], min(c_.b.count(c_.in(1)), 1), "a dimension of 0 is indexed");
        const Sx value = dequantised_element();
        e_.body.set_root(inside.choose(value, value.of(0)));
        return c_.b.emit(std::move(e_), c_.dtype(2), "gather");
    }

  private:
    Sx read(ValueId v, std::vector<Expr> at) {
        e_.accesses.push_back({v, std::move(at), {}, 0});
        return {e_.body, e_.body.access(static_cast<uint32_t>(e_.accesses.size() - 1), c_.b.dtype(v))};
    }
    Sx index(Expr i) { return {e_.body, e_.body.index(i)}; }

    Sx dequantised_element() {
        const size_t last = data_.size() - 1;
        std::vector<Expr> from = at_;
        from[last] = per_byte_ == 1 ? at_[last] : floor_div(at_[last], per_byte_);
        const Sx stored = read(c_.in(0), from);
        std::vector<Expr> block = at_;
        block[blocked_] = block_ ? floor_div(at_[blocked_], *block_) : Expr(0);
        require_blocks(2, 1, "scales");
        if (float_)
            for (size_t d = 0; d < block.size(); ++d)
                if (c_.shape(2)[d].is_constant(1)) block[d] = 0;
        const Sx scale = read(c_.in(2), block).cast(DType::F32);
        if (float_) {
            c_.require(!c_.has(3), "zero points (input 3) do not belong to data of floating-point type");
            return stored.cast(DType::F32) * scale;
        }
        const Sx q =
            per_byte_ == 1 ? stored.cast(DType::I32) : unpacked(stored, index(mod(at_[last], per_byte_)), bits_);
        return (q - zero_point(block)).cast(DType::F32) * scale;
    }

    Sx zero_point(std::vector<Expr> block) {
        const size_t last = data_.size() - 1;
        if (!c_.has(3)) {
            const double zero = c_.dtype(0) == DType::U8 ? static_cast<double>(1 << (bits_ - 1)) : 0;
            return {e_.body, number(e_.body, DType::I32, zero)};
        }
        c_.require(c_.dtype(3) == c_.dtype(0), fmt::format("the zero points (input 3) should be {}, and are {}",
                                                           to_string(c_.dtype(0)), to_string(c_.dtype(3))));
        require_blocks(3, per_byte_, "zero points");
        if (per_byte_ == 1) return read(c_.in(3), block).cast(DType::I32);
        const Sx place = index(mod(block[last], per_byte_));
        block[last] = floor_div(block[last], per_byte_);
        return unpacked(read(c_.in(3), block), place, bits_);
    }

    /// The shape of the data with one number per block along the quantised axis, `packed` of them in a byte.
    void require_blocks(size_t input, int64_t packed, std::string_view what) {
        const std::string misfit = fmt::format("{} (input {}) of shape {} do not fit data of shape {}", what, input,
                                               to_string(c_.shape(input)), to_string(c_.shape(0)));
        c_.require(c_.rank(input) == data_.size(), misfit);
        for (size_t d = 0; d < data_.size(); ++d) {
            const Expr n = c_.shape(input)[d];
            if (d == blocked_)
                c_.b.require_equal(n, ceil_div(block_ ? ceil_div(whole_[d], *block_) : Expr(1), packed), misfit);
            else if (!(float_ && n.is_constant(1)))
                c_.b.require_equal(n, whole_[d], misfit);
        }
    }

    NodeContext& c_;
    Dims data_, whole_;  ///< as stored; with packed elements counted one by one
    size_t gathered_ = 0, blocked_ = 0;
    int64_t bits_ = 4, per_byte_ = 1;
    bool float_ = false;
    std::optional<int64_t> block_;  ///< none: one block for all
    TensorExpr e_;
    std::vector<Expr> at_;  ///< the element of the data
};

/// Inputs: data, indices, scales, zero points.
void gather_block_quantized(NodeContext& c) {
    c.require(c.rank(0) >= 1, "the data should not be a scalar");
    c.out(0, BlockGather(c).dequantised());
}

}  // namespace

std::vector<OpLowering> contrib_weights_lowerings() {
    constexpr std::string_view kDomain = "com.microsoft";
    return {
        {kDomain, "GatherBlockQuantized", 1, gather_block_quantized},
        {kDomain, "MatMulBnb4", 1, matmul_bnb4},
        {kDomain, "MatMulNBits", 1, matmul_nbits},
    };
}

}  // namespace tilewright
