// Memory-bound operators: softmax, normalisations, elementwise, data movement, reductions.

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "driver/opspec/kinds.h"
#include "driver/zoo/layers.h"

namespace tilewright::nets {

namespace {

Value matrix(GraphBuilder& b, const OpSpec& s) { return b.input("x", DType::F32, {s.number("m"), s.number("n")}); }

Value of_dims(GraphBuilder& b, const OpSpec& s, const std::string& name) {
    const Ints dims = s.numbers("dims");
    return b.input(name, DType::F32, Extents(dims.begin(), dims.end()));
}

/// [n]: 0, and in the second half `masked`, as in an exporter's padding mask.
Value half_mask(GraphBuilder& b, int64_t n, float masked) {
    return b.buffer("mask", {n}, [&](std::span<float> out) {
        std::fill(out.begin() + static_cast<std::ptrdiff_t>(out.size() / 2), out.end(), masked);
    });
}

void build_softmax(GraphBuilder& b, const OpSpec& s) {
    Value x = matrix(b, s);
    if (s.has("scale")) x = mul(b, x, b.scalar(static_cast<float>(s.real("scale"))));
    if (s.text("mask") == "half")
        x = add(b, x, half_mask(b, s.number("n"), -1e4F));
    else if (s.text("mask") == "half_inf")
        x = add(b, x, half_mask(b, s.number("n"), -std::numeric_limits<float>::infinity()));
    b.output(softmax(b, x, s.text("axis") == "last" ? -1 : 0), "out");
}

void build_layernorm(GraphBuilder& b, const OpSpec& s) {
    b.output(layer_norm(b, "norm", matrix(b, s), kEpsilon), "out");
}

void build_rmsnorm(GraphBuilder& b, const OpSpec& s) { b.output(rms_norm(b, "norm", matrix(b, s), kEpsilon), "out"); }

void build_instancenorm(GraphBuilder& b, const OpSpec& s) {
    const Value x = b.input("x", DType::F32, {s.number("n"), s.number("c"), s.number("h"), s.number("w")});
    const int64_t p = s.number("pad");
    Value y = activate(b, instance_norm(b, "norm", x, kEpsilon), s.text("act"));
    if (p > 0) {
        if (s.text("pad_mode") == "reflect" && p >= std::min(s.number("h"), s.number("w")))
            model_error("operator 'instancenorm': pad={} reflects more than h and w have", p);
        y = pad(b, y, {0, 0, p, p}, {0, 0, p, p}, s.text("pad_mode"));
    }
    b.output(y, "out");
}

// --- elementwise

/// ONNX operators of two operands, by their names in op lines.
const std::vector<std::pair<std::string, std::string>> kBinary = {{"add", "Add"}, {"sub", "Sub"}, {"mul", "Mul"},
                                                                  {"div", "Div"}, {"max", "Max"}, {"min", "Min"}};
const std::vector<std::pair<std::string, std::string>> kUnary = {
    {"exp", "Exp"}, {"erf", "Erf"}, {"abs", "Abs"}, {"neg", "Neg"}, {"sin", "Sin"}, {"softplus", "Softplus"}};

template <class Table>
const std::string* find(const Table& table, const std::string& name) {
    for (const auto& [known, op] : table)
        if (known == name) return &op;
    return nullptr;
}

std::vector<std::string> elementwise_names() {
    std::vector<std::string> out(activations().begin() + 1, activations().end());
    for (const auto* table : {&kUnary, &kBinary})
        for (const auto& entry : *table) out.push_back(entry.first);
    return out;
}

void build_elementwise(GraphBuilder& b, const OpSpec& s) {
    const std::string& op = s.text("op");
    const Value x = of_dims(b, s, "x");
    if (const std::string* node = find(kBinary, op)) {
        Extents shape = x.shape;
        if (s.text("with") == "row") shape = {shape.back()};
        b.output(b.node(*node, {x, b.input("y", DType::F32, shape)}), "out");
    } else if (const std::string* plain = find(kUnary, op)) {
        b.output(b.node(*plain, {x}), "out");
    } else {
        b.output(activate(b, x, op), "out");
    }
}

// --- data movement, reductions

void build_transpose(GraphBuilder& b, const OpSpec& s) {
    const Value x = of_dims(b, s, "x");
    const Ints perm = s.numbers("perm");
    Ints sorted = perm, all(x.shape.size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), int64_t{0});
    if (sorted != all)
        model_error("operator 'transpose': perm={} does not name each of the {} axes of dims={} once", s.text("perm"),
                    all.size(), s.text("dims"));
    b.output(transpose(b, x, perm), "out");
}

void build_gather(GraphBuilder& b, const OpSpec& s) {
    const int64_t count = s.number("count");
    const Value ids = b.input("ids", DType::I64, {s.number("rows")}, count);
    b.output(embedding(b, "table", ids, count, s.number("width")), "out");
}

void build_reduce(GraphBuilder& b, const OpSpec& s) {
    const Value x = of_dims(b, s, "x");
    const Ints axes = s.numbers("axes");
    Value out = x;
    out.shape.clear();
    for (const int64_t a : axes)
        if (a >= x.rank() || std::count(axes.begin(), axes.end(), a) != 1)
            model_error("operator 'reduce': axes={} are not axes of dims={}, each once", s.text("axes"),
                        s.text("dims"));
    for (int64_t a = 0; a < x.rank(); ++a)
        if (std::find(axes.begin(), axes.end(), a) == axes.end()) out.shape.push_back(x[a]);
    const std::string& op = s.text("op");
    if (op == "sum") {  // its axes became an input in an earlier opset than the others'
        out = b.node("ReduceSum", {x, b.ints(axes)}, {{"keepdims", 0}}, std::vector<Value>{out})[0];
    } else {
        const char* node = op == "mean" ? "ReduceMean" : op == "max" ? "ReduceMax" : "ReduceMin";
        out = b.node(node, {x}, {{"axes", axes}, {"keepdims", 0}}, std::vector<Value>{out})[0];
    }
    b.output(out, "out");
}

/// nGPT's update: a hidden state on the unit sphere moves towards a block's result.
void build_ntrans(GraphBuilder& b, const OpSpec& s) {
    const Value x = matrix(b, s);
    const Value h = b.input("h", DType::F32, x.shape);
    const auto unit = [&](const Value& v) {
        Value squares = b.node("Mul", {v, v});
        squares = b.node("ReduceSum", {squares, b.ints({-1})}, {{"keepdims", 1}}, Extents{v[0], Extent(1)});
        return div(b, v, b.node("Sqrt", {squares}));
    };
    const Value alpha = b.weight("alpha", {s.number("n")}, Draw{0.05, 0.01});
    b.output(unit(add(b, x, mul(b, alpha, sub(b, unit(h), x)))), "out");
}

}  // namespace

