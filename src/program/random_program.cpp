#include "program/random_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "program/builder.h"
#include "program/scalar_ops.h"

namespace tilewright {

namespace {

constexpr int64_t kMaxElements = 4000;
constexpr int64_t kIndexBound =
    2;  ///< integer inputs stay below this, so that they index every dimension gathered from

/// Functions whose results stay small for operands of any size, and differ no more than these do.
std::vector<ScalarOp> bounded_functions() {
    std::vector<ScalarOp> out;
    for (const ScalarFunction& f : scalar_functions()) {
        const bool is_bounded = std::isfinite(f.low) && std::isfinite(f.high);
        if (f.curve == Curve::Increasing && is_bounded && !std::isnan(f.reference(1e3))) out.push_back(f.op);
    }
    return out;
}

class Generator {
  public:
    Generator(uint64_t seed, const RandomProgramOptions& options)
        : rng_(seed * 0x9E3779B97F4A7C15ull + 1), options_(options), builder_(program_) {
        program_.name = "random";
        symbolic_ = options.symbolic && one_in(3);
    }

    Program run(int size) {
        const Expr lead = symbolic_ ? symbol("n") : Expr(upto(1, 4));
        const int inputs = static_cast<int>(upto(1, 3));
        for (int k = 0; k < inputs; ++k) {
            Dims shape;
            const int64_t rank = upto(1, 4);
            for (int64_t d = 0; d < rank; ++d) shape.push_back(d == 0 ? lead : Expr(upto(1, 6)));
            values_.push_back(builder_.input("x" + std::to_string(k), DType::F32, shape));
        }
        if (options_.data_dependent && one_in(2))
            indices_ = builder_.input("indices", DType::I64, {symbolic_ && one_in(2) ? lead : Expr(upto(1, 5))});
        for (int step = 0; step < size; ++step) {
            builder_.set_source("step" + std::to_string(step), "");
            add_step();
        }
        finish();
        return std::move(program_);
    }

  private:
    int64_t upto(int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
    }
    bool one_in(int64_t n) { return upto(1, n) == 1; }
    template <class T>
    const T& pick(const std::vector<T>& list) {
        return list[static_cast<size_t>(upto(0, static_cast<int64_t>(list.size()) - 1))];
    }
    double real() { return static_cast<double>(upto(-1000, 1000)) / 500; }

    size_t rank(ValueId v) const { return builder_.rank(v); }
    Expr dim(ValueId v, size_t d) const { return builder_.shape(v)[d]; }
    /// Element count, with 4 for the symbol.
    static int64_t size_of(const Dims& shape) {
        const std::function<std::optional<int64_t>(Var)> four = [](Var) { return std::optional<int64_t>(4); };
        return evaluate(product(shape), Env{{}, {}, &four});
    }
    bool is_f32(ValueId v) const { return builder_.dtype(v) == DType::F32; }

    void keep(ValueId v) {
        if (size_of(builder_.shape(v)) <= kMaxElements) values_.push_back(v);
    }
    /// Prefers recent values, because fusion acts on chains.
    ValueId any() {
        const auto n = static_cast<int64_t>(values_.size());
        return values_[static_cast<size_t>(one_in(2) ? n - 1 : upto(0, n - 1))];
    }
    ValueId any_f32() {
        for (int tries = 0; tries < 20; ++tries)
            if (const ValueId v = any(); is_f32(v)) return v;
        return values_[0];
    }
    ValueId weights(const Dims& shape) {
        Shape s;
        for (const Expr d : shape) s.push_back(d.constant());
        Tensor t(DType::F32, s);
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, real());
        return builder_.constant(std::move(t), "weights");
    }
    ValueId scaled(ValueId v, double by) { return builder_.binary(ScalarOp::Mul, v, by); }

