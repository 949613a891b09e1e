#include "graph/import_type.h"

#include "base/error.h"
#include "graph/import_tensor.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_detail {

namespace {

using Container = DeclaredType::Container;

DeclaredType unsupported(std::string what) {
    DeclaredType type;
    type.container = Container::Unsupported;
    type.unsupported = std::move(what);
    return type;
}

DeclaredDim convert_dim(const onnx::TensorShapeProto::Dimension& dim) {
    if (dim.has_dim_value() && dim.dim_value() >= 0) return dim.dim_value();
    return dim.has_dim_param() ? named_dim(dim.dim_param()) : DeclaredDim();
}

DeclaredType convert_tensor_type(const onnx::TypeProto::Tensor& tensor, const std::string& name) {
    DeclaredType type;
    if (tensor.elem_type() != onnx::TensorProto::UNDEFINED) {
        const std::optional<DType> dtype = dtype_from_onnx(tensor.elem_type());
        if (!dtype) return unsupported(unsupported_type_name(tensor.elem_type()));
        type.dtype = *dtype;
        type.has_dtype = true;
    }
    if (!tensor.has_shape()) return type;
    int64_t count = 1;
    bool overflow = false;
    type.shape.emplace();
    for (const auto& dim : tensor.shape().dim()) {
        type.shape->push_back(convert_dim(dim));
        if (const auto* number = std::get_if<int64_t>(&type.shape->back()))
            overflow |= __builtin_mul_overflow(count, *number, &count);
    }
    if (overflow || count > INT64_MAX / 64)
        model_error("the declared shape of {} has more elements than can be counted", quoted_name(name));
    return type;
}

DeclaredType convert_type(const onnx::TypeProto& type, const std::string& name) {
    const auto inside = [&](const onnx::TypeProto& element, Container container) {
        DeclaredType converted = convert_tensor_type(element.tensor_type(), name);
        if (converted.container == Container::None) converted.container = container;
        return converted;
    };
    switch (type.value_case()) {
        case onnx::TypeProto::VALUE_NOT_SET:
            return {};
        case onnx::TypeProto::kTensorType:
            return convert_tensor_type(type.tensor_type(), name);
        case onnx::TypeProto::kSequenceType:
            if (!type.sequence_type().elem_type().has_tensor_type()) return unsupported("sequence of non-tensors");
            return inside(type.sequence_type().elem_type(), Container::Sequence);
        case onnx::TypeProto::kOptionalType: {
            const onnx::TypeProto& element = type.optional_type().elem_type();
            if (element.has_tensor_type()) return inside(element, Container::Optional);
            if (!element.sequence_type().elem_type().has_tensor_type()) return unsupported("optional of non-tensors");
            return inside(element.sequence_type().elem_type(), Container::OptionalSequence);
        }
        case onnx::TypeProto::kMapType:
            return unsupported("map");
        case onnx::TypeProto::kSparseTensorType:
            return unsupported("sparse tensor");
        default:
            return unsupported("opaque type");
    }
}

}  // namespace

DeclaredDim named_dim(const std::string& text) {
    if (text.empty() || text[0] == '-' || text == "?" || text == "None") return std::monostate();
    return text;
}

DeclaredType convert_type(const onnx::ValueInfoProto& value) { return convert_type(value.type(), value.name()); }

}  // namespace tilewright::import_detail
