// Fourier transforms and operators built on them. A transform of constant, moderate length is a product with a constant
// table of cosines and sines, so that it is scheduled and fused as any product; others are opaque operators.
//
//     STFT(signal, step 4, window, length 8)   ->   table[n, k, part] = window[n] * (cos, -sin)(2 pi n k / 8)
//                                                   y[b, f, k, part] = sum(n < 8) signal[b, 4 f + n] * table[n, k,
//                                                   part]

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

/// The parameters of a transform.
struct Transform {
    int64_t length = 0;    ///< of the transform, N
    int64_t read = 0;      ///< elements of the signal that it reads; elements beyond them count as 0
    int64_t parts = 1;     ///< per element of the signal: 1 real, 2 complex
    int64_t bins = 0;      ///< number of output elements
    bool inverse = false;  ///< conjugate angles, divided by N
    bool half = false;     ///< inverse of a real signal's transform: the signal is its first half, the result is real

    int64_t out_parts() const { return half ? 1 : 2; }
};

/// Maximum elements of a table of cosines and sines.
constexpr int64_t kTableLimit = int64_t{1} << 22;

/// [read, parts, bins, out parts]: the contribution of element (n, part) of the signal to (k, part) of the result.
Tensor transform_table(const Transform& t, DType type) {
    Tensor table(type, {t.read, t.parts, t.bins, t.out_parts()});
    int64_t at = 0;
    for (int64_t n = 0; n < t.read; ++n)
        for (int64_t p = 0; p < t.parts; ++p)
            for (int64_t k = 0; k < t.bins; ++k)
                for (int64_t q = 0; q < t.out_parts(); ++q) {
                    const double turn = static_cast<double>(n * k % t.length) / static_cast<double>(t.length);
                    const double angle = (t.inverse ? 2 : -2) * std::numbers::pi * turn;
                    // (re, im) * (cos, sin): re' = re cos - im sin, im' = re sin + im cos
                    double v = p == q ? std::cos(angle) : q == 1 ? std::sin(angle) : -std::sin(angle);
                    if (t.inverse) v /= static_cast<double>(t.length);
                    if (t.half && n != 0 && 2 * n != t.length) v *= 2;  // also represents its mirror image
                    table.set(at++, v);
                }
    return table;
}

// --- DFT

/// The number in a scalar input, if known at compile time.
std::optional<int64_t> known_integer(NodeContext& c, size_t input) {
    c.require(c.b.count(c.in(input)).is_constant(1), fmt::format("input {} must be a scalar", input));
    const Expr v = c.b.read_int(c.in(input));
    return v.is_constant() ? std::optional(v.constant()) : std::nullopt;
}

/// y[.., k, .., q] = sum(n, p) x[.., n, .., p] * table[n, p, k, q]
ValueId transformed(NodeContext& c, size_t along, const Transform& t) {
    const Dims x = c.shape(0);
    const size_t last = x.size() - 1;
    const DType storage = c.dtype(0);
    const ValueId table = c.b.constant(transform_table(t, compute_type(storage)), "table");
    TensorExpr e;
    e.extents = x;
    e.extents[along] = t.bins;
    e.extents[last] = t.out_parts();
    e.spatial = x.size();
    e.extents.emplace_back(t.read);
    const Expr part = t.parts == 1 ? Expr(0) : axis(e.extents.size());
    if (t.parts > 1) e.extents.emplace_back(t.parts);
    e.reducer = Reducer::Sum;
    Access signal{c.in(0), {}, {}, 0};
    for (size_t k = 0; k < x.size(); ++k)
        signal.index.push_back(k == along ? axis(e.spatial) : k == last ? part : axis(k));
    e.accesses = {std::move(signal), {table, {axis(e.spatial), part, axis(along), axis(last)}, {}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, storage), e.body.access(1, c.b.dtype(table))));
    return c.b.emit(std::move(e), storage, "transform");
}

/// `axis` is an input since opset 20, and an attribute before.
void dft(NodeContext& c) {
    const Dims x = c.shape(0);
    c.require(x.size() >= 2 && (x.back().is_constant(1) || x.back().is_constant(2)),
              fmt::format("a signal whose last dimension is 1 (real) or 2 (complex) is expected, and its shape is {}",
                          to_string(x)));
    const bool inverse = c.node.attr_int("inverse", 0) != 0, onesided = c.node.attr_int("onesided", 0) != 0;
    int64_t axis = c.node.attr_int("axis", 1);
    if (c.node.opset >= 20) {
        const auto given = c.has(2) ? known_integer(c, 2) : std::optional<int64_t>(-2);
        if (!given) {
            Dims shape;
            for (size_t k = 0; k + 1 < x.size(); ++k) shape.push_back(c.b.fresh_symbol(fmt::format("d{}", k)));
            shape.emplace_back(inverse && onesided ? 1 : 2);
            const std::vector<ValueId> inputs = {c.in(0), c.has(1) ? c.in(1) : ValueId{}, c.in(2)};
            const auto op = opaque::dft(std::nullopt, inverse, onesided);
            return c.out(0, c.b.emit_opaque(op, inputs, {{c.dtype(0), std::move(shape)}}, "dft").front());
        }
        axis = *given;
    }
    axis = c.b.normalize_axis(axis, x.size());
    const auto along = static_cast<size_t>(axis);
    c.require(along + 1 < x.size(), "the last dimension holds the parts of an element, and is not transformed");
    const bool half = inverse && onesided;
    c.require(!half || x.back().is_constant(2), "the transform of a real signal is complex");
    c.require(!onesided || inverse || x.back().is_constant(1), "only a real signal has a one-sided transform");

    const Expr length = c.has(1) ? c.b.read_int(c.in(1)) : half ? (x[along] - 1) * 2 : x[along];
    const Expr bins = onesided && !inverse ? floor_div(length, 2) + 1 : length;
    if (length.is_constant() && length.constant() >= 1 && x[along].is_constant()) {
        Transform t;
        t.length = length.constant();
        t.parts = x.back().constant();
        t.bins = bins.constant();
        t.inverse = inverse;
        t.half = half;
        t.read = std::min(x[along].constant(), half ? t.length / 2 + 1 : t.length);
        if (t.length <= kTableLimit && t.bins * t.out_parts() <= kTableLimit / (t.read * t.parts + 1))
            return c.out(0, transformed(c, along, t));
    }
    Dims shape = x;
    shape[along] = bins;
    shape.back() = half ? 1 : 2;
    std::vector<ValueId> inputs = {c.in(0)};
    if (c.has(1)) inputs.push_back(c.in(1));
    const auto op = opaque::dft(axis, inverse, onesided);
    c.out(0, c.b.emit_opaque(op, inputs, {{c.dtype(0), std::move(shape)}}, "dft").front());
}

