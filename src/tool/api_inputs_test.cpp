// The C interface accepts inputs of any alignment, function libraries, and operators for files.

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <fstream>

#include "onnx/onnx_pb.h"
#include "tilewright/tilewright.hpp"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using namespace import_test;

struct InputType {
    tilewright_dtype dtype;
    int onnx;   ///< the number of the type in the format
    int opset;  ///< the first opset whose Transpose supports it
};
constexpr std::array<InputType, 23> kInputTypes = {
    {{TILEWRIGHT_F32, 1, 13},     {TILEWRIGHT_F64, 11, 13},        {TILEWRIGHT_F16, 10, 13},
     {TILEWRIGHT_BF16, 16, 13},   {TILEWRIGHT_I8, 3, 13},          {TILEWRIGHT_I16, 5, 13},
     {TILEWRIGHT_I32, 6, 13},     {TILEWRIGHT_I64, 7, 13},         {TILEWRIGHT_U8, 2, 13},
     {TILEWRIGHT_U16, 4, 13},     {TILEWRIGHT_U32, 12, 13},        {TILEWRIGHT_U64, 13, 13},
     {TILEWRIGHT_BOOL, 9, 13},    {TILEWRIGHT_F8E4M3FN, 17, 21},   {TILEWRIGHT_F8E4M3FNUZ, 18, 21},
     {TILEWRIGHT_F8E5M2, 19, 21}, {TILEWRIGHT_F8E5M2FNUZ, 20, 21}, {TILEWRIGHT_F8E8M0, 24, 24},
     {TILEWRIGHT_I4, 22, 21},     {TILEWRIGHT_U4, 21, 21},         {TILEWRIGHT_F4E2M1, 23, 23},
     {TILEWRIGHT_I2, 26, 25},     {TILEWRIGHT_U2, 25, 25}}};

class InputOfType : public testing::TestWithParam<InputType> {};

TEST_P(InputOfType, MayHaveAnyAlignment) {
    constexpr size_t kRows = 37, kColumns = 21, kCount = kRows * kColumns;
    const InputType t = GetParam();
    onnx::ModelProto m = new_model(t.opset);
    onnx::GraphProto& g = *m.mutable_graph();
    add_input(g, "x", {kRows, kColumns}, t.onnx);
    add_node(g, "Transpose", {"x"}, {"y"});
    add_output(g, "y", {kColumns, kRows}, t.onnx);
    const std::string bytes = to_bytes(m);
    tw::Session session(tw::Model::from_memory(bytes.data(), bytes.size()), 1);
    const size_t size = tilewright_dtype_size(t.dtype);
    std::vector<unsigned char> elements(kCount * size), expected(kCount * size);
    for (size_t k = 0; k < elements.size(); ++k)
        elements[k] = static_cast<unsigned char>(k % 3 == 0);  // valid for each type
    for (size_t r = 0; r < kRows; ++r)
        for (size_t c = 0; c < kColumns; ++c)
            std::memcpy(&expected[(c * kRows + r) * size], &elements[(r * kColumns + c) * size], size);
    alignas(64) std::array<unsigned char, kCount * 8 + 64> memory{};
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{3}, size, size_t{63}}) {
        std::memcpy(memory.data() + offset, elements.data(), elements.size());
        const tw::Tensor y = session.run({{t.dtype, {kRows, kColumns}, memory.data() + offset, elements.size()}}).at(0);
        ASSERT_EQ(y.bytes, expected.size());
        EXPECT_EQ(std::memcmp(y.data, expected.data(), y.bytes), 0) << "at " << offset;
    }
}

INSTANTIATE_TEST_SUITE_P(All, InputOfType, testing::ValuesIn(kInputTypes),
                         [](const testing::TestParamInfo<InputType>& type) {
                             return std::string(tilewright_dtype_name(type.param.dtype));
                         });

// --- function libraries

/// A file whose function local.F(v) is one node.
std::string library_of(const std::string& op) {
    onnx::ModelProto m;
    add_node(add_function(m, "local", "F", {"v"}, {"r"}), op, {"v"}, {"r"}, "n");
    return to_bytes(m);
}

