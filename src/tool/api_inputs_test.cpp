// The C interface accepts inputs of any alignment.

#include <array>
#include <cstring>

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

}  // namespace
}  // namespace tilewright::tool_test
