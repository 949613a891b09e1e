// Attention against its definition in double precision; rotary embeddings; linear attention in several calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using namespace test;

Tensor noise(Shape shape, unsigned seed) {
    Tensor t(DType::F32, std::move(shape));
    std::mt19937 random(seed);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(random() % 1000) / 250.0 - 2);
    return t;
}

struct Sizes {
    int64_t batch = 2, kv = 2, group = 1, queries = 3, keys = 4, size = 2, values = 3;
    int64_t heads() const { return kv * group; }
};

enum class Mask { None, Causal, Bool, Float };

/// y[b, h, q, :] by the definition.
std::vector<double> expected(const Sizes& s, const Tensor& q, const Tensor& k, const Tensor& v, Mask kind,
                             const Tensor& mask, double softcap) {
    std::vector<double> y;
    for (int64_t row = 0; row < s.batch * s.heads() * s.queries; ++row) {
        const int64_t b = row / s.queries / s.heads(), h = row / s.queries % s.heads(), at = row % s.queries;
        const int64_t kv = b * s.kv + h / s.group;
        std::vector<double> p;
        double sum = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < s.size; ++d) dot += q.get(row * s.size + d) * k.get((kv * s.keys + j) * s.size + d);
            dot /= std::sqrt(static_cast<double>(s.size));
            if (softcap != 0) dot = softcap * std::tanh(dot / softcap);
            if (kind == Mask::Causal && j > at) dot = -INFINITY;
            if (kind == Mask::Bool && mask.get_int(at * s.keys + j) == 0) dot = -INFINITY;
            if (kind == Mask::Float) dot += mask.get(at * s.keys + j);
            p.push_back(std::exp(dot));
            sum += p.back();
        }
        for (int64_t d = 0; d < s.values; ++d) {
            double out = 0;
            for (int64_t j = 0; j < s.keys; ++j)
                out += p[static_cast<size_t>(j)] * v.get((kv * s.keys + j) * s.values + d);
            y.push_back(sum == 0 ? 0 : out / sum);
        }
    }
    return y;
}

RC_GTEST_PROP(Attention, is_a_softmax_of_products_over_the_values, ()) {
    Sizes s;
    s.kv = *rc::gen::inRange<int64_t>(1, 3);
    s.group = *rc::gen::inRange<int64_t>(1, 4);
    s.queries = *rc::gen::inRange<int64_t>(1, 5);
    s.keys = *rc::gen::inRange<int64_t>(1, 5);
    const Mask kind = *rc::gen::element(Mask::None, Mask::Causal, Mask::Bool, Mask::Float);
    const Tensor q = noise({s.batch, s.heads(), s.queries, s.size}, 1), k = noise({s.batch, s.kv, s.keys, s.size}, 2);
    const Tensor v = noise({s.batch, s.kv, s.keys, s.values}, 3);
    Tensor mask = noise({s.queries, s.keys}, 4);
    if (kind == Mask::Bool) {
        mask = Tensor(DType::Bool, mask.shape());
        for (int64_t i = 0; i < mask.count(); ++i) mask.set(i, *rc::gen::inRange<int64_t>(0, 2));
    }
    const double softcap = *rc::gen::element(0.0, 1.5);
    const std::map<std::string, Attribute> attrs = {{"is_causal", int64_t{kind == Mask::Causal ? 1 : 0}},
                                                    {"softcap", static_cast<float>(softcap)}};
    std::vector<Tensor> in = {q, k, v};
    if (kind == Mask::Bool || kind == Mask::Float) in.push_back(mask);
    const Tensor y = run("Attention", in, attrs, 23).front();
    RC_ASSERT(y.shape() == (Shape{s.batch, s.heads(), s.queries, s.values}));
    const std::vector<double> want = expected(s, q, k, v, kind, mask, softcap);
    for (int64_t i = 0; i < y.count(); ++i) RC_ASSERT(std::fabs(y.get(i) - want[static_cast<size_t>(i)]) < 1e-5);
}

TEST(Attention, with_a_past_continues_the_sequence) {
    // Causal attention over four positions, at once and one position at a time.
    const Tensor x = noise({1, 1, 4, 2}, 5);
    const Tensor all = run("Attention", {x, x, x}, {{"is_causal", int64_t{1}}}, 23).front();
    Tensor keys(DType::F32, {1, 1, 0, 2}), values = keys;
    for (int64_t t = 0; t < 4; ++t) {
        const Tensor now =
            floats({1, 1, 1, 2}, {static_cast<float>(x.get(2 * t)), static_cast<float>(x.get(2 * t + 1))});
        const Program p = lower(model(
            graph({{"x", DType::F32, {1, 1, 1, 2}}, {"pk", DType::F32, {1, 1, t, 2}}, {"pv", DType::F32, {1, 1, t, 2}}},
                  {node("Attention", {"x", "x", "x", "", "pk", "pv"}, {"y", "k", "v"}, {{"is_causal", int64_t{1}}})},
                  {"y", "k", "v"}),
            23));
        const auto out = interpret(p, {now, keys, values});
        EXPECT_NEAR(out[0].get(0), all.get(2 * t), 1e-5);
        EXPECT_NEAR(out[0].get(1), all.get(2 * t + 1), 1e-5);
        keys = out[1];
        values = out[2];
    }
    EXPECT_EQ(keys, x);
}

