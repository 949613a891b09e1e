// oneDNN as a peer: its primitives on the same operators, float32.
//
//     bench_onednn "conv2d c=64 h=56 o=64 kh=3 pad=1 bias=1 act=relu"
//
// As in oneDNN's own benchmark, weights have the format that the primitive requests, and so have the images of
// convolutions; the reorders are not timed. The conversions that a convolution's neighbours in a model would need are
// thus not in these figures, while Tilewright reads and writes plain tensors. Operators of several primitives
// (attention, chains) run one after the other.

#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "bench/peers/peer.h"

/// OpenMP's function, as oneDNN uses OpenMP; declared here because not every compiler has the header.
extern "C" void omp_set_num_threads(int threads);

namespace tilewright::peers {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

const dnnl::engine& engine() {
    static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    return cpu;
}

/// Primitives with their memory, run in sequence.
class Pipeline {
  public:
    memory make(const memory::desc& desc) {
        memory m(desc, engine());
        fill({static_cast<float*>(m.get_data_handle()), desc.get_size() / sizeof(float)}, 1);
        return m;
    }
    void add(const dnnl::primitive& primitive, std::unordered_map<int, memory> arguments) {
        steps_.emplace_back(primitive, std::move(arguments));
    }
    void run() {
        for (auto& [primitive, arguments] : steps_) primitive.execute(stream_, arguments);
        stream_.wait();
    }

