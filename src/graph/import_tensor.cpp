#include "graph/import_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "graph/graph.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_detail {

static_assert(std::endian::native == std::endian::little,
              "raw data in ONNX files is little-endian, and is not swapped");

namespace {

/// The field of TensorProto that holds a type's elements if raw_data does not.
enum class Field : uint8_t { Float, Int32, Int64, Double, Uint64 };

struct TypeInfo {
    int32_t onnx;
    DType dtype;
    Field field;
    int bits;  // of one element in the file
};

// The numbers are those of TensorProto.DataType in onnx.proto3; those above 16 are newer than the header in use.
constexpr std::array<TypeInfo, 23> kTypes{{
    {1, DType::F32, Field::Float, 32},        {2, DType::U8, Field::Int32, 8},
    {3, DType::I8, Field::Int32, 8},          {4, DType::U16, Field::Int32, 16},
    {5, DType::I16, Field::Int32, 16},        {6, DType::I32, Field::Int32, 32},
    {7, DType::I64, Field::Int64, 64},        {9, DType::Bool, Field::Int32, 8},
    {10, DType::F16, Field::Int32, 16},       {11, DType::F64, Field::Double, 64},
    {12, DType::U32, Field::Uint64, 32},      {13, DType::U64, Field::Uint64, 64},
    {16, DType::BF16, Field::Int32, 16},      {17, DType::F8E4M3FN, Field::Int32, 8},
    {18, DType::F8E4M3FNUZ, Field::Int32, 8}, {19, DType::F8E5M2, Field::Int32, 8},
    {20, DType::F8E5M2FNUZ, Field::Int32, 8}, {21, DType::U4, Field::Int32, 4},
    {22, DType::I4, Field::Int32, 4},         {23, DType::F4E2M1, Field::Int32, 4},
    {24, DType::F8E8M0, Field::Int32, 8},     {25, DType::U2, Field::Int32, 2},
    {26, DType::I2, Field::Int32, 2},
}};

const TypeInfo* find_type(int32_t onnx) {
    const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& t) { return t.onnx == onnx; });
    return it == kTypes.end() ? nullptr : &*it;
}

/// The sizes that the dims of a tensor declare.
struct Extent {
    Shape shape;
    int64_t count = 1;
    uint64_t file_bytes = 0;    // as packed in the file
    uint64_t memory_bytes = 0;  // as a Tensor
};

template <class Dims>
Extent checked_extent(const Dims& dims, const TypeInfo& type, const TensorReader::Describe& describe) {
    Extent e;
    e.shape.assign(dims.begin(), dims.end());
    bool overflow = false;
    for (int64_t d : e.shape) {
        if (d < 0) model_error("{} has a negative dimension: {}", describe(), to_string(e.shape));
        overflow |= __builtin_mul_overflow(e.count, d, &e.count);
    }
    // [2^40, 2^40, 0] has no elements, but its indices overflow.
    if (overflow || e.count > INT64_MAX / 64)
        model_error("{} has more elements than can be counted: {}", describe(), to_string(e.shape));
    e.file_bytes = (static_cast<uint64_t>(e.count) * static_cast<uint64_t>(type.bits) + 7) / 8;
    e.memory_bytes = static_cast<uint64_t>(e.count) * byte_size(type.dtype);
    return e;
}

/// Unpacks two or four elements per byte, the first in the low bits, to one per byte.
Tensor unpack(const TypeInfo& type, const Extent& e, const uint8_t* packed) {
    Tensor out(type.dtype, e.shape, false);
    auto* to = static_cast<uint8_t*>(out.mutable_data());
    const int per_byte = 8 / type.bits;
    const uint8_t mask = static_cast<uint8_t>((1 << type.bits) - 1);
    const uint8_t sign =
        type.dtype == DType::I4 || type.dtype == DType::I2 ? static_cast<uint8_t>(1 << (type.bits - 1)) : 0;
    for (int64_t i = 0; i < e.count; ++i) {
        const uint8_t code = static_cast<uint8_t>(packed[i / per_byte] >> (i % per_byte * type.bits)) & mask;
        to[i] = static_cast<uint8_t>((code ^ sign) - sign);  // sign-extends: 0b1111 -> 0xFF
    }
    return out;
}

