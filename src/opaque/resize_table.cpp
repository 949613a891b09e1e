#include "opaque/resize_table.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "opaque/text.h"
#include "runtime/memory_limit.h"

namespace tilewright {

namespace {

/// The centre of output element x in input coordinates.
double source_position(const ResizeOptions& o, int64_t x, int64_t in, int64_t out, double scale, double roi_start,
                       double roi_end) {
    const auto p = static_cast<double>(x), length = static_cast<double>(in);
    const double resized = scale * length;  // not rounded, as in the definition
    const double centre = (p + 0.5) / scale - 0.5;
    switch (o.coordinates) {
        case ResizeCoordinates::HalfPixel:
            return centre;
        case ResizeCoordinates::HalfPixelSymmetric:
            return length / 2 * (1 - static_cast<double>(out) / resized) + centre;
        case ResizeCoordinates::PytorchHalfPixel:
            return out > 1 ? centre : 0;
        case ResizeCoordinates::AlignCorners:
            return resized == 1 ? 0 : p * (length - 1) / (resized - 1);
        case ResizeCoordinates::Asymmetric:
            return p / scale;
        case ResizeCoordinates::TfHalfPixelForNn:
            return (p + 0.5) / scale;
        case ResizeCoordinates::TfCropAndResize:
            break;
    }
    const double size = roi_end - roi_start;
    const double from_start = resized == 1 ? size * (length - 1) / 2 : p * size * (length - 1) / (resized - 1);
    return roi_start * (length - 1) + from_start;
}

double nearest(NearestMode mode, double x, double scale) {
    switch (mode) {
        case NearestMode::CeilToShrink:
            return scale < 1 ? std::ceil(x) : std::floor(x);
        case NearestMode::Floor:
            return std::floor(x);
        case NearestMode::Ceil:
            return std::ceil(x);
        case NearestMode::RoundPreferFloor:
            return std::ceil(x - 0.5);
        case NearestMode::RoundPreferCeil:
            break;
    }
    return std::floor(x + 0.5);
}

/// The weight of an element at distance d: linear, or Keys' cubic convolution kernel (1981).
double kernel(const ResizeOptions& o, double d) {
    d = std::fabs(d);
    if (o.mode == ResizeMode::Linear) return std::max(0.0, 1 - d);
    const double a = o.cubic_a;
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

/// The kernel's radius in elements; it is larger for a shrinking antialiased axis.
int64_t half_width(const ResizeOptions& o, double scale) {
    const double reach = o.mode == ResizeMode::Cubic ? 2 : 1;
    return static_cast<int64_t>(o.antialias && scale < 1 ? std::min(std::ceil(reach / scale), 1e15) : reach);
}

double number_at(const TensorView& v, int64_t i) {
    const Tensor t(v.dtype, Shape(v.shape.begin(), v.shape.end()), v.data, std::shared_ptr<const void>());
    return t.get(i);
}

class ResizeTableOp final : public OpaqueOp {
  public:
    ResizeTableOp(const ResizeOptions& o, size_t position, DType weights)
        : o_(o), position_(static_cast<int64_t>(position)), weights_(weights) {}

    std::string print() const override {
        return fmt::format(
            "ResizeTable(mode={}, coordinates={}, nearest={}, policy={}, a={}, exclude_outside={}, "
            "antialias={}, by_sizes={}, position={}, weights={})",
            static_cast<int>(o_.mode), static_cast<int>(o_.coordinates), static_cast<int>(o_.nearest),
            static_cast<int>(o_.policy), o_.cubic_a, o_.exclude_outside ? 1 : 0, o_.antialias ? 1 : 0,
            o_.by_sizes ? 1 : 0, position_, to_string(weights_));
    }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &extents = inputs[0], &requested = inputs[1], &roi = inputs[2];
        const int64_t n = extents.count();
        if (requested.count() != n)
            throw ModelError(fmt::format("Resize: {} scales or sizes for {} axes", requested.count(), n));
        const int64_t in = extents.as<const int64_t>()[position_];
        const auto [out, scale] = size_of(extents, requested, in);
        double start = 0, end = 1;
        if (roi.data != nullptr && roi.count() == 2 * n) {
            start = number_at(roi, position_);
            end = number_at(roi, n + position_);
        }
        if (out < 0 || !(scale > 0 || out == 0))
            throw ModelError(
                fmt::format("Resize: {} {} for an axis of {} elements: sizes must not be negative, and "
                            "scales must be positive",
                            o_.by_sizes ? "size" : "scale", o_.by_sizes ? static_cast<double>(out) : scale, in));
        if (in == 0 && out > 0) throw ModelError(fmt::format("Resize: an empty axis cannot grow to {}", out));
        const ResizeTable table = resize_table(o_, in, out, scale, start, end);
        const std::array<int64_t, 2> shape = {table.out, table.taps};
        std::ranges::copy(table.index, outputs.allocate(0, shape).as<int64_t>());
        const TensorView w = outputs.allocate(1, shape);
        for (size_t i = 0; i < table.weight.size(); ++i) {
            if (weights_ == DType::F64)
                w.as<double>()[i] = table.weight[i];
            else
                w.as<float>()[i] = static_cast<float>(table.weight[i]);
        }
        auto* inside = outputs.allocate(2, std::array<int64_t, 1>{table.out}).as<uint8_t>();
        for (size_t i = 0; i < table.inside.size(); ++i) inside[i] = table.inside[i] ? 1 : 0;
    }

  private:
    std::pair<int64_t, double> size_of(const TensorView& extents, const TensorView& requested, int64_t in) const {
        if (!o_.by_sizes) {
            const auto scale = static_cast<float>(number_at(requested, position_));
            return {static_cast<int64_t>(std::floor(static_cast<float>(in) * scale)), static_cast<double>(scale)};
        }
        const auto ratio = [&](int64_t k) {
            return number_at(requested, k) / static_cast<double>(extents.as<const int64_t>()[k]);
        };
        if (o_.policy == AspectPolicy::Stretch)
            return {static_cast<int64_t>(number_at(requested, position_)), in == 0 ? 1 : ratio(position_)};
        double scale = ratio(0);
        for (int64_t k = 1; k < extents.count(); ++k)
            scale = o_.policy == AspectPolicy::NotLarger ? std::min(scale, ratio(k)) : std::max(scale, ratio(k));
        return {static_cast<int64_t>(std::floor(scale * static_cast<double>(in) + 0.5)), scale};
    }

    ResizeOptions o_;
    int64_t position_;
    DType weights_;
};

}  // namespace

ResizeTable resize_table(const ResizeOptions& o, int64_t in, int64_t out, double scale, double roi_start,
                         double roi_end) {
    ResizeTable table;
    table.out = out;
    const bool stretched = o.antialias && o.mode != ResizeMode::Nearest;
    const double shrink = stretched ? std::min(scale, 1.0) : 1.0;
    const int64_t half = half_width(o, scale);
    table.taps = o.mode == ResizeMode::Nearest ? 1 : 2 * half;
    // The table, and the tensors into which it is copied.
    const double bytes = static_cast<double>(out) * (static_cast<double>(table.taps) * 32 + 2);
    require_memory(static_cast<uint64_t>(std::min(bytes, 1e18)),
                   fmt::format("the table of a Resize from {} to {} elements", in, out));
    const auto clamped = [&](int64_t i) { return std::clamp<int64_t>(i, 0, in - 1); };
    for (int64_t x = 0; x < out; ++x) {
        const double at = source_position(o, x, in, out, scale, roi_start, roi_end);
        const bool crop = o.coordinates == ResizeCoordinates::TfCropAndResize;
        table.inside.push_back(!crop || (at >= 0 && at <= static_cast<double>(in - 1)));
        // Positions far outside all read the border: clamped before conversion to integers.
        const double bounded = std::clamp(at, -1.0 - static_cast<double>(half), static_cast<double>(in + half));
        if (o.mode == ResizeMode::Nearest) {
            table.index.push_back(clamped(static_cast<int64_t>(nearest(o.nearest, bounded, scale))));
            table.weight.push_back(1);
            continue;
        }
        const auto below = static_cast<int64_t>(std::ceil(bounded)) - 1;  // the last element before the position
        double sum = 0;
        const size_t first = table.weight.size();
        for (int64_t i = below + 1 - half; i <= below + half; ++i) {
            const bool drop = o.exclude_outside && (i < 0 || i >= in);
            const double w = drop ? 0 : kernel(o, (static_cast<double>(i) - bounded) * shrink);
            table.index.push_back(clamped(i));
            table.weight.push_back(w);
            sum += w;
        }
        if (stretched || o.exclude_outside)
            for (size_t k = first; k < table.weight.size(); ++k) table.weight[k] /= sum;
    }
    return table;
}

int64_t fixed_taps(const ResizeOptions& o) {
    if (o.mode == ResizeMode::Nearest) return 1;
    if (o.antialias) return 0;
    return o.mode == ResizeMode::Linear ? 2 : 4;
}

std::shared_ptr<const OpaqueOp> resize_table_op(const ResizeOptions& options, size_t position, DType weights) {
    return std::make_shared<ResizeTableOp>(options, position, weights);
}

namespace {

/// The inverse of ResizeTableOp::print.
std::shared_ptr<const OpaqueOp> read_resize_table(const OpaqueText& t) {
    ResizeOptions o;
    o.mode = t.choice<ResizeMode>("mode", 3);
    o.coordinates = t.choice<ResizeCoordinates>("coordinates", 7);
    o.nearest = t.choice<NearestMode>("nearest", 5);
    o.policy = t.choice<AspectPolicy>("policy", 3);
    o.cubic_a = t.number("a");
    o.exclude_outside = t.flag("exclude_outside");
    o.antialias = t.flag("antialias");
    o.by_sizes = t.flag("by_sizes");
    return resize_table_op(o, static_cast<size_t>(t.integer("position")), t.dtype("weights"));
}

}  // namespace

std::vector<OpaqueReader> resize_readers() { return {{"ResizeTable", read_resize_table}}; }

}  // namespace tilewright