  private:
    dnnl::stream stream_{engine()};
    std::vector<std::pair<dnnl::primitive, std::unordered_map<int, memory>>> steps_;
};

struct Eltwise {
    algorithm kind;
    float alpha = 0, beta = 0;
};

const Eltwise* find_eltwise(const std::string& name) {
    static const std::map<std::string, Eltwise> table = {
        {"relu", {algorithm::eltwise_relu}},
        {"relu6", {algorithm::eltwise_clip, 0, 6}},
        {"leaky_relu", {algorithm::eltwise_relu, 0.1F}},
        {"sigmoid", {algorithm::eltwise_logistic}},
        {"tanh", {algorithm::eltwise_tanh}},
        {"silu", {algorithm::eltwise_swish, 1}},
        {"hard_swish", {algorithm::eltwise_hardswish}},
        {"gelu", {algorithm::eltwise_gelu_erf}},
        {"gelu_tanh", {algorithm::eltwise_gelu_tanh}},
        {"mish", {algorithm::eltwise_mish}},
        {"exp", {algorithm::eltwise_exp}},
        {"abs", {algorithm::eltwise_abs}},
        {"neg", {algorithm::eltwise_linear, -1}},
        {"softplus", {algorithm::eltwise_soft_relu}},
    };
    const auto it = table.find(name);
    return it == table.end() ? nullptr : &it->second;
}

dnnl::primitive_attr activation(const std::string& name) {
    dnnl::primitive_attr attr;
    if (name == "none") return attr;
    const Eltwise* e = find_eltwise(name);
    TW_CHECK(e != nullptr, "no activation '{}'", name);
    dnnl::post_ops ops;
    ops.append_eltwise(1, e->kind, e->alpha, e->beta);
    attr.set_post_ops(ops);
    return attr;
}

/// Row-major, or with the last two dimensions transposed.
memory::desc plain(const Dims& dims, bool transposed = false) {
    Dims strides(dims.size(), 1);
    for (size_t d = dims.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * dims[d + 1];
    if (transposed) {
        strides[dims.size() - 1] = dims[dims.size() - 2];
        strides[dims.size() - 2] = 1;
    }
    return {dims, kF32, strides};
}

memory::desc any(const Dims& dims) { return {dims, kF32, Tag::any}; }

/// Adds c = a b (+ bias), with the given formats; returns c.
memory add_matmul(Pipeline& p, const memory::desc& a, const memory::desc& b, const memory::desc& c,
                  const dnnl::primitive_attr& attr, bool bias, const memory* left = nullptr) {
    Dims shape(c.dims().size(), 1);
    shape.back() = c.dims().back();
    const dnnl::matmul::desc desc = bias ? dnnl::matmul::desc(a, b, plain(shape), c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc pd(desc, attr, engine());
    memory out = p.make(pd.dst_desc());
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, left != nullptr ? *left : p.make(pd.src_desc())},
                                                 {DNNL_ARG_WEIGHTS, p.make(pd.weights_desc())},
                                                 {DNNL_ARG_DST, out}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, p.make(plain(shape)));
    p.add(dnnl::matmul(pd), std::move(arguments));
    return out;
}

Dims with_batch(int64_t batch, const Dims& dims) {
    Dims out = dims;
    if (batch != 1) out.insert(out.begin(), batch);
    return out;
}

bool gemm(Pipeline& p, const OpSpec& s) {
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k"), batch = s.number("batch");
    const bool constant = s.text("weights") == "constant";
    Dims weights = {k, n};
    if (batch != 1) weights.insert(weights.begin(), constant ? 1 : batch);
    add_matmul(p, plain(with_batch(batch, {m, k}), s.flag("ta")),
               constant ? any(weights) : plain(weights, s.flag("tb")), plain(with_batch(batch, {m, n})),
               activation(s.text("act")), s.flag("bias"));
    return true;
}

bool gemv(Pipeline& p, const OpSpec& s) {
    const int64_t m = s.number("m"), k = s.number("k");
    if (s.flag("bias")) return false;  // one number per row is not a supported bias of this product
    const bool constant = s.text("weights") == "constant";
    add_matmul(p, constant ? any({m, k}) : plain({m, k}), plain({k, 1}), plain({m, 1}), activation(s.text("act")),
               false);
    return true;
}

bool chain(Pipeline& p, const OpSpec& s) {
    const std::vector<int64_t> w =
        s.has("dims") ? s.numbers("dims") : std::vector{s.number("k"), s.number("n"), s.number("h")};
    const int64_t m = s.number("m"), batch = s.number("batch");
    memory x;
    for (size_t i = 0; i + 1 < w.size(); ++i)
        x = add_matmul(p, plain(with_batch(batch, {m, w[i]})), plain(with_batch(batch, {w[i], w[i + 1]})),
                       plain(with_batch(batch, {m, w[i + 1]})), activation(i + 2 < w.size() ? s.text("act") : "none"),
                       false, i > 0 ? &x : nullptr);
    return true;
}

void add_softmax(Pipeline& p, const memory& x, int axis, const memory& y) {
    const dnnl::softmax_forward::primitive_desc pd({kInference, x.get_desc(), axis}, engine());
    p.add(dnnl::softmax_forward(pd), {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
}

bool attention(Pipeline& p, const OpSpec& s) {
    if (s.text("mask") != "none" || s.flag("bias") || s.text("norm") != "none") return false;
    const int64_t heads = s.number("heads") * s.number("batch");
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k"), h = s.number("h");
    dnnl::primitive_attr scaled;
    scaled.set_output_scales(0, {s.has("scale") ? static_cast<float>(s.real("scale")) : 0.125F});
    const memory scores =
        add_matmul(p, plain({heads, m, k}), plain({heads, k, n}, true), plain({heads, m, n}), scaled, false);
    add_softmax(p, scores, 2, scores);
    add_matmul(p, plain({heads, m, n}), plain({heads, n, h}), plain({heads, m, h}), {}, false, &scores);
    return true;
}

bool norm_gemm(Pipeline& p, const OpSpec& s) {
    if (s.text("norm") != "layer") return false;
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k");
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    const dnnl::layer_normalization_forward::primitive_desc pd({kInference, plain({m, k}), 1e-5F, flags}, engine());
    const memory y = p.make(pd.dst_desc());
    p.add(dnnl::layer_normalization_forward(pd), {{DNNL_ARG_SRC, p.make(pd.src_desc())},
                                                  {DNNL_ARG_SCALE, p.make(plain({k}))},
                                                  {DNNL_ARG_SHIFT, p.make(plain({k}))},
                                                  {DNNL_ARG_DST, y}});
    add_matmul(p, plain({m, k}), any({k, n}), plain({m, n}), activation(s.text("act")), s.flag("bias"), &y);
    return true;
}

// --- windows

struct WindowOp {
    Dims image, kernel, stride, pad, dilation;  // dilation: oneDNN's convention, 0 for none
};

WindowOp window_of(const OpSpec& s) {
    WindowOp w;
    for (const char* name : {"d", "h", "w"})
        if (s.has(name)) {
            w.image.push_back(s.number(name));
            w.kernel.push_back(s.number(std::string("k") + name));
            w.stride.push_back(s.number("stride"));
            w.pad.push_back(s.number("pad"));
            w.dilation.push_back(s.has("dilation") ? s.number("dilation") - 1 : 0);
        }
    return w;
}

Dims joined(Dims front, const Dims& back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
}

template <class Primitive>
memory add_window(Pipeline& p, const typename Primitive::primitive_desc& pd, bool bias, const memory* image = nullptr) {
    memory out = p.make(pd.dst_desc());
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, image != nullptr && image->get_desc() == pd.src_desc() ? *image : p.make(pd.src_desc())},
        {DNNL_ARG_WEIGHTS, p.make(pd.weights_desc())},
        {DNNL_ARG_DST, out}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, p.make(pd.bias_desc()));
    p.add(Primitive(pd), std::move(arguments));
    return out;
}

Dims windows(const WindowOp& w) {
    Dims out;
    for (size_t i = 0; i < w.image.size(); ++i)
        out.push_back((w.image[i] + 2 * w.pad[i] - (w.dilation[i] + 1) * (w.kernel[i] - 1) - 1) / w.stride[i] + 1);
    return out;
}

memory::desc filter(int64_t groups, int64_t out, int64_t in, const Dims& kernel) {
    return any(joined(groups == 1 ? Dims{out, in} : Dims{groups, out / groups, in / groups}, kernel));
}

/// The image has the format of the previous step, if there is one; otherwise the primitive's preferred format.
memory add_conv(Pipeline& p, const OpSpec& s, const WindowOp& w, int64_t channels, int64_t out, int64_t groups,
                const memory* image = nullptr) {
    const bool bias = s.flag("bias");
    const memory::desc src = image != nullptr ? image->get_desc() : any(joined({s.number("n"), channels}, w.image));
    const memory::desc dst = any(joined({s.number("n"), out}, windows(w)));
    const memory::desc weights = filter(groups, out, channels, w.kernel);
    using Conv = dnnl::convolution_forward;
    const Conv::desc desc = bias ? Conv::desc(kInference, algorithm::convolution_direct, src, weights, any({out}), dst,
                                              w.stride, w.dilation, w.pad, w.pad)
                                 : Conv::desc(kInference, algorithm::convolution_direct, src, weights, dst, w.stride,
                                              w.dilation, w.pad, w.pad);
    return add_window<Conv>(p, Conv::primitive_desc(desc, activation(s.text("act")), engine()), bias, image);
}

bool conv(Pipeline& p, const OpSpec& s) {
    add_conv(p, s, window_of(s), s.number("c"), s.number("o"), s.number("groups"));
    return true;
}

bool depthwise(Pipeline& p, const OpSpec& s) {
    const int64_t c = s.number("c");
    add_conv(p, s, window_of(s), c, c * s.number("multiplier"), c);
    return true;
}

bool conv_chain(Pipeline& p, const OpSpec& s) {
    WindowOp w = window_of(s);
    const memory x = add_conv(p, s, w, s.number("c"), s.number("o"), 1);
    w.image = windows(w);
    w.kernel = w.stride = {1, 1};
    w.pad = {0, 0};
    add_conv(p, s, w, s.number("o"), s.number("o2"), 1, &x);
    return true;
}

bool conv_transposed(Pipeline& p, const OpSpec& s) {
    const WindowOp w = window_of(s);
    const int64_t c = s.number("c"), out = s.number("o");
    Dims size;
    for (size_t i = 0; i < w.image.size(); ++i)
        size.push_back((w.image[i] - 1) * w.stride[i] + w.kernel[i] - 2 * w.pad[i]);
    const memory::desc src = any(joined({s.number("n"), c}, w.image)), dst = any(joined({s.number("n"), out}, size));
    const memory::desc weights = filter(s.number("groups"), out, c, w.kernel);
    using Deconv = dnnl::deconvolution_forward;
    const Deconv::desc desc = s.flag("bias") ? Deconv::desc(kInference, algorithm::deconvolution_direct, src, weights,
                                                            any({out}), dst, w.stride, w.dilation, w.pad, w.pad)
                                             : Deconv::desc(kInference, algorithm::deconvolution_direct, src, weights,
                                                            dst, w.stride, w.dilation, w.pad, w.pad);
    add_window<Deconv>(p, Deconv::primitive_desc(desc, activation(s.text("act")), engine()), s.flag("bias"));
    return true;
}

bool pool(Pipeline& p, const OpSpec& s) {
    const WindowOp w = window_of(s);
    const Dims front = {s.number("n"), s.number("c")};
    const algorithm kind = s.text("kind") == "max" ? algorithm::pooling_max : algorithm::pooling_avg_include_padding;
    using Pool = dnnl::pooling_forward;
    const Pool::primitive_desc pd({kInference, kind, plain(joined(front, w.image)), any(joined(front, windows(w))),
                                   w.stride, w.kernel, w.pad, w.pad},
                                  engine());
    p.add(Pool(pd), {{DNNL_ARG_SRC, p.make(pd.src_desc())}, {DNNL_ARG_DST, p.make(pd.dst_desc())}});
    return true;
}

// --- rows

bool softmax(Pipeline& p, const OpSpec& s) {
    const memory x = p.make(plain({s.number("m"), s.number("n")}));
    add_softmax(p, x, s.text("axis") == "last" ? 1 : 0, p.make(x.get_desc()));
    return true;
}

bool layernorm(Pipeline& p, const OpSpec& s) {
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    const int64_t n = s.number("n");
    const dnnl::layer_normalization_forward::primitive_desc pd({kInference, plain({s.number("m"), n}), 1e-5F, flags},
                                                               engine());
    p.add(dnnl::layer_normalization_forward(pd), {{DNNL_ARG_SRC, p.make(pd.src_desc())},
                                                  {DNNL_ARG_SCALE, p.make(plain({n}))},
                                                  {DNNL_ARG_SHIFT, p.make(plain({n}))},
                                                  {DNNL_ARG_DST, p.make(pd.dst_desc())}});
    return true;
}

bool elementwise(Pipeline& p, const OpSpec& s) {
    static const std::map<std::string, algorithm> binary = {
        {"add", algorithm::binary_add}, {"sub", algorithm::binary_sub}, {"mul", algorithm::binary_mul},
        {"div", algorithm::binary_div}, {"max", algorithm::binary_max}, {"min", algorithm::binary_min}};
    const Dims dims = s.numbers("dims");
    if (const auto it = binary.find(s.text("op")); it != binary.end()) {
        Dims second = dims;
        if (s.text("with") == "row")
            for (size_t d = 0; d + 1 < second.size(); ++d) second[d] = 1;
        const dnnl::binary::primitive_desc pd({it->second, plain(dims), plain(second), plain(dims)}, engine());
        p.add(dnnl::binary(pd), {{DNNL_ARG_SRC_0, p.make(plain(dims))},
                                 {DNNL_ARG_SRC_1, p.make(plain(second))},
                                 {DNNL_ARG_DST, p.make(plain(dims))}});
        return true;
    }
    const Eltwise* e = find_eltwise(s.text("op"));
    if (e == nullptr) return false;
    const dnnl::eltwise_forward::primitive_desc pd({kInference, e->kind, plain(dims), e->alpha, e->beta}, engine());
    p.add(dnnl::eltwise_forward(pd), {{DNNL_ARG_SRC, p.make(plain(dims))}, {DNNL_ARG_DST, p.make(plain(dims))}});
    return true;
}

bool reduce(Pipeline& p, const OpSpec& s) {
    static const std::map<std::string, algorithm> kinds = {{"sum", algorithm::reduction_sum},
                                                           {"mean", algorithm::reduction_mean},
                                                           {"max", algorithm::reduction_max},
                                                           {"min", algorithm::reduction_min}};
    const Dims dims = s.numbers("dims");
    Dims out = dims;
    for (const int64_t a : s.numbers("axes")) out.at(static_cast<size_t>(a)) = 1;
    const dnnl::reduction::primitive_desc pd({kinds.at(s.text("op")), plain(dims), plain(out), 0, 0}, engine());
    p.add(dnnl::reduction(pd), {{DNNL_ARG_SRC, p.make(plain(dims))}, {DNNL_ARG_DST, p.make(plain(out))}});
    return true;
}

std::function<void()> prepare(const OpSpec& op) {
    static const std::map<std::string, bool (*)(Pipeline&, const OpSpec&)> table = {
        {"gemm", gemm},
        {"gemv", gemv},
        {"chain", chain},
        {"attention", attention},
        {"norm_gemm", norm_gemm},
        {"conv1d", conv},
        {"conv2d", conv},
        {"conv3d", conv},
        {"depthwise", depthwise},
        {"conv_chain", conv_chain},
        {"conv_transposed2d", conv_transposed},
        {"conv_transposed3d", conv_transposed},
        {"pool", pool},
        {"softmax", softmax},
        {"layernorm", layernorm},
        {"elementwise", elementwise},
        {"reduce", reduce},
    };
    const auto it = table.find(op.kind->name);
    if (it == table.end()) return {};
    auto p = std::make_shared<Pipeline>();
    if (!it->second(*p, op)) return {};
    return [p] { p->run(); };
}

}  // namespace
}  // namespace tilewright::peers

int main(int argc, char** argv) {
    return tilewright::peers::run_peer(
        argc, argv,
        "oneDNN's time for operators (float32; weights and the images of convolutions in\n"
        "the formats that its primitives request)\n"
        "  bench_onednn \"conv2d c=64 h=56 o=64 kh=3 pad=1\" --time 0.2",
        [](int threads) { omp_set_num_threads(threads); }, tilewright::peers::prepare);
}
