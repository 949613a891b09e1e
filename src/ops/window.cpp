#include "ops/window.h"

#include "base/error.h"

namespace tilewright {

AutoPad auto_pad(const NodeContext& c) {
    const std::string mode = c.node.attr_string("auto_pad", "NOTSET");
    if (mode.empty() || mode == "NOTSET") return AutoPad::Explicit;
    if (mode == "SAME_UPPER") return AutoPad::SameUpper;
    if (mode == "SAME_LOWER") return AutoPad::SameLower;
    if (mode == "VALID") return AutoPad::Valid;
    c.fail(fmt::format("attribute 'auto_pad' should be NOTSET, SAME_UPPER, SAME_LOWER or VALID, and is {}",
                       quoted_name(mode)));
}

std::vector<int64_t> positive_ints(const NodeContext& c, const std::string& attribute, size_t count) {
    std::vector<int64_t> v = c.node.attr_ints(attribute, {});
    if (v.empty()) v.assign(count, 1);
    c.require(v.size() == count, fmt::format("attribute '{}' has {} numbers, and there are {} spatial dimensions",
                                             attribute, v.size(), count));
    for (const int64_t n : v)
        c.require(n >= 1 && n <= INT32_MAX, fmt::format("attribute '{}' holds {}, which is not a size", attribute, n));
    return v;
}

std::vector<int64_t> window_pads(const NodeContext& c, size_t count) {
    std::vector<int64_t> pads = c.node.attr_ints("pads", {});
    if (pads.empty()) pads.assign(2 * count, 0);
    c.require(pads.size() == 2 * count,
              fmt::format("attribute 'pads' has {} numbers, and {} are expected", pads.size(), 2 * count));
    for (const int64_t p : pads)
        c.require(p >= INT32_MIN && p <= INT32_MAX, fmt::format("attribute 'pads' holds {}, too large", p));
    return pads;
}

std::vector<WindowAxis> window_axes(const NodeContext& c, const Dims& in, const std::vector<int64_t>& kernel) {
    const size_t n = in.size();
    c.require(kernel.size() == n,
              fmt::format("the kernel has {} dimensions, and the input {} spatial ones", kernel.size(), n));
    const std::vector<int64_t> strides = positive_ints(c, "strides", n), dilations = positive_ints(c, "dilations", n);
    const AutoPad mode = auto_pad(c);
    std::vector<int64_t> pads(2 * n, 0);
    if (mode == AutoPad::Explicit) pads = window_pads(c, n);
    const bool ceil_mode = c.node.attr_int("ceil_mode", 0) != 0;
    std::vector<WindowAxis> windows;
    for (size_t k = 0; k < n; ++k) {
        WindowAxis w;
        w.in = in[k];
        w.kernel = kernel[k];
        w.stride = strides[k];
        w.dilation = dilations[k];
        c.require(w.kernel >= 1, fmt::format("the kernel has a dimension of {}", w.kernel));
        if (mode == AutoPad::SameUpper || mode == AutoPad::SameLower) {
            w.out = ceil_div(w.in, w.stride);
            const Expr total = max((w.out - 1) * w.stride + w.reach() - w.in, 0);
            const Expr half = floor_div(total, 2);
            w.before = mode == AutoPad::SameUpper ? half : total - half;
            w.after = total - w.before;
        } else {
            w.before = pads[k];
            w.after = pads[n + k];
            const Expr room = w.in + w.before + w.after - w.reach();
            c.require(!room.is_constant() || room.constant() >= 0 || w.in.is_constant(0),
                      fmt::format("a kernel that reaches over {} elements does not fit into a padded dimension of {}",
                                  w.reach(), (w.in + w.before + w.after).text()));
            // With rounding up, the last window may extend beyond the end, but it must start before the end padding.
            w.out = ceil_mode ? min(ceil_div(room, w.stride), floor_div(w.in + w.before - 1, w.stride)) + 1
                              : floor_div(room, w.stride) + 1;
        }
        windows.push_back(w);
    }
    return windows;
}

Access window_access(ValueId input, std::vector<Expr> leading, const std::vector<WindowAxis>& windows, size_t first_out,
                     const std::vector<Expr>& kernel_index, double fill) {
    Access a{input, std::move(leading), {}, fill};
    for (size_t k = 0; k < windows.size(); ++k) {
        const WindowAxis& w = windows[k];
        const Expr at = axis(first_out + k) * w.stride + kernel_index[k] * w.dilation - w.before;
        a.index.push_back(at);
        a.valid.push_back(at);
        a.valid.push_back(w.in - 1 - at);
    }
    return a;
}

std::vector<Expr> add_kernel_axes(std::vector<Expr>& extents, const std::vector<WindowAxis>& windows) {
    std::vector<Expr> index;
    for (const WindowAxis& w : windows) {
        index.push_back(w.kernel == 1 ? Expr(0) : axis(extents.size()));
        if (w.kernel > 1) extents.emplace_back(w.kernel);
    }
    return index;
}

std::vector<int64_t> axis_range(size_t first, size_t last) {
    std::vector<int64_t> axes;
    for (size_t k = first; k < last; ++k) axes.push_back(static_cast<int64_t>(k));
    return axes;
}

}  // namespace tilewright
