// Recognition of convolutions. Index maps determine the role of each axis. A dimension of the data is spatial if both
// an axis of the result and a reduction axis index it, or if it has padding or a stride. Other reduction axes are
// channels, axes of the weights alone are filters, and result axes that index both operands are groups.
//
//     data[2*y + k - 1]                                     a convolution: stride 2, padding 1
//     data[(y + 1 - k) // 2] where (y + 1 - k) % 2 == 0     a transposed one: y + 1 = 2*i + k

#include <algorithm>
#include <optional>
#include <set>

#include "libraries/recognition.h"

namespace tilewright {

namespace {

constexpr size_t kMostSpatial = 3;

using Walks = LibraryWalks;

/// A spatial dimension.
struct Window {
    Walked pixel, tap;  ///< axes of the result, of the weights
    int64_t step = 1, dilation = 1, begin = 0, extent = 1, stride = 1;
    bool transposed = false;  ///< pixel + begin = data * step + tap * dilation

    bool is_point() const { return tap.extent == 1 && step == 1 && begin == 0 && extent == pixel.extent; }
    int64_t end() const { return end_of(transposed ? extent : pixel.extent, transposed ? pixel.extent : extent); }

  private:
    int64_t end_of(int64_t out, int64_t in) const {
        return (out - 1) * step + (tap.extent - 1) * dilation + 1 - in - begin;
    }
};

class ConvolutionRecognition {
  public:
    ConvolutionRecognition(const Program& stages, const TensorExpr& e, const Access& x, const Walks& tensors,
                           const ContractionAxes& roles)
        : stages_(stages), e_(e), x_(x), t_(tensors), roles_(roles), conditions_(x.valid) {}

    void run(LibraryOperation& op) {
        if (x_.fill != 0) throw Refusal{"padding that is not zero"};
        const std::vector<Expr>& shape = stages_.values[x_.value].shape;
        int64_t stride = 1;
        for (size_t d = shape.size(); d-- > 0; stride *= shape[d].constant()) {
            if (!shape[d].is_constant()) throw Refusal{"dynamic sizes"};
            if (const auto w = window(d, stride)) windows_.insert(windows_.begin(), *w);
        }
        if (!conditions_.empty()) throw Refusal{"an operand with conditions other than padding"};
        if (windows_.empty() || windows_.size() > kMostSpatial)
            throw Refusal{"a window of 0 or more than 3 dimensions"};
        op.transposed = std::any_of(windows_.begin(), windows_.end(), [](const Window& w) { return w.transposed; });
        for (Window& w : windows_) {
            if (op.transposed && !w.transposed && !w.is_point()) throw Refusal{"windows of which some are transposed"};
            w.transposed = op.transposed;
        }
        for (const Window& w : windows_)
            for (const auto* axes : {&w.pixel.axes, &w.tap.axes})
                for (const size_t a : *axes) of_windows_.insert(a);
        image_ = images();
        groups_ = t_.one(roles_.batch, Walks::kResult, "groups");
        const std::vector<size_t> channels = others(roles_.sum);
        const Walked in = t_.one(channels, Walks::kData, "channels"),
                     out = t_.one(roles_.columns, Walks::kResult, "channels");
        for (const size_t a : channels)
            if (!t_.moves(Walks::kData, a)) throw Refusal{"a reduction axis that only one operand uses"};
        fill(in, out, op);
    }

