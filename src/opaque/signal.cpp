// Fourier transforms of any length, and operators built on them: DFT, STFT, MelWeightMatrix.

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"
#include "opaque/view.h"

namespace tilewright {

namespace {

// --- DFT of any length

using Complex = std::complex<double>;

/// Cooley-Tukey recursion over the smallest prime factor of n; `roots` are the N-th roots of unity, of which every (N /
/// n)-th is used.
void fourier(const Complex* in, int64_t stride, Complex* out, int64_t n, const std::vector<Complex>& roots) {
    if (n == 1) {
        out[0] = in[0];
        return;
    }
    int64_t p = 2;
    while (p * p <= n && n % p != 0) ++p;
    if (n % p != 0) p = n;
    const int64_t m = n / p, whole = static_cast<int64_t>(roots.size()), step = whole / n;
    for (int64_t r = 0; r < p; ++r) fourier(in + r * stride, stride * p, out + r * m, m, roots);
    std::vector<Complex> sums(static_cast<size_t>(n));
    for (int64_t k = 0; k < n; ++k)
        for (int64_t r = 0; r < p; ++r)
            sums[static_cast<size_t>(k)] += out[r * m + k % m] * roots[static_cast<size_t>(r * k % n * step)];
    std::copy(sums.begin(), sums.end(), out);
}

/// Inputs: the signal, [..., length along axis, ..., 1 or 2], the transform's length (an optional scalar), and the axis
/// unless it is given in the constructor.
class Dft final : public OpaqueOp {
  public:
    Dft(std::optional<int64_t> axis, bool inverse, bool onesided)
        : axis_(axis), inverse_(inverse), onesided_(onesided) {}
    std::string print() const override {
        return fmt::format("DFT({}inverse={}, onesided={})", axis_ ? fmt::format("axis={}, ", *axis_) : std::string(),
                           inverse_ ? 1 : 0, onesided_ ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const size_t along = transformed_axis(inputs);
        const int64_t have = x.shape[along], parts = x.shape.back();
        const bool half = inverse_ && onesided_;
        int64_t n = half ? 2 * (have - 1) : have;
        if (inputs.size() > 1 && inputs[1].data != nullptr) n = as_tensor(inputs[1]).get_int(0);
        if (n < 1) throw ModelError(fmt::format("DFT: a transform of length {}", n));
        Shape shape(x.shape.begin(), x.shape.end());
        shape[along] = onesided_ && !inverse_ ? n / 2 + 1 : n;
        shape.back() = half ? 1 : 2;
        const TensorView y = outputs.allocate(0, shape);

        std::vector<Complex> roots, line(static_cast<size_t>(n)), result(line.size());
        for (int64_t k = 0; k < n; ++k)
            roots.push_back(std::polar(
                1.0, (inverse_ ? 2 : -2) * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)));
        const Lines in(x.shape.first(x.shape.size() - 1), along);
        const std::vector<double> signal = as_doubles(x);
        std::vector<double> out(static_cast<size_t>(y.count()));
        const double scale = inverse_ ? 1 / static_cast<double>(n) : 1;
        for (int64_t o = 0; o < in.outer; ++o)
            for (int64_t i = 0; i < in.inner; ++i) {
                const auto element = [&](int64_t k) {
                    const auto at = static_cast<size_t>(((o * have + k) * in.inner + i) * parts);
                    return Complex(signal[at], parts == 2 ? signal[at + 1] : 0);
                };
                for (int64_t k = 0; k < n; ++k) {
                    Complex v = k < have ? element(k) : Complex();
                    if (half && 2 * k > n) v = n - k < have ? std::conj(element(n - k)) : Complex();
                    line[static_cast<size_t>(k)] = v;
                }
                fourier(line.data(), 1, result.data(), n, roots);
                for (int64_t k = 0; k < shape[along]; ++k) {
                    const Complex v = result[static_cast<size_t>(k)] * scale;
                    const auto at = static_cast<size_t>(((o * shape[along] + k) * in.inner + i) * shape.back());
                    out[at] = v.real();
                    if (!half) out[at + 1] = v.imag();
                }
            }
        store_doubles(y, out);
    }

  private:
    size_t transformed_axis(std::span<const TensorView> inputs) const {
        if (axis_) return static_cast<size_t>(*axis_);
        const auto rank = static_cast<int64_t>(inputs[0].shape.size());
        const int64_t axis = as_tensor(inputs[2]).get_int(0);
        if (axis < -rank || axis == -1 || axis >= rank - 1)
            throw ModelError(fmt::format("DFT: axis {} of a signal of rank {}", axis, rank));
        return static_cast<size_t>(axis < 0 ? axis + rank : axis);
    }

