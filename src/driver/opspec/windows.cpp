// Convolutions of any rank, transposed convolutions, pooling.

#include <array>

#include "base/error.h"
#include "driver/opspec/kinds.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

// Names of the spatial extents and of the window's, by the number of spatial axes.
const std::array<std::vector<std::string>, 4> kSizes = {{{}, {"w"}, {"h", "w"}, {"d", "h", "w"}}};
const std::array<std::vector<std::string>, 4> kWindows = {{{}, {"kw"}, {"kh", "kw"}, {"kd", "kh", "kw"}}};

Value image(GraphBuilder& b, const OpSpec& s, size_t rank) {
    Extents shape = {s.number("n"), s.number("c")};
    for (const std::string& name : kSizes.at(rank)) shape.emplace_back(s.number(name));
    return b.input("x", DType::F32, shape);
}

Ints window(const OpSpec& s, size_t rank) {
    Ints out;
    for (const std::string& name : kWindows.at(rank)) out.push_back(s.number(name));
    return out;
}

ConvSpec conv_spec(const OpSpec& s, size_t rank) {
    ConvSpec spec;
    spec.out = s.number("o");
    spec.kernel = window(s, rank);
    spec.stride = {s.number("stride")};
    spec.pad = {s.number("pad")};
    spec.bias = s.flag("bias");
    spec.groups = s.number("groups");
    const int64_t c = s.number("c");
    if (spec.out % spec.groups != 0 || c % spec.groups != 0)
        model_error("operator '{}': groups={} divides not both c={} and o={}", s.kind->name, spec.groups, c, spec.out);
    return spec;
}

void build_conv(GraphBuilder& b, const OpSpec& s, size_t rank) {
    ConvSpec spec = conv_spec(s, rank);
    spec.dilation = {s.number("dilation")};
    b.output(activate(b, conv(b, "conv", image(b, s, rank), spec), s.text("act")), "out");
}

void build_conv_transposed(GraphBuilder& b, const OpSpec& s, size_t rank) {
    const ConvSpec spec = conv_spec(s, rank);
    const Ints kernel = window(s, rank);
    for (size_t i = 0; i < rank; ++i) {
        const int64_t n = (s.number(kSizes[rank][i]) - 1) * spec.stride[0] + kernel[i] - 2 * spec.pad[0];
        if (n < 1)
            model_error("operator '{}': pad={} leaves nothing of the result's {}", s.kind->name, spec.pad[0],
                        kSizes[rank][i]);
    }
    b.output(activate(b, conv_transpose(b, "conv", image(b, s, rank), spec), s.text("act")), "out");
}

void build_depthwise(GraphBuilder& b, const OpSpec& s) {
    ConvSpec spec;
    spec.groups = s.number("c");
    spec.out = spec.groups * s.number("multiplier");
    spec.kernel = window(s, 2);
    spec.stride = {s.number("stride")};
    spec.pad = {s.number("pad")};
    spec.dilation = {s.number("dilation")};
    spec.bias = s.flag("bias");
    b.output(activate(b, conv(b, "conv", image(b, s, 2), spec), s.text("act")), "out");
}

/// A k x k convolution, then one of 1 x 1 (ALT's subgraphs).
void build_conv_chain(GraphBuilder& b, const OpSpec& s) {
    ConvSpec first;
    first.out = s.number("o");
    first.kernel = window(s, 2);
    first.stride = {s.number("stride")};
    first.pad = {s.number("pad")};
    first.bias = s.flag("bias");
    ConvSpec second;
    second.out = s.number("o2");
    second.bias = first.bias;
    const Value x = activate(b, conv(b, "conv1", image(b, s, 2), first), s.text("act"));
    b.output(activate(b, conv(b, "conv2", x, second), s.text("act")), "out");
}

void build_pool(GraphBuilder& b, const OpSpec& s) {
    const Value x = image(b, s, 2);
    const Ints kernel = window(s, 2), stride = {s.number("stride")}, pad = {s.number("pad")};
    for (const int64_t k : kernel)
        if (pad[0] >= k) model_error("operator 'pool': pad={} is not smaller than the window of {}", pad[0], k);
    b.output(s.text("kind") == "max" ? max_pool(b, x, kernel, stride, pad) : average_pool(b, x, kernel, stride, pad),
             "out");
}

/// n, c, the image's sizes: later ones default to the first. Then the window's likewise.
std::vector<OpParam> window_params(size_t rank, bool with_channels) {
    std::vector<OpParam> out = {number("n", 1, "images"), needed("c", "channels")};
    const char* help[] = {"depth", "height", "width"};
    for (size_t i = 0; i < rank; ++i) {
        const std::string& name = kSizes[rank][i];
        const std::string text = help[3 - rank + i];
        out.push_back(i == 0 ? needed(name, text) : as_other(name, kSizes[rank][0], text));
    }
    if (with_channels) out.push_back(needed("o", "channels of the result"));
    for (size_t i = 0; i < rank; ++i) {
        const std::string& name = kWindows[rank][i];
        const std::string text = std::string(help[3 - rank + i]) + " of the window";
        out.push_back(i == 0 ? number(name, 1, text) : as_other(name, kWindows[rank][0], text));
    }
    out.push_back(number("stride", 1, "step of the window"));
    out.push_back(number("pad", 0, "zeros on every side", 0));
    return out;
}

std::vector<OpParam> with(std::vector<OpParam> params, const std::vector<OpParam>& more) {
    params.insert(params.end(), more.begin(), more.end());
    return params;
}

}  // namespace

void add_window_ops(std::vector<OpKind>& kinds) {
    const OpParam groups = number("groups", 1, "groups of channels"),
                  dilation = number("dilation", 1, "step between the window's taps"),
                  bias = flag("bias", "add a number a channel");
    for (size_t rank = 1; rank <= 3; ++rank)
        kinds.push_back(
            {fmt::format("conv{}d", rank),
             fmt::format("convolution over {} spatial ax{}, constant weights", rank, rank == 1 ? "is" : "es"),
             with(window_params(rank, true), {dilation, groups, bias, act_param()}),
             [rank](GraphBuilder& b, const OpSpec& s) { build_conv(b, s, rank); }});
    for (size_t rank = 2; rank <= 3; ++rank)
        kinds.push_back({fmt::format("conv_transposed{}d", rank),
                         fmt::format("transposed convolution over {} spatial axes, constant weights", rank),
                         with(window_params(rank, true), {groups, bias, act_param()}),
                         [rank](GraphBuilder& b, const OpSpec& s) { build_conv_transposed(b, s, rank); }});
    kinds.push_back(
        {"depthwise", "convolution of each channel separately, constant weights",
         with(window_params(2, false), {dilation, number("multiplier", 1, "results a channel"), bias, act_param()}),
         build_depthwise});
    kinds.push_back(
        {"conv_chain", "a convolution, then one of 1 x 1",
         with(window_params(2, true), {as_other("o2", "o", "channels of the second result"), bias, act_param()}),
         build_conv_chain});
    kinds.push_back({"pool", "largest or mean element of a window (the mean counts padding)",
                     with(window_params(2, false), {choice("kind", {"max", "avg"}, "which")}), build_pool});
}

}  // namespace tilewright::nets
