#include "graph/import_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <optional>

#include "base/error.h"
#include "onnx/onnx_pb.h"

namespace tilewright::import_detail {

namespace {

namespace io = google::protobuf::io;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

class Parser {
  public:
    /// Each nested If is three messages deep (node, attribute, graph); the margin is for the innermost content.
    Parser(io::ZeroCopyInputStream& stream, int64_t size, int max_subgraph_depth)
        : in_(&stream), max_subgraph_depth_(max_subgraph_depth) {
        in_.SetRecursionLimit(3 * max_subgraph_depth + 16);
        if (size >= 0) in_.PushLimit(static_cast<int>(size));
    }

    void model(onnx::ModelProto& out, Budget& budget, const TakeInitializer& take) {
        constexpr uint32_t kGraph = onnx::ModelProto::kGraphFieldNumber;
        constexpr uint32_t kFunctions = onnx::ModelProto::kFunctionsFieldNumber;
        fields(out, [&](uint32_t field) {
            if (field == kGraph) {
                nested([&] { graph(*out.mutable_graph(), budget, take); });
            } else if (field == onnx::ModelProto::kTrainingInfoFieldNumber) {
                const uint32_t size = length();  // training graphs and weights, which inference does not use
                if (!in_.Skip(static_cast<int>(size))) ends_early(size);
            } else if (field == kFunctions) {
                nested([&] { merge(*out.add_functions()); });
            } else {
                return false;
            }
            return true;
        });
    }

    void tensor(onnx::TensorProto& out, const TakeInitializer& take) {
        std::optional<Tensor> raw;
        fields(out, [&](uint32_t field) {
            if (field != onnx::TensorProto::kRawDataFieldNumber) return false;
            const uint32_t size = length();
            raw.emplace(DType::U8, Shape{static_cast<int64_t>(size)}, false);
            if (!in_.ReadRaw(raw->mutable_data(), static_cast<int>(size))) ends_early(size);
            return true;
        });
        take(out, raw ? &*raw : nullptr);
    }

  private:
    void graph(onnx::GraphProto& out, Budget& budget, const TakeInitializer& take) {
        fields(out, [&](uint32_t field) {
            switch (field) {
                case onnx::GraphProto::kNodeFieldNumber:
                    if (out.node_size() >= budget.limits().max_nodes)
                        model_error("the model has more than {} nodes", budget.limits().max_nodes);
                    nested([&] { merge(*out.add_node()); });
                    return true;
                case onnx::GraphProto::kInitializerFieldNumber:
                    nested([&] {
                        onnx::TensorProto one;
                        tensor(one, take);
                    });
                    return true;
                default:
                    return false;
            }
        });
    }

    /// Reads fields up to the end of the message. `take` reads a length-delimited field itself (and returns true) or
    /// leaves it. The fields left are collected and parsed into `out` at the end; protobuf defines this as equivalent.
    template <class Message, class Take>
    void fields(Message& out, Take&& take) {
        std::string rest;
        while (const uint32_t tag = in_.ReadTag()) {
            if ((tag & 7) == kLength && take(tag >> 3)) continue;
            copy_field(tag, rest);
        }
        if (!in_.ConsumedEntireMessage()) damaged();
        if (!out.MergeFromString(rest)) damaged();
    }

    void copy_field(uint32_t tag, std::string& rest) {
        append_varint(tag, rest);
        switch (tag & 7) {
            case kVarint: {
                uint64_t value = 0;
                if (!in_.ReadVarint64(&value)) damaged();
                append_varint(value, rest);
                return;
            }
            case kFixed64:
                return append_bytes(8, rest);
            case kFixed32:
                return append_bytes(4, rest);
            case kLength: {
                const uint32_t size = length();
                append_varint(size, rest);
                return append_bytes(size, rest);
            }
            default:  // groups, which no version of the format uses
                damaged();
        }
    }

    static void append_varint(uint64_t value, std::string& out) {
        for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
        out += static_cast<char>(value);
    }

    void append_bytes(uint32_t size, std::string& out) {
        const size_t before = out.size();
        if (const int left = in_.BytesUntilLimit(); left >= 0 && size > static_cast<uint32_t>(left)) ends_early(size);
        out.resize(before + size);
        if (!in_.ReadRaw(out.data() + before, static_cast<int>(size))) ends_early(size);
    }

    /// A field's length, checked against the remaining bytes of the enclosing message.
    uint32_t length() {
        uint32_t size = 0;
        if (!in_.ReadVarint32(&size)) damaged();
        const int left = in_.BytesUntilLimit();
        if (size > INT32_MAX || (left >= 0 && size > static_cast<uint32_t>(left))) ends_early(size);
        return size;
    }

    template <class F>
    void nested(F&& read) {
        const auto outer = in_.PushLimit(static_cast<int>(length()));
        read();
        if (in_.BytesUntilLimit() != 0) damaged();
        in_.PopLimit(outer);
    }

    template <class Message>
    void merge(Message& out) {
        const int at = in_.CurrentPosition();
        if (!out.MergePartialFromCodedStream(&in_) || !in_.ConsumedEntireMessage())
            model_error("a {} at byte {} is damaged, or nests subgraphs more than {} deep",
                        std::is_same_v<Message, onnx::NodeProto> ? "node" : "function", at, max_subgraph_depth_);
    }

    [[noreturn]] void ends_early(uint32_t wanted) {
        model_error("the file ends early, is damaged, or is not an ONNX model: {} bytes should follow byte {}", wanted,
                    in_.CurrentPosition());
    }

    [[noreturn]] void damaged() {
        model_error("the file is damaged near byte {}, or is not an ONNX model", in_.CurrentPosition());
    }

    io::CodedInputStream in_;
    int max_subgraph_depth_;
};

}  // namespace

void parse_model(io::ZeroCopyInputStream& stream, int64_t size, Budget& budget, onnx::ModelProto& model,
                 const TakeInitializer& take) {
    Parser(stream, size, budget.limits().max_subgraph_depth).model(model, budget, take);
}

void parse_tensor(io::ZeroCopyInputStream& stream, int64_t size, const TakeInitializer& take) {
    onnx::TensorProto tensor;
    Parser(stream, size, 0).tensor(tensor, take);
}

}  // namespace tilewright::import_detail
