#include "driver/zoo/zoo.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "graph/import.h"
#include "onnx/checker.h"
#include "onnx/onnx_pb.h"
#include "onnx/shape_inference/implementation.h"

namespace tilewright {
namespace {

const ZooEntry& entry(const std::string& name) {
    for (const ZooEntry& e : zoo()) {
        if (e.name == name) return e;
    }
    throw std::out_of_range(name);
}

/// Models small enough to be built in a test.
std::vector<ZooEntry> small_models(int64_t limit = 16'000'000) {
    std::vector<ZooEntry> out;
    for (const ZooEntry& e : zoo()) {
        if (e.parameters < limit) out.push_back(e);
    }
    return out;
}

bool has_option(const ZooEntry& e, const std::string& option) {
    return std::any_of(e.options.begin(), e.options.end(), [&](const ZooOption& o) { return o.name == option; });
}

onnx::ModelProto parsed(const std::string& bytes) {
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(bytes));
    return model;
}

std::string error_of(const std::string& name, const ZooSettings& settings) {
    try {
        build_zoo_model(name, 0, settings);
    } catch (const ModelError& e) {
        return std::string(e.what()) + " | " + e.hint();
    }
    return "no error";
}

struct Published {
    const char* name;
    int64_t parameters;
    double giga_macs;  // rounded to three decimals; for the language models at 128 tokens
};

class PublishedFigures : public testing::TestWithParam<Published> {};

TEST_P(PublishedFigures, AreMatchedExactly) {
    const ZooEntry& e = entry(GetParam().name);
    EXPECT_EQ(e.parameters, GetParam().parameters);
    EXPECT_NEAR(static_cast<double>(e.macs) * 1e-9, GetParam().giga_macs, 0.0006);
}

// Parameters as stated by torchvision, Hugging Face and the authors' repositories.
INSTANTIATE_TEST_SUITE_P(
    Zoo, PublishedFigures,
    testing::Values(Published{"resnet18", 11'689'512, 1.814}, Published{"resnet34", 21'797'672, 3.664},
                    Published{"resnet50", 25'557'032, 4.089}, Published{"resnet101", 44'549'160, 7.801},
                    Published{"vgg16", 138'357'544, 15.470}, Published{"densenet121", 7'978'856, 2.834},
                    Published{"mobilenet_v2", 3'504'872, 0.301}, Published{"efficientnet_b0", 5'288'548, 0.386},
                    Published{"shufflenet_v2_x1_0", 2'278'604, 0.145}, Published{"bert_tiny", 14'350'248, 0.624},
                    Published{"bert_small", 28'763'648, 1.678}, Published{"bert_base", 109'482'240, 11.174},
                    Published{"bert_large", 335'141'888, 39.461}, Published{"gpt2", 124'439'808, 16.114},
                    Published{"vit_b_16", 86'567'656, 17.564}, Published{"vit_tiny_16", 5'717'416, 1.254},
                    Published{"mlp_mixer_s16", 18'528'264, 3.777}, Published{"swin_t", 28'288'354, 4.491},
                    Published{"efficientvit_b1", 9'102'024, 0.519}, Published{"candy", 1'679'235, 7.717},
                    Published{"segformer_b0", 3'752'694, 8.388}, Published{"yolox_nano", 912'159, 0.523},
                    Published{"yolov4", 64'363'101, 30.052}, Published{"dcgan_generator", 3'576'704, 0.105},
                    Published{"unet", 31'037'633, 48.167}, Published{"r3d_18", 33'371'472, 40.697},
                    Published{"m5", 26'915, 0.002}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Zoo, DynamicModelsAreTheStaticOnesWithSymbolicExtents) {
    for (const std::string name : {"bert_tiny", "bert_base"}) {
        const ZooEntry& e = entry(name + "_dyn");
        EXPECT_EQ(e.parameters, entry(name).parameters);
        EXPECT_EQ(e.macs, entry(name).macs);
        ASSERT_EQ(e.inputs.size(), 3u);
        for (const ZooInput& in : e.inputs) {
            EXPECT_EQ(in.dtype, DType::I64);
            EXPECT_EQ(in.shape, (std::vector<DeclaredDim>{"batch", "seq"}));
            EXPECT_GT(in.limit, 1);
        }
    }
}

TEST(Zoo, NamesAreUniqueAndEveryEntryIsDescribed) {
    std::set<std::string> names;
    for (const ZooEntry& e : zoo()) {
        EXPECT_TRUE(names.insert(e.name).second) << e.name;
        EXPECT_FALSE(e.description.empty()) << e.name;
        EXPECT_FALSE(e.inputs.empty()) << e.name;
        EXPECT_FALSE(e.outputs.empty()) << e.name;
        EXPECT_GT(e.macs, 0) << e.name;
        EXPECT_TRUE(has_option(e, "opset")) << e.name;
        for (const ZooOption& o : e.options) {
            EXPECT_LE(o.lowest, o.fallback) << e.name << " " << o.name;
            EXPECT_GE(o.highest, o.fallback) << e.name << " " << o.name;
            EXPECT_FALSE(o.help.empty()) << e.name << " " << o.name;
        }
    }
}

TEST(Zoo, StoresTheDeclaredNumberOfParameters) {
    for (const ZooEntry& e : small_models()) {
        ZooSettings settings;
        if (has_option(e, "batch_norm")) settings["batch_norm"] = 1;
        const onnx::ModelProto model = parsed(build_zoo_model(e.name, 0, settings).bytes);
        int64_t count = 0;
        for (const auto& t : model.graph().initializer()) {
            const std::string& name = t.name();
            if (t.data_type() != onnx::TensorProto::FLOAT) continue;
            if (name.find("running_") != std::string::npos) continue;
            int64_t n = 1;
            for (int64_t d : t.dims()) n *= d;
            EXPECT_EQ(t.raw_data().size(), static_cast<size_t>(n) * 4) << e.name << " " << name;
            count += n;
        }
        EXPECT_EQ(count, e.parameters) << e.name;
    }
}

/// The reference checker accepts the model, and infers the declared types of its outputs.
void expect_sound(const std::string& label, const std::string& bytes) {
    SCOPED_TRACE(label);
    onnx::ModelProto model = parsed(bytes);
    ASSERT_NO_THROW(onnx::checker::check_model(model));
    const onnx::GraphProto declared = model.graph();
    for (auto& out : *model.mutable_graph()->mutable_output()) out.mutable_type()->mutable_tensor_type()->clear_shape();
    const onnx::ShapeInferenceOptions strict(true, 1, true);
    ASSERT_NO_THROW(onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), strict));
    for (int i = 0; i < declared.output_size(); ++i) {
        const auto& want = declared.output(i).type().tensor_type();
        const auto& got = model.graph().output(i).type().tensor_type();
        EXPECT_EQ(got.elem_type(), want.elem_type());
        const auto& dims = want.shape().dim();
        const bool symbolic = std::any_of(dims.begin(), dims.end(), [](const auto& d) { return d.has_dim_param(); });
        // For symbolic models the checker may infer less, but nothing different.
        if (symbolic && !got.has_shape()) continue;
        ASSERT_EQ(got.shape().dim_size(), want.shape().dim_size());
        for (int d = 0; d < want.shape().dim_size(); ++d) {
            if (symbolic && !got.shape().dim(d).has_dim_value()) continue;
            EXPECT_EQ(got.shape().dim(d).dim_value(), want.shape().dim(d).dim_value()) << "axis " << d;
        }
    }
}

TEST(Zoo, PassesTheReferenceChecker) {
    for (const ZooEntry& e : small_models()) expect_sound(e.name, build_zoo_model(e.name).bytes);
    for (const ZooEntry& e : small_models(6'000'000)) {
        expect_sound(e.name + " opset=13", build_zoo_model(e.name, 0, {{"opset", 13}}).bytes);
        if (has_option(e, "batch_norm")) {
            expect_sound(e.name + " batch_norm=1", build_zoo_model(e.name, 0, {{"batch_norm", 1}}).bytes);
        }
        if (has_option(e, "batch")) {
            expect_sound(e.name + " batch=0", build_zoo_model(e.name, 0, {{"batch", 0}}).bytes);
            expect_sound(e.name + " batch=3", build_zoo_model(e.name, 0, {{"batch", 3}}).bytes);
        }
        if (has_option(e, "seq")) expect_sound(e.name + " seq=19", build_zoo_model(e.name, 0, {{"seq", 19}}).bytes);
    }
}

TEST(Zoo, IsReadByTheImporter) {
    for (const ZooEntry& e : small_models()) {
        const ZooModel zoo_model = build_zoo_model(e.name);
        const Model model = load_model_from_bytes(zoo_model.bytes.data(), zoo_model.bytes.size());
        EXPECT_TRUE(model.graph.verify().empty()) << e.name << ": " << model.graph.verify().front();
        ASSERT_EQ(model.graph.inputs.size(), e.inputs.size()) << e.name;
        for (size_t i = 0; i < e.inputs.size(); ++i) {
            EXPECT_EQ(model.graph.inputs[i].name, e.inputs[i].name);
            EXPECT_EQ(model.graph.inputs[i].type.dtype, e.inputs[i].dtype);
            EXPECT_EQ(model.graph.inputs[i].type.shape, e.inputs[i].shape) << e.name;
        }
        ASSERT_EQ(model.graph.outputs.size(), e.outputs.size()) << e.name;
        for (size_t i = 0; i < e.outputs.size(); ++i) EXPECT_EQ(model.graph.outputs[i].name, e.outputs[i]);
    }
}

TEST(Zoo, EqualSeedsGiveEqualBytes) {
    const std::string bytes = build_zoo_model("gpt2_tiny", 5).bytes;
    EXPECT_EQ(build_zoo_model("gpt2_tiny", 5).bytes, bytes);
    const std::string other = build_zoo_model("gpt2_tiny", 6).bytes;
    EXPECT_EQ(other.size(), bytes.size());
    EXPECT_NE(other, bytes);
}

TEST(Zoo, BatchChangesShapesNotWeights) {
    const onnx::ModelProto one = parsed(build_zoo_model("mobilenet_v2").bytes);
    const onnx::ModelProto eight = parsed(build_zoo_model("mobilenet_v2", 0, {{"batch", 8}}).bytes);
    EXPECT_EQ(eight.graph().input(0).type().tensor_type().shape().dim(0).dim_value(), 8);
    ASSERT_EQ(one.graph().initializer_size(), eight.graph().initializer_size());
    for (int i = 0; i < one.graph().initializer_size(); ++i) {
        ASSERT_EQ(one.graph().initializer(i).raw_data(), eight.graph().initializer(i).raw_data());
    }
    EXPECT_EQ(build_zoo_model("mobilenet_v2", 0, {{"batch", 8}}).macs, 8 * entry("mobilenet_v2").macs);
}

// Torchvision's MobileNetV2 with other width multipliers has as many parameters.
TEST(Zoo, WidthScalesTheChannelsOfMobileNet) {
    const auto parameters = [](int64_t percent, int64_t in) {
        const onnx::ModelProto model =
            parsed(build_zoo_model("mobilenet_v2", 0, {{"width", percent}, {"in", in}}).bytes);
        int64_t n = 0;
        for (const auto& tensor : model.graph().initializer())
            if (tensor.data_type() == onnx::TensorProto::FLOAT) {
                int64_t elements = 1;
                for (const int64_t d : tensor.dims()) elements *= d;
                n += elements;
            }
        return n;
    };
    const int64_t whole = parameters(100, 3);
    EXPECT_NEAR(static_cast<double>(parameters(50, 3)) * 1e-6, 1.97, 0.03);
    EXPECT_NEAR(static_cast<double>(parameters(140, 3)) * 1e-6, 6.11, 0.05);
    EXPECT_EQ(whole - parameters(100, 1), 2 * 32 * 9);  // the first layer reads one channel
}

TEST(Zoo, WritesTheSameBytesToAFile) {
    const auto folder = std::filesystem::temp_directory_path() / ("zoo_test_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    const std::string path = folder / "mlp.onnx";
    write_zoo_model("mlp", path, 3, {{"hidden", 32}});
    std::ifstream file(path, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    EXPECT_EQ(bytes.str(), build_zoo_model("mlp", 3, {{"hidden", 32}}).bytes);
    // The folder contains no other files.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    std::filesystem::remove_all(folder);
}

TEST(Zoo, ReportsFilesThatCannotBeWritten) {
    try {
        write_zoo_model("mlp", "/nonexistent-folder/mlp.onnx");
        FAIL() << "no error";
    } catch (const RuntimeError& e) {
        EXPECT_EQ(std::string(e.what()).find("cannot create '/nonexistent-folder/mlp.onnx"), 0u) << e.what();
        EXPECT_NE(std::string(e.what()).find("No such file"), std::string::npos) << e.what();
    }
}

TEST(Zoo, SuggestsSimilarNames) {
    EXPECT_EQ(error_of("resnet5", {}), "the zoo has no model 'resnet5' | did you mean resnet50?");
    EXPECT_EQ(error_of("resent50", {}), "the zoo has no model 'resent50' | did you mean resnet50?");
    EXPECT_NE(error_of("inception", {}).find("choose from mlp, "), std::string::npos);
    EXPECT_EQ(error_of("mlp", {{"hiden", 3}}), "zoo model 'mlp' has no setting 'hiden' | did you mean hidden?");
    EXPECT_EQ(error_of("mlp", {{"layers", 0}}), "zoo model 'mlp': setting 'layers' takes 1 to 256, found 0 | ");
}

TEST(Zoo, RefusesInvalidSettings) {
    EXPECT_NE(error_of("conv2d", {{"groups", 7}}).find("groups = 7"), std::string::npos);
    EXPECT_NE(error_of("conv2d", {{"size", 1}, {"pad", 0}}).find("does not fit"), std::string::npos);
    EXPECT_NE(error_of("yolox_nano", {{"size", 100}}).find("multiple of 32"), std::string::npos);
    EXPECT_NE(error_of("mlp", {{"in", 65536}, {"hidden", 65536}}).find("2048 MB"), std::string::npos);
}

}  // namespace
}  // namespace tilewright
