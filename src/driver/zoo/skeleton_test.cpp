#include "driver/zoo/skeleton_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "graph/import.h"
#include "onnx/onnx_pb.h"

namespace tilewright::test {

namespace {

/// The marker of a tensor whose contents were left out: "zoo1 role=weight mean=0 std=0.02".
std::map<std::string, std::string> marker_of(const onnx::TensorProto& t) {
    std::istringstream words(t.doc_string());
    std::map<std::string, std::string> out;
    std::string word;
    if (!(words >> word) || word != "zoo1") return out;
    while (words >> word) out.emplace(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    return out;
}

template <class T>
void fill(onnx::TensorProto& t, int64_t count, const std::map<std::string, std::string>& marker) {
    std::string raw(static_cast<size_t>(count) * sizeof(T), '\0');
    T* x = reinterpret_cast<T*>(raw.data());
    const std::string& role = marker.at("role");
    if (role == "tril") {
        const int64_t columns = t.dims(t.dims_size() - 1), rows = t.dims(t.dims_size() - 2);
        for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(i % columns <= i / columns % rows ? 1 : 0);
    } else if (role == "iota") {
        for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(i);
    } else if (role == "constant") {
        std::fill_n(x, count, static_cast<T>(std::stod(marker.at("value"))));
    } else {  // no two weights are equal: equal ones become one
        constexpr int64_t kPeriod = 4093;
        const std::string name = role == "alias" ? marker.at("of") : t.name();
        const size_t salt = std::hash<std::string>()(name) % kPeriod;
        for (int64_t i = 0; i < std::min(count, kPeriod); ++i)
            x[i] = static_cast<T>(0.02 * static_cast<double>((i * i + static_cast<int64_t>(salt)) % 101 - 50) / 50);
        for (int64_t done = kPeriod; done < count; done += kPeriod)
            std::memcpy(x + done, x, static_cast<size_t>(std::min(kPeriod, count - done)) * sizeof(T));
        x[0] = static_cast<T>(static_cast<double>(salt) / kPeriod);
    }
    t.set_raw_data(std::move(raw));
    t.clear_doc_string();
}

void fill(onnx::TensorProto& t) {
    const auto marker = marker_of(t);
    if (marker.empty()) return;
    int64_t count = 1;
    for (const int64_t d : t.dims()) count *= d;
    switch (t.data_type()) {
        case onnx::TensorProto::FLOAT:
            return fill<float>(t, count, marker);
        case onnx::TensorProto::INT64:
            return fill<int64_t>(t, count, marker);
        case onnx::TensorProto::BOOL:
            return fill<uint8_t>(t, count, marker);
        default:
            FAIL() << "a type that no skeleton has: " << t.data_type();
    }
}

}  // namespace

Model from_skeleton(const std::filesystem::path& path) {
    onnx::ModelProto m;
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(m.ParseFromIstream(&in));
    for (onnx::TensorProto& t : *m.mutable_graph()->mutable_initializer()) fill(t);
    for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
        for (onnx::AttributeProto& a : *n.mutable_attribute())
            if (a.has_t()) {
                if (a.t().name().empty()) a.mutable_t()->set_name(n.output(0));
                fill(*a.mutable_t());
            }
    const std::string bytes = m.SerializeAsString();
    return load_model_from_bytes(bytes.data(), bytes.size());
}

}  // namespace tilewright::test
