// Attentions of whole models on a GPU: how many become one kernel, and of which instructions. Models of the zoo, and
// those of ../shared where it is: skeletons of exported models (fill_weights.py in their folder says how they are
// completed) and models with trained weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "compile/attention_count_test.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"
#include "onnx/onnx_pb.h"

namespace tilewright {
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

/// A model, and what becomes of its attentions in f16, bf16 and tf32.
struct AttentionModel {
    std::string name;
    int attentions;
    int fused;                                 ///< of these, one kernel on matrix instructions
    int in_tf32;                               ///< likewise in tf32
    int warpgroups;                            ///< of these, on warpgroup instructions, at least
    std::map<std::string, int64_t> dims = {};  ///< of dynamic dimensions
};

std::ostream& operator<<(std::ostream& out, const AttentionModel& m) { return out << m.name; }

void expect_fused(const Model& model, const AttentionModel& of) {
    for (const Precision precision : {Precision::F16, Precision::BF16, Precision::TF32}) {
        SCOPED_TRACE(to_string(precision));
        PipelineOptions o;
        o.compile.gpu = h200();
        o.compile.precision = precision;
        o.compile.code = false;
        o.compile.dims = of.dims;
        o.rewrite.reset();  // (they take most of the time)
        const test::AttentionCount found = test::count_attentions(*compile_model(model, o).model);
        EXPECT_EQ(found.fused, precision == Precision::TF32 ? of.in_tf32 : of.fused) << "of " << of.attentions << "\n"
                                                                                     << found.why;
        EXPECT_GE(found.warpgroups, of.warpgroups) << found.why;
    }
}

const std::filesystem::path kShared = std::filesystem::path(TW_SOURCE_DIR) / "../shared/models";

class SuiteAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(SuiteAttentions, AreOneKernelEach) {
    const auto path = kShared / "suite/skeletons" / (GetParam().name + ".onnx");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    expect_fused(from_skeleton(path), GetParam());
}

// (Heads of bert_tiny are 26 numbers wide: no whole units of 16 bytes, and slower in one kernel by estimate. Windows of
// swin_t have 49 rows, of 64 that a warpgroup takes.)
INSTANTIATE_TEST_SUITE_P(All, SuiteAttentions,
                         testing::Values(AttentionModel{"bert_tiny", 4, 0, 0, 0},
                                         AttentionModel{"bert_small", 4, 4, 4, 4},
                                         AttentionModel{"bert_small_dyn", 4, 4, 4, 4, {{"batch", 1}, {"seq", 128}}},
                                         AttentionModel{"vit_b_16", 12, 12, 12, 12},
                                         AttentionModel{"gpt2_small_dyn", 12, 12, 12, 12, {{"batch", 1}, {"seq", 128}}},
                                         AttentionModel{"swin_t", 12, 12, 10, 0},
                                         AttentionModel{"segformer_b0", 8, 8, 8, 8}),
                         [](const auto& test) { return test.param.name; });

class RealAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(RealAttentions, AreOneKernelEach) {
    const auto path = kShared / "real" / GetParam().name / "model.onnx";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    expect_fused(load_model(path), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, RealAttentions, testing::Values(AttentionModel{"vittrack", 3, 3, 3, 3}),
                         [](const auto& test) { return test.param.name; });

class ZooAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(ZooAttentions, AreOneKernelEach) {
    const ZooModel model = build_zoo_model(GetParam().name, 0, {});
    expect_fused(load_model_from_bytes(model.bytes.data(), model.bytes.size()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, ZooAttentions,
                         testing::Values(AttentionModel{"bert_small", 4, 4, 4, 4},
                                         AttentionModel{"vit_tiny_16", 12, 12, 12, 0}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tilewright
