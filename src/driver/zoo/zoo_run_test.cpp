// The outputs of the zoo's models in the reference interpreter: small versions of one model per family.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "driver/zoo/weights.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"
#include "ops/lowering.h"
#include "program/program.h"

namespace tilewright {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kSeq = 7;

/// Inputs according to ZooInput; a different `seed` gives different inputs. Symbolic extents are kBatch and kSeq.
std::vector<Tensor> inputs_of(const ZooModel& model, uint64_t seed) {
    std::vector<Tensor> out;
    for (const ZooInput& in : model.inputs) {
        Shape shape;
        for (const DeclaredDim& d : in.shape) {
            const auto* n = std::get_if<int64_t>(&d);
            shape.push_back(n ? *n : std::get<std::string>(d) == "seq" ? kSeq : kBatch);
        }
        std::vector<float> values(static_cast<size_t>(element_count(shape)));
        nets::draw_normal(in.name, seed, {}, values);
        if (in.name == "attention_mask") {
            out.push_back(Tensor::of(in.dtype, shape, std::vector<int64_t>(values.size(), 1)));
        } else if (in.limit > 0) {
            std::vector<int64_t> ids;
            for (float v : values) ids.push_back(static_cast<int64_t>(std::abs(v) * 1e4f) % in.limit);
            out.push_back(Tensor::of(in.dtype, shape, ids));
        } else {
            out.push_back(Tensor::of(in.dtype, shape, values));
        }
    }
    return out;
}

std::vector<double> run(const std::string& name, const ZooSettings& settings, uint64_t input_seed) {
    const ZooModel zoo_model = build_zoo_model(name, 0, settings);
    const Model model = load_model_from_bytes(zoo_model.bytes.data(), zoo_model.bytes.size());
    const Program program = lower(model, {{{"batch", kBatch}, {"seq", kSeq}}});
    std::vector<double> out;
    for (const Tensor& t : interpret(program, inputs_of(zoo_model, input_seed))) {
        for (int64_t i = 0; i < t.count(); ++i) out.push_back(t.get(i));
    }
    return out;
}

double deviation_of(const std::vector<double>& v) {
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    double squares = 0;
    for (double x : v) squares += (x - mean) * (x - mean);
    return std::sqrt(squares / static_cast<double>(v.size()));
}

/// The largest difference relative to the largest value.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    double size = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        size = std::max(size, std::abs(a[i]));
    }
    return most / size;
}

struct Small {
    const char* name;
    ZooSettings settings;
};

/// gtest's printer.
void PrintTo(const Small& small, std::ostream* to) { *to << small.name; }

class ZooRun : public testing::TestWithParam<Small> {};

TEST_P(ZooRun, OutputsAreFiniteSpreadAndDependOnTheInput) {
    const auto& [name, settings] = GetParam();
    const std::vector<double> one = run(name, settings, 1);
    const std::vector<double> other = run(name, settings, 2);
    for (double v : one) ASSERT_TRUE(std::isfinite(v));
    EXPECT_GT(deviation_of(one), 0.05);
    EXPECT_LT(deviation_of(one), 50);
    EXPECT_GT(distance(one, other), 0.01);  // rounding is a thousand times smaller
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ZooRun,
    testing::Values(Small{"mlp", {}}, Small{"attention", {{"heads", 2}, {"m", 9}, {"n", 12}}},
                    Small{"conv2d", {{"size", 8}}}, Small{"resnet18", {{"size", 32}}},
                    Small{"mobilenet_v2", {{"size", 32}}}, Small{"efficientnet_b0", {{"size", 32}}},
                    Small{"shufflenet_v2_x1_0", {{"size", 32}}}, Small{"gpt2_tiny", {}}, Small{"bert_tiny_dyn", {}},
                    Small{"vit_tiny_16", {{"size", 32}}}, Small{"efficientvit_b1", {{"size", 32}}},
                    Small{"candy", {{"size", 16}}}, Small{"segformer_b0", {{"size", 64}}},
                    Small{"yolox_nano", {{"size", 64}}}, Small{"lstm_tagger", {{"embedding", 16}, {"hidden", 16}}},
                    Small{"gru_tagger", {{"embedding", 16}, {"hidden", 16}}}, Small{"m5", {{"samples", 6848}}},
                    Small{"wavenet", {{"samples", 16}}}, Small{"c3d_small", {{"size", 16}, {"frames", 8}}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Zoo, FoldingBatchNormalisationChangesRoundingOnly) {
    for (const std::string name : {"resnet18", "mobilenet_v2", "efficientvit_b1"}) {
        const ZooSettings folded = {{"size", 32}};
        const ZooSettings kept = {{"size", 32}, {"batch_norm", 1}};
        EXPECT_LT(distance(run(name, folded, 1), run(name, kept, 1)), 1e-4) << name;
    }
}

TEST(Zoo, OlderOpsetsComputeTheSameFunction) {
    for (const std::string name : {"gpt2_tiny", "efficientvit_b1"}) {
        const ZooSettings size = name == "gpt2_tiny" ? ZooSettings{} : ZooSettings{{"size", 32}};
        ZooSettings old = size;
        old["opset"] = 13;
        EXPECT_LT(distance(run(name, size, 1), run(name, old, 1)), 1e-4) << name;
    }
}

TEST(Zoo, SymbolicExtentsGiveTheSameOutputsAsFixedOnes) {
    const ZooSettings fixed = {{"batch", kBatch}, {"seq", kSeq}};
    EXPECT_LT(distance(run("bert_tiny_dyn", {}, 1), run("bert_tiny", fixed, 1)), 1e-4);
    EXPECT_LT(distance(run("gpt2_tiny", {}, 1), run("gpt2_tiny", fixed, 1)), 1e-4);
}

}  // namespace
}  // namespace tilewright