  private:
    /// Returns dimension d of the data as a spatial dimension, if it is one.
    std::optional<Window> window(size_t d, int64_t stride) {
        const Expr index = x_.index[d], shape = stages_.values[x_.value].shape[d];
        if (const auto transposed = transposed_window(index, shape, stride)) return transposed;
        Window w;
        size_t pixels = 0, taps = 0;
        for (const Var v : variables(index)) {
            if (v.kind != VarKind::Axis) throw Refusal{"a window with a data-dependent position"};
            const auto linear = linear_in(index, v);
            if (!linear || !linear->coefficient.is_constant()) throw Refusal{"a window without constant strides"};
            const bool spatial = v.id < e_.spatial;
            ++(spatial ? pixels : taps);
            (spatial ? w.pixel : w.tap) = {{v.id}, t_.extent(v.id)};
            (spatial ? w.step : w.dilation) = linear->coefficient.constant();
        }
        w.begin = -index.constant();
        bool passes_ends = false;
        for (const Expr& c : {index, shape - 1 - index}) passes_ends = std::erase(conditions_, c) != 0 || passes_ends;
        if (taps == 0 && w.begin == 0 && !passes_ends && (pixels != 1 || w.step == 1)) return std::nullopt;
        // Groups and their channels: 2*g + c with c < 2.
        if (pixels == 1 && !passes_ends && w.begin == 0 && w.step == w.tap.extent && is_group(w.pixel.axes[0]))
            return std::nullopt;
        if (pixels > 1 || taps > 1) throw Refusal{"a window index over several axes"};
        if (taps == 1 && pixels == 0 && w.begin == 0 && !passes_ends) return std::nullopt;  // channels
        if (w.step < 1 || w.dilation < 1 || w.begin < 0)
            throw Refusal{"a window with a negative stride, dilation or padding"};
        w.extent = shape.constant();
        w.stride = stride;
        return w;
    }

    /// Returns the dimension if its index is (pixel + begin - dilation * tap) // step where step divides that.
    std::optional<Window> transposed_window(Expr index, Expr shape, int64_t stride) {
        const Atom* quotient = nullptr;
        for (const Term& t : index.terms())
            for (const Atom* a : t.atoms)
                if (a->kind == Atom::Kind::FloorDiv) quotient = a;
        Window w;
        Expr position = index;
        if (quotient != nullptr) {
            if (!quotient->b.is_constant()) return std::nullopt;
            w.step = quotient->b.constant();
            position = quotient->a + (index - floor_div(quotient->a, quotient->b)) * w.step;
        }
        size_t pixels = 0, taps = 0;
        for (const Var v : variables(position)) {
            const auto linear = v.kind == VarKind::Axis ? linear_in(position, v) : std::nullopt;
            if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
            const bool spatial = v.id < e_.spatial;
            ++(spatial ? pixels : taps);
            (spatial ? w.pixel : w.tap) = {{v.id}, t_.extent(v.id)};
            if (spatial && !linear->coefficient.is_constant(1)) return std::nullopt;
            if (!spatial) w.dilation = -linear->coefficient.constant();
        }
        // A step of 1 divides everything: the direction of the taps is what a convolution has not.
        const bool backward = quotient != nullptr || taps == 1;
        w.begin = position.constant();
        if (pixels != 1 || taps > 1 || !backward || w.dilation < 1 || w.begin < 0) return std::nullopt;
        if (quotient != nullptr && std::erase(conditions_, -mod(position, w.step)) == 0) return std::nullopt;
        for (const Expr& c : {index, shape - 1 - index}) std::erase(conditions_, c);
        w.transposed = true;
        w.extent = shape.constant();
        w.stride = stride;
        return w;
    }

    bool is_group(size_t axis) const {
        return std::find(roles_.batch.begin(), roles_.batch.end(), axis) != roles_.batch.end();
    }

    std::vector<size_t> others(std::vector<size_t> axes) const {
        std::erase_if(axes, [&](size_t a) { return of_windows_.count(a) != 0; });
        return axes;
    }