/// Any byte except 0 is true.
void normalise_bools(Tensor& t) {
    auto* bytes = static_cast<uint8_t*>(t.mutable_data());
    for (int64_t i = 0; i < t.count(); ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

/// A tensor over the bytes of the file. `owner` is shared if the bytes can be used without a copy.
Tensor from_raw(const TypeInfo& type, const Extent& e, const void* bytes, std::shared_ptr<const void> owner) {
    constexpr uint64_t kWorthSharing = 4096;
    if (type.bits < 8) return unpack(type, e, static_cast<const uint8_t*>(bytes));
    const bool aligned = reinterpret_cast<uintptr_t>(bytes) % byte_size(type.dtype) == 0;
    if (owner != nullptr && aligned && e.memory_bytes >= kWorthSharing && type.dtype != DType::Bool)
        return Tensor(type.dtype, e.shape, bytes, std::move(owner));
    Tensor out(type.dtype, e.shape, false);
    if (e.memory_bytes != 0) std::memcpy(out.mutable_data(), bytes, e.memory_bytes);
    if (type.dtype == DType::Bool) normalise_bools(out);
    return out;
}

int typed_size(const onnx::TensorProto& t, Field field) {
    switch (field) {
        case Field::Float:
            return t.float_data_size();
        case Field::Int32:
            return t.int32_data_size();
        case Field::Int64:
            return t.int64_data_size();
        case Field::Double:
            return t.double_data_size();
        case Field::Uint64:
            return t.uint64_data_size();
    }
    internal_error(__FILE__, __LINE__, "field", "");
}

const char* field_name(Field field) {
    constexpr const char* kNames[] = {"float_data", "int32_data", "int64_data", "double_data", "uint64_data"};
    return kNames[static_cast<size_t>(field)];
}

template <class To, class From>
void narrow(const From& from, Tensor& out) {
    std::transform(from.begin(), from.end(), static_cast<To*>(out.mutable_data()),
                   [](auto v) { return static_cast<To>(v); });
}

/// Elements from the field for their type. Integers narrower than the field wrap, as needed for float16 codes written
/// as signed numbers.
Tensor from_typed(const TypeInfo& type, const Extent& e, const onnx::TensorProto& t) {
    if (type.bits < 8) {
        std::string packed(t.int32_data().begin(), t.int32_data().end());
        return unpack(type, e, reinterpret_cast<const uint8_t*>(packed.data()));
    }
    Tensor out(type.dtype, e.shape, false);
    if (e.count == 0) return out;
    switch (type.field) {
        case Field::Float:
            std::memcpy(out.mutable_data(), t.float_data().data(), e.memory_bytes);
            break;
        case Field::Double:
            std::memcpy(out.mutable_data(), t.double_data().data(), e.memory_bytes);
            break;
        case Field::Int64:
            std::memcpy(out.mutable_data(), t.int64_data().data(), e.memory_bytes);
            break;
        case Field::Uint64:
            if (type.bits == 64) narrow<uint64_t>(t.uint64_data(), out);
            if (type.bits == 32) narrow<uint32_t>(t.uint64_data(), out);
            break;
        case Field::Int32:
            if (type.dtype == DType::Bool) {
                std::transform(t.int32_data().begin(), t.int32_data().end(), static_cast<uint8_t*>(out.mutable_data()),
                               [](int32_t v) { return static_cast<uint8_t>(v != 0); });
            } else if (type.bits == 32) {
                narrow<int32_t>(t.int32_data(), out);
            } else if (type.bits == 16) {
                narrow<uint16_t>(t.int32_data(), out);
            } else {
                narrow<uint8_t>(t.int32_data(), out);
            }
            break;
    }
    return out;
}

/// Checks that the elements of a tensor are stored in at most one way.
void check_one_storage(const onnx::TensorProto& t, uint64_t raw_bytes, bool external, const TypeInfo& type,
                       const TensorReader::Describe& describe) {
    if (t.has_segment()) model_error("{} is stored in segments, which no exporter writes", describe());
    int filled = (raw_bytes != 0 ? 1 : 0) + (external ? 1 : 0) + (t.string_data_size() != 0 ? 1 : 0);
    for (Field f : {Field::Float, Field::Int32, Field::Int64, Field::Double, Field::Uint64}) {
        if (typed_size(t, f) == 0) continue;
        ++filled;
        if (f != type.field)
            model_error("{} is {}, whose elements belong in {}, but it holds {}", describe(), to_string(type.dtype),
                        field_name(type.field), field_name(f));
    }
    if (filled > 1) model_error("{} holds its data in more than one way", describe());
}

[[noreturn]] void wrong_size(const TypeInfo& type, const Extent& e, const std::string& found,
                             const TensorReader::Describe& describe) {
    model_error("{} is {}{} of {} bytes, and holds {}", describe(), to_string(type.dtype), to_string(e.shape),
                e.file_bytes, found);
}

}  // namespace

std::optional<DType> dtype_from_onnx(int32_t data_type) {
    const TypeInfo* type = find_type(data_type);
    return type != nullptr ? std::optional(type->dtype) : std::nullopt;
}

int32_t dtype_to_onnx(DType t) {
    const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& i) { return i.dtype == t; });
    TW_CHECK(it != kTypes.end(), "{}", to_string(t));
    return it->onnx;
}

