#include "driver/zoo/ops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tilewright::nets {

namespace {

/// One extent of a broadcast.
Extent broadcast(const Extent& x, const Extent& y) {
    if (x.size == 1 && !x.is_symbolic()) return y;
    if (y.size == 1 && !y.is_symbolic()) return x;
    TW_CHECK(x.size == y.size, "extents {} and {} do not broadcast", x.size, y.size);
    return x.is_symbolic() ? x : y;
}

Extents broadcast(const Extents& x, const Extents& y) {
    const size_t rank = std::max(x.size(), y.size());
    Extents out(rank, Extent(1));
    for (size_t i = 0; i < rank; ++i) {
        const Extent one(1);
        const Extent& a = i + x.size() >= rank ? x[i + x.size() - rank] : one;
        const Extent& c = i + y.size() >= rank ? y[i + y.size() - rank] : one;
        out[i] = broadcast(a, c);
    }
    return out;
}

Value binary(GraphBuilder& b, const char* op, const Value& x, const Value& y) {
    return b.node(op, {x, y}, {}, broadcast(x.shape, y.shape));
}

/// An activation whose output is expected to have this mean and variance.
Value activation(GraphBuilder& b, const char* op, const Value& x, double mean, double variance,
                 const Attributes& attributes) {
    Value out = x;
    out.mean = mean;
    out.variance = variance;
    return b.node(op, {x}, attributes, std::vector<Value>{out})[0];
}

Value with_distribution(Value v, double mean, double variance) {
    v.mean = mean;
    v.variance = variance;
    return v;
}

// Expected distributions determine the weights' bits, so they use only +, -, *, / and sqrt: IEEE rounds those
// identically everywhere, unlike exp and erf.

double deviation(const Value& x) { return std::sqrt(x.variance); }

Value rectified(Value x) {
    // For N(m, s^2), t = m/s: mean and variance of max(x, 0), exact for t = 0 and within a tenth for |t| < 2.
    const double m = x.mean;
    const double v = x.variance;
    const double t2 = v > 0 ? m * m / v : 0;
    x.mean = 0.5 * (m + std::sqrt(m * m + 0.6366 * v));
    x.variance = m >= 0 ? v * (0.3408 + 0.6592 * t2 / (t2 + 0.607)) : v * 0.3408 / (1 + 4 * t2);
    return x;
}

int64_t normal_axis(const Value& x, int64_t axis) { return axis < 0 ? axis + x.rank() : axis; }

Value resized(GraphBuilder& b, const Value& x, int64_t factor, const Attributes& attributes) {
    Extents shape = x.shape;
    std::vector<float> scales(shape.size(), 1.0f);
    for (size_t i = 2; i < shape.size(); ++i) {
        shape[i] = Extent(shape[i].size * factor);
        scales[i] = static_cast<float>(factor);
    }
    const Value roi;
    const Value s = b.constant(Tensor::of(DType::F32, {x.rank()}, scales));
    return b.node("Resize", {x, roi, s}, attributes, shape);
}

Extents pooled_shape(const Value& x, const Ints& kernel, const Ints& stride, const Ints& padding) {
    Extents shape = x.shape;
    for (size_t i = 0; i < kernel.size(); ++i) {
        shape[i + 2] = Extent(window_count(shape[i + 2].size, kernel[i], stride[i], padding[i], 1));
    }
    return shape;
}

Attributes pool_attributes(const Ints& kernel, const Ints& stride, const Ints& padding) {
    Ints pads = padding;
    pads.insert(pads.end(), padding.begin(), padding.end());
    return {{"kernel_shape", kernel}, {"strides", stride}, {"pads", pads}, {"ceil_mode", 0}};
}

}  // namespace

Ints for_each_axis(const Ints& list, int64_t rank) {
    if (static_cast<int64_t>(list.size()) == rank) return list;
    TW_CHECK(list.size() == 1, "{} numbers for {} axes", list.size(), rank);
    return Ints(static_cast<size_t>(rank), list[0]);
}

int64_t window_count(int64_t n, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    const int64_t room = n + 2 * pad - dilation * (kernel - 1) - 1;
    if (room < 0) {
        model_error("the input is too small for this model: a window of {} does not fit into {} (padding {})",
                    dilation * (kernel - 1) + 1, n, pad);
    }
    return room / stride + 1;
}

Value add(GraphBuilder& b, const Value& x, const Value& y) {
    return with_distribution(binary(b, "Add", x, y), x.mean + y.mean, x.variance + y.variance);
}

