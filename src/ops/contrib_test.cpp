// The operators of com.microsoft other than the quantised ones against ONNX Runtime's results
// (scripts/contrib_cases.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/contrib_cases_test.h"

namespace tilewright {
namespace {

using test::given;
using test::model_of;
using test::operator_cases;
using test::OperatorCase;
using test::refusal;
using testing::HasSubstr;

std::vector<OperatorCase> all_cases() {
    std::vector<OperatorCase> all = operator_cases("contrib_cases.txt");
    const std::vector<OperatorCase> attention = operator_cases("contrib_attention_cases.txt");
    all.insert(all.end(), attention.begin(), attention.end());
    return all;
}

std::string name_of(const OperatorCase& c, size_t number) {
    std::string s = c.op + " (case " + std::to_string(number) + ")";
    for (const Tensor& t : c.inputs)
        s += test::missing(t) ? " none" : fmt::format(" {}{}", to_string(t.dtype()), to_string(t.shape()));
    return s;
}

void expect_near(const Tensor& y, const Tensor& expected, const std::string& what) {
    ASSERT_EQ(y.dtype(), expected.dtype()) << what;
    ASSERT_EQ(y.shape(), expected.shape()) << what;
    const double tolerance = y.dtype() == DType::F16 ? 2e-3 : 2e-5;
    for (int64_t i = 0; i < y.count(); ++i) {
        const double e = expected.get(i);
        ASSERT_NEAR(y.get(i), e, tolerance * (1 + std::abs(e))) << what << " at " << i;
    }
}

TEST(Contrib, MatchesOnnxRuntime) {
    const std::vector<OperatorCase> all = all_cases();
    ASSERT_GE(all.size(), 100u);
    for (size_t k = 0; k < all.size(); ++k) {
        const OperatorCase& c = all[k];
        const std::string name = name_of(c, k);
        try {
            const Program p = lower(model_of(c));
            EXPECT_EQ(verify(p), std::vector<std::string>()) << name;
            const std::vector<Tensor> y = interpret(p, given(c));
            size_t at = 0;
            for (const auto& [position, expected] : c.outputs)
                expect_near(y.at(at++), expected, name + " output " + std::to_string(position));
        } catch (const std::exception& e) {
            ADD_FAILURE() << name << ": " << e.what();
        }
    }
}

/// Dimensions of inputs that become names, by operator: (input, dimension) -> name.
std::map<std::pair<size_t, size_t>, std::string> dynamic_dimensions(const OperatorCase& c) {
    static const std::map<std::string, std::map<std::pair<size_t, size_t>, std::string>> kNames = {
        {"Attention", {{{0, 0}, "b"}, {{0, 1}, "s"}, {{4, 1}, "b"}, {{4, 3}, "p"}}},
        {"EmbedLayerNormalization", {{{0, 0}, "b"}, {{0, 1}, "s"}, {{1, 0}, "b"}, {{1, 1}, "s"}}},
        {"FusedConv", {{{0, 0}, "b"}, {{0, 2}, "h"}}},
        {"FusedGemm", {{{1, 1}, "n"}}},
        {"GatherBlockQuantized", {{{1, 0}, "s"}}},
        {"GroupQueryAttention",
         {{{0, 0}, "b"},
          {{1, 0}, "b"},
          {{2, 0}, "b"},
          {{3, 0}, "b"},
          {{4, 0}, "b"},
          {{5, 0}, "b"},
          {{0, 1}, "s"},
          {{1, 1}, "s"},
          {{2, 1}, "s"},
          {{3, 2}, "p"},
          {{4, 2}, "p"}}},
        {"MatMulBnb4", {{{0, 0}, "m"}}},
        {"MatMulNBits", {{{0, 0}, "b"}, {{0, 1}, "s"}}},
        {"MultiHeadAttention", {{{0, 0}, "b"}, {{0, 1}, "s"}, {{1, 1}, "t"}, {{6, 2}, "p"}, {{7, 2}, "p"}}},
        {"QAttention", {{{0, 0}, "b"}, {{0, 1}, "s"}}},
        {"RotaryEmbedding", {{{0, 0}, "b"}, {{0, 1}, "s"}, {{1, 1}, "s"}}},
        {"SkipLayerNormalization", {{{0, 0}, "b"}, {{0, 1}, "s"}}},
        {"SkipSimplifiedLayerNormalization", {{{0, 0}, "b"}, {{0, 1}, "s"}}},
    };
    const auto found = kNames.find(c.op);
    return found == kNames.end() ? std::map<std::pair<size_t, size_t>, std::string>() : found->second;
}

TEST(Contrib, DynamicShapesGiveTheSame) {
    size_t tried = 0;
    const std::vector<OperatorCase> all = all_cases();
    for (size_t k = 0; k < all.size(); ++k) {
        const OperatorCase& c = all[k];
        const auto names = dynamic_dimensions(c);
        if (names.empty()) continue;
        if (c.op == "RotaryEmbedding" && c.inputs[0].rank() == 4) continue;  // dimension 1 is a number of heads
        ++tried;
        const std::string name = name_of(c, k);
        try {
            const Program p = lower(model_of(c, names));
            EXPECT_EQ(verify(p), std::vector<std::string>()) << name;
            const std::vector<Tensor> y = interpret(p, given(c));
            size_t at = 0;
            for (const auto& [position, expected] : c.outputs)
                expect_near(y.at(at++), expected, name + " output " + std::to_string(position));
        } catch (const std::exception& e) {
            ADD_FAILURE() << name << ": " << e.what();
        }
    }
    EXPECT_GT(tried, 80u);
}

// --- forms that ONNX Runtime's CPU kernels refuse

Tensor drawn(Shape shape, int seed) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 37 + seed * 11) % 19 - 9) / 8);
    return t;
}

