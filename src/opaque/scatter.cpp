// Operators that write where the data says: ScatterElements, ScatterND, MaxUnpool.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"
#include "program/scalar_eval.h"

namespace tilewright {

namespace {

// --- ScatterElements, ScatterND

using opaque::Combine;
constexpr std::string_view kCombineNames[] = {"none", "add", "mul", "min", "max"};

std::string_view combine_name(Combine c) { return kCombineNames[static_cast<size_t>(c)]; }

/// Writes elements of one tensor into another, in order, each combined with the existing element.
class Writer {
  public:
    Writer(Combine combine, const TensorView& from, const TensorView& to)
        : combine_(combine),
          bytes_(byte_size(to.dtype)),
          type_(compute_type(to.dtype)),
          from_(from.dtype, Shape(from.shape.begin(), from.shape.end()), from.data, nullptr),
          to_(to.dtype, Shape(to.shape.begin(), to.shape.end()), to.data, nullptr) {}

    void write(int64_t source, int64_t target) {
        if (combine_ == Combine::Replace) {
            std::memcpy(static_cast<std::byte*>(to_.mutable_data()) + static_cast<size_t>(target) * bytes_,
                        static_cast<const std::byte*>(from_.data()) + static_cast<size_t>(source) * bytes_, bytes_);
            return;
        }
        constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Add, ScalarOp::Mul, ScalarOp::Min, ScalarOp::Max};
        const ScalarValue r =
            eval_scalar(kOps[static_cast<size_t>(combine_)], type_, type_, value(to_, target), value(from_, source));
        if (is_float(type_))
            to_.set(target, r.f);
        else
            to_.set(target, r.i);
    }

  private:
    ScalarValue value(const Tensor& t, int64_t i) const {
        return is_float(type_) ? ScalarValue{t.get(i), 0} : ScalarValue{0, t.get_int(i)};
    }

    Combine combine_;
    size_t bytes_;
    DType type_;
    Tensor from_, to_;
};

TensorView copied(const TensorView& x, OpaqueOutputs& outputs) {
    const TensorView y = outputs.allocate(0, x.shape);
    if (y.count() > 0) std::memcpy(y.data, x.data, static_cast<size_t>(y.count()) * byte_size(x.dtype));
    return y;
}

int64_t index_at(const TensorView& indices, int64_t i) {
    return indices.dtype == DType::I32 ? indices.as<int32_t>()[i] : indices.as<int64_t>()[i];
}

int64_t checked_index(int64_t index, int64_t extent, std::string_view op) {
    if (index < -extent || index >= extent)
        throw ModelError(fmt::format("{}: index {} is outside a dimension of {}", op, index, extent));
    return index < 0 ? index + extent : index;
}

std::vector<int64_t> strides_of(std::span<const int64_t> shape) {
    std::vector<int64_t> s(shape.size(), 1);
    for (size_t k = shape.size(); k-- > 1;) s[k - 1] = s[k] * shape[k];
    return s;
}

/// y = data; y[indices[i, j], j] = updates[i, j] (axis 0)
class ScatterElements final : public OpaqueOp {
  public:
    ScatterElements(int64_t axis, Combine combine) : axis_(static_cast<size_t>(axis)), combine_(combine) {}
    std::string print() const override {
        return fmt::format("ScatterElements(axis={}, reduction={})", axis_, combine_name(combine_));
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &data = inputs[0], &indices = inputs[1], &updates = inputs[2];
        bool fits = indices.shape.size() == data.shape.size() && std::ranges::equal(indices.shape, updates.shape);
        for (size_t k = 0; k < indices.shape.size() && fits; ++k)
            fits = k == axis_ || indices.shape[k] <= data.shape[k];
        if (!fits)
            throw ModelError(fmt::format("ScatterElements: data of shape {}, indices of {} and updates of {}",
                                         to_string(data.shape), to_string(indices.shape), to_string(updates.shape)));
        Writer writer(combine_, updates, copied(data, outputs));
        const std::vector<int64_t> strides = strides_of(data.shape);
        std::vector<int64_t> at(data.shape.size(), 0);
        for (int64_t i = 0, n = indices.count(); i < n; ++i) {
            int64_t target = 0;
            for (size_t k = 0; k < at.size(); ++k) {
                const int64_t p =
                    k == axis_ ? checked_index(index_at(indices, i), data.shape[k], "ScatterElements") : at[k];
                target += p * strides[k];
            }
            writer.write(i, target);
            for (size_t k = at.size(); k-- > 0;) {
                if (++at[k] < indices.shape[k]) break;
                at[k] = 0;
            }
        }
    }