    std::optional<int64_t> axis_;
    bool inverse_, onesided_;
};

// --- STFT

/// Inputs: signal [batch, length, 1 or 2] (or [batch, length]), frame step, window and frame length (at least one of
/// the two). Output: [batch, frames, bins, 2].
class Stft final : public OpaqueOp {
  public:
    explicit Stft(bool onesided) : onesided_(onesided) {}
    std::string print() const override { return fmt::format("STFT(onesided={})", onesided_ ? 1 : 0); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const int64_t parts = x.shape.size() == 3 ? x.shape[2] : 1, step = as_tensor(inputs[1]).get_int(0);
        const bool windowed = inputs[2].data != nullptr;
        const int64_t n = inputs[3].data != nullptr ? as_tensor(inputs[3]).get_int(0) : inputs[2].count();
        if (step < 1 || n < 1 || n > x.shape[1] || (windowed && inputs[2].count() != n))
            throw ModelError(fmt::format("STFT: frames of {} every {} elements of a signal of shape {}", n, step,
                                         to_string(x.shape)));
        const int64_t frames = (x.shape[1] - n) / step + 1, bins = onesided_ ? n / 2 + 1 : n;
        const TensorView y = outputs.allocate(0, Shape{x.shape[0], frames, bins, 2});
        std::vector<double> window(static_cast<size_t>(n), 1);
        if (windowed) window = as_doubles(inputs[2]);
        std::vector<Complex> roots, frame(window.size()), result(window.size());
        for (int64_t k = 0; k < n; ++k)
            roots.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)));
        const std::vector<double> signal = as_doubles(x);
        std::vector<double> out;
        for (int64_t b = 0; b < x.shape[0]; ++b)
            for (int64_t f = 0; f < frames; ++f) {
                for (size_t k = 0; k < frame.size(); ++k) {
                    const double* v = signal.data() + (b * x.shape[1] + f * step + static_cast<int64_t>(k)) * parts;
                    frame[k] = Complex(v[0], parts == 2 ? v[1] : 0) * window[k];
                }
                fourier(frame.data(), 1, result.data(), n, roots);
                for (int64_t k = 0; k < bins; ++k) {
                    out.push_back(result[static_cast<size_t>(k)].real());
                    out.push_back(result[static_cast<size_t>(k)].imag());
                }
            }
        store_doubles(y, out);
    }

  private:
    bool onesided_;
};

// --- MelWeightMatrix

/// Triangles between equally spaced points of the mel scale, over the bins of a transform. Inputs, all scalars: number
/// of bands, length of the transform, sample rate, lower and upper edge in Hertz. Output: [length / 2 + 1, bands].
class MelWeights final : public OpaqueOp {
  public:
    std::string print() const override { return "MelWeightMatrix()"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const int64_t bands = as_tensor(inputs[0]).get_int(0), length = as_tensor(inputs[1]).get_int(0);
        const double rate = as_tensor(inputs[2]).get(0);
        const double lowest = mel(as_tensor(inputs[3]).get(0)), highest = mel(as_tensor(inputs[4]).get(0));
        if (bands < 0 || length < 0 || !(rate > 0))
            throw ModelError(fmt::format("MelWeightMatrix: {} bands of a transform of {}", bands, length));
        const int64_t rows = length / 2 + 1;
        const TensorView y = outputs.allocate(0, Shape{rows, bands});  // throws if memory does not suffice
        std::vector<int64_t> bin;
        for (int64_t k = 0; k < bands + 2; ++k) {
            const double m = lowest + static_cast<double>(k) * (highest - lowest) / static_cast<double>(bands + 2);
            const double hertz = 700 * (std::pow(10, m / 2595) - 1);
            bin.push_back(static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / rate)));
        }
        std::vector<double> out(static_cast<size_t>(y.count()), 0);
        for (int64_t b = 0; b < bands; ++b) {
            const auto k = static_cast<size_t>(b);
            const int64_t first = bin[k], peak = bin[k + 1], end = bin[k + 2];
            for (int64_t j = std::max<int64_t>(first, 0); j < std::min(std::max(end, peak + 1), rows); ++j) {
                const double rising = peak == first ? 1 : ratio(j - first, peak - first);
                out[static_cast<size_t>(j * bands + b)] =
                    j < peak || (j == peak && end <= peak) ? rising : ratio(end - j, end - peak);
            }
        }
        store_doubles(y, out);
    }

  private:
    static double mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
    static double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }
};

}  // namespace

namespace opaque {

Operator dft(std::optional<int64_t> axis, bool inverse, bool onesided) {
    return std::make_shared<Dft>(axis, inverse, onesided);
}
Operator stft(bool onesided) { return std::make_shared<Stft>(onesided); }
Operator mel_weights() { return std::make_shared<MelWeights>(); }

}  // namespace opaque

std::vector<OpaqueReader> signal_readers() {
    return {
        {"DFT",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<Dft>(t.has("axis") ? std::optional(t.integer("axis")) : std::nullopt,
                                          t.flag("inverse"), t.flag("onesided"));
         }},
        {"STFT", [](const OpaqueText& t) -> OpaquePointer { return std::make_shared<Stft>(t.flag("onesided")); }},
        {"MelWeightMatrix", [](const OpaqueText&) -> OpaquePointer { return std::make_shared<MelWeights>(); }},
    };
}

}  // namespace tilewright