    /// Returns the batch axis. A library's image has at least two spatial dimensions: a dimension without window may be
    /// among them, and so may a third that does not merge with the batch.
    Walked images() {
        std::vector<size_t> axes = others(roles_.rows);
        std::vector<Walked> pieces = t_.merged(axes, Walks::kResult);
        while (windows_.size() < 2 || (windows_.size() < kMostSpatial && pieces.size() > 1)) {
            Window w;
            if (!pieces.empty()) {
                w.pixel = pieces.back();
                w.extent = w.pixel.extent;
                w.stride = t_.stride(Walks::kData, w.pixel);
                pieces.pop_back();
                std::erase_if(axes, [&](size_t a) {
                    return std::find(w.pixel.axes.begin(), w.pixel.axes.end(), a) != w.pixel.axes.end();
                });
            }
            w.transposed = windows_.front().transposed;
            windows_.insert(std::find_if(windows_.begin(), windows_.end(),
                                         [&](const Window& other) { return other.stride < w.stride; }),
                            w);
        }
        return t_.one(axes, Walks::kResult, "images");
    }

    /// Returns extent and stride of the channels of all groups as one dimension.
    std::pair<int64_t, int64_t> channels(size_t tensor, const Walked& of_group) const {
        const int64_t inner = t_.stride(tensor, of_group), outer = t_.stride(tensor, groups_);
        if (groups_.extent > 1 && of_group.extent > 1 && outer != inner * of_group.extent)
            throw Refusal{"groups that do not merge into one axis"};
        return {groups_.extent * of_group.extent, of_group.extent > 1 ? inner : outer};
    }

    /// Returns [n, c, spatial...] of the data, or of a tensor with the dimensions of the result.
    LibraryOperand picture(size_t tensor, const Walked& of_group) const {
        const auto [c, along_c] = channels(tensor, of_group);
        LibraryOperand o = t_.operand(tensor, {image_}, true);
        o.dims = {image_.extent, c};
        o.strides = {o.strides[0], along_c};
        for (const Window& w : windows_) {
            o.dims.push_back(tensor == Walks::kData ? w.extent : w.pixel.extent);
            o.strides.push_back(tensor == Walks::kData ? w.stride : t_.stride(tensor, w.pixel));
        }
        // Dimensions of one point get the strides of a dense tensor whose channels are innermost.
        int64_t dense = c;
        for (size_t d = o.dims.size(); d-- > 2; dense *= o.dims[d])
            if (o.dims[d] == 1) o.strides[d] = dense;
        if (c == 1) o.strides[1] = 1;
        if (o.dims[0] == 1) {
            o.strides[0] = 1;
            for (size_t d = 1; d < o.dims.size(); ++d) o.strides[0] = std::max(o.strides[0], o.strides[d] * o.dims[d]);
        }
        return o;
    }

    void fill(const Walked& in, const Walked& out, LibraryOperation& op) const {
        std::vector<Walked> filter = {groups_, out, in};
        for (const Window& w : windows_) filter.push_back(w.tap);
        op.data = picture(Walks::kData, in);
        op.data.offset = 0;  // the padding
        op.weights = t_.operand(Walks::kWeights, filter, true);
        op.result = picture(Walks::kResult, out);
        for (size_t k = Walks::kResult + 1; k < t_.size(); ++k) {
            LibraryOperand o = picture(k, out);
            for (size_t d = 0; d < o.dims.size(); ++d)
                if (o.strides[d] == 0) o.dims[d] = 1, o.strides[d] = 1;
            op.added.push_back(std::move(o));
        }
        for (const Window& w : windows_) {
            op.strides.push_back(w.step);
            op.dilations.push_back(w.dilation);
            op.begins.push_back(w.begin);
            op.ends.push_back(w.end());
        }
    }

    const Program& stages_;
    const TensorExpr& e_;
    const Access& x_;
    const Walks& t_;
    const ContractionAxes& roles_;
    std::vector<Expr> conditions_;
    std::vector<Window> windows_;
    std::set<size_t> of_windows_;
    Walked image_, groups_;
};

}  // namespace

void recognise_convolution(const Program& stages, const TensorExpr& e, const Access& x, const LibraryWalks& tensors,
                           const ContractionAxes& axes, LibraryOperation& op) {
    ConvolutionRecognition(stages, e, x, tensors, axes).run(op);
}

}  // namespace tilewright