std::string unsupported_type_name(int32_t data_type) {
    switch (data_type) {
        case onnx::TensorProto::STRING:
            return "string";
        case onnx::TensorProto::COMPLEX64:
            return "complex64";
        case onnx::TensorProto::COMPLEX128:
            return "complex128";
        default:
            return fmt::format("data type {}", data_type);
    }
}

std::optional<Tensor> tensor_from_raw(int32_t data_type, const Shape& shape, const void* bytes,
                                      std::shared_ptr<const void> owner) {
    const TypeInfo* type = find_type(data_type);
    if (type == nullptr) return std::nullopt;
    const Extent e = checked_extent(shape, *type, [] { return std::string("a tensor"); });
    return from_raw(*type, e, bytes, std::move(owner));
}

void tensor_to_proto(const Tensor& tensor, const std::string& name, onnx::TensorProto& out) {
    for (int64_t d : tensor.shape()) out.add_dims(d);
    const TypeInfo& type = *find_type(dtype_to_onnx(tensor.dtype()));
    out.set_data_type(type.onnx);
    out.set_name(name);
    if (type.bits >= 8) {
        out.set_raw_data(tensor.data(), tensor.bytes());
        return;
    }
    const int per_byte = 8 / type.bits;
    const auto elements = tensor.as<uint8_t>();
    std::string packed((elements.size() * static_cast<size_t>(type.bits) + 7) / 8, '\0');
    for (size_t i = 0; i < elements.size(); ++i) {
        const int code = elements[i] & ((1 << type.bits) - 1);
        char& byte = packed[i / static_cast<size_t>(per_byte)];
        byte = static_cast<char>(byte | code << (static_cast<int>(i % static_cast<size_t>(per_byte)) * type.bits));
    }
    out.set_raw_data(std::move(packed));
}