    void add_step() {
        switch (upto(0, options_.other_types ? 17 : 15)) {
            case 0:
            case 1:
            case 2:
                return unary();
            case 3:
            case 4:
                return binary();
            case 5:
                return with_constant();
            case 6:
                return transpose();
            case 7:
                return reshape();
            case 8:
                return slice();
            case 9:
                return pad();
            case 10:
                return concat();
            case 11:
                return one_in(2) ? gather() : expand();
            case 12:
                return reduce();
            case 13:
                return product_step();
            case 14:
                return convolution();
            case 15:
                return one_in(2) ? softmax() : layer_norm();
            default:
                return other_type();
        }
    }

    void unary() {
        const ValueId v = any_f32();
        switch (upto(0, 5)) {
            case 0:
            case 1: {  // by position and not by chance, so that a new function changes no other part of a seed's
                       // program
                static const std::vector<ScalarOp> ops = bounded_functions();
                return keep(builder_.unary(ops[values_.size() % ops.size()], v));
            }
            case 2:
                return keep(builder_.binary(ScalarOp::Max, v, 0.0));
            case 3:
                return keep(builder_.unary(ScalarOp::Neg, v));
            case 4:  // sigmoid
                return keep(builder_.map(
                    {v}, DType::F32,
                    [](ScalarBody& b, std::span<const ScalarId> a) {
                        const ScalarId one = b.constant(DType::F32, 1);
                        const ScalarId e = b.unary(ScalarOp::Exp, b.unary(ScalarOp::Neg, a[0]));
                        return b.binary(ScalarOp::Div, one, b.binary(ScalarOp::Add, one, e));
                    },
                    "sigmoid"));
            default:
                return keep(builder_.unary(ScalarOp::Sqrt, builder_.unary(ScalarOp::Abs, v)));
        }
    }

    /// A value that broadcasts with v: another one of its shape, or a constant of some of its dimensions.
    ValueId partner(ValueId v) {
        std::vector<ValueId> same;
        for (const ValueId u : values_)
            if (is_f32(u) && builder_.shape(u) == builder_.shape(v)) same.push_back(u);
        if (one_in(2)) return pick(same);
        Dims shape;
        for (size_t d = rank(v) - static_cast<size_t>(upto(0, static_cast<int64_t>(rank(v)))); d < rank(v); ++d)
            shape.push_back(!dim(v, d).is_constant() || one_in(3) ? Expr(1) : dim(v, d));
        return weights(shape);
    }

    void binary() {
        const ValueId v = any_f32(), u = partner(v);
        static const std::vector<ScalarOp> ops = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Max,
                                                  ScalarOp::Min};
        const ScalarOp op = pick(ops);
        ValueId r = one_in(2) ? builder_.binary(op, v, u) : builder_.binary(op, u, v);
        keep(op == ScalarOp::Mul ? builder_.unary(ScalarOp::Tanh, r) : r);
    }

    void with_constant() { keep(builder_.binary(one_in(2) ? ScalarOp::Add : ScalarOp::Mul, any_f32(), real())); }

    void transpose() {
        const ValueId v = any();
        std::vector<int64_t> p;
        for (size_t d = 0; d < rank(v); ++d) p.push_back(static_cast<int64_t>(d));
        for (size_t d = p.size(); d > 1; --d)
            std::swap(p[d - 1], p[static_cast<size_t>(upto(0, static_cast<int64_t>(d) - 1))]);
        keep(builder_.transpose(v, p));
    }