void add_row_ops(std::vector<OpKind>& kinds) {
    const std::vector<OpParam> rows = {needed("m", "rows"), needed("n", "columns")};
    const OpParam dims = list("dims", "extents, as in 8:128:768", true);
    kinds.push_back(
        {"softmax",
         "softmax of a matrix",
         {rows[0], rows[1], choice("axis", {"last", "first"}, "the axis that it sums over"),
          optional_real("scale", "factor of its inputs, which have unit variance"),
          choice("mask", {"none", "half", "half_inf"}, "add -10000, or -infinity, to the second half of the columns")},
         build_softmax});
    kinds.push_back({"layernorm", "LayerNormalization over the columns, scale and shift", rows, build_layernorm});
    kinds.push_back({"rmsnorm", "x / sqrt(mean of squares) over the columns, scale", rows, build_rmsnorm});
    kinds.push_back(
        {"instancenorm",
         "InstanceNormalization over the pixels of each channel, then the layers that follow it in Candy",
         {number("n", 1, "images"), needed("c", "channels"), needed("h", "height"), as_other("w", "h", "width"),
          act_param(), number("pad", 0, "pixels added on every side after that", 0),
          choice("pad_mode", {"reflect", "constant"}, "the kind of padding")},
         build_instancenorm});
    kinds.push_back({"elementwise",
                     "an elementwise function of one or two tensors",
                     {dims, choice("op", elementwise_names(), "the function"),
                      choice("with", {"same", "row"}, "extents of the second operand: the same, or a row of it")},
                     build_elementwise});
    kinds.push_back({"transpose",
                     "the axes in another order",
                     {dims, list("perm", "new axis k is old axis perm[k], as in 0:2:1", true, 0)},
                     build_transpose});
    kinds.push_back({"gather",
                     "rows of a table, chosen by an input",
                     {needed("rows", "rows to read"), needed("width", "columns"), needed("count", "rows of the table")},
                     build_gather});
    kinds.push_back({"reduce",
                     "sum, mean, largest or least over some axes",
                     {dims, list("axes", "the reduced axes, as in 0:2", true, 0),
                      choice("op", {"sum", "mean", "max", "min"}, "how")},
                     build_reduce});
    kinds.push_back({"ntrans", "unit(x + alpha (unit(h) - x)) over the columns: nGPT's step", rows, build_ntrans});
}

}  // namespace tilewright::nets