Tensor result(const OperatorCase& c) {
    const Program p = lower(model_of(c));
    EXPECT_EQ(verify(p), std::vector<std::string>()) << c.op;
    return interpret(p, given(c)).front();
}

/// Query, key and value packed as [batch, length, heads, n, size].
TEST(Contrib, PackedHeadsAreThoseOfThreeTensors) {
    const Tensor all = drawn({2, 3, 2, 3, 4}, 1), pair = drawn({2, 3, 2, 2, 4}, 2);
    const auto member = [](const Tensor& packed, int64_t n, int64_t k) {
        Tensor t(DType::F32, {2, 3, 8});
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, packed.get((i / 4 * n + k) * 4 + i % 4));
        return t;
    };
    const std::map<std::string, Attribute> heads = {{"num_heads", int64_t{2}}};
    const Tensor q = member(all, 3, 0);
    expect_near(result({"MultiHeadAttention", heads, {all}, {}}),
                result({"MultiHeadAttention", heads, {q, member(all, 3, 1), member(all, 3, 2)}, {}}), "packed query");
    expect_near(result({"MultiHeadAttention", heads, {q, pair}, {}}),
                result({"MultiHeadAttention", heads, {q, member(pair, 2, 0), member(pair, 2, 1)}, {}}), "packed keys");
}

/// A head's features divided by their root mean square, times weights, before the rotation.
TEST(Contrib, GroupedQueriesAndKeysAreNormalisedByHead) {
    const Tensor weights = drawn({8}, 5), none;
    const auto normalised = [&](const Tensor& x) {
        Tensor y(DType::F32, x.shape());
        for (int64_t i = 0; i < x.count(); i += 8) {
            double squares = 0;
            for (int64_t k = 0; k < 8; ++k) squares += x.get(i + k) * x.get(i + k) / 8;
            for (int64_t k = 0; k < 8; ++k) y.set(i + k, x.get(i + k) / std::sqrt(squares + 0.01) * weights.get(k));
        }
        return y;
    };
    Tensor lengths(DType::I32, {1}), total(DType::I32, {});
    lengths.set(0, int64_t{2});
    total.set(0, int64_t{3});
    const std::map<std::string, Attribute> heads = {{"num_heads", int64_t{2}}, {"kv_num_heads", int64_t{1}}};
    std::map<std::string, Attribute> norm = heads;
    norm["qk_norm_epsilon"] = 0.01F;
    const Tensor q = drawn({1, 3, 16}, 1), k = drawn({1, 3, 8}, 2), v = drawn({1, 3, 8}, 3);
    std::vector<Tensor> inputs = {q, k, v, none, none, lengths, total, none, none, none, none, none, none, none};
    inputs.insert(inputs.end(), {weights, weights});
    expect_near(
        result({"GroupQueryAttention", norm, inputs, {}}),
        result({"GroupQueryAttention", heads, {normalised(q), normalised(k), v, none, none, lengths, total}, {}}),
        "normalised heads");
    inputs.pop_back();
    EXPECT_THAT(refusal({"GroupQueryAttention", norm, inputs, {}}), HasSubstr("(inputs 14 and 15) belong together"));
}

