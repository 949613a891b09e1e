// Kernels that are convolutions.
//
// Which axis is what, the index maps say: the filter is read at plain axes; of those, what the data does not move along
// counts filters, what both move along and is not summed counts groups, what is summed and alone in its dimension of
// the data counts channels, and what is summed beside another axis is the window.

#include <algorithm>

#include "backend/cuda/library_operands.h"
#include "program/analysis/contraction.h"

namespace tilewright::cuda {

namespace {

using AxisCoefficients = std::vector<int64_t>;

/// A dimension's index as a sum of axes: coefficients, then the constant. Nothing where it is anything else.
std::optional<AxisCoefficients> coefficients_of(Expr index, size_t axes) {
    AxisCoefficients out;
    for (size_t a = 0; a < axes; ++a) {
        const auto part = linear_in(index, Var{VarKind::Axis, static_cast<uint32_t>(a)});
        if (!part || !part->coefficient.is_constant()) return std::nullopt;
        out.push_back(part->coefficient.constant());
        index = part->rest;
    }
    if (!index.is_constant()) return std::nullopt;
    out.push_back(index.constant());
    return out;
}

/// What one dimension of the data says of a convolution.
struct SpatialDimension {
    std::optional<size_t> at, window;  ///< axes: of the result, of the filter; none: of one point
    int64_t stride = 1, dilation = 1, before = 0;
    int64_t extent = 1, distance = 0;  ///< of the data: points, elements from one to the next
};

std::vector<int64_t> packed_strides(const Program& stages, ValueId v) {
    std::vector<int64_t> out;
    int64_t distance = 1;
    const auto& shape = stages.values[v].shape;
    for (size_t d = shape.size(); d-- > 0; distance *= shape[d].constant()) out.push_back(distance);
    std::reverse(out.begin(), out.end());
    return out;
}

class ConvolutionRecognition {
  public:
    explicit ConvolutionRecognition(const TileProgram& kernel)
        : kernel_(kernel), stages_(kernel.stages), e_(*stages_.primitives[PrimitiveId(0)].expr()) {}

    std::optional<LibraryConvolution> run() {
        for (const Expr& x : e_.extents)
            if (!x.is_constant()) return std::nullopt;
        for (const auto* list : {&stages_.inputs, &stages_.outputs})
            for (const ValueId v : *list)
                for (const Expr& x : stages_.values[v].shape)
                    if (!x.is_constant() || x.constant() < 1) return std::nullopt;
        const auto c = contraction(e_);
        const auto epilogue = epilogue_of(e_, 2);
        if (!c || c->type != DType::F32 || !c->reads_plainly() || !epilogue) return std::nullopt;
        const uint32_t a = *c->factors[0].slot, b = *c->factors[1].slot;
        const auto result = strides_of(stages_, e_, output(), result_index(e_));
        if (!result) return std::nullopt;
        of_result_ = *result;
        for (const auto& [data, filter] : {std::pair(a, b), std::pair(b, a)})
            if (filter_reads_axes(filter) && data_reads_windows(data)) {
                if (auto out = assembled(*epilogue)) return out;
            }
        return std::nullopt;
    }

  private:
    size_t axes() const { return e_.extents.size(); }
    ValueId output() const { return stages_.primitives[PrimitiveId(0)].outputs[0]; }
    int64_t extent(const std::optional<size_t>& axis) const { return axis ? e_.extents[*axis].constant() : 1; }
    LibraryTensor tensor(ValueId v) const { return {tensor_of(stages_, v), stages_.values[v].dtype, {}, {}}; }

    bool filter_reads_axes(uint32_t slot) {
        const Access& a = e_.accesses[slot];
        if (!a.valid.empty()) return false;
        of_filter_.assign(axes(), 0);
        const std::vector<int64_t> distances = packed_strides(stages_, a.value);
        for (size_t d = 0; d < a.index.size(); ++d) {
            const auto c = coefficients_of(a.index[d], axes());
            if (!c || c->back() != 0) return false;
            // Axes of one dimension are its digits: windows overlap and are the data's.
            std::vector<std::pair<int64_t, int64_t>> digits;
            for (size_t x = 0; x < axes(); ++x)
                if ((*c)[x] != 0) digits.emplace_back((*c)[x], e_.extents[x].constant());
            std::sort(digits.begin(), digits.end());
            int64_t below = 1;
            for (const auto& [coefficient, extent] : digits) {
                if (coefficient != below) return false;
                below *= extent;
            }
            for (size_t x = 0; x < axes(); ++x) of_filter_[x] += (*c)[x] * distances[d];
        }
        filter_ = a.value;
        return true;
    }