    /// Merges two adjacent dimensions, or splits a constant one.
    void reshape() {
        const ValueId v = any();
        Dims shape = builder_.shape(v);
        if (shape.size() > 1 && one_in(2)) {
            const auto d = static_cast<size_t>(upto(0, static_cast<int64_t>(shape.size()) - 2));
            shape[d] = shape[d] * shape[d + 1];
            shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
        } else if (!shape.empty()) {
            const auto d = static_cast<size_t>(upto(0, static_cast<int64_t>(shape.size()) - 1));
            const int64_t inner = upto(1, 4);
            const Expr outer = floor_div(shape[d], inner);
            if (!(outer * inner == shape[d]) || shape.size() > 4) return;
            shape[d] = outer;
            shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, inner);
        }
        keep(builder_.reshape(v, shape));
    }

    /// A constant dimension of v with at least `least` elements.
    std::optional<size_t> constant_dim(ValueId v, int64_t least) {
        std::vector<size_t> found;
        for (size_t d = 0; d < rank(v); ++d)
            if (dim(v, d).is_constant() && dim(v, d).constant() >= least) found.push_back(d);
        if (found.empty()) return std::nullopt;
        return pick(found);
    }

    void slice() {
        const ValueId v = any();
        const auto d = constant_dim(v, 2);
        if (!d) return;
        const int64_t length = dim(v, *d).constant(), start = upto(0, length - 1), step = upto(1, 2);
        const int64_t count = upto(1, (length - 1 - start) / step + 1);
        if (one_in(4))  // backwards
            keep(builder_.slice(v, static_cast<int64_t>(*d), start + (count - 1) * step, count, -step));
        else
            keep(builder_.slice(v, static_cast<int64_t>(*d), start, count, step));
    }

    void pad() {
        const ValueId v = any();
        Dims before(rank(v), Expr(0)), after(rank(v), Expr(0));
        for (size_t d = 0; d < rank(v); ++d) {
            if (!one_in(2)) continue;
            before[d] = upto(0, 2);
            after[d] = upto(0, 2);
        }
        const int64_t least = builder_.dtype(v) == DType::Bool ? 0 : -1;
        keep(builder_.pad(v, before, after, one_in(2) ? 0 : static_cast<double>(upto(least, 1))));
    }

    void concat() {
        const ValueId v = any();
        const auto d = constant_dim(v, 1);
        if (!d) return;
        std::vector<ValueId> parts = {v};
        for (const ValueId u : values_) {
            if (parts.size() > 2 || builder_.dtype(u) != builder_.dtype(v) || rank(u) != rank(v)) continue;
            bool fits = dim(u, *d).is_constant();
            for (size_t k = 0; k < rank(v); ++k) fits = fits && (k == *d || dim(u, k) == dim(v, k));
            if (fits && !one_in(3)) parts.push_back(u);
        }
        keep(builder_.concat(parts, static_cast<int64_t>(*d)));
    }

    void gather() {
        const ValueId v = any();
        const auto d = constant_dim(v, kIndexBound);
        if (!d) return;
        if (indices_ && one_in(2)) return keep(builder_.gather(v, *indices_, static_cast<int64_t>(*d)));
        std::vector<int64_t> at;
        for (int64_t k = upto(1, 4); k > 0; --k) at.push_back(upto(0, dim(v, *d).constant() - 1));
        keep(builder_.gather(v, builder_.constant(Tensor::of_i64(at)), static_cast<int64_t>(*d)));
    }

    void expand() {
        const ValueId v = any();
        Dims shape = builder_.shape(v);
        if (shape.size() > 3) return;
        shape.insert(shape.begin(), upto(1, 3));
        for (Expr& e : shape)
            if (e.is_constant(1)) e = upto(1, 3);
        keep(builder_.expand(v, shape));
    }

    void reduce() {
        const ValueId v = any_f32();
        if (rank(v) == 0) return;
        std::vector<int64_t> axes;
        for (size_t d = 0; d < rank(v); ++d)
            if (one_in(2)) axes.push_back(static_cast<int64_t>(d));
        const bool keep_dims = one_in(2);
        switch (upto(0, 3)) {
            case 0:
                return keep(builder_.mean(v, axes, keep_dims));
            case 1:
                return keep(builder_.reduce(Reducer::Max, v, axes, keep_dims, "max"));
            case 2:
                return keep(builder_.reduce(Reducer::Min, v, axes, keep_dims, "min"));
            default:
                return keep(scaled(builder_.reduce(Reducer::Sum, v, axes, keep_dims, "sum"), 0.25));
        }
    }

    void product_step() {
        const ValueId v = any_f32();
        if (rank(v) == 0) return;
        const Expr k = dim(v, rank(v) - 1);
        if (!k.is_constant()) return;
        ValueId r;
        if (rank(v) >= 2 && one_in(2)) {  // v times its own transpose, as in attention scores
            std::vector<int64_t> p;
            for (size_t d = 0; d < rank(v); ++d) p.push_back(static_cast<int64_t>(d));
            std::swap(p[p.size() - 1], p[p.size() - 2]);
            if (size_of(builder_.shape(v)) > 400) return;
            r = builder_.matmul(v, builder_.transpose(v, p));
        } else {
            r = builder_.matmul(v, weights({k, upto(1, 6)}));
        }
        keep(scaled(r, 1 / std::sqrt(static_cast<double>(k.constant()))));
    }

    /// Over the last one or two dimensions, with the channels before them; stride, dilation, padding, groups.
    void convolution() {
        const ValueId v = any_f32();
        const size_t r = rank(v);
        const size_t dims = r >= 3 && one_in(2) ? 2 : 1;
        if (r < dims + 1) return;
        const size_t channel = r - dims - 1;
        if (!dim(v, channel).is_constant()) return;
        const int64_t channels = dim(v, channel).constant();
        const int64_t groups = channels % 2 == 0 && one_in(3) ? 2 : 1;
        const int64_t in = channels / groups, each = upto(1, 3);
        TensorExpr e;
        for (size_t d = 0; d < channel; ++d) e.extents.push_back(dim(v, d));
        e.extents.emplace_back(groups * each);
        Access x{v, {}, {}, 0}, w{ValueId(), {}, {}, 0};
        Dims kernel;
        std::vector<Expr> position;
        const int64_t stride = upto(1, 2), dilation = upto(1, 2), padding = upto(0, 1);
        for (size_t d = 0; d < dims; ++d) {
            const Expr length = dim(v, channel + 1 + d);
            if (!length.is_constant()) return;
            const int64_t k = upto(1, 3), covered = dilation * (k - 1) + 1;
            if (length.constant() + 2 * padding < covered) return;
            e.extents.emplace_back((length.constant() + 2 * padding - covered) / stride + 1);
            kernel.emplace_back(k);
        }
        e.spatial = e.extents.size();
        e.extents.emplace_back(in);
        e.extents.insert(e.extents.end(), kernel.begin(), kernel.end());
        for (size_t d = 0; d < channel; ++d) x.index.push_back(axis(d));
        x.index.push_back(floor_div(axis(channel), each) * in + axis(e.spatial));
        w.index = {axis(channel), axis(e.spatial)};
        for (size_t d = 0; d < dims; ++d) {
            const Expr at = axis(channel + 1 + d) * stride + axis(e.spatial + 1 + d) * dilation - padding;
            x.index.push_back(at);
            if (padding > 0) {
                x.valid.push_back(at);
                x.valid.push_back(dim(v, channel + 1 + d) - 1 - at);
            }
            w.index.push_back(axis(e.spatial + 1 + d));
        }
        Dims weight_shape = {groups * each, in};
        weight_shape.insert(weight_shape.end(), kernel.begin(), kernel.end());
        w.value = weights(weight_shape);
        e.accesses = {x, w};
        e.reducer = Reducer::Sum;
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
        keep(scaled(builder_.emit(std::move(e), DType::F32, "products"), 0.5));
    }

    void softmax() {
        const ValueId v = any_f32();
        if (rank(v) == 0) return;
        const std::vector<int64_t> along = {upto(0, static_cast<int64_t>(rank(v)) - 1)};
        const ValueId shifted = builder_.binary(ScalarOp::Sub, v, builder_.reduce(Reducer::Max, v, along, true, "max"));
        const ValueId e = builder_.unary(ScalarOp::Exp, shifted);
        keep(builder_.binary(ScalarOp::Div, e, builder_.reduce(Reducer::Sum, e, along, true, "sum")));
    }

    void layer_norm() {
        const ValueId v = any_f32();
        if (rank(v) == 0) return;
        const std::vector<int64_t> along = {static_cast<int64_t>(rank(v)) - 1};
        const ValueId centred = builder_.binary(ScalarOp::Sub, v, builder_.mean(v, along, true));
        const ValueId variance = builder_.mean(builder_.binary(ScalarOp::Mul, centred, centred), along, true);
        const ValueId deviation = builder_.unary(ScalarOp::Sqrt, builder_.binary(ScalarOp::Add, variance, 0.01));
        keep(builder_.binary(ScalarOp::Div, centred, deviation));
    }

    void other_type() {
        const ValueId v = any();
        const DType t = builder_.dtype(v);
        if (t == DType::Bool) {
            if (one_in(2)) return keep(builder_.cast(v, one_in(2) ? DType::F32 : DType::I32));
            return keep(builder_.unary(ScalarOp::BitNot, v));
        }
        if (is_integer(t)) {
            if (one_in(3)) return keep(builder_.cast(v, DType::F32));
            if (one_in(2)) return keep(builder_.binary(one_in(2) ? ScalarOp::Add : ScalarOp::Mul, v, v));
            return keep(builder_.binary(ScalarOp::FloorMod, v, 3.0));
        }
        if (t == DType::F16) return keep(builder_.cast(v, DType::F32));
        switch (upto(0, 3)) {
            case 0:
                return keep(builder_.cast(v, DType::F16));
            case 1:
                return keep(builder_.cast(scaled(v, 3), one_in(2) ? DType::I64 : DType::I32));
            case 2:
                return keep(builder_.binary(ScalarOp::Gt, v, 0.125));
            default: {
                const ValueId positive = builder_.binary(ScalarOp::Gt, v, 0.0);
                return keep(builder_.select(positive, v, scaled(v, 0.1)));
            }
        }
    }

    /// Outputs: every value without readers that the builder has not folded.
    void finish() {
        std::vector<ValueId> outputs;
        const auto consumers = program_.consumers();
        const auto producers = program_.producers();
        for (const ValueId v : program_.values.ids())
            if (producers[v] && consumers[v].empty()) outputs.push_back(v);
        if (outputs.empty()) outputs.push_back(builder_.copy(program_.inputs[0]));
        builder_.set_outputs(outputs);
    }

    std::mt19937_64 rng_;
    RandomProgramOptions options_;
    Program program_;
    Builder builder_;
    bool symbolic_ = false;
    std::vector<ValueId> values_;
    std::optional<ValueId> indices_;
};

}  // namespace