  private:
    size_t axis_;
    Combine combine_;
};

/// y = data; y[indices[i, 0], indices[i, 1], ...] = updates[i], each a slice.
class ScatterND final : public OpaqueOp {
  public:
    explicit ScatterND(Combine combine) : combine_(combine) {}
    std::string print() const override { return fmt::format("ScatterND(reduction={})", combine_name(combine_)); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &data = inputs[0], &indices = inputs[1], &updates = inputs[2];
        const size_t tuple = indices.shape.empty() ? 0 : static_cast<size_t>(indices.shape.back());
        Shape expected(indices.shape.begin(), indices.shape.end() - (indices.shape.empty() ? 0 : 1));
        if (tuple <= data.shape.size())
            expected.insert(expected.end(), data.shape.begin() + static_cast<std::ptrdiff_t>(tuple), data.shape.end());
        if (indices.shape.empty() || tuple > data.shape.size() || !std::ranges::equal(expected, updates.shape))
            throw ModelError(fmt::format("ScatterND: data of shape {}, indices of {} and updates of {}",
                                         to_string(data.shape), to_string(indices.shape), to_string(updates.shape)));
        Writer writer(combine_, updates, copied(data, outputs));
        const std::vector<int64_t> strides = strides_of(data.shape);
        int64_t slice = 1, points = 1;
        for (size_t k = tuple; k < data.shape.size(); ++k) slice *= data.shape[k];
        for (size_t k = 0; k + 1 < indices.shape.size(); ++k) points *= indices.shape[k];
        for (int64_t i = 0; i < points && slice > 0; ++i) {
            int64_t target = 0;
            for (size_t t = 0; t < tuple; ++t) {
                const int64_t index = index_at(indices, i * static_cast<int64_t>(tuple) + static_cast<int64_t>(t));
                target += checked_index(index, data.shape[t], "ScatterND") * strides[t];
            }
            for (int64_t k = 0; k < slice; ++k) writer.write(i * slice + k, target + k);
        }
    }

  private:
    Combine combine_;
};

// --- MaxUnpool

/// y = 0; y[indices[i]] = x[i]
class MaxUnpool final : public OpaqueOp {
  public:
    explicit MaxUnpool(size_t rank) : rank_(rank) {}
    std::string print() const override { return fmt::format("MaxUnpool(rank={})", rank_); }
    /// Inputs: x, indices, shape of the output, shape in which the indices count.
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &x = inputs[0], &indices = inputs[1];
        const auto* dims = inputs[2].as<const int64_t>();
        const auto* counted = inputs[3].as<const int64_t>();
        const Shape shape(dims, dims + rank_), small(counted, counted + rank_);
        const TensorView y = outputs.allocate(0, shape);
        const size_t width = byte_size(y.dtype);
        std::memset(y.data, 0, static_cast<size_t>(y.count()) * width);
        for (int64_t i = 0, n = x.count(); i < n; ++i) {
            int64_t p = indices.as<const int64_t>()[i], target = 0, stride = 1;
            bool inside = p >= 0;
            for (size_t k = rank_; k-- > 0 && inside;) {
                const int64_t d = small[k], at = k == 0 ? p : p % d;
                inside = at < shape[k] && at < d;
                target += at * stride;
                stride *= shape[k];
                p /= d;
            }
            if (!inside)
                throw ModelError(fmt::format("MaxUnpool: index {} is outside an output of shape {}",
                                             indices.as<const int64_t>()[i], to_string(small)));
            std::memcpy(static_cast<char*>(y.data) + static_cast<size_t>(target) * width,
                        static_cast<const char*>(x.data) + static_cast<size_t>(i) * width, width);
        }
    }

  private:
    size_t rank_;
};

}  // namespace

namespace opaque {

Operator scatter_elements(int64_t axis, Combine combine) { return std::make_shared<ScatterElements>(axis, combine); }
Operator scatter_nd(Combine combine) { return std::make_shared<ScatterND>(combine); }
Operator max_unpool(size_t rank) { return std::make_shared<MaxUnpool>(rank); }

}  // namespace opaque

std::vector<OpaqueReader> scatter_readers() {
    return {
        {"ScatterElements",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<ScatterElements>(t.integer("axis"), t.choice<Combine>("reduction", kCombineNames));
         }},
        {"ScatterND",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<ScatterND>(t.choice<Combine>("reduction", kCombineNames));
         }},
    };
}

std::vector<OpaqueReader> unpool_readers() {
    return {
        {"MaxUnpool",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<MaxUnpool>(static_cast<size_t>(t.integer("rank")));
         }},
    };
}

}  // namespace tilewright