    bool data_reads_windows(uint32_t slot) {
        const Access& a = e_.accesses[slot];
        if (!a.valid.empty() && a.fill != 0) return false;
        data_ = a.value;
        spatial_.clear();
        images_ = {};
        image_extent_ = 1;
        channel_ = group_ = {};
        std::vector<bool> met(axes());
        const std::vector<int64_t> distances = packed_strides(stages_, a.value);
        std::vector<Expr> allowed;  // conditions: that a spatial index is inside of the tensor
        for (size_t d = 0; d < a.index.size(); ++d) {
            const auto c = coefficients_of(a.index[d], axes());
            if (!c) return false;
            const int64_t points = stages_.values[a.value].shape[d].constant();
            std::vector<size_t> used;
            for (size_t x = 0; x < axes(); ++x)
                if ((*c)[x] != 0) {
                    if (met[x]) return false;
                    met[x] = true;
                    used.push_back(x);
                }
            const auto in_filter = [&](size_t x) { return of_filter_[x] != 0; };
            const auto summed = [&](size_t x) { return x >= e_.spatial; };
            const bool of_channels = !used.empty() && c->back() == 0 &&
                                     std::all_of(used.begin(), used.end(), in_filter) && !channel_ && !group_ &&
                                     (used.size() == 2 || (*c)[used[0]] == 1) &&
                                     (used.size() == 1 || (!summed(used[0]) && summed(used[1])));
            if (of_channels && is_channels(used, *c)) {
                channels_ = points;
                of_channels_ = distances[d];
                continue;
            }
            SpatialDimension s;
            s.extent = points;
            s.distance = distances[d];
            s.before = -c->back();
            for (const size_t x : used) {
                std::optional<size_t>& role = summed(x) ? s.window : s.at;
                if (role || (summed(x) != in_filter(x)) || (*c)[x] < 1) return false;
                role = x;
                (summed(x) ? s.dilation : s.stride) = (*c)[x];
            }
            if (s.before < 0) return false;
            if (!s.window && s.at && s.stride == 1 && s.before == 0 && image_extent_ == 1 && !images_ && d == 0) {
                images_ = s.at;
                image_extent_ = extent(s.at);
                of_images_ = s.distance;
                continue;
            }
            allowed.push_back(a.index[d]);
            allowed.push_back(points - 1 - a.index[d]);
            if (points > 1 || s.window || s.at || s.before != 0) spatial_.push_back(s);
        }
        for (const Expr& v : a.valid)
            if (std::find(allowed.begin(), allowed.end(), v) == allowed.end()) return false;
        // Every axis has its part: the filters are those that the data does not move along.
        filters_.clear();
        for (size_t x = 0; x < axes(); ++x) {
            if (e_.extents[x].is_constant(1) || met[x]) continue;
            if (x >= e_.spatial || of_filter_[x] == 0) return false;
            filters_.push_back(x);
        }
        const bool moves =
            std::any_of(spatial_.begin(), spatial_.end(), [](const SpatialDimension& s) { return s.window || s.at; });
        return moves && spatial_.size() <= 3;
    }
    /// Axes of a dimension that counts channels: groups of them, one group's, or a channel for each filter.
    bool is_channels(const std::vector<size_t>& used, const AxisCoefficients& c) {
        if (used.size() > 2) return false;
        for (const size_t x : used) (x >= e_.spatial ? channel_ : group_) = x;
        const int64_t together = extent(channel_);
        if (group_ && c[*group_] != together) return channel_ = group_ = {}, false;
        if (channel_ && c[*channel_] != 1) return channel_ = group_ = {}, false;
        return true;
    }

