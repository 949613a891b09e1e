#include "tool/mutator_test.h"

#include <climits>
#include <iterator>
#include <limits>

#include "onnx/onnx_pb.h"

namespace tilewright::tool_test {

std::string Mutator::mutate(onnx::ModelProto model) {
    // The number of tries is limited, because a model without nodes may have nothing to change.
    size_t changes = 1 + below(3);
    for (size_t tries = 0; changes > 0 && tries < 100; ++tries) changes -= change(model) ? 1 : 0;
    std::string bytes;
    model.SerializeToString(&bytes);
    if (below(16) == 0) change_bytes(bytes);
    return bytes;
}

void Mutator::change_bytes(std::string& bytes) {
    if (bytes.empty()) return;
    switch (below(3)) {
        case 0:
            for (size_t n = 1 + below(4); n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(below(256));
            return;
        case 1:
            bytes.resize(below(bytes.size()));
            return;
        default:
            const size_t from = below(bytes.size());
            bytes.insert(below(bytes.size()), bytes.substr(from, below(64)));
    }
}

bool Mutator::change(onnx::ModelProto& m) {
    onnx::GraphProto* g = m.mutable_graph();
    onnx::NodeProto* n = g->node_size() > 0 ? g->mutable_node(at(g->node_size())) : nullptr;
    if (n != nullptr && below(4) == 0)
        for (onnx::AttributeProto& a : *n->mutable_attribute())
            if (a.has_g() && a.g().node_size() > 0) {
                g = a.mutable_g();
                n = g->mutable_node(at(g->node_size()));
                break;
            }
    switch (below(14)) {
        case 0:
            return g->input_size() > 0 && change(*g->mutable_input(at(g->input_size())));
        case 1:
        case 2:
            return g->initializer_size() > 0 && change(*g->mutable_initializer(at(g->initializer_size())));
        case 3:
            return constant_to_input(*g);
        case 4:
        case 5:
        case 6:
        case 7:
            return n != nullptr && n->attribute_size() > 0 && change(*n->mutable_attribute(at(n->attribute_size())));
        case 8:
            for (onnx::OperatorSetIdProto& set : *m.mutable_opset_import())
                set.set_version(1 + static_cast<int64_t>(below(25)));
            return true;
        default:
            return n != nullptr && change(*g, *n);
    }
}

bool Mutator::change(onnx::GraphProto& g, onnx::NodeProto& n) {
    switch (below(7)) {
        case 0:
            if (n.attribute_size() == 0) return false;
            n.mutable_attribute()->DeleteSubrange(at(n.attribute_size()), 1);
            return true;
        case 1:
            if (n.input_size() == 0) return false;
            n.mutable_input()->DeleteSubrange(at(n.input_size()), 1);
            return true;
        case 2:
            if (n.input_size() == 0) return false;
            n.mutable_input(at(n.input_size()))->clear();
            return true;
        case 3:
            if (n.input_size() == 0) return false;
            n.add_input(n.input(at(n.input_size())));
            n.mutable_input()->SwapElements(at(n.input_size()), n.input_size() - 1);
            return true;
        case 4: {  // another value of the graph
            if (n.input_size() == 0) return false;
            std::string& input = *n.mutable_input(at(n.input_size()));
            const auto& other = g.node(at(g.node_size()));
            if (below(2) == 0 && other.output_size() > 0)
                input = other.output(at(other.output_size()));
            else if (g.input_size() > 0)
                input = g.input(at(g.input_size())).name();
            else
                return false;
            return true;
        }
        case 5:
            if (operators_.empty()) return false;
            n.set_op_type(operators_[below(operators_.size())]);
            return true;
        default:
            n.add_output("more" + std::to_string(below(1000)));
            return true;
    }
}

/// Turns values that are known at compile time into computed ones of a random input.
bool Mutator::constant_to_input(onnx::GraphProto& g) {
    if (g.initializer_size() == 0) return false;
    const int i = at(g.initializer_size());
    const onnx::TensorProto& t = g.initializer(i);
    onnx::ValueInfoProto* v = nullptr;
    for (onnx::ValueInfoProto& input : *g.mutable_input())
        if (input.name() == t.name()) v = &input;
    if (v == nullptr) v = g.add_input();
    v->set_name(t.name());
    auto& type = *v->mutable_type()->mutable_tensor_type();
    type.set_elem_type(t.data_type());
    type.mutable_shape()->clear_dim();
    for (const int64_t d : t.dims()) type.mutable_shape()->add_dim()->set_dim_value(d);
    g.mutable_initializer()->DeleteSubrange(i, 1);
    return true;
}

int64_t Mutator::number() {
    constexpr int64_t kNumbers[] = {0,  1,       -1,        2,         3,         -2,        7,
                                    64, 1 << 20, 1LL << 31, 1LL << 32, 1LL << 40, INT64_MAX, INT64_MIN};
    return kNumbers[below(std::size(kNumbers))];
}

bool Mutator::change(onnx::ValueInfoProto& v) {
    auto& tensor = *v.mutable_type()->mutable_tensor_type();
    auto& shape = *tensor.mutable_shape();
    switch (below(4)) {
        case 0:
            shape.add_dim()->set_dim_value(1 + static_cast<int64_t>(below(4)));
            return true;
        case 1:
            if (shape.dim_size() > 0) shape.mutable_dim()->RemoveLast();
            return true;
        case 2:
            tensor.set_elem_type(element_type());
            return true;
        default:
            if (shape.dim_size() == 0) return false;
            if (below(2) == 0)
                shape.mutable_dim(at(shape.dim_size()))->set_dim_param("open");
            else
                shape.mutable_dim(at(shape.dim_size()))->set_dim_value(static_cast<int64_t>(below(6)));
            return true;
    }
}

bool Mutator::change(onnx::TensorProto& t) {
    switch (below(5)) {
        case 0:
            t.add_dims(1);
            return true;
        case 1:
            if (t.dims_size() == 0) return false;
            t.mutable_dims()->RemoveLast();
            return true;
        case 2:
        case 3:
            return change_value(t);
        default:
            t.set_data_type(element_type());
            return true;
    }
}

bool Mutator::change_value(onnx::TensorProto& t) {
    constexpr float kFloats[] = {0.0f,
                                 -0.0f,
                                 1e-42f,
                                 1e30f,
                                 -1e30f,
                                 std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
    std::string& raw = *t.mutable_raw_data();
    const auto overwrite = [&](const auto value) {
        if (raw.size() < sizeof value) return false;
        raw.replace(below(raw.size() / sizeof value) * sizeof value, sizeof value,
                    reinterpret_cast<const char*>(&value), sizeof value);
        return true;
    };
    if (t.int64_data_size() > 0) {
        t.set_int64_data(at(t.int64_data_size()), number());
        return true;
    }
    if (t.int32_data_size() > 0) {
        t.set_int32_data(at(t.int32_data_size()), static_cast<int32_t>(number()));
        return true;
    }
    if (t.float_data_size() > 0) {
        t.set_float_data(at(t.float_data_size()), kFloats[below(std::size(kFloats))]);
        return true;
    }
    if (t.data_type() == onnx::TensorProto::INT64) return overwrite(number());
    if (t.data_type() == onnx::TensorProto::FLOAT) return overwrite(kFloats[below(std::size(kFloats))]);
    return overwrite(static_cast<char>(below(256)));
}

bool Mutator::change(onnx::AttributeProto& a) {
    switch (a.type()) {
        case onnx::AttributeProto::INT:
            a.set_i(number());
            return true;
        case onnx::AttributeProto::INTS:
            if (a.ints_size() > 0 && below(3) != 0)
                a.set_ints(at(a.ints_size()), number());
            else if (a.ints_size() > 0 && below(2) == 0)
                a.mutable_ints()->RemoveLast();
            else
                a.add_ints(number());
            return true;
        case onnx::AttributeProto::FLOAT:
            a.set_f(below(2) == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN());
            return true;
        case onnx::AttributeProto::STRING:
            a.set_s(below(2) == 0 ? "" : "no such value");
            return true;
        case onnx::AttributeProto::TENSOR:
            return change(*a.mutable_t());
        default:
            a.set_type(onnx::AttributeProto::INT);
            return true;
    }
}

}  // namespace tilewright::tool_test
