// Image operators: sampling at data-dependent positions (GridSample, RoiAlign, the columns of DeformConv), and the sum
// of overlapping patches (Col2Im).

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"
#include "opaque/view.h"

namespace tilewright {

namespace {

// --- GridSample

using opaque::Border;
using opaque::Sampling;
constexpr std::string_view kSamplings[] = {"nearest", "linear", "cubic"};
constexpr std::string_view kBorders[] = {"zeros", "border", "reflection"};

/// Weights of a few adjacent elements along one axis. Index -1: out of bounds, which counts as 0.
struct Taps {
    std::array<int64_t, 4> index{};
    std::array<double, 4> weight{};
    size_t count = 0;
    void add(int64_t i, double w) {
        index[count] = i;
        weight[count++] = w;
    }
};

/// Mirrors x into [lo, hi].
double reflected(double x, double lo, double hi) {
    const double span = hi - lo;
    if (!(span > 0)) return lo;
    const double turns = std::floor((x - lo) / span), rest = x - lo - turns * span;
    return std::fmod(turns, 2) == 0 ? lo + rest : hi - rest;
}

/// The weights of Keys' cubic convolution (a = -0.75) at distance t after the second of four elements.
std::array<double, 4> cubic_weights(double t) {
    constexpr double a = -0.75;
    const auto near = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

/// out[n, c, p...] = x[n, c, at grid[n, p..., :]]; the grid's last dimension lists the image's axes from the last to
/// the first, with its ends at -1 and 1 (align_corners: the centres of the end elements).
class GridSample final : public OpaqueOp {
  public:
    GridSample(Sampling mode, Border border, bool corners) : mode_(mode), border_(border), corners_(corners) {}
    std::string print() const override {
        return fmt::format("GridSample(mode={}, padding_mode={}, align_corners={})",
                           kSamplings[static_cast<size_t>(mode_)], kBorders[static_cast<size_t>(border_)],
                           corners_ ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &x = inputs[0], &grid = inputs[1];
        const size_t dims = x.shape.size() - 2;
        if (grid.shape.size() != x.shape.size() || grid.shape.back() != static_cast<int64_t>(dims) ||
            grid.shape[0] != x.shape[0])
            throw ModelError(fmt::format("GridSample: an input of shape {} and a grid of shape {}", to_string(x.shape),
                                         to_string(grid.shape)));
        Shape shape = {x.shape[0], x.shape[1]};
        shape.insert(shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
        const TensorView y = outputs.allocate(0, shape);
        const std::vector<double> image = as_doubles(x), places = as_doubles(grid);
        const int64_t channels = x.shape[1], pixels = elements(x.shape.subspan(2));
        const int64_t points = elements(std::span(shape).subspan(2));
        std::vector<double> out(static_cast<size_t>(y.count()));
        std::vector<Taps> taps(dims);
        for (int64_t n = 0; n < shape[0]; ++n)
            for (int64_t p = 0; p < points; ++p) {
                const double* place = places.data() + (n * points + p) * static_cast<int64_t>(dims);
                for (size_t k = 0; k < dims; ++k) taps[k] = along(place[dims - 1 - k], x.shape[2 + k]);
                for (int64_t c = 0; c < channels; ++c) {
                    const double* plane = image.data() + (n * channels + c) * pixels;
                    out[static_cast<size_t>((n * channels + c) * points + p)] = blend(plane, x.shape, taps, 0, 0);
                }
            }
        store_doubles(y, out);
    }

  private:
    Taps along(double place, int64_t size) const {
        const auto d = static_cast<double>(size);
        double at = corners_ ? (place + 1) / 2 * (d - 1) : ((place + 1) * d - 1) / 2;
        Taps t;
        if (!std::isfinite(at)) at = -1;
        // Positions near the image can be rounded to integers; positions further away do not reach it.
        if (mode_ != Sampling::Cubic) at = bordered(at, d);
        at = std::clamp(at, -1e9, 1e9);
        if (mode_ == Sampling::Nearest) {
            t.add(inside(std::nearbyint(at), size), 1);
            return t;
        }
        const double low = std::floor(at), f = at - low;
        if (mode_ == Sampling::Linear) {
            t.add(inside(low, size), 1 - f);
            t.add(inside(low + 1, size), f);
            return t;
        }
        const std::array<double, 4> w = cubic_weights(f);
        for (size_t k = 0; k < 4; ++k) t.add(inside(bordered(low - 1 + static_cast<double>(k), d), size), w[k]);
        return t;
    }

    /// The replacement for positions outside the image.
    double bordered(double at, double d) const {
        if (border_ == Border::Edge) return std::clamp(at, 0.0, d - 1);
        if (border_ == Border::Zeros) return at;
        const double r = corners_ ? reflected(at, 0, d - 1) : reflected(at, -0.5, d - 0.5);
        return std::clamp(r, 0.0, d - 1);
    }

    static int64_t inside(double at, int64_t size) {
        const auto i = static_cast<int64_t>(std::nearbyint(at));
        return i >= 0 && i < size ? i : -1;
    }

    static double blend(const double* plane, std::span<const int64_t> shape, const std::vector<Taps>& taps, size_t k,
                        int64_t at) {
        if (k == taps.size()) return plane[at];
        double sum = 0;
        for (size_t t = 0; t < taps[k].count; ++t)
            if (taps[k].index[t] >= 0)
                sum += taps[k].weight[t] * blend(plane, shape, taps, k + 1, at * shape[2 + k] + taps[k].index[t]);
        return sum;
    }

    Sampling mode_;
    Border border_;
    bool corners_;
};

// --- RoiAlign

/// The value at (y, x) between the four elements around it, 0 outside the image.
double bilinear(const double* plane, int64_t h, int64_t w, double y, double x) {
    const auto y0 = static_cast<int64_t>(std::floor(y)), x0 = static_cast<int64_t>(std::floor(x));
    const double fy = y - static_cast<double>(y0), fx = x - static_cast<double>(x0);
    const auto at = [&](int64_t r, int64_t q) { return r >= 0 && r < h && q >= 0 && q < w ? plane[r * w + q] : 0.0; };
    return (1 - fy) * ((1 - fx) * at(y0, x0) + fx * at(y0, x0 + 1)) +
           fy * ((1 - fx) * at(y0 + 1, x0) + fx * at(y0 + 1, x0 + 1));
}

using opaque::RoiOptions;

/// Regions of an image, each resampled to one size: the mean (or maximum) of a few samples in every cell. Inputs: x [n,
/// c, h, w], rois [r, 4] (x0, y0, x1, y1), and the image of each [r].
class RoiAlign final : public OpaqueOp {
  public:
    explicit RoiAlign(const RoiOptions& o) : o_(o) {}
    std::string print() const override {
        return fmt::format(
            "RoiAlign(mode={}, output_height={}, output_width={}, sampling_ratio={}, spatial_scale={}, half_pixel={})",
            o_.max ? "max" : "avg", o_.height, o_.width, o_.samples, o_.scale, o_.half_pixel ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const int64_t regions = inputs[1].shape[0], channels = x.shape[1];
        const std::vector<double> image = as_doubles(x), rois = as_doubles(inputs[1]);
        const Tensor batch = as_tensor(inputs[2]);
        if (inputs[1].count() != regions * 4 || batch.count() != regions)
            throw ModelError(fmt::format("RoiAlign: regions of shape {} in images of shape {}",
                                         to_string(inputs[1].shape), to_string(inputs[2].shape)));
        double samples = 0;
        for (int64_t r = 0; r < regions; ++r) samples += cells_of(rois.data() + r * 4).samples();
        require_operations(
            samples * static_cast<double>(channels) * static_cast<double>(o_.height) * static_cast<double>(o_.width),
            "RoiAlign");
        const TensorView y = outputs.allocate(0, Shape{regions, channels, o_.height, o_.width});
        std::vector<double> out;
        for (int64_t r = 0; r < regions; ++r) {
            const int64_t n = batch.get_int(r);
            if (n < 0 || n >= x.shape[0])
                throw ModelError(fmt::format("RoiAlign: image {} of a batch of {}", n, x.shape[0]));
            for (int64_t c = 0; c < channels; ++c)
                region(image.data() + (n * channels + c) * x.shape[2] * x.shape[3], x.shape[2], x.shape[3],
                       rois.data() + r * 4, out);
        }
        store_doubles(y, out);
    }

  private:
    /// A region's upper left corner, the size of its cells, and the number of samples per axis.
    struct Cells {
        double x0 = 0, y0 = 0, width = 0, height = 0;
        int64_t rows = 0, columns = 0;
        double samples() const { return static_cast<double>(rows) * static_cast<double>(columns); }
    };
    Cells cells_of(const double* roi) const {
        const double shift = o_.half_pixel ? 0.5 : 0;
        const double x0 = roi[0] * o_.scale - shift, y0 = roi[1] * o_.scale - shift;
        double width = roi[2] * o_.scale - shift - x0, height = roi[3] * o_.scale - shift - y0;
        if (!o_.half_pixel) {
            width = std::max(width, 1.0);
            height = std::max(height, 1.0);
        }
        const double cell_h = height / static_cast<double>(o_.height), cell_w = width / static_cast<double>(o_.width);
        return {x0,
                y0,
                cell_w,
                cell_h,
                o_.samples > 0 ? o_.samples : sample_count(cell_h),
                o_.samples > 0 ? o_.samples : sample_count(cell_w)};
    }

    void region(const double* plane, int64_t h, int64_t w, const double* roi, std::vector<double>& out) const {
        const auto [x0, y0, cell_w, cell_h, rows, columns] = cells_of(roi);
        for (int64_t i = 0; i < o_.height; ++i)
            for (int64_t j = 0; j < o_.width; ++j) {
                double sum = 0, most = -std::numeric_limits<double>::infinity();
                for (int64_t a = 0; a < rows; ++a)
                    for (int64_t b = 0; b < columns; ++b) {
                        const double y = y0 + cell_h * (static_cast<double>(i) + middle(a, rows));
                        const double x = x0 + cell_w * (static_cast<double>(j) + middle(b, columns));
                        if (o_.max)
                            most = std::max(most, peak(plane, h, w, y, x));
                        else
                            sum += clamped(plane, h, w, y, x);
                    }
                const auto n = static_cast<double>(rows * columns);
                out.push_back(o_.max ? (n > 0 ? most : 0) : sum / std::max(n, 1.0));
            }
    }

    static int64_t sample_count(double cell) {
        return std::isfinite(cell) ? static_cast<int64_t>(std::ceil(std::clamp(cell, 0.0, 1e4))) : 0;
    }
    static double middle(int64_t k, int64_t n) { return (static_cast<double>(k) + 0.5) / static_cast<double>(n); }

    /// Samples up to one element outside read the edge; beyond that they are 0.
    static bool outside(double y, double x, int64_t h, int64_t w) {
        return !(y >= -1 && x >= -1 && y <= static_cast<double>(h) && x <= static_cast<double>(w));
    }
    static double clamped(const double* plane, int64_t h, int64_t w, double y, double x) {
        if (outside(y, x, h, w)) return 0;
        return bilinear(plane, h, w, std::clamp(y, 0.0, static_cast<double>(h - 1)),
                        std::clamp(x, 0.0, static_cast<double>(w - 1)));
    }
    /// The largest of the four weighted elements around a sample, as in the operator's first implementation.
    static double peak(const double* plane, int64_t h, int64_t w, double y, double x) {
        if (outside(y, x, h, w)) return 0;
        y = std::clamp(y, 0.0, static_cast<double>(h - 1));
        x = std::clamp(x, 0.0, static_cast<double>(w - 1));
        const auto r = static_cast<int64_t>(y), q = static_cast<int64_t>(x);
        const int64_t r1 = std::min(r + 1, h - 1), q1 = std::min(q + 1, w - 1);
        const double fy = y - static_cast<double>(r), fx = x - static_cast<double>(q);
        return std::max({(1 - fy) * (1 - fx) * plane[r * w + q], (1 - fy) * fx * plane[r * w + q1],
                         fy * (1 - fx) * plane[r1 * w + q], fy * fx * plane[r1 * w + q1]});
    }

    RoiOptions o_;
};

// --- DeformConv

/// The columns of a convolution whose taps are displaced by offsets and weighted by a mask: x [n, c, h, w] and offsets
/// [n, groups * 2 * kh * kw, oh, ow]   ->   [n, c, kh, kw, oh, ow]
class DeformedColumns final : public OpaqueOp {
  public:
    DeformedColumns(std::vector<int64_t> kernel, std::vector<int64_t> strides, std::vector<int64_t> dilations,
                    std::vector<int64_t> pads, int64_t groups)
        : kernel_(std::move(kernel)),
          strides_(std::move(strides)),
          dilations_(std::move(dilations)),
          pads_(std::move(pads)),
          groups_(groups) {}
    std::string print() const override {
        return fmt::format("DeformedColumns(kernel_shape={}, strides={}, dilations={}, pads={}, offset_group={})",
                           to_string(std::span(kernel_)), to_string(std::span(strides_)),
                           to_string(std::span(dilations_)), to_string(std::span(pads_)), groups_);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &x = inputs[0], &offsets = inputs[1];
        const bool masked = inputs.size() > 2 && inputs[2].data != nullptr;
        const int64_t taps = kernel_[0] * kernel_[1], channels = x.shape[1], h = x.shape[2], w = x.shape[3];
        const int64_t oh = offsets.shape[2], ow = offsets.shape[3];
        if (offsets.shape[0] != x.shape[0] || offsets.shape[1] != groups_ * 2 * taps || channels % groups_ != 0 ||
            (masked && inputs[2].count() != x.shape[0] * groups_ * taps * oh * ow))
            throw ModelError(fmt::format("DeformConv: offsets of shape {} do not fit an input of shape {}",
                                         to_string(offsets.shape), to_string(x.shape)));
        const TensorView y = outputs.allocate(0, Shape{x.shape[0], channels, kernel_[0], kernel_[1], oh, ow});
        const std::vector<double> image = as_doubles(x), shift = as_doubles(offsets);
        const std::vector<double> mask = masked ? as_doubles(inputs[2]) : std::vector<double>();
        std::vector<double> out;
        out.reserve(static_cast<size_t>(y.count()));
        for (int64_t n = 0; n < x.shape[0]; ++n)
            for (int64_t c = 0; c < channels; ++c) {
                const double* plane = image.data() + (n * channels + c) * h * w;
                const int64_t group = n * groups_ + c / (channels / groups_);
                for (int64_t tap = 0; tap < taps; ++tap)
                    for (int64_t p = 0; p < oh * ow; ++p) {
                        const double* d = shift.data() + (group * taps + tap) * 2 * oh * ow + p;
                        const int64_t r = p / ow * strides_[0] + tap / kernel_[1] * dilations_[0] - pads_[0];
                        const int64_t q = p % ow * strides_[1] + tap % kernel_[1] * dilations_[1] - pads_[1];
                        const double row = static_cast<double>(r) + d[0], column = static_cast<double>(q) + d[oh * ow];
                        const bool seen =
                            row > -1 && column > -1 && row < static_cast<double>(h) && column < static_cast<double>(w);
                        const double v = seen ? bilinear(plane, h, w, row, column) : 0;
                        out.push_back(masked ? v * mask[static_cast<size_t>((group * taps + tap) * oh * ow + p)] : v);
                    }
            }
        store_doubles(y, out);
    }

  private:
    std::vector<int64_t> kernel_, strides_, dilations_, pads_;
    int64_t groups_;
};

// --- Col2Im

/// Patches [n, c * taps, places] summed where they overlap: [n, c, image...]. Any number of spatial dimensions.
class Col2Im final : public OpaqueOp {
  public:
    Col2Im(std::vector<int64_t> strides, std::vector<int64_t> dilations, std::vector<int64_t> pads)
        : strides_(std::move(strides)), dilations_(std::move(dilations)), pads_(std::move(pads)) {}
    std::string print() const override {
        return fmt::format("Col2Im(strides={}, dilations={}, pads={})", to_string(std::span(strides_)),
                           to_string(std::span(dilations_)), to_string(std::span(pads_)));
    }
    /// Inputs: patches, the image's dimensions, a patch's dimensions.
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const std::vector<int64_t> image = as_tensor(inputs[1]).to_ints(), block = as_tensor(inputs[2]).to_ints();
        const size_t dims = strides_.size();
        std::vector<int64_t> counts;
        for (size_t k = 0; k < dims; ++k)
            counts.push_back(
                (image[k] + pads_[k] + pads_[dims + k] - dilations_[k] * (block[k] - 1) - 1) / strides_[k] + 1);
        const int64_t taps = elements(block), places = elements(counts), pixels = elements(image);
        if (taps < 1 || x.shape[1] % taps != 0 || x.shape[2] != places)
            throw ModelError(fmt::format("Col2Im: patches of shape {} do not cover an image of {} with blocks of {}",
                                         to_string(x.shape), to_string(std::span(image)), to_string(std::span(block))));
        Shape shape = {x.shape[0], x.shape[1] / taps};
        shape.insert(shape.end(), image.begin(), image.end());
        const TensorView y = outputs.allocate(0, shape);
        const std::vector<double> patches = as_doubles(x);
        std::vector<double> out(static_cast<size_t>(y.count()), 0);
        for (int64_t row = 0; row < x.shape[0] * x.shape[1]; ++row)
            for (int64_t p = 0; p < places; ++p) {
                const int64_t to = target(row % taps, p, image, block, counts);
                if (to >= 0)
                    out[static_cast<size_t>(row / taps * pixels + to)] +=
                        patches[static_cast<size_t>(row * places + p)];
            }
        store_doubles(y, out);
    }

  private:
    /// The pixel of element `tap` of patch `place`, or -1 in the padding.
    int64_t target(int64_t tap, int64_t place, const std::vector<int64_t>& image, const std::vector<int64_t>& block,
                   const std::vector<int64_t>& counts) const {
        int64_t at = 0, stride = 1;
        for (size_t k = image.size(); k-- > 0;) {
            const int64_t i = place % counts[k] * strides_[k] + tap % block[k] * dilations_[k] - pads_[k];
            if (i < 0 || i >= image[k]) return -1;
            at += i * stride;
            stride *= image[k];
            place /= counts[k];
            tap /= block[k];
        }
        return at;
    }

    std::vector<int64_t> strides_, dilations_, pads_;
};

/// The inverse of RoiAlign::print.
RoiOptions roi_options(const OpaqueText& t) {
    RoiOptions o;
    o.height = t.integer("output_height");
    o.width = t.integer("output_width");
    o.samples = t.integer("sampling_ratio");
    o.scale = t.number("spatial_scale");
    o.max = t.text("mode") == "max";
    o.half_pixel = t.flag("half_pixel");
    return o;
}

}  // namespace

namespace opaque {

Operator grid_sample(Sampling mode, Border border, bool align_corners) {
    return std::make_shared<GridSample>(mode, border, align_corners);
}
Operator roi_align(const RoiOptions& options) { return std::make_shared<RoiAlign>(options); }
Operator deformed_columns(std::vector<int64_t> kernel, std::vector<int64_t> strides, std::vector<int64_t> dilations,
                          std::vector<int64_t> pads, int64_t groups) {
    return std::make_shared<DeformedColumns>(std::move(kernel), std::move(strides), std::move(dilations),
                                             std::move(pads), groups);
}
Operator col2im(std::vector<int64_t> strides, std::vector<int64_t> dilations, std::vector<int64_t> pads) {
    return std::make_shared<Col2Im>(std::move(strides), std::move(dilations), std::move(pads));
}

}  // namespace opaque

std::vector<OpaqueReader> vision_readers() {
    return {
        {"GridSample",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<GridSample>(t.choice<Sampling>("mode", kSamplings),
                                                 t.choice<Border>("padding_mode", kBorders), t.flag("align_corners"));
         }},
        {"RoiAlign", [](const OpaqueText& t) -> OpaquePointer { return std::make_shared<RoiAlign>(roi_options(t)); }},
        {"DeformedColumns",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<DeformedColumns>(t.integers("kernel_shape"), t.integers("strides"),
                                                      t.integers("dilations"), t.integers("pads"),
                                                      t.integer("offset_group"));
         }},
        {"Col2Im",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<Col2Im>(t.integers("strides"), t.integers("dilations"), t.integers("pads"));
         }},
    };
}

}  // namespace tilewright