ImportedTensor TensorReader::read(onnx::TensorProto& t, const Tensor* raw, bool may_take, const Describe& describe) {
    const TypeInfo* type = find_type(t.data_type());
    if (type == nullptr) return {{}, unsupported_type_name(t.data_type())};
    const Extent e = checked_extent(t.dims(), *type, describe);
    const bool external = t.data_location() == onnx::TensorProto::EXTERNAL;
    const uint64_t raw_bytes = raw != nullptr ? raw->bytes() : t.raw_data().size();
    check_one_storage(t, raw_bytes, external, *type, describe);

    if (external) {
        std::vector<std::pair<std::string, std::string>> entries;
        for (const auto& entry : t.external_data()) entries.emplace_back(entry.key(), entry.value());
        budget_.charge_tensor(std::max(e.memory_bytes, e.file_bytes), describe);
        const std::string what = describe();
        const Tensor bytes = files_.read(parse_external_range(entries, what), e.file_bytes, what);
        return {from_raw(*type, e, bytes.data(), std::make_shared<Tensor>(bytes)), {}};
    }
    const int typed = typed_size(t, type->field);
    if (typed == 0) {
        if (raw_bytes != e.file_bytes) wrong_size(*type, e, std::to_string(raw_bytes), describe);
        budget_.charge_tensor(e.memory_bytes, describe);
        if (raw != nullptr) return {from_raw(*type, e, raw->data(), std::make_shared<Tensor>(*raw)), {}};
        if (!may_take || !t.has_raw_data()) return {from_raw(*type, e, t.raw_data().data(), nullptr), {}};
        const std::shared_ptr<const std::string> own(t.release_raw_data());
        return {from_raw(*type, e, own->data(), own), {}};
    }
    // Packed elements are stored one byte in each int32.
    const uint64_t expected = type->bits < 8 ? e.file_bytes : static_cast<uint64_t>(e.count);
    if (static_cast<uint64_t>(typed) != expected)
        wrong_size(*type, e, fmt::format("{} numbers in {} where {} belong", typed, field_name(type->field), expected),
                   describe);
    budget_.charge_tensor(e.memory_bytes, describe);
    return {from_typed(*type, e, t), {}};
}

ImportedTensor TensorReader::read_sparse(onnx::SparseTensorProto& t, const Describe& describe) {
    ImportedTensor values = read(*t.mutable_values(), nullptr, false, describe);
    if (!values.unsupported.empty()) return values;
    const TypeInfo* type = find_type(t.values().data_type());
    const Extent e = checked_extent(t.dims(), *type, describe);
    const int64_t stored = values.value.count();
    if (values.value.rank() != 1)
        model_error("{}: the values of a sparse tensor have shape {}, not [N]", describe(),
                    to_string(values.value.shape()));

    Tensor indices = Tensor::of_i64({});
    if (stored != 0 || t.has_indices()) {
        ImportedTensor read_indices = read(*t.mutable_indices(), nullptr, false, describe);
        if (!read_indices.unsupported.empty() || read_indices.value.dtype() != DType::I64)
            model_error("{}: the indices of a sparse tensor are not i64", describe());
        indices = read_indices.value;
    }
    const int64_t rank = static_cast<int64_t>(e.shape.size());
    const bool linear = indices.shape() == Shape{stored};
    if (!linear && indices.shape() != Shape{stored, rank})
        model_error("{}: a sparse tensor of {} values and rank {} has indices of shape {}", describe(), stored, rank,
                    to_string(indices.shape()));

    budget_.charge_expansion(e.memory_bytes);
    budget_.charge_tensor(e.memory_bytes, describe);
    Tensor dense(type->dtype, e.shape);
    const size_t size = byte_size(type->dtype);
    const auto* from = static_cast<const char*>(values.value.data());
    auto* to = static_cast<char*>(dense.mutable_data());
    int64_t previous = -1;
    for (int64_t i = 0; i < stored; ++i) {
        int64_t at = linear ? indices.get_int(i) : 0;
        bool inside = !linear || (at >= 0 && at < e.count);
        for (int64_t d = 0; !linear && d < rank; ++d) {
            const int64_t index = indices.get_int(i * rank + d);
            inside &= index >= 0 && index < e.shape[static_cast<size_t>(d)];
            if (inside) at = at * e.shape[static_cast<size_t>(d)] + index;
        }
        if (!inside)
            model_error("{}: index {} of a sparse tensor of shape {} is out of range", describe(), i,
                        to_string(e.shape));
        if (at <= previous) model_error("{}: the indices of a sparse tensor do not ascend at {}", describe(), i);
        previous = at;
        std::memcpy(to + static_cast<size_t>(at) * size, from + static_cast<size_t>(i) * size, size);
    }
    return {dense, {}};
}

}  // namespace tilewright::import_detail