/// Row past + query and the first columns of a mask [batch, 1, n, n] are a mask [batch, query, key].
TEST(Contrib, SquareMasksAreReadBehindThePast) {
    const std::map<std::string, Attribute> attributes = {{"num_heads", int64_t{2}}, {"mask_filter_value", -3.0F}};
    Tensor square(DType::I32, {1, 1, 5, 5}), cut(DType::I32, {1, 3, 4});
    for (int64_t i = 0; i < 25; ++i) square.set(i, i * 7 % 3 == 0 ? int64_t{0} : int64_t{1});
    for (int64_t i = 0; i < 12; ++i) cut.set(i, square.get_int((1 + i / 4) * 5 + i % 4));
    const Tensor x = drawn({1, 3, 4}, 1), w = drawn({4, 12}, 2), bias = drawn({12}, 3),
                 past = drawn({2, 1, 2, 1, 2}, 4);
    expect_near(result({"Attention", attributes, {x, w, bias, square, past}, {}}),
                result({"Attention", attributes, {x, w, bias, cut, past}, {}}), "square mask");
}

TEST(Contrib, ChannelsLastIsATransposition) {
    const Tensor x = drawn({1, 2, 3, 4}, 1), w = drawn({3, 2, 2, 2}, 2), bias = drawn({3}, 3);
    Tensor last(DType::F32, {1, 3, 4, 2}), expected(DType::F32, {1, 2, 3, 3});
    for (int64_t i = 0; i < last.count(); ++i) last.set(i, x.get(i % 2 * 12 + i / 2));
    const std::map<std::string, Attribute> relu = {{"activation", std::string("Relu")}};
    const Tensor y = result({"FusedConv", relu, {x, w, bias}, {}});
    for (int64_t i = 0; i < expected.count(); ++i) expected.set(i, y.get(i % 3 * 6 + i / 3));
    expect_near(result({"NhwcFusedConv", relu, {last, w, bias}, {}}), expected, "NhwcFusedConv");
}

TEST(Contrib, SumsInFrontOfSoftmaxAndDropout) {
    const Tensor x = test::floats({2, 1, 2}, {1, 2, 3, 5}), bias = test::floats({1, 1, 2}, {1, 0});
    const Tensor y = result({"BiasSoftmax", {{"axis", int64_t{2}}, {"is_inner_broadcast", int64_t{0}}}, {x, bias}, {}});
    EXPECT_NEAR(y.get(0), 0.5, 1e-6);
    EXPECT_NEAR(y.get(3), 1 / (1 + std::exp(-1)), 1e-6);
    const Tensor sum = result({"BiasDropout", {}, {x, test::floats({2}, {10, 20}), x}, {}});
    EXPECT_THAT(test::numbers(sum), testing::ElementsAre(12, 24, 16, 30));
}

/// With transB = 0 the weights [N, K] are not transposed.
TEST(Contrib, BnbWeightsWithoutTransposition) {
    Tensor packed(DType::U8, {40}), unit(DType::F32, {4, 4});
    for (int64_t i = 0; i < 40; ++i) packed.set(i, i * 53 % 256);
    for (int64_t i = 0; i < 4; ++i) unit.set(i * 5, 1.0);
    Tensor long_unit(DType::F32, {20, 20});
    for (int64_t i = 0; i < 20; ++i) long_unit.set(i * 21, 1.0);
    const Tensor scales = drawn({5}, 1);
    std::map<std::string, Attribute> attributes = {
        {"K", int64_t{20}}, {"N", int64_t{4}}, {"block_size", int64_t{16}}, {"quant_type", int64_t{1}}};
    const Tensor transposed = result({"MatMulBnb4", attributes, {long_unit, packed, scales}, {}});  // [20, 4]
    attributes["transB"] = int64_t{0};
    const Tensor plain = result({"MatMulBnb4", attributes, {unit, packed, scales}, {}});  // [4, 20]
    for (int64_t i = 0; i < 80; ++i) EXPECT_EQ(plain.get(i), transposed.get(i % 20 * 4 + i / 20));
}

