// compile and inspect, and the commands that accept a compiled model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "driver/npy.h"
#include "onnx/onnx_pb.h"
#include "tilewright/tilewright.hpp"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

/// y = Softmax(x W), x of shape [batch, 3].
onnx::ModelProto softmax_of_product() {
    onnx::ModelProto m = new_model();
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {1, 3});
    g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("batch");
    onnx::TensorProto& w = *g.add_initializer();
    w.set_name("w");
    w.set_data_type(onnx::TensorProto::FLOAT);
    w.add_dims(3);
    w.add_dims(4);
    for (int i = 0; i < 12; ++i) w.add_float_data(static_cast<float>(i % 5) - 2);
    add_node(g, "MatMul", {"x", "w"}, {"product"});
    add_node(g, "Softmax", {"product"}, {"y"});
    add_output(g, "y");
    g.mutable_output(0)->mutable_type()->mutable_tensor_type()->clear_shape();
    return m;
}

class CompileTool : public testing::Test {
  protected:
    CompileTool() {
        place.write("model.onnx", softmax_of_product());
        save_npy(place / "x.npy", Tensor::of<float>(DType::F32, {2, 3}, {-1, 2, -3, 4, -5, 6}));
    }
    void compile(const std::vector<std::string>& options = {}) const {
        std::vector<std::string> arguments = {"compile", "model.onnx", "-o", "model.so"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        const Result r = place.run(arguments);
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, HasSubstr("model.onnx -> model.so"));
    }
    Workplace place;
};

TEST_F(CompileTool, RunsTheFileAsTheModel) {
    compile();
    for (const char* model : {"model.onnx", "model.so"}) {
        const Result r = place.run({"run", model, "--input", "x=x.npy", "--output-dir", std::string(model) + ".out"});
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, HasSubstr("output 'y' f32[2, 4]"));
    }
    EXPECT_EQ(place.read("model.so.out/y.npy"), place.read("model.onnx.out/y.npy"));
}

TEST_F(CompileTool, CopiesWeightsOfTheFileIfAsked) {
    compile();
    for (const char* folder : {"mapped", "copied"}) {
        std::vector<std::string> arguments = {"run", "model.so", "--input", "x=x.npy", "--output-dir", folder};
        if (std::string(folder) == "copied") arguments.emplace_back("--copy-weights");
        const Result r = place.run(arguments);
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(r.err, "");
    }
    EXPECT_EQ(place.read("copied/y.npy"), place.read("mapped/y.npy"));
}

TEST_F(CompileTool, NamesOptionsWithoutEffectOnTheFile) {
    compile();
    const Result r = place.run({"run", "model.so", "--input", "x=x.npy", "--threads", "1", "--precision", "auto",
                                "--skip", "rewrite", "--kv-cache", "--functions", "f.onnx"});
    EXPECT_EQ(r.status, 0) << r.err;
    const Result range = place.run({"run", "model.so", "--input", "x=x.npy", "--threads", "1", "--dim", "rows=1..8"});
    EXPECT_EQ(range.status, 0) << range.err;
    EXPECT_THAT(range.err, HasSubstr("'model.so' is compiled already: a range of --dim has no effect"));
    for (const char* option : {"--precision", "--skip", "--kv-cache", "--functions"})
        EXPECT_THAT(r.err, HasSubstr("'model.so' is compiled already: " + std::string(option) + " has no effect"));
    for (const char* option : {"--threads", "--input"}) EXPECT_THAT(r.err, Not(HasSubstr(option)));
}

TEST_F(CompileTool, WritesEqualBytesTwice) {
    compile();
    const std::string first = place.read("model.so");
    compile({"--no-code-cache"});
    EXPECT_EQ(place.read("model.so"), first);
}