Value sub(GraphBuilder& b, const Value& x, const Value& y) {
    return with_distribution(binary(b, "Sub", x, y), x.mean - y.mean, x.variance + y.variance);
}

Value mul(GraphBuilder& b, const Value& x, const Value& y) {
    return with_distribution(binary(b, "Mul", x, y), x.mean * y.mean,
                             x.variance * y.variance + x.variance * y.mean * y.mean + y.variance * x.mean * x.mean);
}

Value div(GraphBuilder& b, const Value& x, const Value& y) { return binary(b, "Div", x, y); }

Value where(GraphBuilder& b, const Value& condition, const Value& x, const Value& y) {
    Value out = x;
    out.shape = broadcast(condition.shape, broadcast(x.shape, y.shape));
    return b.node("Where", {condition, x, y}, {}, std::vector<Value>{out})[0];
}

Value cast(GraphBuilder& b, const Value& x, DType to) {
    Value out = x;
    out.dtype = to;
    const int64_t code = to == DType::F32 ? 1 : to == DType::I64 ? 7 : 9;
    TW_CHECK(to == DType::F32 || to == DType::I64 || to == DType::Bool);
    return b.node("Cast", {x}, {{"to", code}}, std::vector<Value>{out})[0];
}

Value relu(GraphBuilder& b, const Value& x) { return b.node("Relu", {x}, {}, std::vector<Value>{rectified(x)})[0]; }

Value relu6(GraphBuilder& b, const Value& x) {
    const Value low = b.scalar(0);
    const Value high = b.scalar(6);
    return b.node("Clip", {x, low, high}, {}, std::vector<Value>{rectified(x)})[0];
}

Value leaky_relu(GraphBuilder& b, const Value& x) {
    return activation(b, "LeakyRelu", x, 0.359 * deviation(x), 0.376 * x.variance, {{"alpha", 0.1f}});
}

Value sigmoid(GraphBuilder& b, const Value& x) { return activation(b, "Sigmoid", x, 0.5, 0.043, {}); }

Value tanh(GraphBuilder& b, const Value& x) { return activation(b, "Tanh", x, 0, 0.394, {}); }

Value silu(GraphBuilder& b, const Value& x) {
    return with_distribution(mul(b, x, sigmoid(b, x)), 0.207 * deviation(x), 0.313 * x.variance);
}

Value hard_swish(GraphBuilder& b, const Value& x) {
    Value out;
    if (b.options().opset >= 14) {
        out = b.node("HardSwish", {x});
    } else {
        out = mul(b, x, activation(b, "HardSigmoid", x, 0.5, 0.028, {{"alpha", 1.0f / 6.0f}}));
    }
    return with_distribution(out, 0.167 * deviation(x), 0.306 * x.variance);
}

Value gelu(GraphBuilder& b, const Value& x) {
    const Value scaled = div(b, x, b.scalar(1.41421354f));
    const Value up = add(b, b.node("Erf", {scaled}), b.scalar(1));
    const Value out = mul(b, mul(b, x, up), b.scalar(0.5f));
    return with_distribution(out, 0.282 * deviation(x), 0.346 * x.variance);
}

Value gelu_tanh(GraphBuilder& b, const Value& x) {
    const Value half = mul(b, x, b.scalar(0.5f));
    const Value cube = b.node("Pow", {x, b.scalar(3)});
    const Value inner = add(b, x, mul(b, cube, b.scalar(0.044715f)));
    const Value up = add(b, b.node("Tanh", {mul(b, inner, b.scalar(0.797884583f))}), b.scalar(1));
    return with_distribution(mul(b, half, up), 0.282 * deviation(x), 0.346 * x.variance);
}

Value mish(GraphBuilder& b, const Value& x) {
    const Value gate = b.node("Tanh", {b.node("Softplus", {x})});
    return with_distribution(mul(b, x, gate), 0.241 * deviation(x), 0.37 * x.variance);
}

Value softmax(GraphBuilder& b, const Value& x, int64_t axis) {
    return with_distribution(b.node("Softmax", {x}, {{"axis", axis}}), 1.0 / static_cast<double>(x.size(axis)), 0);
}

Value matmul(GraphBuilder& b, const Value& x, const Value& y) {
    TW_CHECK(x.rank() >= 2 && y.rank() >= 2 && x.size(-1) == y.size(-2), "MatMul of '{}' and '{}'", x.name, y.name);
    Extents shape = broadcast(Extents(x.shape.begin(), x.shape.end() - 2), Extents(y.shape.begin(), y.shape.end() - 2));
    shape.push_back(x[-2]);
    shape.push_back(y[-1]);
    b.count_macs(element_count(shape) * x.size(-1));
    return b.node("MatMul", {x, y}, {}, shape);
}