Program random_program(uint64_t seed, int size, const RandomProgramOptions& options) {
    return Generator(seed, options).run(size);
}

std::vector<Tensor> random_inputs(const Program& program, uint64_t seed) {
    std::mt19937_64 rng(seed * 0x9E3779B97F4A7C15ull + 7);
    const auto upto = [&](int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(rng() % static_cast<uint64_t>(hi - lo + 1));
    };
    Bindings bindings;
    std::vector<Tensor> inputs;
    for (const ValueId v : program.inputs) {
        const Value& value = program.values[v];
        for (const Expr d : value.shape)
            for (const Var name : variables(d)) bindings.try_emplace(name, upto(1, 4));
        Tensor t(value.dtype, evaluate(value.shape, bindings));
        for (int64_t i = 0; i < t.count(); ++i) {
            if (is_float(value.dtype))
                t.set(i, static_cast<double>(upto(-2000, 2000)) / 700);
            else
                t.set(i, upto(0, kIndexBound - 1));
        }
        inputs.push_back(std::move(t));
    }
    return inputs;
}

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    constexpr double kDifferent = std::numeric_limits<double>::infinity();
    if (a.size() != b.size()) return kDifferent;
    double largest = 0;
    for (size_t k = 0; k < a.size(); ++k) {
        if (a[k].dtype() != b[k].dtype() || a[k].shape() != b[k].shape()) return kDifferent;
        for (int64_t i = 0; i < a[k].count(); ++i) {
            if (!is_float(a[k].dtype())) {
                if (a[k].get_int(i) != b[k].get_int(i)) return kDifferent;
                continue;
            }
            const double x = a[k].get(i), y = b[k].get(i);
            if (x == y || (std::isnan(x) && std::isnan(y))) continue;
            if (!std::isfinite(x) || !std::isfinite(y)) return kDifferent;
            largest = std::max(largest, std::fabs(x - y) / (1 + std::fabs(x)));
        }
    }
    return largest;
}

}  // namespace tilewright