TEST(Contrib, WeightsWithoutElementsAreZero) {
    const std::map<std::string, Attribute> attributes = {
        {"K", int64_t{16}}, {"N", int64_t{2}}, {"block_size", int64_t{16}}};
    const Tensor none(DType::U8, {0, 1, 8}), scales(DType::F32, {0});
    const OperatorCase c = {"MatMulNBits",
                            attributes,
                            {drawn({1, 16}, 1), none, scales, Tensor(), Tensor(), test::floats({2}, {3, 4})},
                            {}};
    EXPECT_THAT(test::numbers(result(c)), testing::ElementsAre(3, 4));
}

// --- refusals

TEST(Contrib, RejectsMismatchesWithNodeAndInput) {
    using Attributes = std::map<std::string, Attribute>;
    const auto n = [](int64_t v) { return Attribute(v); };
    const Tensor x = drawn({2, 3, 8}, 1), v = drawn({8}, 2), w = drawn({8, 24}, 3), none;
    const Tensor ids(DType::I32, {2, 3}), lengths(DType::I32, {2}), total(DType::I32, {});
    const Tensor packed(DType::U8, {3, 1, 8}), scales = drawn({3}, 4), a = drawn({2, 16}, 5);
    const Attributes bits = {{"K", n(16)}, {"N", n(3)}, {"block_size", n(16)}}, heads = {{"num_heads", n(2)}};
    const auto with = [](Attributes all, const std::string& name, Attribute value) {
        all[name] = std::move(value);
        return all;
    };
    const Attributes grouped = {{"num_heads", n(2)}, {"kv_num_heads", n(2)}};
    const std::vector<std::pair<OperatorCase, std::string>> wrong = {
        {{"BiasGelu", {}, {x}, {}}, "input 1 is missing"},
        {{"FastGelu", {}, {x, drawn({3}, 1)}, {}}, "a bias of shape [3] does not fit"},
        {{"Gelu", {}, {ids}, {}}, "input 0 (X) has element type i32"},
        {{"SkipLayerNormalization", {}, {x, drawn({2, 2, 8}, 1), v}, {}}, "a skip input of shape [2, 2, 8]"},
        {{"SkipLayerNormalization", {}, {x, x, drawn({3}, 1)}, {}}, "gamma (input 2) has shape [3]"},
        {{"SkipSimplifiedLayerNormalization", {}, {v, v, v}, {}}, "rank 2 or 3 is expected"},
        {{"EmbedLayerNormalization", {}, {ids, none, v, v, none, v, v}, {}}, "the word embedding (input 2)"},
        {{"EmbedLayerNormalization", {}, {ids, ids, w, w, none, v, v}, {}}, "belong together"},
        {{"MatMulNBits", with(bits, "bits", n(3)), {a, packed, scales}, {}}, "'bits' should be 2, 4 or 8, and is 3"},
        {{"MatMulNBits", with(bits, "block_size", n(24)), {a, packed, scales}, {}}, "a power of 2 from 16 on"},
        {{"MatMulNBits", with(bits, "K", n(int64_t{1} << 40)), {a, packed, scales}, {}},
         "'K' should be from 1 to 2^30"},
        {{"MatMulNBits", with(bits, "N", n(1000000)), {a, packed, scales}, {}}, "the packed weights (input 1)"},
        {{"MatMulNBits", {}, {a, packed, scales}, {}}, "attribute 'N' is missing"},
        {{"MatMulNBits", bits, {x, packed, scales}, {}}, "does not fit 16 rows of weights"},
        {{"MatMulNBits", bits, {a, packed, scales, ids}, {}}, "input 3 (zero_points) has element type i32"},
        {{"MatMulBnb4", with(bits, "quant_type", n(2)), {a, packed, scales}, {}}, "'quant_type' should be 0 or 1"},
        {{"GatherBlockQuantized", {{"quantize_axis", n(0)}}, {packed, ids, scales}, {}},
         "packed data must be gathered"},
        {{"FusedConv", {{"activation", std::string("Cosine")}}, {drawn({1, 1, 4, 4}, 1), drawn({1, 1, 2, 2}, 2)}, {}},
         "the activation function 'Cosine' is unknown"},
        {{"FusedGemm", {{"activation", std::string("Cosine")}}, {w, drawn({24, 2}, 1)}, {}}, "'Cosine' is unknown"},
        {{"Attention", {}, {x, w}, {}}, "'num_heads' should be positive"},
        {{"Attention", with(heads, "num_heads", n(3)), {x, w}, {}}, "8 features do not divide into 3 heads"},
        {{"Attention", with(heads, "do_rotary", n(1)), {x, w}, {}}, "'do_rotary' is not implemented"},
        {{"Attention", with(heads, "qkv_hidden_sizes", std::vector<int64_t>{8, 8, 16}), {x, w}, {}}, "24 features"},
        {{"Attention", heads, {x, w, none, Tensor(DType::I32, {3})}, {}}, "a mask of shape [3] does not fit"},
        {{"Attention", heads, {x, w, none, none, x}, {}}, "past of shape [2, 3, 8]"},
        {{"MultiHeadAttention", heads, {x, x, v}, {}}, "key and value should have one rank"},
        {{"MultiHeadAttention", heads, {x, x, x, v}, {}}, "a bias of shape [8] does not fit"},
        {{"MultiHeadAttention", heads, {x, x, x, none, none, x}, {}}, "an attention bias of shape [2, 3, 8]"},
        {{"RotaryEmbedding", {}, {x, Tensor(DType::I64, {2, 2}), drawn({9, 4}, 1), drawn({9, 4}, 2)}, {}},
         "position_ids of shape [2, 2]"},
        {{"GroupQueryAttention", with(grouped, "kv_num_heads", n(3)), {x, x, x, none, none, lengths, total}, {}},
         "should be a multiple of 'kv_num_heads'"},
        {{"GroupQueryAttention", grouped, {x, x, none, none, none, lengths, total}, {}}, "(inputs 1 and 2) belong"},
        {{"GroupQueryAttention", grouped, {x, x, x, none, none, Tensor(DType::I32, {3}), total}, {}},
         "seqlens_k (input 5) of shape [3]"},
        {{"GroupQueryAttention",
          with(grouped, "sliding_window_cache", n(1)),
          {x, x, x, none, none, lengths, total},
          {}},
         "'sliding_window_cache' is not implemented"},
    };
    for (const auto& [c, message] : wrong) {
        EXPECT_THAT(refusal(c), HasSubstr(message)) << c.op;
        EXPECT_THAT(refusal(c), HasSubstr("(com.microsoft." + c.op)) << c.op;
    }
}