Value dim_of(GraphBuilder& b, const Value& x, int64_t axis) {
    Value shape;
    shape.dtype = DType::I64;
    shape.shape = {x.rank()};
    shape = b.node("Shape", {x}, {}, std::vector<Value>{shape})[0];
    return b.node("Gather", {shape, b.int_scalar(normal_axis(x, axis))}, {{"axis", 0}}, Extents{});
}

Value shape_vector(GraphBuilder& b, const Extents& shape, const Value& source) {
    const auto symbolic = [](const Extent& e) { return e.is_symbolic(); };
    if (std::none_of(shape.begin(), shape.end(), symbolic)) {
        Ints sizes;
        for (const Extent& e : shape) sizes.push_back(e.size);
        return b.ints(sizes);
    }
    std::vector<Value> parts;
    int unknown = 0;
    for (const Extent& e : shape) {
        if (!e.is_symbolic()) {
            parts.push_back(b.ints({e.size}));
            continue;
        }
        const auto same = [&](const Extent& s) { return s.symbol == e.symbol; };
        const auto axis = std::find_if(source.shape.begin(), source.shape.end(), same);
        if (axis == source.shape.end()) {
            TW_CHECK(++unknown == 1, "two extents of a reshape are unknown, '{}' among them", e.symbol);
            parts.push_back(b.ints({-1}));
        } else {
            parts.push_back(unsqueeze(b, dim_of(b, source, axis - source.shape.begin()), {0}));
        }
    }
    return concat(b, parts, 0);
}

Value reshape(GraphBuilder& b, const Value& x, const Extents& shape) { return reshape(b, x, shape, x); }

Value reshape(GraphBuilder& b, const Value& x, const Extents& shape, const Value& source) {
    TW_CHECK(element_count(shape) == element_count(x.shape), "reshape of '{}' changes its element count", x.name);
    return b.node("Reshape", {x, shape_vector(b, shape, source)}, {}, shape);
}

Value transpose(GraphBuilder& b, const Value& x, const Ints& perm) {
    TW_CHECK(static_cast<int64_t>(perm.size()) == x.rank());
    Extents shape;
    for (int64_t axis : perm) shape.push_back(x[axis]);
    return b.node("Transpose", {x}, {{"perm", perm}}, shape);
}

Value flatten(GraphBuilder& b, const Value& x) {
    Extent rest(1);
    for (int64_t i = 1; i < x.rank(); ++i) rest = rest * x[i];
    return b.node("Flatten", {x}, {{"axis", 1}}, Extents{x[0], rest});
}

Value unsqueeze(GraphBuilder& b, const Value& x, const Ints& axes) {
    Extents shape = x.shape;
    for (int64_t axis : axes) shape.insert(shape.begin() + axis, Extent(1));
    return b.node("Unsqueeze", {x, b.ints(axes)}, {}, shape);
}

Value squeeze(GraphBuilder& b, const Value& x, const Ints& axes) {
    Extents shape;
    for (int64_t i = 0; i < x.rank(); ++i) {
        if (std::find(axes.begin(), axes.end(), i) == axes.end()) shape.push_back(x[i]);
    }
    return b.node("Squeeze", {x, b.ints(axes)}, {}, shape);
}

Value concat(GraphBuilder& b, const std::vector<Value>& parts, int64_t axis) {
    Value out = parts.at(0);
    const auto at = static_cast<size_t>(normal_axis(out, axis));
    double mean = 0;
    double square = 0;
    int64_t total = 0;
    for (const Value& part : parts) {
        const int64_t n = part.size(axis);
        mean += part.mean * static_cast<double>(n);
        square += (part.variance + part.mean * part.mean) * static_cast<double>(n);
        total += n;
    }
    out.shape[at] = Extent(total);
    out.mean = mean / static_cast<double>(total);
    out.variance = square / static_cast<double>(total) - out.mean * out.mean;
    return b.node("Concat", parts, {{"axis", axis}}, std::vector<Value>{out})[0];
}

Value slice(GraphBuilder& b, const Value& x, int64_t axis, int64_t begin, int64_t end, int64_t step) {
    const int64_t n = x.size(axis);
    TW_CHECK(!x[axis].is_symbolic() && begin >= 0 && end >= 0 && step > 0, "slice of '{}'", x.name);
    Extents shape = x.shape;
    shape[static_cast<size_t>(normal_axis(x, axis))] = Extent((std::min(end, n) - begin + step - 1) / step);
    const Value from = b.ints({begin});
    const Value to = b.ints({end});
    const Value which = b.ints({axis});
    const Value by = b.ints({step});
    return b.node("Slice", {x, from, to, which, by}, {}, shape);
}