TEST_F(CompileTool, WritesArchivesWithAHeader) {
    for (int twice = 0; twice < 2; ++twice) {  // a header of its own is written again
        const Result r = place.run({"compile", "model.onnx", "-o", "re-lu.v1.a"});
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_THAT(r.out, HasSubstr("model.onnx -> re-lu.v1.a"));
    }
    EXPECT_EQ(place.read("re-lu.v1.a").substr(0, 8), "!<arch>\n");
    EXPECT_THAT(place.read("re-lu.v1.a"), HasSubstr("tilewright_model_re_lu_v1"));
    EXPECT_THAT(place.read("re-lu.v1.h"), HasSubstr("extern const tilewright_linked_model tilewright_model_re_lu_v1;"));
    const Result r = place.run({"run", "re-lu.v1.a", "--input", "x=x.npy"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("is an archive, which programs are linked with"));
}

TEST_F(CompileTool, KeepsAHeaderThatItHasNotWritten) {
    std::ofstream(place / "mine.h") << "int mine;\n";
    const Result r = place.run({"compile", "model.onnx", "-o", "mine.a"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("'mine.h', which declares the model of the archive, exists"));
    EXPECT_EQ(place.read("mine.h"), "int mine;\n");
    EXPECT_FALSE(place.exists("mine.a"));
}

TEST_F(CompileTool, InspectsBenchesAndVerifiesTheFile) {
    compile({"--isa", "avx2"});
    const Result inspected = place.run({"inspect", "model.so", "--json", "i.json"});
    EXPECT_EQ(inspected.status, 0) << inspected.err;
    for (const char* part : {"input 'x' f32[$batch, 3]", "output 'y' f32[$batch, 4]", "Tilewright " TILEWRIGHT_VERSION,
                             "x86_64, avx2", "fma"})
        EXPECT_THAT(inspected.out, HasSubstr(part));
    EXPECT_GE(Json::parse(place.read("i.json"))["weight_bytes"], 64);
    const Result bench = place.run({"bench", "model.so", "--dim", "batch=5", "--iterations", "3"});
    EXPECT_EQ(bench.status, 0) << bench.err;
    const Result verified = place.run({"verify", "model.so", "--reference", "model.onnx", "--dim", "batch=5"});
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("verified"));
    EXPECT_EQ(place.run({"verify", "model.so"}).status, 2);
    EXPECT_EQ(place.run({"verify", "model.so", "--kernels"}).status, 2);
    EXPECT_EQ(place.run({"verify", "model.onnx", "--reference", "model.onnx"}).status, 2);
}

TEST_F(CompileTool, WritesCodeForSeveralSetsOfInstructions) {
    compile({"--isa", "amx,avx2", "--json", "c.json"});
    EXPECT_EQ(Json::parse(place.read("c.json"))["levels"], Json({"avx2", "amx"}));
    ASSERT_EQ(place.run({"inspect", "model.so", "--json", "i.json"}).status, 0);
    const Json variants = Json::parse(place.read("i.json"))["variants"];
    ASSERT_EQ(variants.size(), 2u);
    EXPECT_EQ(variants[0]["isa"], "avx2");
    EXPECT_THAT(variants[1]["features"], testing::Contains("amx-tile"));
    const std::string here = variants[1]["runs_here"] ? "amx" : "avx2";
    EXPECT_EQ(variants[0]["runs_here"], here == "avx2");
    for (const std::vector<std::string>& run :
         {std::vector<std::string>{"run", "model.so"}, {"run", "model.onnx", "--isa", here}}) {
        std::vector<std::string> arguments = run;
        for (const std::string& a :
             {std::string("--input"), std::string("x=x.npy"), std::string("--output-dir"), run[1] + ".out"})
            arguments.push_back(a);
        const Result r = place.run(arguments);
        ASSERT_EQ(r.status, 0) << r.err;
    }
    EXPECT_EQ(place.read("model.so.out/y.npy"), place.read("model.onnx.out/y.npy"));
}

TEST_F(CompileTool, CompilesForAnotherArchitecture) {
    compile({"--isa", "neon"});
    const Result r = place.run({"run", "model.so"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("'model.so' was compiled for aarch64, and this machine is x86_64"));
    EXPECT_THAT(place.run({"inspect", "model.so"}).out, HasSubstr("target     aarch64, "));
    EXPECT_THAT(place.run({"compile", "model.onnx", "-o", "both.so", "--isa", "avx2,neon"}).err,
                HasSubstr("a file is for one architecture, and these are for aarch64 and x86_64"));
    EXPECT_FALSE(place.exists("both.so"));
}

TEST_F(CompileTool, DumpsThePlanOfFixedDimensions) {
    const auto dumped = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"dump", "model.onnx", "--stage", "tiles", "--threads", "1"});
        const Result r = place.run(more);
        EXPECT_EQ(r.status, 0) << r.err;
        return r.out;
    };
    EXPECT_THAT(dumped({}), HasSubstr("$batch"));
    const std::string fixed = dumped({"--dim", "batch=7"});
    EXPECT_THAT(fixed, AllOf(Not(HasSubstr("$batch")), HasSubstr("7")));
    const Result r = place.run({"dump", "model.onnx", "--dim", "batch=7"});
    EXPECT_NE(r.status, 0);
    EXPECT_THAT(r.err, HasSubstr("--stage"));
}

TEST_F(CompileTool, FixesDimensions) {
    compile({"--dim", "batch=2"});
    EXPECT_THAT(place.run({"inspect", "model.so"}).out, HasSubstr("input 'x' f32[2, 3]"));
    EXPECT_TRUE(refused(place.run({"compile", "model.onnx", "-o", "other.so", "--dim", "rows=2"})));
    EXPECT_FALSE(place.exists("other.so"));
}

TEST_F(CompileTool, RefusesDamagedFiles) {
    compile();
    const std::string bytes = place.read("model.so");
    for (const size_t kept : {size_t{5}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
        std::ofstream(place / "cut.so", std::ios::binary) << bytes.substr(0, kept);
        for (const char* command : {"run", "inspect", "bench"})
            EXPECT_TRUE(refused(place.run({command, "cut.so"}))) << command << " of " << kept << " bytes";
    }
    std::string wrong = bytes;
    wrong[bytes.size() / 3] = static_cast<char>(~wrong[bytes.size() / 3]);
    std::ofstream(place / "wrong.so", std::ios::binary) << wrong;
    const Result r = place.run({"run", "wrong.so"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("'wrong.so' is damaged"));
    EXPECT_TRUE(refused(place.run({"inspect", "model.onnx"})));
    EXPECT_TRUE(refused(place.run({"inspect", TW_TOOL})));
}

TEST_F(CompileTool, WritesFilesThatTheInterfaceLoads) {
    compile();
    const tw::Model model = tw::Model::load(place / "model.so");
    ASSERT_EQ(model.inputs().size(), 1u);
    EXPECT_EQ(model.inputs()[0].name, "x");
    tw::Session loaded(model, 1), compiled(tw::Model::from_file(place / "model.onnx"), 1);
    const std::vector<float> x = {1, 2, 3, -4, 5, -6};
    const tw::Tensor a = loaded.run({tw::tensor(x, {2, 3})}).at(0), b = compiled.run({tw::tensor(x, {2, 3})}).at(0);
    ASSERT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0);
    EXPECT_THROW(tw::Model::load(place / "model.onnx"), tw::Error);
}

}  // namespace
}  // namespace tilewright::tool_test
