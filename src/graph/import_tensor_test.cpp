// TensorProto -> Tensor: every type, in every storage form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>

#include "base/error.h"
#include "graph/import_models_test.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
namespace {

using namespace import_test;
using testing::ElementsAre;

/// A model with one initialiser, which the test fills.
onnx::ModelProto model_with_tensor(int data_type, const std::vector<int64_t>& dims) {
    onnx::ModelProto m = relu_model();
    onnx::TensorProto& t = *m.mutable_graph()->add_initializer();
    t.set_name("w");
    t.set_data_type(data_type);
    for (int64_t d : dims) t.add_dims(d);
    return m;
}

onnx::TensorProto& tensor_of(onnx::ModelProto& m) { return *m.mutable_graph()->mutable_initializer(0); }
Tensor import_tensor(const onnx::ModelProto& m) { return import_model(m).graph.initializers.at("w"); }

std::vector<double> numbers(const Tensor& t) {
    std::vector<double> out;
    for (int64_t i = 0; i < t.count(); ++i) out.push_back(t.get(i));
    return out;
}

struct TypedCase {
    int data_type;
    DType dtype;
    std::vector<int64_t> stored;  // in the field for the type
    std::vector<double> expected;
};

TEST(TensorImport, ReadsTheFieldOfEachType) {
    const std::vector<TypedCase> cases = {
        {1, DType::F32, {1, -2}, {1, -2}},
        {2, DType::U8, {0, 255}, {0, 255}},
        {3, DType::I8, {-128, 127}, {-128, 127}},
        {4, DType::U16, {0, 65535}, {0, 65535}},
        {5, DType::I16, {-32768, 3}, {-32768, 3}},
        {6, DType::I32, {INT32_MIN, 7}, {INT32_MIN, 7}},
        {7, DType::I64, {-(int64_t{1} << 53), 1}, {-0x1p53, 1}},
        {9, DType::Bool, {0, 2}, {0, 1}},
        {10, DType::F16, {0x3C00, -0x4000}, {1, -2}},  // some writers store the code 0xC000 as a signed number
        {11, DType::F64, {5, -6}, {5, -6}},
        {12, DType::U32, {0, 4294967295}, {0, 4294967295.0}},
        {13, DType::U64, {1, int64_t{1} << 60}, {1, 0x1p60}},
        {16, DType::BF16, {0x3F80, 0xC000}, {1, -2}},
        {17, DType::F8E4M3FN, {0x38, 0xC0}, {1, -2}},
        {18, DType::F8E4M3FNUZ, {0x40, 0xC8}, {1, -2}},
        {19, DType::F8E5M2, {0x3C, 0xC0}, {1, -2}},
        {20, DType::F8E5M2FNUZ, {0x40, 0xC4}, {1, -2}},
        {21, DType::U4, {0xF1}, {1, 15}},
        {22, DType::I4, {0x8F}, {-1, -8}},
        {23, DType::F4E2M1, {0xC2}, {1, -2}},
        {24, DType::F8E8M0, {127, 128}, {1, 2}},
        {25, DType::U2, {0x0E}, {2, 3}},
        {26, DType::I2, {0x0D}, {1, -1}},
    };
    for (const TypedCase& c : cases) {
        SCOPED_TRACE(to_string(c.dtype));
        onnx::ModelProto m = model_with_tensor(c.data_type, {2});
        onnx::TensorProto& t = tensor_of(m);
        for (int64_t v : c.stored) {
            if (c.data_type == 1)
                t.add_float_data(static_cast<float>(v));
            else if (c.data_type == 11)
                t.add_double_data(static_cast<double>(v));
            else if (c.data_type == 7)
                t.add_int64_data(v);
            else if (c.data_type == 12 || c.data_type == 13)
                t.add_uint64_data(static_cast<uint64_t>(v));
            else
                t.add_int32_data(static_cast<int32_t>(v));
        }
        const Tensor tensor = import_tensor(m);
        EXPECT_EQ(tensor.dtype(), c.dtype);
        EXPECT_EQ(numbers(tensor), c.expected);
    }
}

TEST(TensorImport, UnpacksSubByteTypesLowBitsFirst) {
    onnx::ModelProto m = model_with_tensor(22, {3});
    tensor_of(m).set_raw_data("\x81\x0F", 2);
    EXPECT_THAT(numbers(import_tensor(m)), ElementsAre(1, -8, -1));
    m = model_with_tensor(25, {5});
    tensor_of(m).set_raw_data("\xE4\x01", 2);
    EXPECT_THAT(numbers(import_tensor(m)), ElementsAre(0, 1, 2, 3, 1));
    m = model_with_tensor(26, {4});
    tensor_of(m).set_raw_data("\xE4", 1);
    EXPECT_THAT(numbers(import_tensor(m)), ElementsAre(0, 1, -2, -1));
}

TEST(TensorImport, MakesBooleansZeroOrOne) {
    onnx::ModelProto m = model_with_tensor(9, {3});
    tensor_of(m).set_raw_data(std::string("\0\x80\x01", 3));
    EXPECT_THAT(import_tensor(m).as<uint8_t>(), ElementsAre(0, 1, 1));
}

TEST(TensorImport, ReadsScalarsAndEmptyTensors) {
    onnx::ModelProto m = model_with_tensor(1, {});
    tensor_of(m).add_float_data(2.5f);
    EXPECT_EQ(import_tensor(m).shape(), Shape{});
    EXPECT_THAT(numbers(import_tensor(m)), ElementsAre(2.5));
    m = model_with_tensor(1, {3, 0});
    EXPECT_EQ(import_tensor(m).shape(), (Shape{3, 0}));
    EXPECT_TRUE(import_tensor(m).defined());
    tensor_of(m).set_raw_data("");
    EXPECT_EQ(import_tensor(m).count(), 0);
}

TEST(TensorImport, RequiresExactlyTheBytesOfTheShape) {
    onnx::ModelProto m = model_with_tensor(1, {2, 3});
    tensor_of(m).set_raw_data(std::string(23, 'x'));
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' is f32[2, 3] of 24 bytes, and holds 23");
    tensor_of(m).set_raw_data(std::string(25, 'x'));
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' is f32[2, 3] of 24 bytes, and holds 25");
    tensor_of(m).clear_raw_data();
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' is f32[2, 3] of 24 bytes, and holds 0");
    tensor_of(m).add_float_data(1);
    EXPECT_EQ(import_error(m),
              "<memory>: initialiser 'w' is f32[2, 3] of 24 bytes, and holds 1 numbers in float_data where 6 belong");
    m = model_with_tensor(22, {3});
    tensor_of(m).set_raw_data("\x11");
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' is i4[3] of 2 bytes, and holds 1");
    tensor_of(m).clear_raw_data();
    for (int i = 0; i < 3; ++i) tensor_of(m).add_int32_data(1);
    EXPECT_EQ(import_error(m),
              "<memory>: initialiser 'w' is i4[3] of 2 bytes, and holds 3 numbers in int32_data where 2 belong");
}

TEST(TensorImport, RefusesDataInTheWrongFieldOrTwice) {
    onnx::ModelProto m = model_with_tensor(1, {1});
    tensor_of(m).add_int64_data(1);
    EXPECT_EQ(import_error(m),
              "<memory>: initialiser 'w' is f32, whose elements belong in float_data, but it holds int64_data");
    tensor_of(m).clear_int64_data();
    tensor_of(m).add_float_data(1);
    tensor_of(m).set_raw_data("1234");
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' holds its data in more than one way");
    tensor_of(m).clear_raw_data();
    tensor_of(m).mutable_segment()->set_end(1);
    EXPECT_EQ(import_error(m), "<memory>: initialiser 'w' is stored in segments, which no exporter writes");
}

TEST(TensorImport, RefusesShapesThatOverflow) {
    const auto import_message = [](const std::vector<int64_t>& dims) {
        return import_error(model_with_tensor(1, dims));
    };
    EXPECT_EQ(import_message({2, -1}), "<memory>: initialiser 'w' has a negative dimension: [2, -1]");
    EXPECT_EQ(import_message({INT64_MIN}),
              "<memory>: initialiser 'w' has a negative dimension: [-9223372036854775808]");
    EXPECT_EQ(import_message({int64_t{1} << 40, int64_t{1} << 40}),
              "<memory>: initialiser 'w' has more elements than can be counted: [1099511627776, 1099511627776]");
    EXPECT_EQ(import_message({INT64_MAX}),
              "<memory>: initialiser 'w' has more elements than can be counted: [9223372036854775807]");
    // Huge but countable, without the data: refused before memory is allocated.
    EXPECT_EQ(import_message({int64_t{1} << 50}),
              "<memory>: initialiser 'w' is f32[1125899906842624] of 4503599627370496 bytes, and holds 0");
}

TEST(TensorImport, KeepsToItsLimits) {
    onnx::ModelProto m = relu_model();
    add_initializer(*m.mutable_graph(), "a", {4}, {1, 2, 3, 4});
    add_initializer(*m.mutable_graph(), "b", {4}, {1, 2, 3, 4});
    ImportLimits limits;
    limits.max_tensor_bytes = 15;
    EXPECT_EQ(import_error(m, limits), "<memory>: initialiser 'a' has 16 bytes, and the limit for one tensor is 15");
    limits.max_tensor_bytes = 16;
    limits.max_total_bytes = 31;
    EXPECT_EQ(import_error(m, limits), "<memory>: with initialiser 'b' the model's tensors pass the limit of 31 bytes");
    limits.max_total_bytes = 32;
    import_model(m, limits);
}

TEST(TensorImport, SharesLargeDataOfAttributesWithoutACopy) {
    onnx::ModelProto m = relu_model();
    onnx::AttributeProto& a = add_attribute(add_node(*m.mutable_graph(), "Constant", {}, {"c"}), "value");
    a.set_type(onnx::AttributeProto::TENSOR);
    a.mutable_t()->set_data_type(7);
    a.mutable_t()->add_dims(1000);
    a.mutable_t()->set_raw_data(std::string(8000, '\1'));
    const Model model = import_model(m);
    EXPECT_EQ(model.graph.nodes[1].attr_tensor("value")->get_int(999), 0x0101010101010101);
}

// ---- sparse tensors

onnx::ModelProto sparse_model(const std::vector<int64_t>& dims, const std::vector<float>& values,
                              const std::vector<int64_t>& index_shape, const std::vector<int64_t>& indices) {
    onnx::ModelProto m = relu_model();
    onnx::SparseTensorProto& s = *m.mutable_graph()->add_sparse_initializer();
    s.mutable_values()->set_name("w");
    s.mutable_values()->set_data_type(1);
    s.mutable_values()->add_dims(static_cast<int64_t>(values.size()));
    for (float v : values) s.mutable_values()->add_float_data(v);
    s.mutable_indices()->set_data_type(7);
    for (int64_t d : index_shape) s.mutable_indices()->add_dims(d);
    for (int64_t i : indices) s.mutable_indices()->add_int64_data(i);
    for (int64_t d : dims) s.add_dims(d);
    return m;
}

TEST(SparseTensorImport, FillsMissingElementsWithZeros) {
    EXPECT_THAT(numbers(import_tensor(sparse_model({2, 3}, {5, 6}, {2}, {1, 5}))), ElementsAre(0, 5, 0, 0, 0, 6));
    EXPECT_THAT(numbers(import_tensor(sparse_model({2, 3}, {5, 6}, {2, 2}, {0, 1, 1, 2}))),
                ElementsAre(0, 5, 0, 0, 0, 6));
    EXPECT_THAT(numbers(import_tensor(sparse_model({2}, {}, {0}, {}))), ElementsAre(0, 0));
}

TEST(SparseTensorImport, ChecksItsIndices) {
    const std::string w = "<memory>: sparse initialiser 'w'";
    EXPECT_EQ(import_error(sparse_model({2, 3}, {5}, {1}, {6})),
              w + ": index 0 of a sparse tensor of shape [2, 3] is out of range");
    EXPECT_EQ(import_error(sparse_model({2, 3}, {5}, {1}, {-1})),
              w + ": index 0 of a sparse tensor of shape [2, 3] is out of range");
    EXPECT_EQ(import_error(sparse_model({2, 3}, {5}, {1, 2}, {0, 3})),
              w + ": index 0 of a sparse tensor of shape [2, 3] is out of range");
    EXPECT_EQ(import_error(sparse_model({2, 3}, {5, 6}, {2}, {4, 4})),
              w + ": the indices of a sparse tensor do not ascend at 1");
    EXPECT_EQ(import_error(sparse_model({2, 3}, {5, 6}, {3}, {0, 1, 2})),
              w + ": a sparse tensor of 2 values and rank 2 has indices of shape [3]");
    onnx::ModelProto m = sparse_model({2}, {5}, {1}, {0});
    m.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->set_data_type(6);
    m.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->clear_int64_data();
    m.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->add_int32_data(0);
    EXPECT_EQ(import_error(m), w + ": the indices of a sparse tensor are not i64");
}

TEST(SparseTensorImport, CannotGrowAFileWithoutBounds) {
    EXPECT_EQ(import_error(sparse_model({int64_t{1} << 35}, {1}, {1}, {0})),
              "<memory>: expanding functions and sparse tensors makes the model more than 1073741824 bytes larger than "
              "its file");
    EXPECT_EQ(import_error(sparse_model({int64_t{1} << 40, int64_t{1} << 40}, {1}, {1}, {0})),
              "<memory>: sparse initialiser 'w' has more elements than can be counted: [1099511627776, 1099511627776]");
}

// ---- files of one tensor

TEST(TensorFile, KeepsEveryTypeAndShape) {
    const TemporaryFolder folder;
    rc::check("load(save(tensor)) == tensor", [&] {
        const auto dtype = static_cast<DType>(*rc::gen::inRange(0, static_cast<int>(DType::U2) + 1));
        const auto shape = *rc::gen::resize(4, rc::gen::container<Shape>(rc::gen::inRange<int64_t>(0, 5)));
        NamedTensor t{*rc::gen::string<std::string>(), Tensor(dtype, shape)};
        for (int64_t i = 0; i < t.value.count(); ++i) t.value.set(i, *rc::gen::inRange<int64_t>(-8, 8));
        const std::string path = folder / "t.pb";
        save_tensor_pb(path, t);
        const NamedTensor again = load_tensor_pb(path);
        RC_ASSERT(again.name == t.name);
        RC_ASSERT(again.value == t.value);
    });
}

TEST(TensorFile, NamesTheError) {
    const TemporaryFolder folder;
    const auto import_message = [&](const onnx::TensorProto& t) -> std::string {
        const std::string path = folder.write("t.pb", t.SerializePartialAsString());
        try {
            load_tensor_pb(path);
        } catch (const ModelError& e) {
            return std::string(e.what()).substr(path.size());
        }
        return "";
    };
    onnx::TensorProto t;
    t.set_name("labels");
    t.set_data_type(8);
    EXPECT_EQ(import_message(t), ": tensor 'labels' is of type string, which is not supported");
    t.set_data_type(1);
    EXPECT_EQ(import_message(t), ": tensor 'labels' is f32[] of 4 bytes, and holds 0");
    t.set_data_location(onnx::TensorProto::EXTERNAL);
    auto& location = *t.add_external_data();
    location.set_key("location");
    location.set_value("t.pb");
    EXPECT_EQ(import_message(t),
              ": tensor 'labels': its data is in the file 't.pb', but no folder for external data is given");
}

TEST(TensorFile, ReportsAPathThatCannotBeWritten) {
    const TemporaryFolder folder;
    EXPECT_THROW(save_tensor_pb(folder / "no/such/folder.pb", {"t", Tensor::of_i64({1})}), RuntimeError);
    if (std::ifstream("/dev/full").good()) {
        EXPECT_THROW(save_tensor_pb("/dev/full", {"t", Tensor::of_i64({1})}), RuntimeError);
    }
}

}  // namespace
}  // namespace tilewright