std::vector<Value> split(GraphBuilder& b, const Value& x, int64_t axis, const Ints& sizes) {
    std::vector<Value> outputs;
    for (int64_t n : sizes) {
        outputs.push_back(x);
        outputs.back().shape[static_cast<size_t>(normal_axis(x, axis))] = Extent(n);
    }
    const Value parts = b.ints(sizes);
    return b.node("Split", {x, parts}, {{"axis", axis}}, outputs);
}

Value gather_one(GraphBuilder& b, const Value& x, int64_t axis, int64_t index) {
    Extents shape = x.shape;
    shape.erase(shape.begin() + normal_axis(x, axis));
    return b.node("Gather", {x, b.int_scalar(index)}, {{"axis", axis}}, shape);
}

Value expand(GraphBuilder& b, const Value& x, const Extents& shape, const Value& source) {
    return b.node("Expand", {x, shape_vector(b, shape, source)}, {}, shape);
}

Value pad(GraphBuilder& b, const Value& x, const Ints& before, const Ints& after, const std::string& mode,
          float value) {
    Extents shape = x.shape;
    TW_CHECK(before.size() == shape.size() && after.size() == shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
        if (before[i] + after[i] != 0) shape[i] = Extent(shape[i].size + before[i] + after[i]);
    }
    Ints amounts = before;
    amounts.insert(amounts.end(), after.begin(), after.end());
    std::vector<Value> inputs = {x, b.ints(amounts)};
    if (mode == "constant") inputs.push_back(b.scalar(value));
    return b.node("Pad", inputs, {{"mode", mode}}, shape);
}

Value upsample_nearest(GraphBuilder& b, const Value& x, int64_t factor) {
    return resized(b, x, factor,
                   {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}});
}

Value upsample_linear(GraphBuilder& b, const Value& x, int64_t factor) {
    return resized(b, x, factor, {{"mode", "linear"}, {"coordinate_transformation_mode", "half_pixel"}});
}

Value reduce_mean(GraphBuilder& b, const Value& x, const Ints& axes, bool keep) {
    Value out = x;
    out.shape.clear();
    for (int64_t i = 0; i < x.rank(); ++i) {
        const bool reduced = std::any_of(axes.begin(), axes.end(), [&](int64_t a) { return normal_axis(x, a) == i; });
        if (!reduced) {
            out.shape.push_back(x[i]);
        } else if (keep) {
            out.shape.emplace_back(1);
        }
    }
    out.variance = x.variance * 0.1;
    return b.node("ReduceMean", {x}, {{"axes", axes}, {"keepdims", keep ? 1 : 0}}, std::vector<Value>{out})[0];
}

Value max_pool(GraphBuilder& b, const Value& x, const Ints& kernel, const Ints& stride, const Ints& padding) {
    const Ints k = for_each_axis(kernel, x.rank() - 2);
    const Ints s = for_each_axis(stride, x.rank() - 2);
    const Ints p = for_each_axis(padding, x.rank() - 2);
    Value out = x;
    out.shape = pooled_shape(x, k, s, p);
    // The approximate maximum of n normal numbers; the variance of rectified ones hardly changes.
    int64_t n = 1;
    for (int64_t extent : k) n *= extent;
    out.mean += deviation(x) * 3 * static_cast<double>(n) / static_cast<double>(n + 8);
    return b.node("MaxPool", {x}, pool_attributes(k, s, p), std::vector<Value>{out})[0];
}

Value average_pool(GraphBuilder& b, const Value& x, const Ints& kernel, const Ints& stride, const Ints& padding) {
    const Ints k = for_each_axis(kernel, x.rank() - 2);
    const Ints s = for_each_axis(stride, x.rank() - 2);
    const Ints p = for_each_axis(padding, x.rank() - 2);
    Attributes attributes = pool_attributes(k, s, p);
    attributes["count_include_pad"] = 1;
    Value out = x;
    out.shape = pooled_shape(x, k, s, p);
    out.variance *= 0.5;
    return b.node("AveragePool", {x}, attributes, std::vector<Value>{out})[0];
}

Value global_average_pool(GraphBuilder& b, const Value& x) {
    Value out = x;
    for (size_t i = 2; i < out.shape.size(); ++i) out.shape[i] = Extent(1);
    out.variance *= 0.3;
    return b.node("GlobalAveragePool", {x}, {}, std::vector<Value>{out})[0];
}

}  // namespace tilewright::nets