// --- STFT

/// signal [batch, length, 1 or 2]   ->   [batch, frames, bins, 2]
void stft(NodeContext& c) {
    const Dims x = c.shape(0);
    c.require(x.size() >= 2 && x.size() <= 3,
              fmt::format("a signal [batch, length, 1 or 2] is expected, and its shape is {}", to_string(x)));
    c.require(x.size() == 2 || x[2].is_constant(1) || x[2].is_constant(2),
              "the signal's last dimension should be 1 (real) or 2 (complex)");
    const int64_t parts = x.size() == 3 ? x[2].constant() : 1;
    const bool onesided = c.node.attr_int("onesided", 1) != 0 && parts == 1;
    c.require(c.has(2) || c.has(3), "a window or a frame length is expected");
    c.require(!c.has(2) || c.rank(2) == 1, "the window must be a vector");
    c.require(c.b.count(c.in(1)).is_constant(1) && (!c.has(3) || c.b.count(c.in(3)).is_constant(1)),
              "frame step and frame length must be scalars");
    const Expr hop = c.b.read_int(c.in(1));
    const Expr frame = c.has(3) ? c.b.read_int(c.in(3)) : c.shape(2)[0];
    const Expr all_bins = onesided ? floor_div(frame, 2) + 1 : frame;
    const Expr frames = floor_div(x[1] - frame, hop) + 1;
    c.require(!(hop.is_constant() && hop.constant() < 1) && !(frame.is_constant() && frame.constant() < 1),
              fmt::format("frames of {} every {} elements", frame.text(), hop.text()));
    if (!hop.is_constant() || !frame.is_constant() ||
        all_bins.constant() * 2 > kTableLimit / (frame.constant() * parts)) {
        const std::vector<ValueId> inputs = {c.in(0), c.in(1), c.has(2) ? c.in(2) : ValueId{},
                                             c.has(3) ? c.in(3) : ValueId{}};
        const Dims shape = {x[0], frames, all_bins, 2};
        return c.out(0, c.b.emit_opaque(opaque::stft(onesided), inputs, {{c.dtype(0), shape}}, "stft").front());
    }
    Transform t;
    t.length = t.read = frame.constant();
    t.parts = parts;
    t.bins = all_bins.constant();

    const DType storage = c.dtype(0);
    ValueId table = c.b.constant(transform_table(t, compute_type(storage)), "table");
    if (c.has(2)) {
        const Dims& w = c.shape(2);
        const std::string misfit =
            fmt::format("a window of shape {} does not fit frames of {}", to_string(w), t.length);
        c.require(w.size() == 1, misfit);
        c.b.require_equal(w[0], t.length, misfit);
        const ValueId window = c.b.reshape(c.b.cast(c.in(2), c.b.dtype(table)), {t.length, 1, 1, 1});
        table = c.b.binary(ScalarOp::Mul, table, window);
    }
    TensorExpr e;
    e.extents = {x[0], frames, t.bins, 2, t.length};
    e.spatial = 4;
    const Expr part = t.parts == 1 ? Expr(0) : axis(5);
    if (t.parts > 1) e.extents.emplace_back(t.parts);
    e.reducer = Reducer::Sum;
    Access signal{c.in(0), {axis(0), axis(1) * hop + axis(4)}, {}, 0};
    if (x.size() == 3) signal.index.push_back(part);
    e.accesses = {std::move(signal), {table, {axis(4), part, axis(2), axis(3)}, {}, 0}};
    e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, storage), e.body.access(1, c.b.dtype(table))));
    c.out(0, c.b.emit(std::move(e), storage, "transform"));
}

// --- MelWeightMatrix

void mel_weights(NodeContext& c) {
    std::vector<ValueId> inputs;
    for (size_t k = 0; k < 5; ++k) inputs.push_back(c.in(k));
    for (const ValueId v : inputs) c.require(c.b.count(v).is_constant(1), "all inputs must be scalars");
    const Expr bands = c.b.read_int(inputs[0]), length = c.b.read_int(inputs[1]);
    const DType t = c.dtype_attr("output_datatype").value_or(DType::F32);
    c.out(0, c.b.emit_opaque(opaque::mel_weights(), inputs, {{t, {floor_div(length, 2) + 1, bands}}}, "mel").front());
}

}  // namespace

std::vector<OpLowering> signal_lowerings() {
    return {
        {"", "DFT", 17, dft},
        {"", "MelWeightMatrix", 17, mel_weights},
        {"", "STFT", 17, stft},
    };
}

}  // namespace tilewright
