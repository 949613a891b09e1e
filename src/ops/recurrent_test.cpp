// LSTM, GRU, RNN against a step-by-step calculation in double precision.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using namespace test;

constexpr int64_t kInput = 3, kHidden = 2, kBatch = 2;

struct Layer {
    std::string op;
    int64_t length = 4, directions = 1, gates = 1;
    bool reverse = false, bias = false, lengths = false, states = false, peepholes = false, reset_after = false;
    bool coupled = false, batch_first = false;
};

Layer random_layer() {
    Layer l;
    l.op = *rc::gen::element<std::string>("LSTM", "GRU", "RNN");
    l.gates = l.op == "LSTM" ? 4 : l.op == "GRU" ? 3 : 1;
    l.length = *rc::gen::inRange<int64_t>(1, 5);
    l.directions = *rc::gen::element<int64_t>(1, 2);
    l.reverse = l.directions == 1 && *rc::gen::arbitrary<bool>();
    l.bias = *rc::gen::arbitrary<bool>();
    l.lengths = *rc::gen::arbitrary<bool>();
    l.states = *rc::gen::arbitrary<bool>();
    l.batch_first = *rc::gen::arbitrary<bool>();
    l.peepholes = l.op == "LSTM" && *rc::gen::arbitrary<bool>();
    l.coupled = l.op == "LSTM" && *rc::gen::arbitrary<bool>();
    l.reset_after = l.op == "GRU" && *rc::gen::arbitrary<bool>();
    return l;
}

Tensor fractions(Shape shape, unsigned seed) {
    Tensor t(DType::F32, std::move(shape));
    std::mt19937 random(seed);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(random() % 1000) / 500.0 - 1);
    return t;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// All inputs, sequence first.
struct Data {
    Tensor x, w, r, b, lengths, h, c, p;
};

Data random_data(const Layer& l) {
    const int64_t d = l.directions, g = l.gates * kHidden;
    return {fractions({l.length, kBatch, kInput}, 1),
            fractions({d, g, kInput}, 2),
            fractions({d, g, kHidden}, 3),
            fractions({d, 2 * g}, 4),
            tensor<int>(DType::I32, {kBatch},
                        {static_cast<int>(l.length), static_cast<int>(std::max<int64_t>(1, l.length - 2))}),
            fractions({d, kBatch, kHidden}, 5),
            fractions({d, kBatch, kHidden}, 6),
            fractions({d, 3 * kHidden}, 7)};
}

/// One example in one direction: y[t][hidden], and the final states.
struct Expected {
    std::vector<std::vector<double>> y;
    std::vector<double> h, c;
};

Expected expected(const Layer& l, const Data& in, int64_t d, int64_t example) {
    const int64_t g = l.gates * kHidden;
    Expected e;
    e.y.assign(static_cast<size_t>(l.length), std::vector<double>(kHidden, 0));
    for (int64_t k = 0; k < kHidden; ++k) {
        e.h.push_back(l.states ? in.h.get((d * kBatch + example) * kHidden + k) : 0);
        e.c.push_back(l.states && l.op == "LSTM" ? in.c.get((d * kBatch + example) * kHidden + k) : 0);
    }
    const int64_t length = l.lengths ? in.lengths.get_int(example) : l.length;
    for (int64_t n = 0; n < length; ++n) {
        const int64_t t = l.reverse || d == 1 ? length - 1 - n : n;
        const auto from_input = [&](int64_t row) {
            double v = l.bias ? in.b.get(d * 2 * g + row) : 0;
            for (int64_t i = 0; i < kInput; ++i)
                v += in.x.get((t * kBatch + example) * kInput + i) * in.w.get((d * g + row) * kInput + i);
            return v;
        };
        const auto from_hidden = [&](int64_t row, const std::vector<double>& h) {
            double v = l.bias ? in.b.get(d * 2 * g + g + row) : 0;
            for (int64_t i = 0; i < kHidden; ++i)
                v += h[static_cast<size_t>(i)] * in.r.get((d * g + row) * kHidden + i);
            return v;
        };
        const auto gate = [&](int64_t which, int64_t k) {
            return from_input(which * kHidden + k) + from_hidden(which * kHidden + k, e.h);
        };
        const auto peep = [&](int64_t which, int64_t k) {
            return l.peepholes ? in.p.get(d * 3 * kHidden + which * kHidden + k) : 0;
        };
        std::vector<double> next(kHidden), reset(kHidden);
        for (int64_t k = 0; k < kHidden && l.op == "GRU"; ++k) reset[static_cast<size_t>(k)] = sigmoid(gate(1, k));
        std::vector<double> scaled = e.h;
        for (size_t k = 0; k < scaled.size(); ++k) scaled[k] *= reset[k];
        for (int64_t k = 0; k < kHidden; ++k) {
            const auto at = static_cast<size_t>(k);
            if (l.op == "RNN") next[at] = std::tanh(gate(0, k));
            if (l.op == "GRU") {
                const double z = sigmoid(gate(0, k)), from_x = from_input(2 * kHidden + k);
                const double inner = l.reset_after ? reset[at] * from_hidden(2 * kHidden + k, e.h)
                                                   : from_hidden(2 * kHidden + k, scaled);
                next[at] = (1 - z) * std::tanh(from_x + inner) + z * e.h[at];
            }
            if (l.op == "LSTM") {
                const double i = sigmoid(gate(0, k) + peep(0, k) * e.c[at]);
                const double f = l.coupled ? 1 - i : sigmoid(gate(2, k) + peep(2, k) * e.c[at]);
                const double o_sum = gate(1, k), candidate = std::tanh(gate(3, k));
                e.c[at] = f * e.c[at] + i * candidate;
                next[at] = sigmoid(o_sum + peep(1, k) * e.c[at]) * std::tanh(e.c[at]);
            }
        }
        e.h = next;
        e.y[static_cast<size_t>(t)] = next;
    }
    return e;
}