class ApiFunctions : public testing::Test {
  protected:
    ApiFunctions() {
        onnx::ModelProto m = new_model();
        add_input(*m.mutable_graph(), "x", {1});
        add_node(*m.mutable_graph(), "F", {"x"}, {"y"}, "call").set_domain("local");
        add_output(*m.mutable_graph(), "y", {1});
        model_ = to_bytes(m);
    }
    float run(const tw::Options& options) const {
        tw::Session session(tw::Model::from_memory(model_.data(), model_.size(), options), 1);
        const std::vector<float> x = {-3};
        return *session.run({tw::tensor(x, {1})}).at(0).as<float>();
    }
    std::string error(const tw::Options& options) const {
        try {
            run(options);
        } catch (const tw::Error& e) {
            return std::to_string(e.status()) + " " + e.what();
        }
        return "no error";
    }
    std::string model_;
    Workplace place_;
};

TEST_F(ApiFunctions, DefineOperators) {
    tw::Options options;
    options.function_libraries = {{"", library_of("Neg")}};
    EXPECT_EQ(run(options), 3);
    std::ofstream(place_ / "lib.onnx", std::ios::binary) << library_of("Relu");
    options.function_libraries = {{place_ / "lib.onnx", ""}};
    EXPECT_EQ(run(options), 0);
}

TEST_F(ApiFunctions, AreNamedInErrors) {
    tw::Options options;
    options.function_libraries = {{"no/such.onnx", ""}};
    EXPECT_THAT(error(options), testing::HasSubstr("3 cannot open no/such.onnx"));
    options.function_libraries = {{"", "PK\3\4"}};
    EXPECT_THAT(error(options), testing::HasSubstr("2 <functions 0>: the file is a ZIP archive"));
    options.function_libraries = {{"", library_of("Neg")}, {"", library_of("Abs")}};
    EXPECT_THAT(error(options),
                testing::HasSubstr("function 'local.F' of '<functions 1>' is defined by '<functions 0>'"));
}

TEST_F(ApiFunctions, DecideWhichKeptModelIsLoaded) {
    tw::Options options;
    options.cache = true;
    options.cache_folder = place_ / "cache";
    int loaded = 0;
    options.log = [&loaded](tilewright_severity, const std::string& text) {
        loaded += text == "load_kept_model" ? 1 : 0;
    };
    options.function_libraries = {{"", library_of("Neg")}};
    EXPECT_EQ(run(options), 3);
    EXPECT_EQ(loaded, 0);
    EXPECT_EQ(run(options), 3);
    EXPECT_EQ(loaded, 1);
    options.function_libraries = {{"", library_of("Relu")}};
    EXPECT_EQ(run(options), 0);
    EXPECT_EQ(loaded, 1);
}

// --- files with operators of the caller

TEST_F(ApiFunctions, AreNeededInFilesWhereTheyAreOperators) {
    tw::OperatorDefinition negate;
    negate.domain = "local";
    negate.name = "F";
    negate.compute = [](tw::Call& call) { *call.output_as<float>(0) = -*call.input(0).as<float>(); };
    onnx::ModelProto m;
    ASSERT_TRUE(m.ParseFromString(model_));
    auto& import = *m.add_opset_import();
    import.set_domain("local");
    import.set_version(1);
    model_ = to_bytes(m);
    tw::Options options;
    options.operators = {tw::Operator(negate)};
    options.output_file = place_ / "model.so";
    EXPECT_EQ(run(options), 3);
    const Result inspected = place_.run({"inspect", "model.so"});
    EXPECT_EQ(inspected.status, 0) << inspected.err;
    EXPECT_THAT(inspected.out, testing::HasSubstr("operators  local.F, of the caller\n"));
    const Result refused = place_.run({"run", "model.so"});
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, testing::HasSubstr("the operator local.F was not given"));
}

}  // namespace
}  // namespace tilewright::tool_test