/// Lowering ends with a program or a ModelError; anything else fails the test.
void try_lowering(const OperatorCase& c, const std::string& what) {
    try {
        lower(model_of(c));
    } catch (const ModelError&) {
    } catch (const std::exception& e) {
        ADD_FAILURE() << what << ": " << e.what();
    }
}

TEST(Contrib, HostileAttributesAndShapesAreRefusedOrLowered) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const std::vector<Shape> shapes = {{}, {0}, {1}, {2, 3}, {1, 0, 2}, {2, 3, 8}, {1, 2, 3, 4}, {2, 1, 2, 3, 4}};
    for (const OperatorCase& c : all_cases()) {
        for (const auto& [name, value] : c.attributes) {
            if (!std::holds_alternative<int64_t>(value)) continue;
            for (const int64_t n : {int64_t{-1}, int64_t{0}, int64_t{7}, (int64_t{1} << 31) - 1, int64_t{1} << 40,
                                    int64_t{1} << 61, kMost, -kMost - 1}) {
                OperatorCase changed = c;
                changed.attributes[name] = n;
                try_lowering(changed, fmt::format("{} with {} = {}", c.op, name, n));
            }
        }
        for (size_t k = 0; k < c.inputs.size(); ++k) {
            OperatorCase changed = c;
            changed.inputs[k] = Tensor();
            try_lowering(changed, fmt::format("{} without input {}", c.op, k));
            for (const Shape& shape : shapes) {
                changed.inputs[k] = Tensor(test::missing(c.inputs[k]) ? DType::F32 : c.inputs[k].dtype(), shape);
                try_lowering(changed, fmt::format("{} with input {} of shape {}", c.op, k, to_string(shape)));
            }
        }
    }
}

}  // namespace
}  // namespace tilewright