/// [a, b, ...] -> [b, a, ...]
Tensor swapped(const Tensor& t) {
    const Shape& s = t.shape();
    Shape out = s;
    std::swap(out[0], out[1]);
    Tensor r(t.dtype(), out);
    const int64_t rest = t.count() / (s[0] * s[1]);
    for (int64_t i = 0; i < t.count(); ++i) {
        const int64_t a = i / rest / s[1], b = i / rest % s[1];
        r.set((b * s[0] + a) * rest + i % rest, t.get(i));
    }
    return r;
}

Program layer_program(const Layer& l, const Data& in, std::vector<Tensor>& passed, bool constant_weights) {
    std::map<std::string, Attribute> attrs = {{"hidden_size", kHidden}, {"layout", int64_t{l.batch_first ? 1 : 0}}};
    attrs["direction"] = std::string(l.directions == 2 ? "bidirectional" : l.reverse ? "reverse" : "forward");
    if (l.coupled) attrs["input_forget"] = int64_t{1};
    if (l.reset_after) attrs["linear_before_reset"] = int64_t{1};
    std::vector<In> declared;
    std::map<std::string, Tensor> held;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, bool there, const Tensor& t, bool weight) {
        names.push_back(there ? name : "");
        if (!there) return;
        if (weight && constant_weights) {
            held[name] = t;
            return;
        }
        declared.push_back({name, t.dtype(), {}});
        for (const int64_t dim : t.shape()) declared.back().shape.emplace_back(dim);
        passed.push_back(t);
    };
    add("x", true, l.batch_first ? swapped(in.x) : in.x, false);
    add("w", true, in.w, true);
    add("r", true, in.r, true);
    add("b", l.bias, in.b, true);
    add("n", l.lengths, in.lengths, false);
    add("h", l.states, l.batch_first ? swapped(in.h) : in.h, false);
    std::vector<std::string> outputs = {"y", "yh"};
    if (l.op == "LSTM") {
        add("c", l.states, l.batch_first ? swapped(in.c) : in.c, false);
        add("p", l.peepholes, in.p, true);
        outputs.push_back("yc");
    }
    return lower(model(graph(declared, {node(l.op, names, outputs, attrs)}, outputs, held), 14));
}

