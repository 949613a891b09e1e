#include "driver/zoo/builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "onnx/onnx_pb.h"

namespace tilewright::nets {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

namespace {

constexpr int64_t kIrVersion = 8;                                        // the version of ONNX 1.12, opset 17
constexpr int64_t kFileLimit = (int64_t{1} << 31) - (int64_t{1} << 20);  // protobuf's 2 GB, minus the size of the nodes

int onnx_type(DType t) {
    switch (t) {
        case DType::F32:
            return onnx::TensorProto::FLOAT;
        case DType::I64:
            return onnx::TensorProto::INT64;
        case DType::Bool:
            return onnx::TensorProto::BOOL;
        default:
            break;
    }
    TW_CHECK(false, "the zoo writes no {} tensors", to_string(t));
}

void to_proto(const Tensor& value, onnx::TensorProto& to) {
    to.set_data_type(onnx_type(value.dtype()));
    for (int64_t d : value.shape()) to.add_dims(d);
    to.set_raw_data(value.data(), value.bytes());
}

void to_proto(const std::string& name, const Attribute& value, onnx::AttributeProto& to) {
    to.set_name(name);
    if (const auto* i = std::get_if<int64_t>(&value)) {
        to.set_type(onnx::AttributeProto::INT);
        to.set_i(*i);
    } else if (const auto* f = std::get_if<float>(&value)) {
        to.set_type(onnx::AttributeProto::FLOAT);
        to.set_f(*f);
    } else if (const auto* s = std::get_if<std::string>(&value)) {
        to.set_type(onnx::AttributeProto::STRING);
        to.set_s(*s);
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
        to.set_type(onnx::AttributeProto::INTS);
        for (int64_t i64 : *list) to.add_ints(i64);
    } else if (const auto* t = std::get_if<Tensor>(&value)) {
        to.set_type(onnx::AttributeProto::TENSOR);
        to_proto(*t, *to.mutable_t());
    } else {
        TW_CHECK(false, "attribute '{}' has a type that the zoo does not write", name);
    }
}

void to_proto(const std::string& name, DType dtype, const Extents& shape, onnx::ValueInfoProto& to) {
    to.set_name(name);
    auto* type = to.mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx_type(dtype));
    auto* dims = type->mutable_shape();
    for (const Extent& e : shape) {
        if (e.is_symbolic()) {
            dims->add_dim()->set_dim_param(e.symbol);
        } else {
            dims->add_dim()->set_dim_value(e.size);
        }
    }
}

std::string joined(const std::vector<std::string>& parts, char separator) {
    std::string out;
    for (const std::string& part : parts) {
        if (!out.empty()) out += separator;
        out += part;
    }
    return out;
}

}  // namespace

int64_t element_count(const Extents& shape) {
    int64_t n = 1;
    for (const Extent& e : shape) n *= e.size;
    return n;
}

Extent operator*(const Extent& a, const Extent& b) {
    if (!a.is_symbolic() && !b.is_symbolic()) return {a.size * b.size};
    const auto text = [](const Extent& e) { return e.is_symbolic() ? e.symbol : std::to_string(e.size); };
    return {a.size * b.size, text(a) + "*" + text(b)};
}

const Extent& Value::operator[](int64_t axis) const {
    const int64_t i = axis < 0 ? axis + rank() : axis;
    TW_CHECK(i >= 0 && i < rank(), "'{}' has rank {}, no axis {}", name, rank(), axis);
    return shape[static_cast<size_t>(i)];
}

struct GraphBuilder::Proto {
    onnx::ModelProto model;
    onnx::GraphProto& graph() { return *model.mutable_graph(); }
};

GraphBuilder::GraphBuilder(const std::string& graph_name, const BuildOptions& options)
    : options_(options), graph_name_(graph_name), proto_(std::make_unique<Proto>()) {
    onnx::ModelProto& model = proto_->model;
    model.set_ir_version(kIrVersion);
    model.set_producer_name("tilewright");
    auto* opset = model.add_opset_import();
    opset->set_domain("");
    opset->set_version(options.opset);
    model.mutable_graph()->set_name(graph_name);
}

GraphBuilder::~GraphBuilder() = default;

GraphBuilder::Scope GraphBuilder::scope(const std::string& name) {
    path_.push_back(name);
    return Scope(*this);
}

std::string GraphBuilder::node_prefix() const {
    std::string out = "/";
    for (const std::string& part : path_) out += part + "/";
    for (char& c : out) {
        if (c == '.') c = '/';
    }
    return out;
}

std::string GraphBuilder::weight_name(const std::string& leaf) const {
    return path_.empty() ? leaf : joined(path_, '.') + "." + leaf;
}

std::string GraphBuilder::unique(const std::string& name) {
    const int n = used_names_[name]++;
    return n == 0 ? name : name + "_" + std::to_string(n);
}

Value GraphBuilder::input(const std::string& name, DType dtype, const Extents& shape, int64_t limit) {
    to_proto(name, dtype, shape, *proto_->graph().add_input());
    ZooInput in{name, dtype, {}, limit};
    for (const Extent& e : shape) {
        in.shape.push_back(e.is_symbolic() ? DeclaredDim(e.symbol) : DeclaredDim(e.size));
    }
    inputs_.push_back(std::move(in));
    return Value{name, dtype, shape};
}

void GraphBuilder::output(const Value& v, const std::string& name) {
    // The value was named after its node at creation: /fc/Gemm_output_0 -> logits, in all places.
    for (auto& node : *proto_->graph().mutable_node()) {
        for (auto& in : *node.mutable_input()) {
            if (in == v.name) in = name;
        }
        for (auto& out : *node.mutable_output()) {
            if (out == v.name) out = name;
        }
    }
    to_proto(name, v.dtype, v.shape, *proto_->graph().add_output());
    outputs_.push_back(name);
}