TEST(Attention, packed_heads_are_the_same_heads) {
    const Tensor x = noise({2, 3, 8}, 6);
    const std::map<std::string, Attribute> heads = {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{4}}};
    const Tensor packed = run("Attention", {x, x, x}, heads, 23).front();
    Tensor split(DType::F32, {2, 4, 3, 2});
    const auto at = [](int64_t b, int64_t h, int64_t t, int64_t d) { return ((b * 4 + h) * 3 + t) * 2 + d; };
    for (int64_t i = 0; i < x.count(); ++i) split.set(at(i / 24, i % 8 / 2, i / 8 % 3, i % 2), x.get(i));
    const Tensor y = run("Attention", {split, split, split}, {}, 23).front();
    ASSERT_EQ(packed.shape(), x.shape());
    for (int64_t i = 0; i < x.count(); ++i) EXPECT_EQ(packed.get(i), y.get(at(i / 24, i % 8 / 2, i / 8 % 3, i % 2)));
}

TEST(Attention, shares_keys_among_query_heads_without_repeating_them) {
    const Program p = lower(model(
        graph({{"q", DType::F32, {3, 6, "s", 4}}, {"k", DType::F32, {3, 2, "t", 4}}, {"v", DType::F32, {3, 2, "t", 4}}},
              {node("Attention", {"q", "k", "v"}, {"y"})}, {"y"}),
        23));
    EXPECT_TRUE(verify(p).empty()) << verify(p).front();
    EXPECT_THAT(primitives(p), HasSubstr("k[i0, i1, i4, i5]"));
}

TEST(RotaryEmbedding, rotates_pairs_of_features) {
    const float c = std::cos(0.5f), s = std::sin(0.5f);
    const Tensor x = floats({1, 1, 1, 4}, {1, 2, 3, 4}), cosines = floats({1, 1, 2}, {c, 1}),
                 sines = floats({1, 1, 2}, {s, 0});
    const Tensor halves = run("RotaryEmbedding", {x, cosines, sines}, {}, 23).front();
    EXPECT_NEAR(halves.get(0), 1 * c - 3 * s, 1e-6);
    EXPECT_NEAR(halves.get(2), 1 * s + 3 * c, 1e-6);
    EXPECT_EQ(halves.get(1), 2);
    const Tensor pairs = run("RotaryEmbedding", {x, cosines, sines}, {{"interleaved", int64_t{1}}}, 23).front();
    EXPECT_NEAR(pairs.get(0), 1 * c - 2 * s, 1e-6);
    EXPECT_NEAR(pairs.get(1), 1 * s + 2 * c, 1e-6);
    EXPECT_EQ(pairs.get(3), 4);
}

/// LinearAttention on positions [from, from + count) of the tensors, with a state.
std::vector<Tensor> linear_piece(const std::string& rule, const std::vector<Tensor>& all, int64_t from, int64_t count,
                                 const Tensor& state) {
    std::vector<In> declared;
    std::vector<Tensor> passed;
    const std::vector<std::string> names = {"q", "k", "v", "s", "g", "b"};
    for (size_t k = 0; k < names.size(); ++k) {
        Tensor t = state;
        if (k != 3) {
            const Tensor& whole_one = all[k < 3 ? k : k - 1];
            const int64_t width = whole_one.shape()[2], length = whole_one.shape()[1];
            t = Tensor(DType::F32, {1, count, width});
            for (int64_t i = 0; i < t.count(); ++i) t.set(i, whole_one.get((from % length) * width + i));
        }
        declared.push_back({names[k], DType::F32, {}});
        for (const int64_t d : t.shape()) declared.back().shape.emplace_back(d);
        passed.push_back(t);
    }
    const std::map<std::string, Attribute> attrs = {
        {"update_rule", rule}, {"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}};
    const Program p =
        lower(model(graph(declared, {node("LinearAttention", names, {"y", "z"}, attrs)}, {"y", "z"}), 27));
    EXPECT_TRUE(verify(p).empty()) << verify(p).front();
    return interpret(p, passed);
}

TEST(LinearAttention, in_several_calls_equals_one_call) {
    const std::vector<Tensor> all = {noise({1, 4, 8}, 1), noise({1, 4, 4}, 2), noise({1, 4, 6}, 3), noise({1, 4, 2}, 4),
                                     noise({1, 4, 2}, 5)};
    const Tensor zero(DType::F32, {1, 2, 2, 3});
    for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
        const auto whole_run = linear_piece(rule, all, 0, 4, zero);
        const auto first = linear_piece(rule, all, 0, 1, zero), rest = linear_piece(rule, all, 1, 3, first[1]);
        ASSERT_EQ(whole_run[0].shape(), (Shape{1, 4, 12})) << rule;
        for (int64_t i = 0; i < 48; ++i) {
            const double got = i < 12 ? first[0].get(i) : rest[0].get(i - 12);
            EXPECT_NEAR(whole_run[0].get(i), got, 1e-4 * (1 + std::fabs(got))) << rule;
        }
    }
}

}  // namespace
}  // namespace tilewright
