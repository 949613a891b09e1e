// Fission does not depend on how an exporter writes an operator: the kernels are the same.

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "compile/pipeline.h"
#include "driver/zoo/builder.h"
#include "orchestrate/plan.h"

namespace tilewright {
namespace {

using nets::Attributes;
using nets::Extents;
using nets::GraphBuilder;
using Wire = nets::Value;

/// An operator in the form of one exporter.
struct Spelling {
    const char* name;
    Wire (*write)(GraphBuilder& b, const std::vector<Wire>& inputs);
    int64_t opset = 17;
};

Wire op(GraphBuilder& b, const char* name, const std::vector<Wire>& inputs, const Attributes& attributes = {}) {
    // Shapes of results are not declared and not needed.
    return b.node(name, inputs, attributes);
}
Attribute ints(std::vector<int64_t> v) { return v; }

/// The computation of a model in one form: the plan's kernels with rounded numbers (1 / sqrt(2) and 0.70710677 are
/// equal), and the outputs for one set of inputs.
struct Planned {
    std::vector<std::string> kernels;
    std::vector<Tensor> outputs;
};

std::string rounded(const std::string& text) {
    static const std::regex number(R"((-?\d+\.\d+(e[+-]?\d+)?|-?\d+e[+-]?\d+)f?)");
    std::string out;
    auto last = text.cbegin();
    for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) {
        out.append(last, text.cbegin() + at->position());
        out += fmt::format("{:.5g}", std::stod(at->str(1)));
        last = text.cbegin() + at->position() + at->length();
    }
    out.append(last, text.cend());
    return out;
}

Planned plan_of(const Spelling& spelling, const std::vector<Extents>& shapes) {
    nets::BuildOptions building;
    building.opset = spelling.opset;
    GraphBuilder b("spelling", building);
    std::vector<Wire> inputs;
    for (size_t k = 0; k < shapes.size(); ++k)
        inputs.push_back(b.input("x" + std::to_string(k), DType::F32, shapes[k]));
    b.output(spelling.write(b, inputs), "y");
    const std::string bytes = b.serialize();
    PipelineOptions options;
    options.compile.threads = 1;
    const Compilation c = compile_model(bytes.data(), bytes.size(), options);
    Planned out;
    for (const Step& step : c.model->plan().steps)
        if (const auto* call = std::get_if<KernelCall>(&step.what)) {
            TileProgram kernel = c.model->kernels()[call->kernel];
            kernel.name = kernel.stages.name = "kernel";
            std::string text = print(kernel.stages);
            out.kernels.push_back(rounded(text));
        }
    std::vector<Tensor> values;
    for (size_t k = 0; k < shapes.size(); ++k) {
        Shape shape;
        for (const nets::Extent& e : shapes[k]) shape.push_back(e.size);
        Tensor t(DType::F32, shape);
        for (int64_t i = 0; i < t.count(); ++i)
            t.set(i, std::sin(0.37 * static_cast<double>(i * static_cast<int64_t>(k + 3) % 1009)) + 0.1);
        values.push_back(std::move(t));
    }
    Session session(c.model, 1);
    out.outputs = session.run(values);
    return out;
}

void expect_same_plan(const std::vector<Spelling>& spellings, const std::vector<Extents>& shapes) {
    const Planned first = plan_of(spellings[0], shapes);
    for (const Spelling& s : spellings) {
        SCOPED_TRACE(s.name);
        const Planned other = plan_of(s, shapes);
        EXPECT_EQ(other.kernels, first.kernels);
        for (int64_t i = 0; i < first.outputs[0].count(); ++i)
            ASSERT_NEAR(other.outputs[0].get(i), first.outputs[0].get(i), 1e-4);
    }
}

// --- normalisation of rows: x, scale, bias

Wire mean(GraphBuilder& b, const Wire& x) { return op(b, "ReduceMean", {x}, {{"axes", ints({-1})}}); }

Wire layer_norm(GraphBuilder& b, const std::vector<Wire>& in) {
    return op(b, "LayerNormalization", in, {{"axis", int64_t{-1}}, {"epsilon", 1e-5f}});
}
// PyTorch before opset 17
Wire layer_norm_torch(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire d = op(b, "Sub", {in[0], mean(b, in[0])});
    const Wire variance = mean(b, op(b, "Pow", {d, b.scalar(2)}));
    const Wire y = op(b, "Div", {d, op(b, "Sqrt", {op(b, "Add", {variance, b.scalar(1e-5f)})})});
    return op(b, "Add", {op(b, "Mul", {y, in[1]}), in[2]});
}
// TensorFlow: x (g / s) + (b - m (g / s)), squared by a product
Wire layer_norm_tf(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire m = mean(b, in[0]);
    const Wire d = op(b, "Sub", {in[0], m});
    const Wire variance = mean(b, op(b, "Mul", {d, d}));
    const Wire s = op(b, "Reciprocal", {op(b, "Sqrt", {op(b, "Add", {variance, b.scalar(1e-5f)})})});
    const Wire scale = op(b, "Mul", {s, in[1]});
    return op(b, "Add", {op(b, "Mul", {in[0], scale}), op(b, "Sub", {in[2], op(b, "Mul", {m, scale})})});
}
// a separate difference for each use, sums instead of means, operands exchanged
Wire layer_norm_sums(GraphBuilder& b, const std::vector<Wire>& in) {
    const float n = static_cast<float>(in[0].size(-1));
    const auto sum = [&](const Wire& x) { return op(b, "ReduceSum", {x, b.ints({-1})}, {{"keepdims", int64_t{1}}}); };
    const Wire m = op(b, "Div", {sum(in[0]), b.scalar(n)});
    const Wire d = op(b, "Sub", {in[0], m}), again = op(b, "Sub", {in[0], m});
    const Wire variance = op(b, "Mul", {b.scalar(1 / n), sum(op(b, "Mul", {d, d}))});
    const Wire root = op(b, "Pow", {op(b, "Add", {b.scalar(1e-5f), variance}), b.scalar(0.5f)});
    return op(b, "Add", {in[2], op(b, "Mul", {in[1], op(b, "Div", {again, root})})});
}

TEST(Spelling, layer_norm) {
    expect_same_plan({{"LayerNormalization", layer_norm},
                      {"PyTorch", layer_norm_torch},
                      {"TensorFlow", layer_norm_tf},
                      {"sums", layer_norm_sums}},
                     {{4, 16, 48}, {48}, {48}});
}

// --- GELU

Wire gelu(GraphBuilder& b, const std::vector<Wire>& in) { return op(b, "Gelu", in); }
Wire gelu_torch(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire e = op(b, "Erf", {op(b, "Div", {in[0], b.scalar(std::sqrt(2.0f))})});
    return op(b, "Mul", {op(b, "Mul", {in[0], op(b, "Add", {e, b.scalar(1)})}), b.scalar(0.5f)});
}
Wire gelu_half_first(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire e = op(b, "Erf", {op(b, "Mul", {b.scalar(std::sqrt(0.5f)), in[0]})});
    return op(b, "Mul", {op(b, "Mul", {b.scalar(0.5f), in[0]}), op(b, "Add", {b.scalar(1), e})});
}
Wire gelu_distribution(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire e = op(b, "Erf", {op(b, "Div", {in[0], op(b, "Sqrt", {b.scalar(2)})})});
    return op(b, "Mul", {op(b, "Div", {op(b, "Add", {b.scalar(1), e}), b.scalar(2)}), in[0]});
}

TEST(Spelling, gelu) {
    expect_same_plan({{"Gelu", gelu, 20},
                      {"PyTorch", gelu_torch},
                      {"half first", gelu_half_first},
                      {"distribution function", gelu_distribution}},
                     {{4, 16, 48}});
}

// --- attention: q, k, v of [batch, heads, places, width]

Wire transposed(GraphBuilder& b, const Wire& k) { return op(b, "Transpose", {k}, {{"perm", ints({0, 1, 3, 2})}}); }
Wire softmax(GraphBuilder& b, const Wire& x) { return op(b, "Softmax", {x}, {{"axis", int64_t{-1}}}); }

Wire attention(GraphBuilder& b, const std::vector<Wire>& in) { return op(b, "Attention", in); }
Wire attention_divided(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire scores = op(b, "MatMul", {in[0], transposed(b, in[1])});
    return op(b, "MatMul", {softmax(b, op(b, "Div", {scores, b.scalar(8)})), in[2]});
}
Wire attention_scaled_query(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire q = op(b, "Mul", {in[0], b.scalar(0.125f)});
    return op(b, "MatMul", {softmax(b, op(b, "MatMul", {q, transposed(b, in[1])})), in[2]});
}
// scaled_dot_product_attention of PyTorch 2: the root of the scale on both sides; softmax as primitives
Wire attention_scaled_twice(GraphBuilder& b, const std::vector<Wire>& in) {
    const Wire root = op(b, "Sqrt", {b.scalar(0.125f)});
    const Wire scores = op(b, "MatMul", {op(b, "Mul", {in[0], root}), op(b, "Mul", {transposed(b, in[1]), root})});
    const Wire e = op(b, "Exp", {op(b, "Sub", {scores, op(b, "ReduceMax", {scores}, {{"axes", ints({-1})}})})});
    const Wire sum = op(b, "ReduceSum", {e, b.ints({-1})}, {{"keepdims", int64_t{1}}});
    return op(b, "MatMul", {op(b, "Div", {e, sum}), in[2]});
}

TEST(Spelling, attention) {
    expect_same_plan({{"Attention", attention, 23},
                      {"divided", attention_divided},
                      {"scaled query", attention_scaled_query},
                      {"scaled twice, softmax in parts", attention_scaled_twice}},
                     {{2, 4, 96, 64}, {2, 4, 80, 64}, {2, 4, 80, 64}});
}

}  // namespace
}  // namespace tilewright