std::vector<Value> GraphBuilder::node(const std::string& op, const std::vector<Value>& inputs,
                                      const Attributes& attributes, std::vector<Value> outputs) {
    onnx::NodeProto& node = *proto_->graph().add_node();
    node.set_op_type(op);
    node.set_name(unique(node_prefix() + op));
    for (const Value& in : inputs) node.add_input(in.name);
    for (size_t i = 0; i < outputs.size(); ++i) {
        outputs[i].name = node.name() + "_output_" + std::to_string(i);
        node.add_output(outputs[i].name);
    }
    for (const auto& [name, value] : attributes) to_proto(name, value, *node.add_attribute());
    return outputs;
}

Value GraphBuilder::node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes,
                         const Extents& shape) {
    Value out = inputs.at(0);
    out.shape = shape;
    return node(op, inputs, attributes, std::vector<Value>{out})[0];
}

Value GraphBuilder::node(const std::string& op, const std::vector<Value>& inputs, const Attributes& attributes) {
    return node(op, inputs, attributes, std::vector<Value>{inputs.at(0)})[0];
}

Value GraphBuilder::weight(const std::string& leaf, const Ints& shape,
                           const std::function<void(std::span<float>)>& fill) {
    const int64_t count = tilewright::element_count(shape);
    weight_bytes_ += count * 4;
    check_size();
    parameters_ += count;
    onnx::TensorProto& tensor = *proto_->graph().add_initializer();
    const std::string name = weight_name(leaf);
    TW_CHECK(used_names_[name]++ == 0, "two weights are called '{}'", name);
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t d : shape) tensor.add_dims(d);
    if (options_.with_data) {
        std::vector<float> values(static_cast<size_t>(count));
        fill(values);
        tensor.set_raw_data(values.data(), values.size() * sizeof(float));
    }
    Value out{name, DType::F32, {}};
    for (int64_t d : shape) out.shape.emplace_back(d);
    return out;
}

Value GraphBuilder::weight(const std::string& leaf, const Ints& shape, const Draw& d) {
    Value out =
        weight(leaf, shape, [&](std::span<float> values) { draw_normal(weight_name(leaf), options_.seed, d, values); });
    out.mean = d.mean;
    out.variance = d.deviation * d.deviation;
    return out;
}

Value GraphBuilder::buffer(const std::string& leaf, const Ints& shape,
                           const std::function<void(std::span<float>)>& fill) {
    const int64_t before = parameters_;
    Value out = weight(leaf, shape, fill);
    parameters_ = before;
    return out;
}

Value GraphBuilder::buffer(const std::string& leaf, const Ints& shape, const Draw& d) {
    const int64_t before = parameters_;
    Value out = weight(leaf, shape, d);
    parameters_ = before;
    return out;
}

Value GraphBuilder::buffer(const std::string& leaf, const Tensor& value) {
    const std::string name = weight_name(leaf);
    TW_CHECK(used_names_[name]++ == 0, "two weights are called '{}'", name);
    onnx::TensorProto& tensor = *proto_->graph().add_initializer();
    to_proto(value, tensor);
    tensor.set_name(name);
    Value out{name, value.dtype(), {}};
    for (int64_t d : value.shape()) out.shape.emplace_back(d);
    return out;
}

std::vector<float> GraphBuilder::draw(const std::string& leaf, int64_t count, const Draw& d) const {
    if (!options_.with_data) return {};
    std::vector<float> out(static_cast<size_t>(count));
    draw_normal(weight_name(leaf), options_.seed, d, out);
    return out;
}

Value GraphBuilder::constant(const Tensor& value) {
    Value out{{}, value.dtype(), {}};
    for (int64_t d : value.shape()) out.shape.emplace_back(d);
    return node("Constant", {}, {{"value", value}}, std::vector<Value>{out})[0];
}

ZooModel GraphBuilder::summary() const {
    ZooModel out;
    out.inputs = inputs_;
    out.outputs = outputs_;
    out.parameters = parameters_;
    out.macs = macs_;
    return out;
}

void GraphBuilder::check_size() const {
    if (weight_bytes_ > kFileLimit) {
        throw ModelError(fmt::format("zoo model '{}' would hold {} MB of weights; an ONNX file ends at 2048 MB",
                                     graph_name_, weight_bytes_ >> 20),
                         "choose smaller settings");
    }
}

std::string GraphBuilder::serialize() const {
    std::string out;
    if (!proto_->model.SerializeToString(&out)) throw RuntimeError(fmt::format("cannot serialise '{}'", graph_name_));
    return out;
}

void GraphBuilder::write(const std::string& path) const {
    const auto fail = [&](const char* what) {
        throw RuntimeError(fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)));
    };
    // Written to a temporary and then renamed: a reader never sees a partial model. Devices and pipes are written
    // directly.
    struct stat found = {};
    const bool in_place = ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
    const std::string part = in_place ? path : path + ".part" + std::to_string(::getpid());
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail("create");
    errno = 0;
    const bool written = proto_->model.SerializeToFileDescriptor(fd);
    const int write_error = errno;
    const bool closed = ::close(fd) == 0;
    if (written && closed && (in_place || ::rename(part.c_str(), path.c_str()) == 0)) return;
    const int reason = written ? errno : write_error;
    if (!in_place) ::unlink(part.c_str());
    errno = reason;
    fail("write");
}

}  // namespace tilewright::nets