RC_GTEST_PROP(Recurrent, matches_its_equations, ()) {
    const Layer l = random_layer();
    const Data in = random_data(l);
    std::vector<Tensor> passed;
    const Program p = layer_program(l, in, passed, *rc::gen::arbitrary<bool>());
    const auto faults = verify(p);
    RC_ASSERT(faults.empty());
    std::vector<Tensor> out = interpret(p, passed);
    if (l.batch_first) {  // [batch, length, directions, hidden] and [batch, directions, hidden]
        Tensor y(DType::F32, {l.length, l.directions, kBatch, kHidden});
        for (int64_t i = 0; i < y.count(); ++i) {
            const int64_t k = i % kHidden, b = i / kHidden % kBatch, d = i / kHidden / kBatch % l.directions;
            const int64_t t = i / kHidden / kBatch / l.directions;
            y.set(i, out[0].get(((b * l.length + t) * l.directions + d) * kHidden + k));
        }
        RC_ASSERT(out[0].shape() == (Shape{kBatch, l.length, l.directions, kHidden}));
        out[0] = y;
        for (size_t k = 1; k < out.size(); ++k) out[k] = swapped(out[k]);
    }
    RC_ASSERT(out[0].shape() == (Shape{l.length, l.directions, kBatch, kHidden}));
    RC_ASSERT(out[1].shape() == (Shape{l.directions, kBatch, kHidden}));
    for (int64_t d = 0; d < l.directions; ++d)
        for (int64_t b = 0; b < kBatch; ++b) {
            const Expected e = expected(l, in, d, b);
            for (int64_t k = 0; k < kHidden; ++k) {
                const auto at = static_cast<size_t>(k);
                for (int64_t t = 0; t < l.length; ++t) {
                    const double got = out[0].get(((t * l.directions + d) * kBatch + b) * kHidden + k);
                    RC_ASSERT(std::fabs(got - e.y[static_cast<size_t>(t)][at]) < 1e-5);
                }
                RC_ASSERT(std::fabs(out[1].get((d * kBatch + b) * kHidden + k) - e.h[at]) < 1e-5);
                if (l.op == "LSTM") RC_ASSERT(std::fabs(out[2].get((d * kBatch + b) * kHidden + k) - e.c[at]) < 1e-5);
            }
        }
}

TEST(Recurrent, multiplies_the_input_once_for_all_steps_and_the_state_once_per_step) {
    Layer l;
    l.op = "LSTM";
    l.gates = 4;
    l.bias = true;
    std::vector<Tensor> passed;
    const Program p = layer_program(l, random_data(l), passed, true);
    const auto products = [](const Program& q) {
        return std::count_if(q.primitives.begin(), q.primitives.end(),
                             [&](const Primitive& k) { return category(q, k) == Category::Linear; });
    };
    EXPECT_EQ(products(p), 1);
    int loops = 0;
    for (const Primitive& k : p.primitives)
        if (const auto* loop = std::get_if<Loop>(&k.kind)) {
            ++loops;
            EXPECT_EQ(products(*loop->body), 1);
            EXPECT_TRUE(loop->captures.empty()) << "constant weights belong into the body";
        }
    EXPECT_EQ(loops, 1);
}

TEST(Recurrent, of_a_single_step_has_no_loop) {
    Layer l;
    l.op = "GRU";
    l.gates = 3;
    l.length = 1;
    std::vector<Tensor> passed;
    const Program p = layer_program(l, random_data(l), passed, true);
    for (const Primitive& k : p.primitives) EXPECT_NE(k.expr(), nullptr);
}

TEST(Recurrent, keeps_length_and_batch_dynamic) {
    const Program p = lower(
        model(graph({{"x", DType::F32, {"t", "n", kInput}}}, {node("GRU", {"x", "w", "r"}, {"y", "h"})}, {"y", "h"},
                    {{"w", fractions({1, 3 * kHidden, kInput}, 2)}, {"r", fractions({1, 3 * kHidden, kHidden}, 3)}}),
              14));
    EXPECT_TRUE(verify(p).empty()) << verify(p).front();
    const auto out = interpret(p, {fractions({5, 3, kInput}, 1)});
    EXPECT_EQ(out[0].shape(), (Shape{5, 1, 3, kHidden}));
    for (int64_t i = 0; i < out[1].count(); ++i) EXPECT_EQ(out[1].get(i), out[0].get(4 * out[1].count() + i));
}

TEST(Recurrent, supports_other_activations_and_clips_their_inputs) {
    const auto rnn = [](std::map<std::string, Attribute> attrs) {
        return run("RNN", {floats({1, 1, 1}, {3}), floats({1, 1, 1}, {1}), floats({1, 1, 1}, {0})}, std::move(attrs),
                   14)
            .front()
            .get(0);
    };
    const auto names = [](const std::string& n) { return std::vector<std::string>{n}; };
    EXPECT_EQ(rnn({{"activations", names("Relu")}}), 3);
    EXPECT_EQ(rnn({{"activations", names("Affine")},
                   {"activation_alpha", std::vector<float>{2}},
                   {"activation_beta", std::vector<float>{1}}}),
              7);
    EXPECT_EQ(rnn({{"activations", names("ThresholdedRelu")}, {"activation_alpha", std::vector<float>{4}}}), 0);
    EXPECT_EQ(rnn({{"activations", names("relu")}, {"clip", 2.0f}}), 2);
    EXPECT_NEAR(rnn({{"activations", names("Softsign")}}), 0.75, 1e-6);
    EXPECT_THROW(rnn({{"activations", names("Sinus")}}), ModelError);
}

}  // namespace
}  // namespace tilewright