    std::optional<LibraryConvolution> assembled(const EpilogueOperands& epilogue) {
        // A dimension or two more where there are fewer: of one point.
        while (spatial_.size() < 2) spatial_.insert(spatial_.begin(), SpatialDimension{{}, {}, 1, 1, 0, 1, 0});
        std::vector<LibraryAxis> filters;
        for (const size_t x : filters_) filters.push_back({extent(x), {of_filter_[x], of_result_[x]}});
        auto all = merged(filters, 2);
        if (!all) return std::nullopt;
        const int64_t of_group = all->extent;
        if (group_) {  // groups are the outermost of the filters
            filters.push_back({extent(group_), {of_filter_[*group_], of_result_[*group_]}});
            if (!(all = merged(filters, 2))) return std::nullopt;
            for (size_t t = 0; of_group > 1 && t < 2; ++t)
                if (filters.back().of[t] != all->of[t] * of_group) return std::nullopt;
        }
        if (channels_ != extent(channel_) * extent(group_)) return std::nullopt;
        LibraryConvolution out;
        out.data = tensor(data_);
        out.filter = tensor(filter_);
        out.result = tensor(output());
        for (const LibraryTensor* t : {&out.data, &out.filter, &out.result})
            if (!is_library_number(t->type)) return std::nullopt;
        if (out.data.type != out.filter.type) return std::nullopt;
        const auto add = [](LibraryTensor& t, int64_t extent, int64_t stride) {
            t.extents.push_back(extent);
            t.strides.push_back(stride);
        };
        add(out.data, image_extent_, of_images_);
        add(out.data, channels_, of_channels_);
        add(out.filter, all->extent, all->of[0]);
        add(out.filter, extent(channel_), channel_ ? of_filter_[*channel_] : 0);
        add(out.result, image_extent_, images_ ? of_result_[*images_] : 0);
        add(out.result, all->extent, all->of[1]);
        for (const SpatialDimension& s : spatial_) {
            const int64_t points = extent(s.at), window = extent(s.window);
            const int64_t reached = (points - 1) * s.stride + (window - 1) * s.dilation + 1;
            // What lies behind the last window is left out, what the last window reaches behind the end is zero.
            const int64_t read = std::min(s.extent, reached - s.before);
            if (read < 1) return std::nullopt;
            add(out.data, read, s.distance);
            add(out.filter, window, s.window ? of_filter_[*s.window] : 0);
            add(out.result, points, s.at ? of_result_[*s.at] : 0);
            out.strides.push_back(s.stride);
            out.dilations.push_back(s.dilation);
            out.before.push_back(s.before);
            out.after.push_back(reached - s.before - read);
        }
        out.epilogue = epilogue.kind;
        for (const uint32_t slot : epilogue.added)
            if (!add_operand(out, slot)) return std::nullopt;
        if (out.data.type == DType::F32) out.precision = precision_of(kernel_);
        const bool channels_last = channels_ > 1 && out.data.strides[1] == 1;
        for (LibraryTensor* t :
             {&out.data, &out.filter, &out.result, out.bias ? &*out.bias : nullptr, out.added ? &*out.added : nullptr})
            if (t != nullptr) give_strides(*t, channels_last);
        return out;
    }

    /// Dimensions of one point lie where they do in a packed tensor: a library tells layouts by them.
    static void give_strides(LibraryTensor& t, bool channels_last) {
        std::vector<size_t> order;  // from the innermost on
        if (channels_last) order.push_back(1);
        for (size_t d = t.extents.size(); d-- > 2;) order.push_back(d);
        if (!channels_last) order.push_back(1);
        order.push_back(0);
        int64_t packed = 1;
        for (const size_t d : order) {
            if (t.extents[d] == 1) t.strides[d] = packed;
            packed *= t.extents[d];
        }
    }

    /// An operand of the epilogue: one number for each filter, or one for each of the result.
    bool add_operand(LibraryConvolution& out, uint32_t slot) const {
        const Access& a = e_.accesses[slot];
        const auto s = strides_of(stages_, e_, a.value, a.index);
        if (!s || !a.valid.empty() || !is_library_number(stages_.values[a.value].dtype)) return false;
        bool by_filter = true, everywhere = true;
        for (size_t x = 0; x < e_.spatial; ++x) {
            if (e_.extents[x].is_constant(1)) continue;
            const bool filter = std::find(filters_.begin(), filters_.end(), x) != filters_.end() || group_ == x;
            by_filter = by_filter && (filter || (*s)[x] == 0);
            everywhere = everywhere && (*s)[x] == of_result_[x];
        }
        LibraryTensor t = tensor(a.value);
        if (everywhere && !out.added) {
            t.extents = out.result.extents;
            t.strides = out.result.strides;
            out.added = t;
            return true;
        }
        if (!by_filter || out.bias) return false;
        std::vector<LibraryAxis> axes;
        for (size_t x = 0; x < e_.spatial; ++x)
            if (std::find(filters_.begin(), filters_.end(), x) != filters_.end() || group_ == x)
                axes.push_back({extent(x), {(*s)[x], of_result_[x]}});
        const auto all = merged(axes, 2);
        if (!all || all->extent != out.filter.extents[0] || (all->extent > 1 && all->of[0] != 1)) return false;
        t.extents.assign(out.result.extents.size(), 1);
        t.strides.assign(out.result.extents.size(), 1);
        t.extents[1] = all->extent;
        out.bias = t;
        return true;
    }

    const TileProgram& kernel_;
    const Program& stages_;
    const TensorExpr& e_;
    ValueId data_, filter_;
    AxisStrides of_filter_, of_result_;
    std::vector<SpatialDimension> spatial_;
    std::optional<size_t> images_, channel_, group_;
    int64_t image_extent_ = 1, of_images_ = 0, channels_ = 1, of_channels_ = 0;
    std::vector<size_t> filters_;
};

}  // namespace

std::optional<LibraryConvolution> library_convolution(const TileProgram& kernel) {
    const Program& stages = kernel.stages;
    if (stages.primitives.size() != 1 || stages.outputs.size() != 1) return std::nullopt;
    return ConvolutionRecognition(kernel).run();
}

}  // namespace tilewright::cuda
